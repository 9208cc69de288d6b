"""Known temperatures and biases are recovered, decisions do what they are for, calibrations survive a round trip."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import get_args

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.scoring.calibration import Calibration, prior_shift
from tefm.scoring.decision import Decision, Rule, one_answer
from tefm.scoring.metrics import score

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def answers(n: int, *, seed: int = 0, temperature: float = 1.0, bias: float = 0.0) -> tuple[Floats, Numbers]:
    """Binary logits `temperature` times too large and off by `bias`, and labels drawn from the true ones."""
    rng = np.random.default_rng(seed)
    true_N = rng.normal(scale=2.0, size=n)
    labels = (rng.uniform(size=n) < 1 / (1 + np.exp(-true_N))).astype(np.int64)
    logits_N = temperature * true_N + bias
    return np.stack([np.zeros(n), logits_N], axis=1), labels


def accuracy(calibration: Calibration, logits: Floats, labels: Numbers) -> float:
    return float((calibration.predict(calibration.probabilities(logits)) == labels).mean())


# ---- temperature ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_a_known_temperature_is_found(temperature: float) -> None:
    logits, labels = answers(5_000, temperature=temperature)
    assert Calibration.fit(logits, labels).temperature == pytest.approx(temperature, rel=0.1)


def test_a_known_temperature_of_several_classes() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(scale=2.0, size=(5_000, 4))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    got = Calibration.fit(3 * true, labels)
    assert got.temperature == pytest.approx(3, rel=0.1)
    assert got.threshold is None
    np.testing.assert_array_equal(got.predict(got.probabilities(3 * true)), true.argmax(axis=1))


def test_too_little_to_learn_from() -> None:
    logits, labels = answers(5_000, temperature=4.0, bias=4.0)
    assert Calibration.fit(logits[:19], labels[:19]) == Calibration()
    assert Calibration.fit(logits, np.ones_like(labels)) == Calibration()
    between = Calibration.fit(logits[:49], labels[:49])
    assert between.temperature != 1.0 and between.threshold is None


def test_answers_that_are_all_right_do_not_make_certain() -> None:
    logits = np.where(np.arange(100)[:, None] % 2, [0.0, 1.0], [1.0, 0.0])
    got = Calibration.fit(logits, np.arange(100) % 2)
    assert got.temperature == 1.0
    assert got.threshold == pytest.approx(0.5)


@given(st.lists(st.tuples(*[st.floats(-1e4, 1e4)] * 3), min_size=1, max_size=9), st.floats(0.05, 20))
def test_probabilities_add_up(logits: list[tuple[float, ...]], temperature: float) -> None:
    p = Calibration(temperature).probabilities(np.array(logits))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p >= 0).all()


# ---- threshold ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(50, 400), st.integers(0, 2**32 - 1), st.floats(-3, 3), st.sampled_from([0, 1]), st.booleans())
def test_no_worse_than_one_half(n: int, seed: int, bias: float, positive: int, coarse: bool) -> None:
    """On the validation sequences themselves, by more than one standard error."""
    logits, labels = answers(n, seed=seed, bias=bias)
    logits = logits.round() if coarse else logits
    got = Calibration.fit(logits, labels, positive=positive)
    plain = accuracy(Calibration(got.temperature), logits, labels)
    assert accuracy(got, logits, labels) >= plain - math.sqrt(0.25 / n) - 1e-9


def test_a_threshold_that_is_clearly_wrong_moves() -> None:
    """Learned on balanced classes, used where one in ten is positive: one half cries wolf."""
    rng = np.random.default_rng(0)
    labels = (rng.uniform(size=2_000) < 0.1).astype(np.int64)
    log_odds = rng.normal(loc=np.where(labels == 1, 1.0, -1.0), scale=1.0) * 2  # right for as many of either class
    logits = np.stack([np.zeros(2_000), log_odds], axis=1)
    fit, judge = slice(0, 1_000), slice(1_000, None)
    got = Calibration.fit(logits[fit], labels[fit])
    assert got.threshold is not None and got.threshold > 0.6
    assert accuracy(got, logits[judge], labels[judge]) > accuracy(Calibration(), logits[judge], labels[judge]) + 0.03
    f1 = Calibration.fit(logits[fit], labels[fit], decision=Decision("f1"))
    assert f1.threshold is not None and f1.threshold < got.threshold  # F1 wants the positives found


def test_noise_does_not_move_it() -> None:
    """Of calibrated answers one half is best; the best threshold of 100 sequences is often far from it."""
    thresholds = [Calibration.fit(*answers(100, seed=seed)).threshold for seed in range(40)]
    assert np.mean([threshold == 0.5 for threshold in thresholds]) > 0.7


def test_the_first_class_can_be_the_positive_one() -> None:
    logits, labels = answers(500, bias=4.0)
    first, second = (Calibration.fit(logits, labels, positive=c) for c in (0, 1))
    assert first.threshold is not None and second.threshold is not None and second.threshold > 0.6
    assert first.threshold == pytest.approx(1 - second.threshold)
    p = first.probabilities(logits)
    np.testing.assert_array_equal(first.predict(p), second.predict(p))


def test_certain_probabilities() -> None:
    """0 and 1 leave no room below and above them."""
    logits = np.where(np.arange(60)[:, None] % 2, [0.0, 1e6], [1e6, 0.0])
    labels = np.arange(60) % 2
    labels[:3] = 1 - labels[:3]
    got = Calibration.fit(logits, labels)
    assert got.threshold == pytest.approx(0.5)
    assert accuracy(got, logits, labels) == 57 / 60


# ---- bias -----------------------------------------------------------------------------------------------------------


def rare_answers(n: int, share: float, *, seed: int = 0) -> tuple[Floats, Numbers]:
    """Logits that are right where both classes are as frequent, and labels of which only a share is positive."""
    rng = np.random.default_rng(seed)
    labels = (rng.uniform(size=n) < share).astype(np.int64)
    log_odds = rng.normal(loc=np.where(labels == 1, 1.0, -1.0), scale=1.0) * 2
    return np.stack([np.zeros(n), log_odds], axis=1), labels


@pytest.mark.parametrize("share", [0.02, 0.1, 0.9])
def test_probabilities_learned_on_balanced_classes_become_those_of_the_population(share: float) -> None:
    shift = prior_shift((0.5, 0.5), (1 - share, share))
    got = Calibration.fit(*rare_answers(4_000, share), shift=shift)
    logits, labels = rare_answers(20_000, share, seed=1)
    p = got.probabilities(logits)
    assert p[:, 1].mean() == pytest.approx(share, rel=0.15)
    assert abs(Calibration().probabilities(logits)[:, 1].mean() - share) > 0.1
    assert score(p, labels, ("no", "yes"), resamples=0).ece.value < 0.01


def test_with_few_positives_the_shares_decide() -> None:
    """Two of a hundred are positive, by chance none or five: the bias stays near the one that the shares imply."""
    shift = prior_shift((0.5, 0.5), (0.98, 0.02))
    expected = shift[1] - shift[0]
    for seed in range(10):
        got = Calibration.fit(*rare_answers(100, 0.02, seed=seed), shift=shift)
        assert got.bias[1] - got.bias[0] == pytest.approx(expected, abs=1.0)
    off = Calibration.fit(*rare_answers(50_000, 0.2), shift=shift)  # the shares are wrong, and many sequences say so
    assert off.bias[1] - off.bias[0] == pytest.approx(math.log(0.2 / 0.8), abs=0.1)
    assert Calibration.fit(*rare_answers(10, 0.5), shift=shift).bias == shift


@settings(max_examples=40)
@given(st.integers(60, 300), st.integers(0, 2**32 - 1), st.floats(0.03, 0.97), st.sampled_from(["accuracy", "f1"]))
def test_calibration_never_changes_the_ranking(n: int, seed: int, share: float, rule: Rule) -> None:
    logits, labels = rare_answers(n, share, seed=seed)
    got = Calibration.fit(logits, labels, decision=Decision(rule), shift=prior_shift((0.5, 0.5), (1 - share, share)))
    p = got.probabilities(logits)[:, 1]
    order = np.argsort(logits[:, 1])
    assert (np.diff(p[order]) >= 0).all()
    assert len(np.unique(p)) == n  # nor makes ties


def test_shares_of_classes_that_one_side_lacks() -> None:
    assert prior_shift((0.5, 0.5, 0.0), (0.5, 0.25, 0.25)) == pytest.approx((0.0, math.log(0.5), 0.0))


# ---- decisions ------------------------------------------------------------------------------------------------------


def decided(decision: Decision, *, share: float = 0.1) -> Numbers:
    """Predictions for the sequences of `rare_answers(…, seed=1)`, decided as learned from others."""
    shift = prior_shift((0.5, 0.5), (1 - share, share))
    got = Calibration.fit(*rare_answers(4_000, share), decision=decision, shift=shift)
    assert got.rule == decision.rule
    return got.predict(got.probabilities(rare_answers(4_000, share, seed=1)[0]))


def test_each_decision_is_best_at_what_it_is_for() -> None:
    _, labels = rare_answers(4_000, 0.1, seed=1)
    costs = np.array([1.0, 20.0])
    measures: dict[str, Callable[[Numbers], float]] = {
        "accuracy": lambda predicted: accuracy_score(labels, predicted),
        "f1": lambda predicted: f1_score(labels, predicted),
        "balanced": lambda predicted: balanced_accuracy_score(labels, predicted),
        "cost": lambda predicted: -costs[labels][predicted != labels].sum(),
    }
    predicted = {rule: decided(Decision(rule, (1.0, 20.0) if rule == "cost" else ())) for rule in get_args(Rule)}
    for rule, measure in measures.items():
        values = {other: measure(predicted[other]) for other in predicted}
        assert max(values, key=lambda other: values[other]) == rule, (rule, values)


def test_a_decision_by_cost_needs_no_validation() -> None:
    nobody = np.zeros((0, 2)), np.zeros(0, dtype=np.int64)
    assert Calibration.fit(*nobody, decision=Decision("cost", (1.0, 3.0))).threshold == 0.25
    assert Calibration.fit(*nobody, decision=Decision("cost", (1.0, 3.0)), positive=0).threshold == 0.75
    assert Calibration.fit(*nobody, decision=Decision("f1")).threshold is None


def several(n: int, seed: int = 0) -> tuple[Floats, Numbers]:
    """Three classes, of which the last is rare and hardly ever the most probable."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=n, p=[0.6, 0.36, 0.04])
    return np.log([0.6, 0.36, 0.04]) + rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[labels], labels


