"""What baselines read, by hand; each model on planted data; what they do without their packages."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from planted import LAYOUT, records, wards, words

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.baselines import boosted, set_transformer
from tefm.baselines.boosted import PATIENCE, TREES, fit_lightgbm, fit_xgboost
from tefm.baselines.choice import Chosen, Examples, Fitted, Task, choose, log_loss
from tefm.baselines.inputs import Features, records_of, sequence_features
from tefm.baselines.linear import fit_logistic, fit_tfidf
from tefm.baselines.majority import fit_majority
from tefm.baselines.set_transformer import fit_set_transformer
from tefm.baselines.tabpfn import fit_tabpfn

# ---- inputs ---------------------------------------------------------------------------------------------------------


def test_features_by_hand() -> None:
    x = np.array([[5, 10, 1], [1, 2, 0], [3, 4, 0]], dtype=np.uint8)
    sequences = records(x, [2, 1], rows=[2, 0, 1])  # records 2 then 0, and record 1
    assert sequence_features(sequences, "last").x_NF.tolist() == [[5, 10, 1], [1, 2, 0]]
    history = sequence_features(sequences, "history")
    np.testing.assert_allclose(history.x_NF, [[5, 10, 1, 0.8, 0.7, 0.5, 2], [1, 2, 0, 0.2, 0.2, 0, 1]], rtol=1e-6)
    assert history.kinds == ("category", "number", "flag", *["number"] * 4)
    flat = sequence_features(sequences, "flat")
    assert flat.x_NF.tolist() == [[3, 4, 0, 5, 10, 1], [0, 0, 0, 1, 2, 0]]
    assert flat.kinds == ("category", "number", "flag") * 2
    assert flat.of_kind("category") == [0, 3]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_features_are_those_of_each_sequence_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, LAYOUT.sizes_D + 1, size=(sum(lengths) + 3, 3)).astype(np.uint8)
    sequences = records(x, lengths, rows=rng.permutation(len(x))[: sum(lengths)])
    last, history, flat = (sequence_features(sequences, kind).x_NF for kind in ("last", "history", "flat"))
    for i in range(len(sequences)):
        alone = sequences[np.array([i])]
        of_one = x[alone.rows]
        np.testing.assert_array_equal(alone.rows, sequences.rows[sequences.starts[i] : sequences.starts[i + 1]])
        np.testing.assert_array_equal(alone.from_end, np.arange(len(of_one))[::-1])
        np.testing.assert_array_equal(last[i], of_one[-1])
        np.testing.assert_allclose(history[i, 3:6], (of_one / LAYOUT.sizes_D).mean(axis=0), rtol=1e-5)
        assert history[i, -1] == len(of_one)
        padding, kept = np.split(flat[i], [(max(lengths) - len(of_one)) * 3])
        assert not padding.any()
        np.testing.assert_array_equal(kept.reshape(-1, 3), of_one)


def test_inputs_that_do_not_fit(explained: Explained) -> None:
    x, _ = wards(4)
    explained(InputError, lambda: records_of(x[:, :2], records(x, [4]), LAYOUT), "2 slots, not 3")
    wrong: Any = "lasst"
    explained(SettingsError, lambda: sequence_features(records(x, [4]), wrong), "'lasst'", "history")


# ---- the choice -----------------------------------------------------------------------------------------------------


def says(*p: float, classes: int = 2) -> Fitted:
    """A model that says this about the positive class."""
    return Fitted(lambda inputs: np.column_stack([1 - np.array(p), p]), np.array([0, 1]), classes)


def test_two_classes_are_chosen_by_auroc_and_more_by_log_loss() -> None:
    validation = Examples([""] * 3, np.array([0, 1, 1]))
    ranks_well, is_sure = says(0.1, 0.2, 0.3), says(0.6, 0.5, 0.99)
    candidates = [(is_sure, {"which": "sure"}), (ranks_well, {"which": "ranks"})]
    assert choose(candidates, validation, Task(2)).settings == {"which": "ranks"}
    assert choose(candidates, validation, Task(2, positive=0)).settings == {"which": "ranks"}
    sure, ranks = (says(*p, classes=3) for p in ((0.6, 0.5, 0.99), (0.1, 0.2, 0.3)))
    chosen = choose([(ranks, {"which": "ranks"}), (sure, {"which": "sure"})], validation, Task(3))
    assert chosen.settings == {"which": "sure"}
    assert [tried["which"] for tried in chosen.tried] == ["ranks", "sure"]
    one_class = Examples([""] * 3, np.array([1, 1, 1]))
    got = choose(candidates, one_class, Task(2))
    assert got.settings == {"which": "sure"}
    assert got.tried[0]["auroc"] is None


# ---- every model ----------------------------------------------------------------------------------------------------


def rows(x: Any) -> Features:
    return sequence_features(records(x, [1] * len(x)), "last")


MODELS = {
    "tfidf": (fit_tfidf, words),
    "logistic": (fit_logistic, rows),
    "lightgbm": (fit_lightgbm, rows),
    "xgboost": (fit_xgboost, rows),
    "set-transformer": (fit_set_transformer, lambda x: records(x, [1] * len(x))),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings each."""
    monkeypatch.setattr(set_transformer, "DROPOUTS", (0.1,))
    monkeypatch.setattr(boosted, "RATES", (0.1,))
    monkeypatch.setattr(boosted, "LEAVES", (15, 7))
    monkeypatch.setattr(boosted, "DEPTHS", (4, 3))


