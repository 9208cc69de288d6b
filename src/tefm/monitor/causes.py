"""From differences to causes: which field changed and how, or which classes became more frequent.

A change of one field moves codes and answers too, which are named as consequences. A change of the class shares
moves many fields a little: it is the cause if no tally differs from the reference at the estimated shares.

Shapes: J cells (of a number: buckets), M values, Q classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tefm.monitor.differences import EXPECTED, Comparison, Difference, Pair, grouped, pooled_effect
from tefm.monitor.observe import shares_of
from tefm.monitor.reference import Measured
from tefm.monitor.tally import OF_FIELDS, Kind, Tally
from tefm.pipeline.fitted import Fitted
from tefm.tables.mappers import FlagMapper, Mapper, NumberMapper, SetMapper
from tefm.tables.vectorise import Vectoriser

CauseKind = Literal["unit", "new", "missing", "shift", "size", "labels", "relation", "combination", "coding", "answers"]
#: Tallies that a change of the class shares moves first.
OF_CLASSES: frozenset[Kind] = frozenset({"label", "confidence", "predicted", "shares"})
#: Tallies that are not of a field: what they are in words, and the cause that they show where no field changed.
OTHERS: dict[Kind, tuple[str, CauseKind]] = {
    "codes": ("use of codes", "combination"),
    "reconstruction": ("reconstruction error", "coding"),
    "quantisation": ("quantisation error", "coding"),
    "confidence": ("confidence", "answers"),
    "predicted": ("predicted classes", "answers"),
    "shares": ("mean probabilities", "answers"),
    "label": ("labels", "relation"),
    "right": ("share of right answers", "relation"),
}
#: These causes in words; of several, the first is named.
WITHOUT_FIELD: dict[CauseKind, str] = {
    "combination": "combinations of fields changed: no single field did, but codes of level {levels} did",
    "coding": "the reconstruction errors of the codes changed",
    "answers": "the model's answers changed, although no field did",
    "relation": "labels changed, but records and answers did not: their relation did (concept drift)",
}
#: One cause explains an alarm. A second one is named if it is clearer still: at this share of the level.
SECOND = 0.2
#: Class shares that moved by fewer standard errors explain no alarm.
SURE = 2.0
#: The class shares are themselves estimated, so what they should explain may differ a little more than chance allows:
#: this share of the p-value that is an alarm.
LENIENT = 0.05
#: A batch with fewer sequences says nothing about its classes, and a class with fewer nothing about its records.
FEWEST = 20
#: Factors between usual units, the most usual ones first: powers of ten and of 1,024, time, length, weight, temperature
#: spans, and the clinical ones (mg/dL and mmol/L of glucose, cholesterol, creatinine).
FACTORS = (
    10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e9, 60.0, 24.0, 3600.0, 86400.0, 12.0, 7.0, 365.25, 30.4375,
    2.20462, 2.54, 1.60934, 3.28084, 1.8, 18.0182, 38.67, 88.42, 1024.0, 1024.0**2, 8.0,
)  # fmt: skip
#: A factor nearer to 1 is a shift, not a unit.
NEAREST = 1.5
#: A factor is believed if the batch then differs from the reference with no smaller p-value, and much less than before.
FITS, BETTER = 1e-3, 0.1
#: A difference of X² that one factor would make by chance (95%).
AS_WELL = 3.84
#: Values in the right unit are within the range of training, but for this share.
OUTSIDE = 0.02


@dataclass(frozen=True)
class Cause:
    """What changed, in words, and the tallies that show it."""

    kind: CauseKind
    #: the field, where it is one
    field: str | None
    sentence: str
    #: how often a batch without drift has anything as unlikely
    p: float
    evidence: tuple[tuple[str, Kind], ...] = ()
    #: what the values were multiplied by, for a broken unit
    factor: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The causes of a batch's alarm, and what else moved because of them."""

    causes: tuple[Cause, ...] = ()
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Diagnostician:
    """All that is known about a batch and its reference."""

    batch: Measured
    reference: Measured
    comparison: Comparison
    vectoriser: Vectoriser
    fitted: Fitted

    def diagnose(self) -> Diagnosis:
        alarms = self.comparison.alarms
        if not alarms:
            return Diagnosis()
        if (labels := self._labels(alarms)) is not None:
            return _diagnosis([labels], [one for one in alarms if one.kind not in OF_CLASSES])
        by_field: dict[str, dict[Kind, Difference]] = {}
        for one in alarms:
            if one.kind in OF_FIELDS:
                by_field.setdefault(one.subject, {})[one.kind] = one
        causes = [cause for field, own in by_field.items() for cause in self._of_field(field, own)]
        others = [one for one in alarms if one.kind not in OF_FIELDS]
        if causes:
            first = min(causes, key=self._p_of)
            clear = [c for c in causes if c.field == first.field or c.p <= SECOND * self.comparison.level]
            return _diagnosis(sorted(clear, key=self._p_of), others)
        only = self._without_field(others)
        return _diagnosis([only], [one for one in others if one.name not in only.evidence])

    def _p_of(self, cause: Cause) -> float:
        """The smallest p-value of a cause, which tells causes apart whose adjusted ones are equal."""
        return min(one.p for one in self.comparison.differences if one.name in cause.evidence)

    # ---- one field --------------------------------------------------------------------------------------------

    def _of_field(self, field: str, alarms: dict[Kind, Difference]) -> Iterator[Cause]:
        title = self.vectoriser.table_schema.field(field).display_name

        def cause(kind: CauseKind, words: str, *shown: Kind, factor: float | None = None) -> Cause:
            return _cause(kind, f"{title}: {words}", [alarms[of] for of in shown if of in alarms], field, factor)

        if "missing" in alarms:
            was, now = (of.share(field, "missing") for of in (self.reference, self.batch))
            yield cause("missing", f"{now:.1%} missing, was {was:.1%}", "missing")
        if ("new" in alarms or "values" in alarms) and (factor := self._unit(field)) is not None:
            words = f"values look multiplied by {factor:.4g}; check the unit"
            yield cause("unit", words, "new", "values", factor=factor)
            return
        if "new" in alarms:
            yield cause("new", self._new(field), "new")
        if "values" in alarms:
            yield cause("shift", self._shift(field), "values")
        if "size" in alarms:
            yield cause("size", "the number of values per record changed", "size")

    def _unit(self, field: str) -> float | None:
        mapper, numbers = self._mapper(field), self.batch.raw.numbers.get(field)
        if not isinstance(mapper, NumberMapper) or numbers is None or not len(numbers):
            return None
        batch, reference = (of.tally(field, "values") for of in (self.batch, self.reference))
        return broken_unit(numbers, mapper, batch, reference)

    def _new(self, field: str) -> str:
        """How many values are new, and which."""
        was, now = (of.share(field, "new") for of in (self.reference, self.batch))
        mapper = self._mapper(field)
        if isinstance(mapper, NumberMapper):
            what = f"outside the range of training ({mapper.low[0]:.6g} to {mapper.high[-1]:.6g})"
        else:
            what = f"not in the training table ({', '.join(map(repr, self.batch.raw.words.get(field, ())))})"
        return f"{now:.1%} of the values are {what}, was {was:.1%}"

    def _shift(self, field: str) -> str:
        """Where a field moved: up or down for a number, otherwise the value that gained or lost most."""
        batch, reference = (of.tally(field, "values") for of in (self.batch, self.reference))
        gain_J = batch.shares_J - reference.shares_J
        mapper = self._mapper(field)
        if isinstance(mapper, NumberMapper):
            was, now = self.reference.medians.get(field), self.batch.medians[field]
            rose = float(gain_J @ np.arange(len(gain_J))) > 0 if was is None or was == now else now > was
            before = "" if was is None else f", was {was:.6g}" if now != was else ", as before"
            return f"the values {'rose' if rose else 'fell'}, median {now:.6g}{before}"
        cell = int(np.abs(gain_J).argmax())
        match mapper:
            case FlagMapper():
                name = "yes" if cell else "no"
            case SetMapper():
                name = mapper.member_in_words(mapper.values[cell]) if cell < len(mapper.values) else "other"
            case _:
                name = mapper.in_words(cell + 1)
        return f"{name} has a share of {batch.shares_J[cell]:.1%}, was {reference.shares_J[cell]:.1%}"

    def _mapper(self, field: str) -> Mapper:
        return next(mapper for mapper in self.vectoriser.mappers if mapper.field == field)

    # ---- the class shares -------------------------------------------------------------------------------------

    def _labels(self, alarms: Sequence[Difference]) -> Cause | None:
        """A change of the class shares that explains everything, or None."""
        if len(self.batch.answers) < FEWEST:
            return None
        was, now = shares_of((self.reference.answers, self.batch.answers), self.fitted.shares)
        errors = np.hypot(was.errors, now.errors)
        moved_Q = np.array(now.shares) - np.array(was.shares)
        if not (np.abs(moved_Q) > SURE * errors).any():
            return None
        weight_Q = np.array(now.shares) / np.array(was.shares)
        if not all(p > self.comparison.threshold * LENIENT for p in self._weighted(weight_Q)):
            return None
        top = int(np.abs(moved_Q).argmax()) if len(moved_Q) > 2 else self.fitted.positive
        sentence = (
            f"class shares changed: {self.fitted.classes[top]} about {now.shares[top]:.1%} "
            f"(± {2 * now.errors[top]:.1%}), was {was.shares[top]:.1%}; the records of each class look as before"
        )
        shown = [one for one in alarms if one.kind in OF_CLASSES] or list(alarms)
        return _cause("labels", sentence, shown)

    def _weighted(self, weight_Q: NDArray[np.float64]) -> Iterator[float]:
        """The p-value of every tally against the reference with other class shares; 0 where that is not known."""
        known = {tally.name: tally for tally in self.reference.tallies}
        for tally in self.batch.tallies:
            if tally.kind in ("label", "right") or tally.name not in known:
                continue
            reference = known[tally.name]
            by_class_QJ = reference.counts_GJ[:-1].astype(np.float64)
            of_class_Q = by_class_QJ.sum(axis=1)
            if (of_class_Q < FEWEST).any():
                if reference.total and tally.total and tally.kind in ("confidence", "predicted"):
                    yield 0.0
                    return
                continue
            if (p := _weighted_p(tally, by_class_QJ, weight_Q, reference.effect)) is not None:
                yield p

    # ---- no field ---------------------------------------------------------------------------------------------

    def _without_field(self, alarms: Sequence[Difference]) -> Cause:
        """The cause of an alarm that no single field shows."""
        kind = min((OTHERS[one.kind][1] for one in alarms), key=list(WITHOUT_FIELD).index)
        shown = [one for one in alarms if OTHERS[one.kind][1] == kind]
        return _cause(kind, WITHOUT_FIELD[kind].format(levels=" and ".join(one.subject for one in shown)), shown)


