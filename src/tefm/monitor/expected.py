"""What the probabilities of a model say about a batch without labels: how good it should be, which classes it has.

`expected` is confidence-based performance estimation (CBPE): calibrated probabilities say how often an answer is
right, so they say what accuracy and AUROC to expect. It assumes that the relation between records and labels has not
changed. `class_shares` is the EM estimate of Saerens et al. (2002): the class shares under which the probabilities,
adjusted for them, agree with themselves. It assumes that the records of a class are as they were.

Shapes: S sequences, Q classes, R draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.monitor.observe import SequenceAnswers
from tefm.scoring.metrics import auroc
from tefm.scoring.weighted import Interval, ranked_classes

Floats = NDArray[np.float64]

#: Draws of labels for an interval, and the sequences that they are drawn for, at most.
DRAWS, DRAWN = 200, 5_000
#: EM ends when no share moves by more than this, or after this many rounds.
STILL, ROUNDS = 1e-7, 1_000
#: No class share is estimated below this: a class with none at all could never come back.
LEAST = 1e-6


@dataclass(frozen=True)
class Expected:
    """How good the answers to some sequences should be, by the model's own probabilities.

    The intervals hold what labels would show in 95% of such batches, if the probabilities are right.
    """

    accuracy: Interval
    auroc: Interval


def expected(p_SQ: Floats, predicted_S: NDArray[np.int64], *, positive: int, seed: int = 0) -> Expected:
    """Accuracy and AUROC without labels; of more than two classes, the mean AUROC of one against the rest.

    >>> p_SQ = np.array([[0.9, 0.1], [0.2, 0.8]] * 50)
    >>> estimate = expected(p_SQ, p_SQ.argmax(axis=1), positive=1)
    >>> round(estimate.accuracy.value, 2), round(estimate.auroc.value, 2)
    (0.85, 0.86)
    """
    ranked = ranked_classes(p_SQ.shape[1], positive)
    right_S = p_SQ[np.arange(len(p_SQ)), predicted_S]
    values = {
        "accuracy": [float(right_S.mean())],
        "auroc": [_mean([expected_auroc(p_SQ[:, q]) for q in ranked])],
    }
    rng = np.random.default_rng(seed)
    ends_SQ = p_SQ.cumsum(axis=1)
    for _ in range(DRAWS):
        drawn = rng.integers(len(p_SQ), size=min(len(p_SQ), DRAWN))
        labels = (rng.random(len(drawn))[:, None] > ends_SQ[drawn]).sum(axis=1).clip(max=p_SQ.shape[1] - 1)
        values["accuracy"].append(float((predicted_S[drawn] == labels).mean()))
        values["auroc"].append(_mean([auroc(p_SQ[drawn, q], labels == q) for q in ranked]))
    # fewer are drawn than there are: the interval is narrower in truth
    narrower = np.sqrt(min(1.0, DRAWN / len(p_SQ)))
    spread = {name: np.array(of[:1] + [of[0] + narrower * (x - of[0]) for x in of[1:]]) for name, of in values.items()}
    return Expected(Interval.of(spread["accuracy"]), Interval.of(spread["auroc"]))


def _mean(areas: list[float]) -> float:
    """The mean over the classes that occur."""
    return float(np.mean([area for area in areas if area == area] or [np.nan]))


def expected_auroc(p_S: Floats) -> float:
    """The AUROC to expect of a score that is the probability of being positive; a tie counts half.

    >>> round(expected_auroc(np.array([0.0, 0.0, 1.0])), 2), round(expected_auroc(np.full(10, 0.3)), 2)
    (1.0, 0.5)
    """
    # each sequence once as a positive and once as a negative
    area = auroc(np.tile(p_S, 2), np.repeat([True, False], len(p_S)), np.concatenate([p_S, 1 - p_S]))
    itself = float((p_S * (1 - p_S)).sum())  # nobody is compared with itself
    pairs = float(p_S.sum() * (1 - p_S).sum())
    return (area * pairs - itself / 2) / (pairs - itself) if pairs > itself else float("nan")


@dataclass(frozen=True)
class ClassShares:
    """Estimated class shares with their standard errors."""

    shares: tuple[float, ...]
    errors: tuple[float, ...]


def class_shares(p_SQ: Floats, prior: Sequence[float]) -> ClassShares:
    """The class shares of some sequences, without labels; `prior` are the shares that the probabilities are about.

    >>> rng = np.random.default_rng(0)
    >>> label_S = rng.random(20_000) < 0.3
    >>> x_S = rng.normal(2.0 * label_S)
    >>> p_S = 1 / (1 + np.exp(2 - 2 * x_S))  # right where both classes are equally frequent
    >>> round(class_shares(np.stack([1 - p_S, p_S], axis=1), (0.5, 0.5)).shares[1], 1)
    0.3
    """
    prior_Q = np.maximum(np.asarray(prior, dtype=np.float64), LEAST)
    ratio_SQ = p_SQ / prior_Q
    share_Q = prior_Q / prior_Q.sum()
    for _ in range(ROUNDS):
        before_Q, share_Q = share_Q, np.maximum(reweighted(p_SQ, share_Q / prior_Q).mean(axis=0), LEAST)
        share_Q = share_Q / share_Q.sum()
        if np.abs(share_Q - before_Q).max() < STILL:
            break
    # the Fisher information of the shares, the last of which follows from the others
    slope_SQ = (ratio_SQ[:, :-1] - ratio_SQ[:, -1:]) / (ratio_SQ @ share_Q)[:, None]
    covariance = np.linalg.pinv(slope_SQ.T @ slope_SQ)
    errors = [*np.sqrt(np.maximum(np.diag(covariance), 0.0)), np.sqrt(max(covariance.sum(), 0.0))]
    return ClassShares(tuple(share_Q.tolist()), tuple(float(error) for error in errors))


def shares_of(parts: Sequence[SequenceAnswers], prior: Sequence[float]) -> list[ClassShares]:
    """The class shares of each part: of its labels where most sequences of all parts have one, otherwise estimated."""
    if all((answers.label_S >= 0).mean() > 0.5 for answers in parts):
        return [_label_shares(answers.label_S, len(prior)) for answers in parts]
    return [class_shares(answers.p_SQ, prior) for answers in parts]


def _label_shares(label_S: NDArray[np.int64], classes: int) -> ClassShares:
    label_S = label_S[label_S >= 0]
    counts_Q = np.bincount(label_S, minlength=classes)
    share_Q, cautious_Q = np.maximum(counts_Q / len(label_S), LEAST), (counts_Q + 1) / (len(label_S) + 2)
    errors_Q = np.sqrt(cautious_Q * (1 - cautious_Q) / len(label_S))
    return ClassShares(tuple(share_Q.tolist()), tuple(errors_Q.tolist()))


def reweighted(p_SQ: Floats, weight_Q: NDArray[Any]) -> Floats:
    """Probabilities for other class shares: each class counts `weight_Q` times as much."""
    weighted_SQ = p_SQ * weight_Q
    scaled_SQ: Floats = weighted_SQ / weighted_SQ.sum(axis=1, keepdims=True)
    return scaled_SQ