def fitted(name: str, task: Task, *parts: tuple[Any, Any]) -> Chosen:
    fit: Any
    fit, read = MODELS[name]
    train, validation = (Examples(read(x), y) for x, y in parts)
    chosen: Chosen = fit(train, validation, task)
    return chosen


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_what_was_planted(name: str) -> None:
    train, validation, (tx, ty) = (wards(n, seed) for seed, n in enumerate((800, 200, 1_000)))
    read = MODELS[name][1](tx)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a user sees none of the libraries' warnings
        p = (chosen := fitted(name, Task(2, device="cpu", steps=60), train, validation)).predict_proba(read)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == ty).mean() > 0.9
    assert chosen.settings in [{k: v for k, v in t.items() if k not in ("auroc", "log_loss")} for t in chosen.tried]
    again = fitted(name, Task(2, device="cpu", steps=60), train, validation)
    np.testing.assert_array_equal(again.predict_proba(read), p)


@pytest.mark.parametrize("name", MODELS)
def test_a_class_that_training_lacks_has_no_probability(name: str) -> None:
    x, y = wards(400)
    labels = np.where(y == 1, 2, 0)
    labels[-5:] = 1  # in validation alone
    chosen = fitted(name, Task(4, device="cpu", steps=60), (x[:300], labels[:300]), (x[300:], labels[300:]))
    p = chosen.predict_proba(MODELS[name][1](x))
    assert p.shape == (400, 4)
    assert not p[:, [1, 3]].any()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    known = labels != 1
    assert (p.argmax(axis=1) == labels)[known].mean() > 0.85


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_trees_stop_when_validation_says_so(name: str) -> None:
    (x, y), (vx, vy) = wards(300), wards(200, 1)
    chosen = fitted(name, Task(2), (x, y), (vx, vy))
    assert all(0 < tried["trees"] < TREES - PATIENCE for tried in chosen.tried)
    noise = fitted(name, Task(2), (x, y), (vx, np.random.default_rng(0).integers(0, 2, 200)))
    assert sum(tried["trees"] for tried in noise.tried) < sum(tried["trees"] for tried in chosen.tried)


@pytest.mark.parametrize("name", ["logistic", "xgboost"])
def test_categories_need_to_be_told(name: str) -> None:
    """Wards 2 and 5 are not next to each other: a line cannot part them from the others, and a tree needs more cuts."""
    (x, y), (vx, vy) = wards(800), wards(200, 1)
    fit: Any = MODELS[name][0]
    told, untold = (
        fit(Examples(Features(x, kinds), y), Examples(Features(vx, kinds), vy), Task(2))
        for kinds in (("category", "number", "flag"), ("number", "number", "flag"))
    )
    assert (told.validation_NQ != untold.validation_NQ).any()
    if name == "logistic":
        assert log_loss(told.validation_NQ, vy) < 0.7 * log_loss(untold.validation_NQ, vy)


def test_majority_gives_the_base_rate() -> None:
    train, validation = Examples([""] * 10, np.array([0] * 3 + [2] * 7)), Examples([""] * 2, np.array([0, 1]))
    p = fit_majority(train, validation, Task(3)).predict_proba([""] * 5)
    np.testing.assert_allclose(p, [[0.3, 0, 0.7]] * 5)


def test_texts_without_words(explained: Explained) -> None:
    empty = Examples(np.array(["", ""], dtype=object), np.array([0, 1]))
    explained(InputError, lambda: fit_tfidf(empty, empty, Task(2)), "no word", "2 training texts")


# ---- the set transformer --------------------------------------------------------------------------------------------