def _cause(
    kind: CauseKind, sentence: str, shown: Sequence[Difference], field: str | None = None, factor: float | None = None
) -> Cause:
    return Cause(kind, field, sentence, min(one.adjusted for one in shown), tuple(one.name for one in shown), factor)


def _diagnosis(causes: Sequence[Cause], moved: Sequence[Difference]) -> Diagnosis:
    words = (OTHERS[one.kind][0] if one.kind in OTHERS else f"field {one.subject}" for one in moved)
    return Diagnosis(tuple(causes), tuple(dict.fromkeys(words)))


def _weighted_p(
    tally: Tally, by_class_QJ: NDArray[np.float64], weight_Q: NDArray[np.float64], effect: float
) -> float | None:
    """The p-value of a tally against the counts of each class, weighted; None where there is too little to compare.

    Each cell has its own variance: one that is filled by a few sequences with a large weight is known badly.
    """
    from scipy.stats import chi2

    a_J, weighted_QJ = tally.counts_J.astype(np.float64), by_class_QJ * weight_Q[:, None]
    n, whole = a_J.sum(), weighted_QJ.sum()
    if not n or not whole:
        return None
    expected_J = (a_J / n + weighted_QJ.sum(axis=0) / whole) / 2 * n / tally.effect
    if len(a_J) == 2:
        if expected_J.min() < EXPECTED:
            worth = whole**2 / float((weighted_QJ * weight_Q[:, None]).sum())  # as many as are equally weighted
            pair = Pair.merged(a_J, weighted_QJ.sum(axis=0) * worth / whole, tally.effect, ordered=False)
            return None if pair is None else pair.approximate_p()
        group_J = np.arange(2)
    else:
        group_J = grouped(expected_J, ordered=tally.ordered)
    if group_J.max() == 0:
        return None
    now_J = np.bincount(group_J, weights=a_J) / n
    was_J = np.bincount(group_J, weights=weighted_QJ.sum(axis=0)) / whole
    squares_J = np.bincount(group_J, weights=(weighted_QJ * weight_Q[:, None]).sum(axis=0))
    variance_J = (now_J + was_J) / 2 / n * tally.effect + squares_J / whole**2 * effect
    return float(chi2.sf(float(((now_J - was_J) ** 2 / variance_J).sum()), group_J.max()))