@pytest.mark.parametrize(("rule", "measure"), [("f1", partial(f1_score, average="macro")),
                                              ("balanced", balanced_accuracy_score)])  # fmt: skip
def test_weights_of_several_classes(rule: Rule, measure: Callable[..., float]) -> None:
    plain, got = (Calibration.fit(*several(3_000), decision=Decision(chosen)) for chosen in ("accuracy", rule))
    assert plain.weights == () and got.weights[2] == max(got.weights) == 1.0
    logits, labels = several(3_000, seed=1)
    values = [measure(labels, c.predict(c.probabilities(logits))) for c in (plain, got)]
    assert values[1] > values[0] + 0.03
    np.testing.assert_array_equal(plain.probabilities(logits), got.probabilities(logits))


def test_costs_of_several_classes() -> None:
    logits, labels = several(500)
    got = Calibration.fit(logits, labels, decision=Decision("cost", (1.0, 1.0, 1e9)))
    assert (got.predict(got.probabilities(logits)) == 2).all()


def test_one_answer_for_everyone_says_what_helps() -> None:
    for rule, remedy in (("accuracy", "decision: f1"), ("f1", "tell the classes apart"), ("cost", "raise the cost")):
        (warning,) = one_answer(np.array([0, 60]), ("no", "yes"), rule)
        assert "“yes” for all 60 sequences" in warning and remedy in warning
    assert one_answer(np.array([0, 0]), ("no", "yes"), "accuracy") == []


