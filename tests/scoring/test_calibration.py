"""Known temperatures are recovered, thresholds move only for a reason, and calibrations survive a round trip."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.scoring.calibration import Calibration

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
    f1 = Calibration.fit(logits[fit], labels[fit], objective="macro_f1")
    assert f1.threshold is not None and 0.5 < f1.threshold < got.threshold  # macro F1 wants the positives found
    assert Calibration.fit(logits[fit], labels[fit], objective="none").threshold is None


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


# ---- keeping and refusing -------------------------------------------------------------------------------------------


def test_there_and_back() -> None:
    for calibration in (Calibration(), Calibration.fit(*answers(200, bias=1.0), positive=0)):
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