def histories(n: int, seed: int) -> Examples[Any]:
    """Two to four records; the label is whether the flag is on in the last record but one."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 5, n)
    x = rng.integers(0, LAYOUT.sizes_D + 1, size=(lengths.sum(), 3)).astype(np.uint8)
    of = records(x, lengths)
    return Examples(of, x[of.starts[1:] - 2, 2].astype(np.int64))


def test_the_place_of_a_record_is_chosen_where_it_matters() -> None:
    test = histories(300, 2)
    chosen = fit_set_transformer(histories(1_500, 0), histories(300, 1), Task(2, device="cpu", steps=200))
    assert chosen.settings["place"]
    assert (chosen.predict_proba(test.inputs).argmax(axis=1) == test.labels_N).mean() > 0.95


def test_without_a_place_order_says_nothing_and_neighbours_never_do() -> None:
    import torch

    torch.manual_seed(0)
    network = set_transformer.SetTransformer(LAYOUT, 2, place=False, dropout=0.1)
    x, _ = wards(6)
    cpu = torch.device("cpu")
    together = set_transformer._logits(network, records(x, [4, 2]), cpu)
    turned = set_transformer._logits(network, records(x, [4, 2], rows=[2, 0, 3, 1, 5, 4]), cpu)
    alone = set_transformer._logits(network, records(x, [2], rows=[4, 5]), cpu)
    torch.testing.assert_close(turned, together)
    torch.testing.assert_close(alone, together[1:])


# ---- absent packages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fit", "package", "extra"),
    [(fit_lightgbm, "lightgbm", "baselines"), (fit_xgboost, "xgboost", "baselines"), (fit_tabpfn, "tabpfn", "tabpfn")],
)
def test_without_its_package(monkeypatch: pytest.MonkeyPatch, fit: Any, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    x, y = wards(50)
    with pytest.raises(MissingExtraError, match=rf"pip install 'tefm\[{extra}\]'"):
        fit(Examples(rows(x), y), Examples(rows(x), y), Task(2))


def test_the_set_transformer_needs_arrays_and_torch_alone() -> None:
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "pyarrow", "yaml", "lightgbm", "xgboost", "tabpfn"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Absent())
from types import SimpleNamespace
import numpy as np
from tefm.baselines import boosted, set_transformer
from tefm.baselines.compare import BaselineData, evaluate_baselines
from tefm.records.layout import Layout, Slot

set_transformer.STEPS = 20
x = np.random.default_rng(0).integers(0, 2, size=(90, 1)).astype(np.uint8)
data = BaselineData(
    x, Layout((Slot("dx", "flag", 1),)), SimpleNamespace(rows=np.arange(90), starts=np.arange(91)),
    np.where(x[:, 0], "a", "b").astype(object), np.tile(["train", "validation", "test"], 30),
)
models = ("majority", "set-transformer", "xgboost")
got = evaluate_baselines(data, models=models, resamples=0, device="cpu", skip_missing=True)
assert list(got) == ["majority", "set-transformer"], got
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- TabPFN, of which only the interface is here --------------------------------------------------------------------


def stand_in(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None, classes: int = 10) -> list[Any]:
    """A `tabpfn` with the documented constructor, `fit` and `predict_proba`; it notes what it was given."""
    from sklearn.naive_bayes import GaussianNB

    made: list[Any] = []

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
            self.asked: list[int] = []
            made.append((self, n_estimators, categorical_features_indices, ignore_pretraining_limits, device))

        def fit(self, x: Any, y: Any) -> Any:
            if failure is not None:
                raise failure
            if len(np.unique(y)) > classes:
                raise ValueError("Number of classes exceeds the maximal number of classes.\nMore about it.")
            assert x.dtype == np.float32
            self.bayes.fit(x, y)
            return self

        def predict_proba(self, x: Any) -> Any:
            self.asked.append(len(x))
            return self.bayes.predict_proba(x).astype(np.float32)

    module: Any = types.ModuleType("tabpfn")
    module.TabPFNClassifier = TabPFNClassifier
    monkeypatch.setitem(sys.modules, "tabpfn", module)
    return made


def test_tabpfn_is_called_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in(monkeypatch)
    (x, y), (vx, vy) = wards(300), wards(700, 1)
    chosen = fit_tabpfn(Examples(rows(x), y), Examples(rows(vx), vy), Task(3, device="cpu"))
    np.testing.assert_allclose(chosen.predict_proba(rows(vx)).sum(axis=1), 1)
    assert chosen.predict_proba(rows(vx)).shape == (700, 3)
    assert len(chosen.tried) == 4
    for _, members, categories, unlimited, device in made[1:]:  # the first one only asks for the weights
        assert (members in (4, 16), categories, unlimited, device) == (True, [0], True, "cpu")
    assert made[1][0].asked[:2] == [512, 188]


@pytest.mark.parametrize("failure", [RuntimeError("Failed to download model!\nlong advice"), OSError(), Exception("?")])
def test_tabpfn_without_weights(monkeypatch: pytest.MonkeyPatch, explained: Explained, failure: Exception) -> None:
    stand_in(monkeypatch, failure)
    x, y = wards(50)
    examples = Examples(rows(x), y)
    error = explained(MissingExtraError, lambda: fit_tabpfn(examples, examples, Task(2)), "no weights", "licence")
    assert "\n" not in error.problem


def test_tabpfn_with_too_many_classes(monkeypatch: pytest.MonkeyPatch, explained: Explained) -> None:
    stand_in(monkeypatch, classes=2)
    x, _ = wards(50)
    examples = Examples(rows(x), np.arange(50) % 3)
    explained(InputError, lambda: fit_tabpfn(examples, examples, Task(3)), "3 classes: Number of classes", "leave")
