"""Whether a rationale holds: the judge is asked again, on the rationale alone and on everything but it.

Shapes: S sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import SettingsError
from tefm.rationale.masked_model import Keep, MaskedModel
from tefm.rationale.select import By, Of, Over, order_over, top_k
from tefm.rationale.verdict import Verdict
from tefm.records.layout import Layout
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Floats
from tefm.scoring.metrics import Interval, paired_difference

Numbers = NDArray[np.int64]

#: Less evidence than this is none: the model says what it says of an empty record.
MARGIN = 0.05
#: The share of the evidence that a sufficient rationale carries.
HALF = 0.5


@dataclass(frozen=True)
class Verification:
    """What the judge says of one sequence: of all its features, of its rationale, of the rest, and of nothing.

    That the rationale alone gives the same answer proves nothing when an empty record gets it too. So a rationale
    answers for the *evidence*, by how much all features make the answer more probable than empty records do:

    - `default`: empty records get the same answer, and the evidence is below 0.05. Nothing in the records argues for
      the answer, so no choice of features can be shown to carry it.
    - `sufficient`: there is evidence, and the rationale alone gets the same answer and carries at least half of it.
    - `insufficient`: anything else. Also an answer that hangs on the decision's threshold: empty records get another
      one with nearly the same probability.

    Where the label sits in no field, nothing passes as sufficient by chance: a calibrated model is as sure of its
    answer as of that for empty records.
    """

    #: the class number predicted from all features, and from each of the other forms
    label: int
    label_alone: int
    label_without: int
    label_nothing: int
    #: the probability of each class
    full: tuple[float, ...]
    alone: tuple[float, ...]
    without: tuple[float, ...]
    nothing: tuple[float, ...]
    verdict: Verdict

    @property
    def same(self) -> bool:
        """Whether the rationale alone gets the same answer."""
        return self.label_alone == self.label

    @property
    def passed(self) -> bool:
        return self.verdict == "sufficient"

    @property
    def evidence(self) -> float:
        """How much more probable all features make the answer than empty records do."""
        return self.full[self.label] - self.nothing[self.label]

    @property
    def sufficiency(self) -> float:
        """What the answer loses when only the rationale is kept; 0 is best."""
        return self.full[self.label] - self.alone[self.label]

    @property
    def comprehensiveness(self) -> float:
        """What the answer loses when the rationale is taken away; higher is better."""
        return self.full[self.label] - self.without[self.label]

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with what follows from the answers."""
        return {
            **asdict(self),
            "same": self.same,
            "passed": self.passed,
            "evidence": self.evidence,
            "sufficiency": self.sufficiency,
            "comprehensiveness": self.comprehensiveness,
        }


def verify(judge: MaskedModel, sequences: Sequences, keep_ND: Keep) -> list[Verification]:
    """Ask about each sequence in all four forms, in one go: what reads the same is asked once."""
    everything_ND = np.ones_like(keep_ND)
    full, alone, without, nothing = _ask(judge, sequences, [everything_ND, keep_ND, ~keep_ND, ~everything_ND])
    labels = (answers.label_S.tolist() for answers in (full, alone, without, nothing))
    probabilities = (map(tuple, answers.p_SQ.tolist()) for answers in (full, alone, without, nothing))
    verdicts = _verdicts(full, alone, nothing).tolist()
    return [Verification(*of) for of in zip(*labels, *probabilities, verdicts, strict=True)]