# ---- keeping and refusing -------------------------------------------------------------------------------------------


def test_there_and_back() -> None:
    shifted = Calibration.fit(*rare_answers(200, 0.2), shift=(0.5, -1.0), decision=Decision("f1"))
    weighted = Calibration.fit(*several(200), decision=Decision("balanced"))
    for calibration in (Calibration(), Calibration.fit(*answers(200, bias=1.0), positive=0), shifted, weighted):
        assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_what_is_refused(explained: Explained) -> None:
    logits, labels = answers(60)
    explained(ArtefactError, lambda: Calibration.from_dict({"temperatur": 1.0}), "threshold", "temperatur")
    explained(SettingsError, lambda: Calibration(temperature=0.0), "above 0")
    explained(SettingsError, lambda: Calibration(threshold=1.5), "1.5")
    explained(InputError, lambda: Calibration.fit(logits, labels[1:]), "60", "59")
    explained(InputError, lambda: Calibration().probabilities(logits[:, :1]), "(60, 1)")
    explained(InputError, lambda: Calibration(threshold=0.4).predict(np.full((2, 3), 1 / 3)), "two classes, not 3")
    logits[2, 1] = math.nan
    explained(InputError, lambda: Calibration.fit(logits, labels), "1 of 60", "learning rate")
