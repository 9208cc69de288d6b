"""Methods that name features, and the figures of their comparison, on models whose rule is known."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tefm_bench.anchors import anchor
from tefm_bench.attribution import kernel_values
from tefm_bench.explanations import Judge, bootstrap, summary
from tefm_bench.feature_lists import (
    ANCHORS,
    GREEDY,
    METHODS,
    OURS,
    SHAP,
    SIZES,
    Effort,
    Subject,
    ask,
    by_score,
    first_sets,
    log_odds,
    name_features,
)
from tefm_bench.label_counts import Counts

from tefm.explain.population import Population
from tefm.explain.slot_features import Feature, features_of, keep_of
from tefm.model.estimator import TEFM
from tefm.rationale.masked_model import MaskedModel
from tefm.scoring.calibration import Calibration
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

pytestmark = pytest.mark.all

LAYOUT = Layout(tuple(Slot(f"f{number}", "category", 4) for number in range(6)))


def records(count: int, seed: int = 0) -> Sequences:
    x_ND = np.random.default_rng(seed).integers(1, 5, (count, 6)).astype(np.uint8)
    return Sequences(x_ND, np.arange(count + 1))


def model_of(*deciding: int) -> MaskedModel:
    """Answers 1 where all of these fields are above 2."""

    def logits(slots: Sequences) -> Any:
        return np.log(np.where((slots.last[:, deciding] > 2).all(axis=1)[:, None], [0.1, 0.9], [0.9, 0.1]))

    return MaskedModel(logits, Calibration())


def population_of(model: MaskedModel, count: int = 600) -> Population:
    slots = records(count, seed=1)
    p_SQ = model(slots)
    return Population(slots, model.decide(p_SQ), p_SQ, model.decide(p_SQ))


# ---- sets of each size ------------------------------------------------------------------------------------------


def test_sets_of_each_size_have_the_first_features() -> None:
    whole = Feature(0, (3, 4, 5), absent=True)
    ordered = [Feature(0, (0,)), whole, Feature(0, (3,)), Feature(0, (1,))]
    sets = first_sets(ordered)
    assert sets[1] == (ordered[0],) and sets[3] == (ordered[0], whole, ordered[3]), "a part of a feature says no more"
    assert sets[5] == sets[10] == sets[3] and first_sets([]) == dict.fromkeys(SIZES, ())


def test_the_best_scores_come_first_of_all_records() -> None:
    x_TD = np.array([[1, 2, 0, 4, 1, 1], [1, 1, 1, 1, 1, 1]])
    scores_TD = np.arange(12.0).reshape(2, 6)
    ordered = by_score(x_TD, scores_TD, LAYOUT)
    assert [(f.record, f.slots[0]) for f in ordered[:2]] == [(1, 5), (1, 4)] and len(ordered) == 15


# ---- methods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deciding", [(2,), (1, 4)])
def test_anchors_find_the_deciding_fields(deciding: tuple[int, ...]) -> None:
    pytest.importorskip("anchor")
    model = model_of(*deciding)
    donors = population_of(model)
    one = Sequences(np.array([[1, 4, 3, 1, 4, 2]], dtype=np.uint8), np.array([0, 1]))
    features = features_of(one.x_ND, LAYOUT)
    found, cut = anchor(model, donors, one, 1, features, np.arange(600), most=20_000, size=10, seed=0)
    assert {feature.slots[0] for feature in found} == set(deciding) and not cut
    again, _ = anchor(model, donors, one, 1, features, np.arange(600), most=20_000, size=10, seed=0)
    assert again == found
    some, cut = anchor(model, donors, one, 1, features, np.arange(600), most=400, size=10, seed=0)
    assert cut and len(some) <= 10, "it may not ask any longer"


def test_kernel_shap_finds_the_weights_of_a_sum() -> None:
    weights = np.array([0.0, 0.3, -0.2, 0.1, 0.0, 0.0])
    values = kernel_values(lambda kept_CF: kept_CF @ weights, 6, 200, 3, 0)
    assert values == pytest.approx(weights, abs=1e-6)


@given(st.data())
def test_counts_are_those_of_a_plain_loop(data: st.DataObject) -> None:
    layout = Layout((Slot("ward", "category", 3), Slot("dx", "flag", 1, "a")))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(1, 4, 12)
    x_ND = np.stack([rng.integers(0, 4, lengths.sum()), rng.integers(0, 2, lengths.sum())], axis=1).astype(np.uint8)
    slots = Sequences(x_ND, np.concatenate([[0], np.cumsum(lengths)]))
    labels = rng.integers(-1, 2, 12)
    counts = Counts.of(slots, labels, layout, 2)
    for slot, value, of_class in ((0, 0, 1), (0, 3, 0), (1, 1, 1)):
        known = [(slots[i], label) for i, label in enumerate(labels) if label >= 0]
        has = [(x[-1, slot] == value, label == of_class) for x, label in known]
        last = counts.observed(slot, value, of_class, last=True)
        assert (last.having, last.having_class) == (sum(h for h, _ in has), sum(h and c for h, c in has))
        assert (last.others, last.others_class) == (sum(not h for h, _ in has), sum(not h and c for h, c in has))
        earlier = [((x[:-1, slot] == value).any(), label == of_class) for x, label in known if len(x) > 1]
        before = counts.observed(slot, value, of_class, last=False)
        assert (before.having, before.having_class) == (sum(h for h, _ in earlier), sum(h and c for h, c in earlier))
        assert before.others == sum(not h for h, _ in earlier)


def test_several_sets_are_asked_as_each_alone() -> None:
    model = model_of(0)
    donors, one = population_of(model), records(1)
    keep_CTD = np.stack([keep_of([Feature(0, (number,))], (1, 6)) for number in range(3)])
    together = ask(model, donors, one, keep_CTD, np.arange(7))
    for keep_TD, p_BQ in zip(keep_CTD, together, strict=True):
        assert (p_BQ == model(donors.look_alikes(one, keep_TD, np.arange(7)))).all()


# ---- figures ----------------------------------------------------------------------------------------------------


def test_explaining_the_same_sequences_again_does_not_narrow_an_interval() -> None:
    gain_SK = np.random.default_rng(0).normal(0.1, 1, (60, 2))
    once = np.array(bootstrap(gain_SK, np.arange(60), 2_000))
    thrice = np.array(bootstrap(np.tile(gain_SK, (3, 1)), np.tile(np.arange(60), 3), 2_000))
    others = np.array(bootstrap(np.tile(gain_SK, (3, 1)), np.arange(180), 2_000))
    assert once == pytest.approx(thrice)
    assert (once[0] < gain_SK.mean(axis=0)).all() and (gain_SK.mean(axis=0) < once[1]).all()
    assert (others[1] - others[0] < 0.7 * (once[1] - once[0])).all()


def test_a_summary_counts_the_smallest_set_that_passes() -> None:
    method = {
        "sequences": [0, 1],
        "sizes": [[1, 3, 5, 9], [1, 2, 2, 2]],
        "same": [[100, 150, 198, 200], [90, 90, 90, 90]],
        "of": [[200] * 4] * 2,
        "coverage": [[0.5, 0.2, 0.1, 0.0]] * 2,
        "flips": [[0.0, 0.0, 0.5, 1.0]] * 2,
        "questions": [10, 20],
        "seconds": [1.0, 3.0],
    }
    figures = {"methods": {SHAP: method}}
    values = summary(figures, SHAP)
    assert (values["verified"], values["size"], values["coverage"]) == (0.5, 5, 0.1)
    assert values["precision_1"] == pytest.approx(0.475) and values["precision_10"] == pytest.approx(0.725)
    assert (values["questions"], values["seconds"], values["flips_5"]) == (15, 2.0, 0.5)
    assert summary(figures, ANCHORS) == {"sequences": 0}, "its library is missing"


# ---- everything on a fitted model -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def subject(fitted: TEFM) -> Subject:
    model, parts = fitted.fitted, fitted.fitted.look_alikes
    assert parts is not None
    population = parts.population
    slots = population.slots.select(np.arange(4))
    effort = Effort(
        queried=1,
        samples=16,
        kernel_samples=16,
        anchor_questions=300,
        greedy_donors=2,
        masks={"surrogate_steps": 5, "epochs": 1, "questions": 40},
    )
    return Subject(
        model,
        slots,
        population.p_SQ[:4],
        population.answers_S[:4],
        population.select(np.arange(4, len(population), 2)),
        population.slots,
        population.labels_S,
        0,
        effort,
    )


def test_the_log_odds_table_is_that_of_the_counts(subject: Subject) -> None:
    scores_ND = log_odds(subject, subject.slots)
    cases, last = subject.parts.cases, int(subject.slots.starts[1]) - 1
    counts = Counts.of(cases.slots, cases.labels_S, subject.layout, 2)
    slot, answer = 0, int(subject.answers_S[0])
    seen = counts.observed(slot, int(subject.slots.x_ND[last, slot]), answer, last=True)
    total, of_class = counts.total_Q.sum(), counts.total_Q[answer]
    expected = np.log((seen.having_class + 0.5) / (seen.having - seen.having_class + 0.5))
    assert scores_ND[last, slot] == pytest.approx(expected - np.log((of_class + 0.5) / (total - of_class + 0.5)))


@pytest.mark.slow
def test_every_method_names_features_and_is_judged(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anchor-exp, its line says so, and the others are measured."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "anchor":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("tefm_bench.attribution.import_module", lambda name: without(name, fromlist=["x"]))
    named, _, missing = name_features(subject)
    assert set(missing) == {ANCHORS} and "pip install --no-deps anchor-exp" in missing[ANCHORS]
    assert set(named) == set(METHODS) - {ANCHORS}
    assert len(named[GREEDY]) == 1 and named[GREEDY][0].questions > 0
    for name, found in named.items():
        assert [of.number for of in found] == list(range(len(found))) and found, name
        for of in found:
            assert all(len(of.sets[size]) <= size for size in SIZES), name
    judge = Judge(
        subject.fitted.masked_model(),
        subject.parts.population.select(np.arange(5, len(subject.parts.population), 2)),
        subject.parts.population,
        subject.slots,
        subject.answers_S,
        subject.effort.model_copy(update={"donors": 20}),
    )
    judged = judge.judged(named[OURS])
    assert np.array(judged["same"]).shape == (4, len(SIZES)) and np.array(judged["of"]).max() <= 20
