"""Predictions in detail: by class, by group, by predicted probability, and at every threshold (ROC, precision–recall).

The results are plain numbers for a page, JSON or a plot.

Shapes: S sequences, Q classes, G groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, precision_recall_curve, precision_recall_fscore_support, roc_curve

from tefm.scoring import weighted
from tefm.scoring.metrics import Scores, auroc
from tefm.scoring.numbers import NumberScores
from tefm.scoring.weighted import Interval, bootstrap, resample_counts

Floats = NDArray[np.float64]
Points = tuple[float, ...]

#: A curve has at most this many points: more cannot be seen at the width of a plot.
POINTS = 200
#: Of several classes, this many of the most frequent ones have a curve of their own.
CURVES = 6
#: Thresholds from 0 to 1 at which predictions are counted.
THRESHOLDS = 101
#: Ranges of probability for calibration.
BINS = 10
#: Classes of a confusion matrix, at most.
MOST_CLASSES = 12
#: Resamples of the AUROC of a group: there are many groups, and this many give the interval to about 5% of its width.
RESAMPLES = 200


@dataclass(frozen=True)
class ClassScores:
    """How well one of several classes is predicted; None where a score is not defined."""

    name: str
    #: sequences of this class
    sequences: int
    recall: float | None
    precision: float | None
    f1: float | None


@dataclass(frozen=True)
class GroupScores:
    """How well the sequences of one group are predicted."""

    name: str
    sequences: int
    #: None for a group that is too small
    accuracy: Interval | None = None
    #: with two classes, the share of the positive one
    positive: float | None = None
    #: of the positive class; None for a group that is too small or has one class only, and for several classes
    auroc: Interval | None = None


@dataclass(frozen=True)
class Bin:
    """Sequences with about the same predicted probability: its mean, and how often the class was observed."""

    predicted: float
    observed: Interval
    sequences: int


def scores_by_class(
    labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str]
) -> tuple[ClassScores, ...]:
    """Each class against the rest, the most frequent first.

    >>> for scores in scores_by_class(np.array([0, 0, 1]), np.array([0, 1, 1]), ("a", "b", "c")):
    ...     print(scores.name, scores.sequences, scores.recall, scores.precision, scores.f1)
    a 2 0.5 1.0 0.6666666666666666
    b 1 1.0 0.5 0.6666666666666666
    c 0 None None None
    """

    measured = precision_recall_fscore_support(
        labels_S, predicted_S, labels=np.arange(len(classes)), zero_division=np.nan
    )
    precision_Q, recall_Q, f1_Q = ([None if np.isnan(x) else x for x in row.tolist()] for row in measured[:3])
    counts_Q = measured[3].tolist()
    scores = map(ClassScores, classes, counts_Q, recall_Q, precision_Q, f1_Q)
    return tuple(sorted(scores, key=lambda scores: -scores.sequences))


@dataclass(frozen=True)
class Confusion:
    """How often each class was predicted for the sequences of each class."""

    classes: tuple[str, ...]
    #: a row per true class, a column per predicted one
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Decisions:
    """The predictions for labelled sequences, class by class."""

    by_class: tuple[ClassScores, ...]
    #: of all classes
    confusion: Confusion
    #: sequences of each class that the model does not know: they count as errors
    unknown: Mapping[str, int]
    #: how probabilities became predictions
    decision: str
    #: with two classes, the probability from which the positive one was predicted
    threshold: float | None

    @classmethod
    def of(
        cls,
        labels_S: NDArray[Any],
        predicted_S: NDArray[Any],
        classes: Sequence[str],
        known: int,
        decision: str,
        threshold: float | None,
    ) -> Decisions:
        """The model knows the first of the classes, this number of them."""
        by_class = scores_by_class(labels_S, predicted_S, classes)
        unknown = {of.name: of.sequences for of in by_class if of.name in classes[known:]}
        matrix = confusion(labels_S, predicted_S, classes, len(classes))
        return cls(by_class, matrix, unknown, decision, threshold)


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on labelled sequences, and how many tokens it reads for it."""

    scores: Scores | NumberScores
    #: tokens per sequence that the language model reads
    tokens_mean: float
    tokens_median: float
    #: sequences without a label, which are not scored
    unlabelled: int = 0
    #: the predictions class by class, where they were asked for
    decisions: Decisions | None = None

    def to_dict(self) -> dict[str, Any]:
        own = {name: value for name, value in vars(self).items() if name not in ("scores", "decisions")}
        return {**self.scores.to_dict(), **own, **({} if self.decisions is None else asdict(self.decisions))}