# ---- is a number in another unit? ----


def broken_unit(values_M: NDArray[np.float64], mapper: NumberMapper, batch: Tally, reference: Tally) -> float | None:
    """What the values were multiplied by, or None; `reference` are the known values of the same field.

    A batch of which only some records changed their unit is not found here: its values are new or shifted.
    """
    b_J = reference.counts_J.astype(np.float64)
    effect = pooled_effect(max(batch.effect, 1.0), len(values_M), reference.effect, b_J.sum())
    before, _ = _difference(values_M, 1.0, mapper, b_J, effect)
    for factors in ([*FACTORS, *(1 / factor for factor in FACTORS)], _by_medians(values_M, mapper, b_J)):
        tried = [(*_difference(values_M, factor, mapper, b_J, effect), factor) for factor in factors]
        fitting = [one for one in tried if one[1] >= FITS and one[0] < BETTER * before]
        if _is_whole(np.array(mapper.middle)):  # buckets of counts are wide: 0.6 of something would be one of it
            fitting = [one for one in fitting if _is_whole(values_M / one[2])] or fitting
        if fitting:  # the most usual of those that fit about as well
            return next(factor for statistic, _, factor in fitting if statistic <= min(fitting)[0] + AS_WELL)
    return None


def _is_whole(values: NDArray[np.float64]) -> bool:
    """Whether nearly all of some numbers are whole."""
    return bool((np.abs(values - values.round()) <= 1e-3 * np.maximum(1, np.abs(values))).mean() > 1 - OUTSIDE)