def until_sufficient(
    judge: MaskedModel,
    scores_ND: NDArray[Any],
    sequences: Sequences,
    *,
    over: Over = "sequence",
    most: int | None = None,
    prune: bool = True,
) -> Keep:
    """Grow each rationale in ranked order until it passes, and return the smallest that does.

    A size is a number of slots of the whole sequence, or of each of its records. The sizes 1, 2, 3, 4, 6, 8, 12, 16,
    24, … are asked first, of all sequences at a time, then every size between the last that fails and the first that
    passes. Passing is not monotone: one more slot can take an answer away again. "The smallest" is therefore the
    smallest above the last of those coarse sizes that fail before one passes; a smaller one that passes between two
    that fail is not looked for. At last `prune` drops, from the lowest rank up, each slot that is not needed to pass.

    All features always pass, unless nothing in the records argues for the answer: then nothing is kept.
    What does not pass within `most` slots keeps those.
    """
    if most is not None and most < 1:
        raise SettingsError("a rationale has at least one slot", value=most, remedy="give 1 or more, or None")
    order_ND = order_over(scores_ND, sequences, over)
    there_ND = sequences.x_ND > 0
    limit_S = np.zeros(len(sequences), dtype=np.int64)
    np.maximum.at(limit_S, sequences.sequence_N, np.where(there_ND, order_ND, -1).max(axis=1, initial=-1) + 1)
    if most is not None:
        limit_S = np.minimum(limit_S, most)
    full, nothing = _ask(judge, sequences, [there_ND, np.zeros_like(there_ND)])

    def passes(at_A: Numbers, keep: Keep) -> NDArray[np.bool_]:
        """Whether these slots of these sequences are sufficient."""
        (alone,) = _ask(judge, sequences.select(at_A), [keep])
        return _sufficient(full.of(at_A), alone, nothing.of(at_A))

    def first(at_A: Numbers, size_A: Numbers) -> Keep:
        """The first so many slots of these sequences."""
        keep: Keep = order_ND[sequences.places(at_A)] < np.repeat(size_A, sequences.lengths[at_A])[:, None]
        return keep

    size_S, failed_S = limit_S.copy(), np.zeros(len(sequences), dtype=np.int64)
    # where there is no evidence, no choice of features has any
    argued_S = _sufficient(full, full, nothing)
    size_S[~argued_S] = 0
    open_A = np.flatnonzero(argued_S & (limit_S > 0))
    for size in _coarse_sizes():
        if not len(open_A):
            break
        size_A = np.minimum(size, limit_S[open_A])
        passed_A = passes(open_A, first(open_A, size_A))
        size_S[open_A[passed_A]] = size_A[passed_A]
        failed_S[open_A[~passed_A]] = size_A[~passed_A]
        open_A = open_A[~passed_A & (size_A < limit_S[open_A])]

    between_S = np.maximum(size_S - failed_S - 1, 0) * (failed_S > 0)
    if between_S.any():
        at_A = np.repeat(np.arange(len(sequences)), between_S)
        first_A = np.repeat(np.cumsum(between_S) - between_S, between_S)
        size_A = failed_S[at_A] + 1 + np.arange(len(at_A)) - first_A
        passed_A = passes(at_A, first(at_A, size_A))
        np.minimum.at(size_S, at_A[passed_A], size_A[passed_A])
    keep_ND = first(np.arange(len(sequences)), size_S)
    if not prune:
        return keep_ND
    for place in range(int(size_S.max(initial=0)) - 1, -1, -1):
        tried_ND = keep_ND & (order_ND != place)
        several_S = np.bincount(sequences.sequence_N, tried_ND.sum(axis=1), minlength=len(sequences)) > 0
        touched_S = np.bincount(sequences.sequence_N, (tried_ND != keep_ND).any(axis=1), minlength=len(sequences)) > 0
        at_A = np.flatnonzero(several_S & touched_S)
        if len(at_A):
            dropped_A = at_A[passes(at_A, tried_ND[sequences.places(at_A)])]
            rows = sequences.places(dropped_A)
            keep_ND[rows] = tried_ND[rows]
    return keep_ND