def confusion(
    labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str], most: int = MOST_CLASSES
) -> Confusion:
    """The confusion matrix; with more than `most` classes, of the most frequent ones and of all others together.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), ("no", "yes")).counts
    ((1, 1), (0, 1))
    >>> print(confusion(np.array([2, 2, 1, 0]), np.array([2, 1, 1, 2]), ("a", "b", "c"), most=1))
    Confusion(classes=('c', 'others'), counts=((1, 1), (1, 1)))
    """
    group_Q, names = np.arange(len(classes)), tuple(classes)
    if len(classes) > most:
        kept = np.sort(np.argsort(-np.bincount(labels_S, minlength=len(classes)), kind="stable")[:most])
        group_Q = np.full(len(classes), most)
        group_Q[kept] = np.arange(most)
        names = (*(classes[number] for number in kept), "others")
    counts = confusion_matrix(group_Q[labels_S], group_Q[predicted_S], labels=np.arange(len(names)))
    return Confusion(names, tuple(tuple(row) for row in counts.tolist()))


def scores_by_group(
    group_S: NDArray[Any],
    names: Sequence[str],
    correct_S: NDArray[np.bool_],
    *,
    p_S: NDArray[Any] | None = None,
    positive_S: NDArray[np.bool_] | None = None,
    least: int,
    seed: int = 0,
) -> tuple[GroupScores, ...]:
    """The scores of each group that occurs; one with fewer sequences than `least` is only counted.

    With two classes, `p_S` is the probability of the positive class and `positive_S` says which sequences have it.

    >>> right_S = np.arange(8) > 0
    >>> for scores in scores_by_group(np.array([0, 0, 0, 0, 0, 0, 1, 1]), ("a", "b"), right_S, least=5):
    ...     print(scores.name, scores.sequences, scores.accuracy)
    a 6 0.833 [0.436, 0.970]
    b 2 None
    """

    def scores(number: int, name: str) -> GroupScores:
        inside_S = group_S == number
        n = int(inside_S.sum())
        if n < least:
            return GroupScores(name, n)
        accuracy = wilson(float(correct_S[inside_S].mean()), n)
        if p_S is None or positive_S is None:
            return GroupScores(name, n, accuracy)
        p, positive = p_S[inside_S], positive_S[inside_S]
        auroc = None
        if positive.any() and not positive.all():
            counts = resample_counts(n, RESAMPLES, seed)
            auroc = Interval.of(bootstrap(lambda counts_RN: weighted.auroc(p, positive, counts_RN), counts))
        return GroupScores(name, n, accuracy, float(positive.mean()), auroc)

    return tuple(scores(number, name) for number, name in enumerate(names) if (group_S == number).any())


def difference_between(group_S: NDArray[Any], correct_S: NDArray[np.bool_]) -> float:
    """How much accuracy differs between groups: its variance between them, which small groups hardly change.

    >>> right_S = np.array([True, True, False, False])
    >>> difference_between(np.array([0, 0, 1, 1]), right_S), difference_between(np.array([0, 1, 0, 1]), right_S)
    (0.25, 0.0)
    """
    sizes_G = np.bincount(group_S)
    occurs_G = sizes_G > 0
    means_G = np.bincount(group_S, correct_S)[occurs_G] / sizes_G[occurs_G]
    return float(np.average((means_G - correct_S.mean()) ** 2, weights=sizes_G[occurs_G]))


def reliability(p_S: NDArray[Any], observed_S: NDArray[Any], bins: int = BINS) -> tuple[Bin, ...]:
    """How often a class was observed among sequences with about the same predicted probability; no empty ranges.

    >>> for bin in reliability(np.array([0.1, 0.9, 0.9]), np.array([0, 1, 0])):
    ...     print(bin.predicted, bin.observed.value, bin.sequences)
    0.1 0.0 1
    0.9 0.5 2
    """
    bin_S = np.clip(np.ceil(np.asarray(p_S) * bins).astype(np.int64) - 1, 0, bins - 1)
    result = []
    for number in np.unique(bin_S):
        inside_S = bin_S == number
        sequences = int(inside_S.sum())
        observed = wilson(float(np.mean(observed_S[inside_S])), sequences)
        result.append(Bin(float(np.mean(p_S[inside_S])), observed, sequences))
    return tuple(result)