def _by_medians(values_M: NDArray[np.float64], mapper: NumberMapper, b_J: NDArray[np.float64]) -> list[float]:
    """The factor that brings the medians together, zeros left out, unless it is near 1."""
    middle_J = np.abs(mapper.middle)
    other = middle_J != 0
    if not values_M.any() or not b_J[other].sum():
        return []
    order = np.argsort(middle_J[other])
    below = np.cumsum(b_J[other][order])
    usual = middle_J[other][order][np.searchsorted(below, below[-1] / 2)]
    factor = float(np.median(np.abs(values_M[values_M != 0])) / usual)
    return [factor] if abs(math.log(factor)) >= math.log(NEAREST) else []


def _difference(
    values_M: NDArray[np.float64], factor: float, mapper: NumberMapper, b_J: NDArray[np.float64], effect: float
) -> tuple[float, float]:
    """X² of the values divided by a factor, and its p-value."""
    from scipy.stats import chi2

    scaled_M = values_M / factor
    # a factor such as 1/3 does not bring 0.1 back exactly
    slack = 1e-9 * max(abs(mapper.low[0]), abs(mapper.high[-1]), 1e-9)
    outside_M = (scaled_M < mapper.low[0] - slack) | (scaled_M > mapper.high[-1] + slack)
    edges = np.array(mapper.edges)
    bucket_M = np.searchsorted(edges + 1e-9 * np.abs(edges), scaled_M, side="left")
    if outside_M.mean() > OUTSIDE:
        return math.inf, 0.0
    a_J = np.bincount(bucket_M[~outside_M], minlength=len(b_J)).astype(np.float64)
    pair = Pair.merged(a_J, b_J, effect, ordered=True)
    if pair is None:
        return 0.0, 1.0
    return pair.statistic, float(chi2.sf(pair.statistic, len(pair.a_J) - 1))
