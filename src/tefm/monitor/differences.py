"""Which tallies of a batch differ from the reference by more than chance? One level for all of them together.

Every tally is a table of two rows, the batch and the reference. A permutation test: if nothing has changed, the batch
is a random part of both together, so batches of the same size are drawn from the pooled counts.

About a hundred tallies are compared, and some differ by chance. An alarm is therefore a p-value below the smallest of
all tallies in 95% of the drawn batches; fields, codes and answers have a third of the false alarms each. Tallies are
drawn independently, which makes alarms rarer (Gaussian correlation inequality, Royen 2014).

Shapes: J cells, R draws, T tallies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.monitor.tally import OF_FIELDS, Kind, Tally

Floats = NDArray[np.float64]

#: False alarms per batch, over all tallies together.
LEVEL = 0.05
#: Batches drawn from the pooled counts.
DRAWS = 1_000
#: Cells are merged until the batch is expected to have this many in each: below, no approximation holds.
EXPECTED = 5.0
#: Buckets and bins that are compared at most: more of them would hide a shift of all values in chance.
GROUPS = 10
#: Numbers that are drawn at most for the mean of a batch.
DRAWN = 2_000
#: A smaller p-value is not told apart.
SMALLEST = 1e-300


@dataclass(frozen=True)
class Difference:
    """A tally of the batch compared with that of the reference."""

    subject: str
    kind: Kind
    #: of this tally alone
    p: float
    #: how often the smallest p-value of a batch without drift is as small as this one
    adjusted: float
    #: share of the cells' total that would have to move, between 0 and 1
    distance: float

    @property
    def name(self) -> tuple[str, Kind]:
        return self.subject, self.kind


@dataclass(frozen=True)
class Comparison:
    """All tallies of a batch, compared."""

    differences: tuple[Difference, ...]
    #: a p-value below is an alarm
    threshold: float
    level: float

    @property
    def alarms(self) -> list[Difference]:
        return [difference for difference in self.differences if difference.adjusted <= self.level]


def compare(
    batch: Sequence[Tally],
    reference: Sequence[Tally],
    means: Sequence[Means] = (),
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Every tally that both have, compared, in the order of the batch; then the means."""
    rng = np.random.default_rng(seed)
    known = {tally.name: tally for tally in reference}
    compared: list[tuple[str, Kind, float, float, Floats]] = []
    for mine in batch:
        if (other := known.get(mine.name)) is not None:
            table = Pair.of(mine, other)
            p, p_R = (1.0, np.ones(draws)) if table is None else table.p_values(rng, draws)
            distance = float(np.abs(mine.shares_J - other.shares_J).sum() / 2)
            compared.append((mine.subject, mine.kind, p, distance, p_R))
    for mean in means:
        p, p_R = mean.p_values(rng, draws)
        compared.append((mean.subject, "shares", p, abs(mean.difference), p_R))
    groups = Counter(_group(kind) for _, kind, *_ in compared)
    smallest_R = np.full(draws, float(max(groups.values(), default=1)))
    for _, kind, *_, p_R in compared:
        smallest_R = np.minimum(smallest_R, p_R * groups[_group(kind)])

    def adjusted(p: float, kind: Kind) -> float:
        return float((1 + (smallest_R <= p * groups[_group(kind)]).sum()) / (1 + draws))

    differences = (Difference(name, kind, p, adjusted(p, kind), far) for name, kind, p, far, _ in compared)
    # of one test: what a test of fields, which are the most, must stay below
    threshold = float(np.quantile(smallest_R, level)) / max(groups.values(), default=1)
    return Comparison(tuple(differences), threshold, level)


def _group(kind: Kind) -> str:
    """Fields, codes and answers have an equal share of the false alarms: fields are many, answers are few."""
    if kind in OF_FIELDS:
        return "fields"
    return "codes" if kind in ("codes", "reconstruction", "quantisation") else "answers"


