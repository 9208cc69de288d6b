"""The paper's baselines on planted data, and what they do without their packages."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from support import planted
from support.planted import LAYOUT, Fit, features, records, wards, words
from tefm_bench.baselines import set_transformer, xgboost
from tefm_bench.baselines.majority import fit_majority
from tefm_bench.baselines.set_transformer import fit_set_transformer
from tefm_bench.baselines.tabpfn import fit_tabpfn
from tefm_bench.baselines.tfidf import fit_tfidf
from tefm_bench.baselines.xgboost import fit_xgboost

from tefm.base.errors import InputError, MissingExtraError
from tefm.tabular.learners import Examples, LearningTask

pytestmark = pytest.mark.all

MODELS = {
    "tfidf": Fit(fit_tfidf, words),
    "xgboost": Fit(fit_xgboost),
    "set-transformer": Fit(fit_set_transformer, lambda x: records(x, [1] * len(x))),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings each."""
    monkeypatch.setattr(set_transformer, "DROPOUTS", (0.1,))
    monkeypatch.setattr(xgboost, "RATES", (0.1,))
    monkeypatch.setattr(xgboost, "DEPTHS", (4, 3))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_what_was_planted(name: str) -> None:
    planted.check_learns_what_was_planted(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_a_class_that_training_lacks_has_no_probability(name: str) -> None:
    planted.check_a_class_that_training_lacks_has_no_probability(MODELS[name])


def test_trees_stop_when_validation_says_so() -> None:
    planted.check_trees_stop_when_validation_says_so(MODELS["xgboost"])


def test_categories_matter() -> None:
    planted.check_categories_matter(MODELS["xgboost"])


def test_majority_gives_the_base_rate() -> None:
    train, validation = Examples([""] * 10, np.array([0] * 3 + [2] * 7)), Examples([""] * 2, np.array([0, 1]))
    p = fit_majority(train, validation, LearningTask(3)).predict_proba([""] * 5)
    np.testing.assert_allclose(p, [[0.3, 0, 0.7]] * 5)


def test_texts_without_words(explained: Explained) -> None:
    empty = Examples(np.array(["", ""], dtype=object), np.array([0, 1]))
    explained(InputError, lambda: fit_tfidf(empty, empty, LearningTask(2)), "no word", "2 training texts")


# ---- the set transformer --------------------------------------------------------------------------------------------


def histories(n: int, seed: int) -> Examples[Any]:
    """Two to four records; the label is whether the flag is on in the last record but one."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 5, n)
    x = rng.integers(0, LAYOUT.sizes_D + 1, size=(lengths.sum(), 3)).astype(np.uint8)
    sequences = records(x, lengths)
    return Examples(sequences, x[sequences.sequences.starts[1:] - 2, 2].astype(np.int64))


def test_the_place_of_a_record_is_chosen_where_it_matters() -> None:
    test = histories(300, 2)
    chosen = fit_set_transformer(histories(1_500, 0), histories(300, 1), LearningTask(2, device="cpu", steps=200))
    assert chosen.settings["place"]
    assert (chosen.predict_proba(test.inputs).argmax(axis=1) == test.labels_N).mean() > 0.95


def test_without_a_place_order_does_not_matter_and_neighbours_never_do() -> None:
    import torch

    torch.manual_seed(0)
    network = set_transformer.SetTransformer(LAYOUT, 2, place=False, dropout=0.1)
    x, _ = wards(6)
    cpu = torch.device("cpu")
    together = set_transformer._logits(network, records(x, [4, 2]), cpu)
    shuffled = set_transformer._logits(network, records(x, [4, 2], rows=[2, 0, 3, 1, 5, 4]), cpu)
    alone = set_transformer._logits(network, records(x, [2], rows=[4, 5]), cpu)
    torch.testing.assert_close(shuffled, together)
    torch.testing.assert_close(alone, together[1:])


# ---- absent packages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fit", "package", "extra"), [(fit_xgboost, "xgboost", "baselines"), (fit_tabpfn, "tabpfn", "tabpfn")]
)
def test_without_its_package(monkeypatch: pytest.MonkeyPatch, fit: Any, package: str, extra: str) -> None:
    planted.check_package_is_named(monkeypatch, Fit(fit), package, extra)


def test_the_set_transformer_needs_arrays_and_torch_alone() -> None:
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "pyarrow", "yaml", "lightgbm", "xgboost", "tabpfn"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Absent())
import numpy as np
from tefm_bench.baselines.compare import BaselineData, evaluate_baselines
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

x = np.random.default_rng(0).integers(0, 2, size=(90, 1)).astype(np.uint8)
data = BaselineData(
    x, Layout((Slot("dx", "flag", 1),)), Sequences(np.arange(90), np.arange(91)),
    np.where(x[:, 0], "a", "b").astype(object), np.tile(["train", "validation", "test"], 30),
)
models = ("majority", "set-transformer", "xgboost")
results = evaluate_baselines(data, models=models, resamples=0, device="cpu", steps=20, skip_missing=True)
assert list(results) == ["majority", "set-transformer"], results
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- TabPFN, of which only the interface is tested ------------------------------------------------------------------


def stand_in(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None, classes: int = 10) -> list[Any]:
    """A `tabpfn` with the documented constructor, `fit` and `predict_proba`; it keeps what it was given."""
    from sklearn.naive_bayes import GaussianNB

    classifiers: list[Any] = []

    class TabPFNClassifier:
        def __init__(
            self,
            *,
            n_estimators: int = 8,
            categorical_features_indices: Any = None,
            average_before_softmax: bool = False,
            device: str = "auto",
            ignore_pretraining_limits: bool = False,
            random_state: int | None = 0,
        ) -> None:
            self.bayes = GaussianNB()
            self.batches: list[int] = []
            classifiers.append((self, n_estimators, categorical_features_indices, ignore_pretraining_limits, device))

        def fit(self, x: Any, y: Any) -> Any:
            if failure is not None:
                raise failure
            if len(np.unique(y)) > classes:
                raise ValueError("Number of classes exceeds the maximal number of classes.\nMore about it.")
            assert x.dtype == np.float32
            self.bayes.fit(x, y)
            return self

        def predict_proba(self, x: Any) -> Any:
            self.batches.append(len(x))
            return self.bayes.predict_proba(x).astype(np.float32)

    module: Any = types.ModuleType("tabpfn")
    module.TabPFNClassifier = TabPFNClassifier
    monkeypatch.setitem(sys.modules, "tabpfn", module)
    return classifiers


def test_tabpfn_is_called_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    classifiers = stand_in(monkeypatch)
    (x, y), (vx, vy) = wards(300), wards(700, 1)
    chosen = fit_tabpfn(Examples(features(x), y), Examples(features(vx), vy), LearningTask(3, device="cpu"))
    np.testing.assert_allclose(chosen.predict_proba(features(vx)).sum(axis=1), 1)
    assert chosen.predict_proba(features(vx)).shape == (700, 3)
    assert len(chosen.tried) == 4
    for _, members, categories, unlimited, device in classifiers[
        1:
    ]:  # the first one only checks that there are weights
        assert (members in (4, 16), categories, unlimited, device) == (True, [0], True, "cpu")
    assert classifiers[1][0].batches[:2] == [512, 188]


@pytest.mark.parametrize("failure", [RuntimeError("Failed to download model!\nlong advice"), OSError(), Exception("?")])
def test_tabpfn_without_weights(monkeypatch: pytest.MonkeyPatch, explained: Explained, failure: Exception) -> None:
    stand_in(monkeypatch, failure)
    x, y = wards(50)
    examples = Examples(features(x), y)
    error = explained(
        MissingExtraError,
        lambda: fit_tabpfn(examples, examples, LearningTask(2)),
        "weights of TabPFN are missing",
        "licence",
    )
    assert "\n" not in error.problem


def test_tabpfn_with_too_many_classes(monkeypatch: pytest.MonkeyPatch, explained: Explained) -> None:
    stand_in(monkeypatch, classes=2)
    x, _ = wards(50)
    examples = Examples(features(x), np.arange(50) % 3)
    explained(
        InputError, lambda: fit_tabpfn(examples, examples, LearningTask(3)), "3 classes: Number of classes", "leave"
    )