def wilson(share: float, n: int) -> Interval:
    """A share of n with its 95% Wilson interval, which stays within 0 and 1 and is never empty.

    >>> print(wilson(0.5, 100))
    0.500 [0.404, 0.596]
    """
    low, high = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return Interval(share, float(low), float(high))


# ---- rankings and thresholds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operating:
    """Where the decisions of the model are on both curves; None where a rate is not defined."""

    false_positive_rate: float | None
    recall: float | None
    precision: float | None


@dataclass(frozen=True)
class Curve:
    """The ROC and precision–recall curves of one class against the rest, from the strictest threshold on."""

    name: str
    #: sequences of this class
    sequences: int
    false_positive_rate: Points
    true_positive_rate: Points
    recall: Points
    precision: Points
    auroc: float
    average_precision: float
    operating: Operating


@dataclass(frozen=True)
class ThresholdCounts:
    """The predictions at each of many thresholds, of sequences with `positives` and `negatives`.

    >>> counts = threshold_counts(np.array([0.9, 0.6, 0.2]), np.array([True, False, False]), 0.5)
    >>> at = counts.thresholds.index(0.5)
    >>> counts.true_positives[at], counts.false_positives[at], counts.own
    (1, 1, 50)
    """

    thresholds: Points
    true_positives: tuple[int, ...]
    false_positives: tuple[int, ...]
    positives: int
    negatives: int
    #: the position of the model's own threshold
    own: int


def ranking_curves(
    p_SQ: Floats, labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str], *, positive: int = 1
) -> tuple[Curve, ...]:
    """The curves of the positive class; of several classes, those of the most frequent ones.

    A class that no sequence has, or that all have, has no curve.
    """
    counts_Q = np.bincount(labels_S, minlength=len(classes))
    defined = [number for number in range(len(classes)) if 0 < counts_Q[number] < len(labels_S)]
    if len(classes) == 2:
        defined = [positive] if positive in defined else []
    frequent = sorted(defined, key=lambda number: -counts_Q[number])

    def curve(number: int) -> Curve:
        return class_curve(p_SQ[:, number], labels_S == number, predicted_S == number, classes[number])

    return tuple(curve(number) for number in frequent[:CURVES])


def class_curve(p_S: Floats, positive_S: NDArray[np.bool_], predicted_S: NDArray[np.bool_], name: str) -> Curve:
    """One class against the rest; `predicted_S` are the decisions of the model, for the operating point."""
    false_positive_rate, true_positive_rate, _ = roc_curve(positive_S, p_S)
    precision, recall, _ = precision_recall_curve(positive_S, p_S, drop_intermediate=True)
    hits, called, positives = (int(which_S.sum()) for which_S in (positive_S & predicted_S, predicted_S, positive_S))
    roc, ranked = _few(false_positive_rate, true_positive_rate), _few(recall[::-1], precision[::-1])
    return Curve(
        name,
        positives,
        *roc,
        *ranked,
        auroc=auroc(p_S, positive_S),
        average_precision=float(weighted.average_precision(p_S, positive_S, np.ones((1, len(p_S))))[0]),
        operating=Operating(_ratio(called - hits, len(p_S) - positives), _ratio(hits, positives), _ratio(hits, called)),
    )


def threshold_counts(p_S: Floats, positive_S: NDArray[np.bool_], own: float) -> ThresholdCounts:
    """True and false positives when the class is predicted from each threshold on; `own` is the model's threshold."""
    thresholds = np.unique([*np.round(np.linspace(0, 1, THRESHOLDS), 2), own])

    def at_least(values: Floats) -> tuple[int, ...]:
        return tuple((len(values) - np.searchsorted(np.sort(values), thresholds)).tolist())

    return ThresholdCounts(
        tuple(thresholds.tolist()),
        at_least(p_S[positive_S]),
        at_least(p_S[~positive_S]),
        int(positive_S.sum()),
        int((~positive_S).sum()),
        int(np.searchsorted(thresholds, own)),
    )


def _few(x: Floats, y: Floats) -> tuple[Points, Points]:
    """At most `POINTS` points of a curve, both ends among them."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(np.int64))
    return tuple(x[chosen].tolist()), tuple(y[chosen].tolist())


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
