"""Small sequences with planted rules, and checks that the tests of all baselines share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tefm.base.errors import MissingExtraError
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences
from tefm.tabular.baselines import TABULAR, BaselineData, fit_baselines
from tefm.tabular.inputs import Features, RecordSlots, sequence_features
from tefm.tabular.learners import PATIENCE, TREES, Chosen, Examples, LearningTask, log_loss

LAYOUT = Layout((Slot("ward", "category", 5), Slot("age", "number", 10), Slot("dx", "flag", 1, "428")))


def records(x_ND: Any, lengths: Any, rows: Any = None) -> RecordSlots:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(starts[-1]) if rows is None else np.asarray(rows)
    return RecordSlots(x_ND, LAYOUT, Sequences(rows, starts))


def features(x_ND: Any) -> Features:
    """Each record as a sequence of its own."""
    return sequence_features(records(x_ND, [1] * len(x_ND)), "last")


def wards(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Records whose wards 2 and 5 are the dangerous ones, so treating wards as ordered says little."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, LAYOUT.sizes_D + 1, size=(n, 3)).astype(np.uint8)
    risk = np.where(np.isin(x[:, 0], (2, 5)), 3.0, -3.0) + 0.2 * (x[:, 1] - 5)
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-risk))).astype(np.int64)


def words(x_ND: Any) -> Any:
    """The records as text."""
    return np.array([f"ward={ward}; age={age}" + "; dx=428" * int(dx) for ward, age, dx in x_ND], dtype=object)


def visits(n: int = 600, seed: int = 0) -> BaselineData:
    """Sequences of three records whose label is decided by the *first* one: the last record has no signal."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, LAYOUT.sizes_D + 1, size=(3 * n, 3)).astype(np.uint8)
    x[:, 2] -= 1
    x[::3, 2] = rng.integers(0, 2, n)
    labels = np.where(x[::3, 2] == 1, "died", "alive").astype(object)
    parts = np.array(["train", "train", "train", "validation", "test"] * (n // 5))
    starts, ids = np.arange(n + 1) * 3, np.array([f"s{i}" for i in range(n)], dtype=object)
    texts = [
        "; ".join(f"{place} {words(x[[row]])[0]}" for place, row in enumerate(range(s, s + 3))) for s in starts[:-1]
    ]
    return BaselineData(x, LAYOUT, Sequences(np.arange(3 * n), starts, ids, labels, starts[1:]), labels, parts, texts)


def evaluate_baselines(
    data: BaselineData, models: Sequence[str] = tuple(TABULAR), **settings: Any
) -> dict[str, dict[str, Any]]:
    """The figures of baselines, by name."""
    fitted = fit_baselines(data, {name: TABULAR[name] for name in models}, **settings)
    return {name: compared.figures for name, compared in fitted.items()}


@dataclass(frozen=True)
class Fit:
    """A baseline's fit, and how it is given records of which each is a sequence."""

    fit: Callable[[Any, Any, LearningTask], Chosen]
    read: Callable[[Any], Any] = features

    def __call__(self, task: LearningTask, *parts: tuple[Any, Any]) -> Chosen:
        train, validation = (Examples(self.read(x), y) for x, y in parts)
        return self.fit(train, validation, task)


def check_learns_what_was_planted(model: Fit) -> None:
    train, validation, (tx, ty) = (wards(n, seed) for seed, n in enumerate((800, 200, 1_000)))
    inputs = model.read(tx)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a user sees none of the libraries' warnings
        p = (chosen := model(LearningTask(2, device="cpu", steps=60), train, validation)).predict_proba(inputs)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == ty).mean() > 0.9
    assert chosen.settings in [{k: v for k, v in t.items() if k not in ("auroc", "log_loss")} for t in chosen.tried]
    again = model(LearningTask(2, device="cpu", steps=60), train, validation)
    np.testing.assert_array_equal(again.predict_proba(inputs), p)


def check_a_class_that_training_lacks_has_no_probability(model: Fit) -> None:
    x, y = wards(400)
    labels = np.where(y == 1, 2, 0)
    labels[-5:] = 1  # in validation alone
    chosen = model(LearningTask(4, device="cpu", steps=60), (x[:300], labels[:300]), (x[300:], labels[300:]))
    p = chosen.predict_proba(model.read(x))
    assert p.shape == (400, 4)
    assert not p[:, [1, 3]].any()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    trained = labels != 1
    assert (p.argmax(axis=1) == labels)[trained].mean() > 0.85


def check_trees_stop_when_validation_says_so(model: Fit) -> None:
    (x, y), (vx, vy) = wards(300), wards(200, 1)
    chosen = model(LearningTask(2), (x, y), (vx, vy))
    assert all(0 < tried["trees"] < TREES - PATIENCE for tried in chosen.tried)
    noise = model(LearningTask(2), (x, y), (vx, np.random.default_rng(0).integers(0, 2, 200)))
    assert sum(tried["trees"] for tried in noise.tried) < sum(tried["trees"] for tried in chosen.tried)


def check_categories_matter(model: Fit, *, loss_share: float | None = None) -> None:
    """Wards 2 and 5 are not neighbours: a line cannot separate them from the others, and a tree needs more cuts."""
    (x, y), (vx, vy) = wards(800), wards(200, 1)
    unordered, ordered = (
        model.fit(Examples(Features(x, kinds), y), Examples(Features(vx, kinds), vy), LearningTask(2))
        for kinds in (("category", "number", "flag"), ("number", "number", "flag"))
    )
    assert (unordered.validation_NQ != ordered.validation_NQ).any()
    if loss_share is not None:
        assert log_loss(unordered.validation_NQ, vy) < loss_share * log_loss(ordered.validation_NQ, vy)


def check_package_is_named(monkeypatch: pytest.MonkeyPatch, model: Fit, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    x, y = wards(50)
    with pytest.raises(MissingExtraError, match=rf"pip install 'tefm\[{extra}\]'"):
        model(LearningTask(2), (x, y), (x, y))


def check_test_labels_change_only_test_scores(evaluate: Callable[..., dict[str, Any]], name: str) -> None:
    data = visits(300)
    swapped = np.where(data.labels == "died", "alive", "died")
    swapped = np.where(data.parts == "test", swapped, data.labels).astype(object)
    results: list[dict[str, Any]] = []
    for labels in (data.labels, swapped):
        changed = replace(data, labels=labels)
        results.append(evaluate(changed, models=(name,), kinds=("flat",), resamples=0, device="cpu", steps=60)[name])
    right, wrong = (result.pop("test")["auroc"]["value"] for result in results)
    for result in results:
        result.pop("test_calibrated")
        result.pop("seconds")
    assert results[0] == results[1]
    assert wrong == pytest.approx(1 - right)
