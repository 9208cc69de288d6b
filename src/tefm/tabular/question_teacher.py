"""What the records of a history say about every question: a regression for all of them, and trees for frequent ones.

Most questions are rare, and a language model would memorise the few histories (prefixes) that answer yes. So it learns
from *cross-fitted* probabilities (distillation): they exist for every history and question, and come from a model that
never saw the entity. A model of all histories answers together with the language model.

The regression is ridge, with the strength that ranks a question's held-out answers best (for rare ones, those of all
questions). Frequent questions may depend on interactions or on the order, so trees are tried for them as well.

An answer is 1 for yes, 0 for no, −1 where the question is not asked of the history.

Shapes: H histories, F features, Q questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

from tefm.base.progress import progress
from tefm.scoring.metrics import auroc
from tefm.tabular.heads import Floats, Head, HeadPart, Linear, Trees, of_boosted
from tefm.tabular.inputs import Features, RecordSlots
from tefm.tabular.teacher import FOLDS, boosted_trees, folds_of, learned, unordered

#: The values of a category that have a column of their own, the most frequent first.
MOST_VALUES = 100
#: The strengths that are tried, in units of the number of histories.
STRENGTHS = (0.01, 0.1, 1.0, 5.0, 20.0, 100.0)
#: Features that vary less than this count as if they varied that much: a flag that is almost never on says little.
LEAST_SPREAD = 0.05
#: A question with this many histories that answer yes is judged half by its own answers and half by those of all.
SHRINK = 50
#: Log-odds approach this and never reach it.
SUREST = 5.0
#: Trees learn questions with at least this many histories of either answer, and of them at most this many.
FREQUENT, MOST_FREQUENT = 50, 40
#: They see at most this many histories that answer no, or this many per yes.
MOST_NO, NO_PER_YES = 2_000, 5
TREES, LEAVES = 60, 7


def history_features(records: RecordSlots) -> NDArray[np.float32]:
    """One row per history: its last record, the mean of its records, and how many they are.

    A category has a column per value; a number its bucket as a share, and whether it is there.
    """
    slots_ND, sequences = records.slots_ND, records.sequences
    columns: list[NDArray[Any]] = []
    for slot, of_N in zip(records.layout.slots, slots_ND.T, strict=True):
        if slot.kind == "category":
            columns.append(of_N[:, None] == np.arange(1, min(slot.size, MOST_VALUES) + 1))
        elif slot.kind == "number":
            columns.append(np.stack([of_N / slot.size, of_N > 0], axis=1))
        else:
            columns.append(of_N[:, None])
    record_NF = np.concatenate(columns, axis=1, dtype=np.float32)
    lengths_H = sequences.lengths
    share = np.repeat(1 / lengths_H, lengths_H).astype(np.float32)
    mean_HF = csr_matrix((share, sequences.rows, sequences.starts), shape=(len(sequences), len(slots_ND))) @ record_NF
    features_HF: NDArray[np.float32] = np.hstack(
        [record_NF[sequences.last], mean_HF, np.log(lengths_H)[:, None]], dtype=np.float32
    )
    return features_HF


@dataclass(frozen=True, eq=False)
class QuestionTeacher:
    """What was learned about questions. All log-odds are those of histories of which as many answer yes as no."""

    #: how probable yes is for each history and question, from models that never saw the history's group
    yes_HQ: NDArray[np.float32]
    #: a regression on the fields for each question, learned from all histories
    regressions: tuple[Linear, ...]
    #: trees, for the questions where they rank better
    trees: tuple[Head | None, ...]

    @classmethod
    def fit(
        cls,
        features_HF: NDArray[Any],
        answers_HQ: NDArray[np.int8],
        groups_H: NDArray[np.int64],
        *,
        trees: Features | None = None,
        seed: int = 0,
    ) -> QuestionTeacher:
        """Learn from histories; those of one group (an entity) are held out together.

        A question that is not asked of a history is answered all the same. `trees` are the features of the histories
        for trees; without them, there are regressions alone.
        """
        fold_H = folds_of(groups_H, np.random.default_rng((seed, 19)))
        scores: dict[float, Floats] = {strength: np.zeros(answers_HQ.shape, dtype=np.float64) for strength in STRENGTHS}
        with progress("learning which records answer the questions", FOLDS + 1) as advance:
            for fold in range(FOLDS):
                own_H = fold_H == fold
                if own_H.any() and not own_H.all():
                    others = _ridge(features_HF[~own_H], answers_HQ[~own_H], STRENGTHS)
                    for strength, (weights_FQ, bias_Q) in others.items():
                        scores[strength][own_H] = features_HF[own_H] @ weights_FQ + bias_Q
                advance(1)
            ranked_SQ = np.stack([_shrunk(_ranked(score_HQ, answers_HQ), answers_HQ) for score_HQ in scores.values()])
            best = np.array(STRENGTHS)[ranked_SQ.argmax(axis=0)].tolist()
            score_HQ = np.stack([scores[strength][:, question] for question, strength in enumerate(best)], axis=1)
            everyone = _ridge(features_HF, answers_HQ, sorted(set(best)))
            advance(1)
        scale_Q, shift_Q = _calibration(score_HQ, answers_HQ)
        regressions = []
        for question, (strength, scale, shift) in enumerate(zip(best, scale_Q, shift_Q, strict=True)):
            weights_FQ, bias_Q = everyone[strength]
            regressions.append(Linear.of(weights_FQ[:, question] * scale, float(bias_Q[question] * scale + shift)))
        heads: list[Head | None] = [None] * len(regressions)
        if trees is not None:
            score_HQ, models = _with_trees(score_HQ, trees, answers_HQ, fold_H, seed=seed)
            scale_Q, shift_Q = _calibration(score_HQ, answers_HQ)
            for question, model in models.items():
                if scale_Q[question] > 0:  # otherwise they tell yes and no apart in no way
                    part = HeadPart(reads="slots", share=float(scale_Q[question]), model=model)
                    heads[question] = Head(parts=(part,), shift=float(shift_Q[question]))
        logit_HQ = score_HQ * scale_Q + shift_Q
        yes_HQ = (1 / (1 + np.exp(-SUREST * np.tanh(logit_HQ / SUREST)))).astype(np.float32)
        return cls(yes_HQ, tuple(regressions), tuple(heads))


def _with_trees(
    score_HQ: Floats, features: Features, answers_HQ: NDArray[np.int8], fold_H: NDArray[np.int64], *, seed: int
) -> tuple[Floats, dict[int, Trees]]:
    """The scores of frequent questions come from trees where these rank held-out answers better; and these trees."""
    count_Q = np.minimum((answers_HQ == 0).sum(axis=0), (answers_HQ == 1).sum(axis=0))
    order = np.argsort(-count_Q, kind="stable")
    frequent = order[count_Q[order] >= FREQUENT][:MOST_FREQUENT]
    score_HQ, models = score_HQ.copy(), dict[int, Trees]()
    if not len(frequent):
        return score_HQ, models
    x_HF, rng = features.x_NF, np.random.default_rng((seed, 21))
    unordered_F = unordered(features)

    def grown(answer_H: NDArray[np.int8], rows_H: NDArray[np.bool_]) -> Any:
        yes, no = (np.flatnonzero(rows_H & (answer_H == answer)) for answer in (1, 0))
        rows = np.concatenate([yes, rng.permutation(no)[: max(MOST_NO, NO_PER_YES * len(yes))]])
        model = boosted_trees(TREES, seed=seed, unordered_F=unordered_F, leaves=LEAVES)
        return learned(model, x_HF[rows], answer_H[rows])

    with progress("learning frequent questions with trees", len(frequent)) as advance:
        for question in frequent.tolist():
            answer_H = answers_HQ[:, question]
            by_trees_H = _held_out(partial(grown, answer_H), x_HF, score_HQ[:, question], answer_H, fold_H)
            if by_trees_H is not None:
                stored = of_boosted(grown(answer_H, np.full(len(fold_H), True)), x_HF)
                if stored is None:
                    break
                (models[question],), score_HQ[:, question] = stored, by_trees_H
            advance(1)
    return score_HQ, models


def _held_out(
    grown: Callable[[NDArray[np.bool_]], Any],
    x_HF: NDArray[Any],
    score_H: Floats,
    answer_H: NDArray[np.int8],
    fold_H: NDArray[np.int64],
) -> Floats | None:
    """What trees say of histories that they have not seen; None where the scores that there are rank them better.

    If these do so on the first part that is held out, the others are not tried.
    """
    by_trees_H = score_H.copy()

    def better(of_H: NDArray[np.bool_]) -> bool:
        trees, others = (_ranked(of[of_H, None], answer_H[of_H, None])[0] for of in (by_trees_H, score_H))
        return bool(trees > others)

    for fold in range(FOLDS):
        own_H = fold_H == fold
        if not own_H.any() or len(np.unique(answer_H[~own_H & (answer_H >= 0)])) < 2:
            return None
        by_trees_H[own_H] = grown(~own_H).decision_function(x_HF[own_H])
        if fold == 0 and not better(own_H):
            return None
    return by_trees_H if better(np.full(len(fold_H), True)) else None


def _ridge(
    features_HF: NDArray[Any], answers_HQ: NDArray[np.int8], strengths: Sequence[float]
) -> dict[float, tuple[Floats, Floats]]:
    """For each strength, the weights of features and the bias for each question."""
    mean_F, spread_F = features_HF.mean(axis=0), np.maximum(features_HF.std(axis=0), LEAST_SPREAD)
    x_HF = (features_HF - mean_F) / spread_F
    asked, yes = answers_HQ >= 0, answers_HQ == 1
    share_Q = yes.sum(axis=0) / np.maximum(asked.sum(axis=0), 1)
    # what is not asked says nothing: it counts as the mean
    centred_HQ = np.where(asked, yes - share_Q, 0.0) / np.sqrt(np.maximum(share_Q * (1 - share_Q), 1e-6))
    gram_FF, target_FQ = x_HF.T @ x_HF, x_HF.T @ centred_HQ.astype(np.float32)
    models = {}
    for strength in strengths:
        stronger_FF = gram_FF + strength * len(x_HF) * np.eye(len(gram_FF), dtype=np.float32)
        weights_FQ = cho_solve(cho_factor(stronger_FF), target_FQ) / spread_F[:, None]
        models[strength] = weights_FQ, -(mean_F @ weights_FQ)
    return models


def _ranked(score_HQ: Floats, answers_HQ: NDArray[np.int8]) -> Floats:
    """The AUROC of each question."""
    auroc_Q = np.full(score_HQ.shape[1], 0.5)
    for question, (score_H, answer_H) in enumerate(zip(score_HQ.T, answers_HQ.T, strict=True)):
        asked_H = answer_H >= 0
        yes_H = answer_H[asked_H] == 1
        if yes_H.any() and not yes_H.all():
            auroc_Q[question] = auroc(score_H[asked_H], yes_H)
    return auroc_Q


def _shrunk(of_Q: Floats, answers_HQ: NDArray[np.int8]) -> Floats:
    """A figure of each question, nearer to the mean of all the fewer histories answer yes to it."""
    count_Q = (answers_HQ == 1).sum(axis=0)
    common = float(np.average(of_Q, weights=count_Q)) if count_Q.any() else 0.0
    shrunk_Q: Floats = (count_Q * of_Q + SHRINK * common) / (count_Q + SHRINK)
    return shrunk_Q


def _calibration(score_HQ: Floats, answers_HQ: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """What scores are multiplied with, and what is added, to be log-odds.

    They are those of linear discriminants: of two normal distributions with the same deviation, equally frequent.
    """
    yes = answers_HQ == 1
    no = (answers_HQ >= 0) & ~yes

    def mean(of_HQ: NDArray[np.bool_], values_HQ: Floats) -> Floats:
        mean_Q: Floats = (values_HQ * of_HQ).sum(axis=0) / np.maximum(of_HQ.sum(axis=0), 1)
        return mean_Q

    middle_Q = mean(no, score_HQ)
    spread_Q = np.sqrt(np.maximum(mean(no, (score_HQ - middle_Q) ** 2), 1e-12))
    apart_Q = np.where(yes.any(axis=0), (mean(yes, score_HQ) - middle_Q) / spread_Q, 0.0)
    apart_Q = np.maximum(_shrunk(apart_Q, answers_HQ), 0.0)
    return apart_Q / spread_Q, -apart_Q * (middle_Q / spread_Q + apart_Q / 2)