# ---- the population view --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """One strategy at one retention, over many sequences; `predicted_S` are the class numbers on the rationales."""

    strategy: str
    retention: float
    of: Of
    #: slots kept per record, on average
    kept: float
    accuracy: float
    macro_f1: float
    #: F1 of each class
    f1: tuple[float, ...]
    #: how often the rationale gets the answer that all features get
    agreement: float
    #: the share of the sequences whose rationale is sufficient
    passed: float
    sufficiency: float
    #: None unless asked for
    comprehensiveness: float | None
    predicted_S: Numbers

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the single predictions."""
        return {name: value for name, value in asdict(self).items() if name != "predicted_S"}


def faithfulness(
    judge: MaskedModel,
    sequences: Sequences,
    labels_S: NDArray[Any],
    scores_by_name: Mapping[str, NDArray[Any]],
    shares: Sequence[float],
    *,
    of: Of = "all",
    over: Over = "record",
    by: By = "slot",
    layout: Layout | None = None,
    proof: bool = False,
) -> list[Faithfulness]:
    """How well rationales of every strategy hold at every retention: the same top-k, coding and judge for all.

    The first two rows are `everything` and `nothing`. `proof` asks for comprehensiveness too: twice the questions.
    """
    labels_S = np.asarray(labels_S)
    assert labels_S.shape == (len(sequences),), "one label per sequence"
    there_ND = sequences.x_ND > 0
    full, nothing = _ask(judge, sequences, [there_ND, np.zeros_like(there_ND)])

    def row(strategy: str, share: float, keep_ND: Keep, alone: _Answers, without: _Answers | None) -> Faithfulness:
        macro_f1, f1 = _f1(labels_S, alone.label_S, classes=alone.p_SQ.shape[1])
        p_full_S = full.probability(full.label_S)
        return Faithfulness(
            strategy=strategy,
            retention=share,
            of=of,
            kept=float((keep_ND & there_ND).sum(axis=1).mean()),
            accuracy=float((alone.label_S == labels_S).mean()),
            macro_f1=macro_f1,
            f1=f1,
            agreement=float((alone.label_S == full.label_S).mean()),
            passed=float(_sufficient(full, alone, nothing).mean()),
            sufficiency=float((p_full_S - alone.probability(full.label_S)).mean()),
            comprehensiveness=float((p_full_S - without.probability(full.label_S)).mean()) if without else None,
            predicted_S=alone.label_S,
        )

    rows = [
        row("everything", 1.0, there_ND, full, nothing if proof else None),
        row("nothing", 0.0, np.zeros_like(there_ND), nothing, full if proof else None),
    ]
    for strategy, scores_ND in scores_by_name.items():
        for share in shares:
            keep_ND = top_k(scores_ND, sequences, share, of=of, over=over, by=by, layout=layout)
            alone, *rest = _ask(judge, sequences, [keep_ND, ~keep_ND] if proof else [keep_ND])
            rows.append(row(strategy, share, keep_ND, alone, rest[0] if rest else None))
    return rows


def paired_gain(
    correct_a_S: NDArray[Any], correct_b_S: NDArray[Any], *, resamples: int = 2000, seed: int = 0
) -> Interval:
    """How much more often a is right than b on the same sequences, with the 95% interval of a paired bootstrap.

    >>> paired_gain(np.array([True, True, True, True]), np.array([True, False, True, False])).value
    0.5
    """
    even_S2 = np.full((len(correct_a_S), 2), 0.5)  # accuracy is about what was predicted alone
    right_S = np.ones(len(correct_a_S), dtype=np.int64)
    a_S, b_S = (np.asarray(correct).astype(np.int64) for correct in (correct_a_S, correct_b_S))
    return paired_difference(
        "accuracy",
        even_S2,
        even_S2,
        right_S,
        a_predicted_N=a_S,
        b_predicted_N=b_S,
        resamples=resamples,
        seed=seed,
    )


def smuggled(judge: MaskedModel, sequences: Sequences, keep_ND: Keep, *, seed: int = 0) -> Numbers:
    """What the judge predicts under the same masks when the records below them are those of others.

    A mask that says the answer by *which* slots it keeps still says it then. One that only points at values does not:
    the predictions are as good as guesses.
    """
    others_N = np.random.default_rng(seed).permutation(len(sequences.x_ND))
    moved = sequences.with_values(sequences.x_ND[others_N])
    return judge.decide(judge(moved, keep_ND))


# ---- asking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Answers:
    p_SQ: Floats
    label_S: Numbers

    def of(self, at_A: Numbers) -> _Answers:
        return _Answers(self.p_SQ[at_A], self.label_S[at_A])

    def probability(self, label_S: Numbers) -> Floats:
        """That of the given class of each sequence."""
        return self.p_SQ[np.arange(len(label_S)), label_S]


def _ask(judge: MaskedModel, sequences: Sequences, forms: Sequence[Keep]) -> list[_Answers]:
    """The judge's answers to the same sequences under several masks, in one call: it asks duplicates once."""
    copies = sequences.select(np.tile(np.arange(len(sequences)), len(forms)))
    p_SQ = judge(copies, np.concatenate(forms))
    label_S = judge.decide(p_SQ)
    return [
        _Answers(p, label) for p, label in zip(np.split(p_SQ, len(forms)), np.split(label_S, len(forms)), strict=True)
    ]


def _verdicts(full: _Answers, alone: _Answers, nothing: _Answers) -> NDArray[np.str_]:
    """The rule of `Verification`."""
    p_nothing_S = nothing.probability(full.label_S)
    evidence_S = full.probability(full.label_S) - p_nothing_S
    carried_S = alone.probability(full.label_S) - p_nothing_S
    little_S = evidence_S < MARGIN
    default_S = little_S & (nothing.label_S == full.label_S)
    enough_S = (alone.label_S == full.label_S) & ~little_S & (carried_S >= HALF * evidence_S)
    return np.select([default_S, enough_S], ["default", "sufficient"], "insufficient")


def _sufficient(full: _Answers, alone: _Answers, nothing: _Answers) -> NDArray[np.bool_]:
    sufficient_S: NDArray[np.bool_] = _verdicts(full, alone, nothing) == "sufficient"
    return sufficient_S


def _coarse_sizes() -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    yield 1
    size = 2
    while True:
        yield size
        yield size + size // 2
        size *= 2


def _f1(labels_S: NDArray[Any], predicted_S: Numbers, classes: int) -> tuple[float, tuple[float, ...]]:
    """Macro F1 over the classes that occur, and the F1 of each class (0 where it never does)."""
    true_SQ, predicted_SQ = (of[:, None] == np.arange(classes) for of in (labels_S, predicted_S))
    both_Q = (true_SQ & predicted_SQ).sum(axis=0)
    either_Q = true_SQ.sum(axis=0) + predicted_SQ.sum(axis=0)
    f1_Q = 2 * both_Q / np.maximum(either_Q, 1)
    return float(f1_Q[either_Q > 0].mean()), tuple(f1_Q.tolist())
