"""How well rationales hold over many sequences: accuracy, agreement and sufficiency of every ranking.

Shapes: S sequences, N records of all of them, D slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from tefm.rationale.masked_model import Keep, MaskedModel, Numbers, Of, Over, top_k
from tefm.rationale.verify import MaskedPredictions, predict, sufficient
from tefm.scoring.metrics import Predicted, paired_difference
from tefm.scoring.weighted import Interval
from tefm.tables.sequences import Sequences


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """One strategy at one retention, over many sequences."""

    strategy: str
    retention: float
    of: Of
    #: slots selected per record, on average
    kept: float
    accuracy: float
    macro_f1: float
    #: F1 of each class
    f1: tuple[float, ...]
    #: how often the selected features get the same answer as all features
    agreement: float
    #: the share of the sequences whose rationale is sufficient
    passed: float
    sufficiency: float
    #: None unless requested
    comprehensiveness: float | None
    #: the class numbers predicted from the selected features
    predicted_S: Numbers

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the single predictions."""
        return {name: value for name, value in asdict(self).items() if name != "predicted_S"}


def faithfulness(
    masked_model: MaskedModel,
    sequences: Sequences,
    labels_S: NDArray[Any],
    scores_by_name: Mapping[str, NDArray[Any]],
    shares: Sequence[float],
    *,
    of: Of = "all",
    over: Over = "record",
    proof: bool = False,
) -> list[Faithfulness]:
    """Every strategy at every retention, with the same selection, codes and model for all.

    The first two rows are `everything` and `nothing`. `proof` adds comprehensiveness, at twice the model calls.
    """
    labels_S = np.asarray(labels_S)
    assert labels_S.shape == (len(sequences),), "one label per sequence"
    present_ND = sequences.x_ND > 0
    full, nothing = predict(masked_model, sequences, [present_ND, np.zeros_like(present_ND)])

    def row(
        strategy: str, share: float, keep_ND: Keep, alone: MaskedPredictions, without: MaskedPredictions | None
    ) -> Faithfulness:
        classes = alone.p_SQ.shape[1]
        p_full_S = full.probability(full.label_S)
        return Faithfulness(
            strategy=strategy,
            retention=share,
            of=of,
            kept=float((keep_ND & present_ND).sum(axis=1).mean()),
            accuracy=float((alone.label_S == labels_S).mean()),
            macro_f1=float(f1_score(labels_S, alone.label_S, average="macro", zero_division=0)),
            f1=tuple(f1_score(labels_S, alone.label_S, labels=range(classes), average=None, zero_division=0).tolist()),
            agreement=float((alone.label_S == full.label_S).mean()),
            passed=float(sufficient(full, alone, nothing).mean()),
            sufficiency=float((p_full_S - alone.probability(full.label_S)).mean()),
            comprehensiveness=float((p_full_S - without.probability(full.label_S)).mean()) if without else None,
            predicted_S=alone.label_S,
        )

    rows = [
        row("everything", 1.0, present_ND, full, nothing if proof else None),
        row("nothing", 0.0, np.zeros_like(present_ND), nothing, full if proof else None),
    ]
    for strategy, scores_ND in scores_by_name.items():
        for share in shares:
            keep_ND = top_k(scores_ND, sequences, share, of=of, over=over)
            alone, *without = predict(masked_model, sequences, [keep_ND, ~keep_ND] if proof else [keep_ND])
            rows.append(row(strategy, share, keep_ND, alone, without[0] if without else None))
    return rows


def paired_gain(
    correct_a_S: NDArray[Any], correct_b_S: NDArray[Any], *, resamples: int = 2000, seed: int = 0
) -> Interval:
    """How much more often a is right than b on the same sequences, with the 95% interval of a paired bootstrap.

    >>> paired_gain(np.array([True, True, True, True]), np.array([True, False, True, False])).value
    0.5
    """
    even_S2 = np.full((len(correct_a_S), 2), 0.5)  # accuracy depends on the predicted classes alone
    right_S = np.ones(len(correct_a_S), dtype=np.int64)
    a_S, b_S = (np.asarray(correct).astype(np.int64) for correct in (correct_a_S, correct_b_S))
    a, b = (Predicted.of(even_S2, right_S, correct_S) for correct_S in (a_S, b_S))
    return paired_difference("accuracy", a, b, resamples=resamples, seed=seed)


def predict_shuffled(masked_model: MaskedModel, sequences: Sequences, keep_ND: Keep, *, seed: int = 0) -> Numbers:
    """The predictions under the same masks after the records are shuffled between sequences.

    A mask that encodes the answer in *which* slots it keeps still gives the answer away. With a mask that only points
    at values, the predictions are no better than chance.
    """
    shuffled_N = np.random.default_rng(seed).permutation(len(sequences.x_ND))
    shuffled = sequences.with_values(sequences.x_ND[shuffled_N])
    return masked_model.decide(masked_model(shuffled, keep_ND))