@dataclass(frozen=True, eq=False)
class Means:
    """The mean of a number, such as the probability of a class, in a batch and in the reference."""

    subject: str
    a_S: Floats
    b_S: Floats
    #: by how much entities with several numbers inflate the variance of the reference
    effect: float = 1.0

    @property
    def difference(self) -> float:
        return float(self.a_S.mean() - self.b_S.mean())

    def p_values(self, rng: np.random.Generator, draws: int) -> tuple[float, Floats]:
        """The p-value of the batch and those of batches drawn from both together.

        Probabilities of a rare class are skewed, and so is their mean: a Pearson III distribution with the mean,
        variance and skewness of the drawn ones gives p-values far out.
        """
        from scipy.stats import pearson3, skew

        pooled, n = np.concatenate([self.a_S, self.b_S]), len(self.a_S)
        if n == 0 or not len(self.b_S) or pooled.std() == 0:
            return 1.0, np.ones(draws)
        total, few = len(pooled), min(n, DRAWN)
        mean_R = pooled[rng.integers(total, size=(draws, few))].mean(axis=1)
        # drawn with replacement, and perhaps fewer: scaled to what n without replacement would vary by
        drawn_R = (mean_R - pooled.mean()) * np.sqrt(few / n / (1 - n / total))
        spread = drawn_R.std(ddof=1) * np.sqrt(pooled_effect(1.0, n, self.effect, len(self.b_S)))
        bent = float(skew(drawn_R))
        z, z_R = self.difference / spread, (drawn_R - drawn_R.mean()) / drawn_R.std(ddof=1)
        p_R = 2 * np.minimum(pearson3.sf(z_R, bent), pearson3.cdf(z_R, bent))
        p = 2 * min(float(pearson3.sf(z, bent)), float(pearson3.cdf(z, bent)))
        return max(SMALLEST, p), np.clip(p_R, SMALLEST, 1.0)


@dataclass(frozen=True, eq=False)
class Pair:
    """Counts of a batch and of a reference in the same merged cells."""

    a_J: Floats
    b_J: Floats
    #: by how much records that are alike inflate the difference
    effect: float
    #: whether only an increase of the second of two cells counts
    one_sided: bool = False

    @classmethod
    def of(cls, batch: Tally, reference: Tally) -> Pair | None:
        """The pair; None where there is nothing to compare."""
        a_J, b_J = batch.counts_J.astype(np.float64), reference.counts_J.astype(np.float64)
        effect = pooled_effect(batch.effect, a_J.sum(), reference.effect, b_J.sum())
        return cls.merged(a_J, b_J, effect, ordered=batch.ordered, one_sided=batch.kind == "new")

    @classmethod
    def merged(cls, a_J: Floats, b_J: Floats, effect: float, *, ordered: bool, one_sided: bool = False) -> Pair | None:
        """Small cells merged: with their neighbours where there is an order, otherwise with each other."""
        total, n = (a_J + b_J).sum(), a_J.sum()
        if not n or total == n or ((a_J + b_J) > 0).sum() < 2:
            return None
        if len(a_J) == 2:  # exact, however rare
            return cls(a_J, b_J, effect, one_sided)
        group_J = grouped((a_J + b_J) * n / total / effect, ordered=ordered)
        if group_J.max() == 0:
            return None
        merged_a, merged_b = (np.bincount(group_J, weights=of_J).astype(np.float64) for of_J in (a_J, b_J))
        return cls(merged_a, merged_b, effect, one_sided)

    @property
    def statistic(self) -> float:
        """Pearson's X², divided by the design effect."""
        return float(_chi_squared(self.a_J[None], self.a_J + self.b_J)[0] / self.effect)

    def p_values(self, rng: np.random.Generator, draws: int) -> tuple[float, Floats]:
        """The p-value of the batch and those of drawn batches.

        Two cells: Fisher's exact test. More: X² of drawn batches; a gamma distribution with their mean and variance
        gives p-values far out.
        """
        from scipy.special import gammaincc

        if len(self.a_J) == 2:
            n, total, marked = self._worth()
            count_R = rng.hypergeometric(marked, total - marked, n, size=draws)
            return self.approximate_p(), self._fisher(count_R)
        pooled_J = (self.a_J + self.b_J).round().astype(np.int64)
        drawn_RJ = rng.multivariate_hypergeometric(pooled_J, round(self.a_J.sum()), size=draws)
        drawn_R = _chi_squared(drawn_RJ.astype(np.float64), pooled_J.astype(np.float64))
        mean, variance = drawn_R.mean(), drawn_R.var(ddof=1)
        shape, scale = mean**2 / variance, variance / mean
        p_R: Floats = gammaincc(shape, drawn_R / scale)
        return max(SMALLEST, float(gammaincc(shape, self.statistic / scale))), p_R

    def approximate_p(self) -> float:
        """The p-value without drawing batches: exact for two cells, chi-squared for more."""
        from scipy.stats import chi2

        if len(self.a_J) > 2:
            return float(chi2.sf(self.statistic, len(self.a_J) - 1))
        return float(self._fisher(round(self.a_J[1] / self.effect)))

    def _worth(self) -> tuple[int, int, int]:
        """As many independent things as the counts are worth: of the batch, of both, and those in the second cell."""
        n, total = (max(1, round(of / self.effect)) for of in (self.a_J.sum(), (self.a_J + self.b_J).sum()))
        return n, total, min(total, round((self.a_J[1] + self.b_J[1]) / self.effect))

    def _fisher(self, count: Any) -> Any:
        """The p-value of one count in the second cell, or of several."""
        from scipy.stats import hypergeom

        n, total, marked = self._worth()
        low, high = max(0, marked - (total - n)), min(marked, n)
        mass = hypergeom.pmf(np.arange(low, high + 1), total, marked, n)
        if self.one_sided:
            p_of = np.cumsum(mass[::-1])[::-1]
        else:
            order = np.argsort(mass, kind="stable")
            # as probable ones count too, within rounding
            p_of = np.cumsum(mass[order])[np.searchsorted(mass[order], mass * (1 + 1e-9), side="right") - 1]
        return np.clip(p_of, SMALLEST, 1.0)[np.clip(count, low, high) - low]


def pooled_effect(batch: float, n: float, reference: float, total: float) -> float:
    """The design effect of a difference of shares."""
    if not n or not total:
        return 1.0
    return float((batch / n + reference / total) / (1 / n + 1 / total))


def _chi_squared(a_RJ: Floats, pooled_J: Floats) -> Floats:
    """Pearson's X² of the table of a batch and what remains of the pooled counts."""
    n, total = float(a_RJ[0].sum()), float(pooled_J.sum())
    excess_RJ = a_RJ - pooled_J * (n / total)
    x_R: Floats = (excess_RJ**2 / pooled_J).sum(axis=1) * total / n * total / (total - n)
    return x_R


def grouped(expected_J: Floats, *, ordered: bool) -> NDArray[np.int64]:
    """The number of the group that each cell is merged into, given what a batch is expected to have in it."""
    return _neighbours(expected_J) if ordered else _rare_together(expected_J)


def _neighbours(expected_J: Floats) -> NDArray[np.int64]:
    """Groups of neighbouring cells, each with its share of the whole and not below EXPECTED."""
    enough = max(EXPECTED, expected_J.sum() / GROUPS * 0.999)
    group_J, filled, group = np.zeros(len(expected_J), dtype=np.int64), 0.0, 0
    for cell, expected in enumerate(expected_J):
        if filled >= enough:
            group, filled = group + 1, 0.0
        group_J[cell] = group
        filled += expected
    if filled < EXPECTED and group:
        group_J[group_J == group] = group - 1
    return group_J


def _rare_together(expected_J: Floats) -> NDArray[np.int64]:
    """Every frequent cell alone, and the rare ones together; with the least frequent one too, if they are too few."""
    order = np.argsort(-expected_J, kind="stable")
    alone = int((expected_J >= EXPECTED).sum())
    if alone and 0 < expected_J[order[alone:]].sum() < EXPECTED:
        alone -= 1
    group_J = np.full(len(expected_J), alone, dtype=np.int64)
    group_J[order[:alone]] = np.arange(alone)
    if not (group_J == alone).any() or not expected_J[group_J == alone].sum():
        group_J[group_J == alone] = max(0, alone - 1)
    return group_J
