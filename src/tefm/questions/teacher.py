"""What the records of a history say about every question: a regression for all of them, and trees for frequent ones.

Most questions are rare: a few dozen histories answer yes, and a language model learns those by heart before it learns
to read codes. So it learns from *cross-fitted* probabilities, which are known for every history and every question, and
come from a model that never saw the history's entity.

The regression is ridge. Each question has the strength that ranks its held-out answers best; a rare one that of all
questions together. With rare answers the best strengths are large, and the regression beats gradient-boosted trees. A
frequent question may depend on what came together or in which order: it is also learned by trees, and the model that
ranks its held-out answers better is taken.

Shapes: H histories, F features, Q questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

from tefm.base.progress import progress
from tefm.baselines.inputs import Features, Records
from tefm.codes.teacher import FOLDS, boosted_trees, folds_of, learned, unordered
from tefm.questions.answers import UNASKED
from tefm.scoring.metrics import auroc

#: The values of a category that have a column of their own, the most frequent first.
MOST_VALUES = 100
#: The strengths that are tried, in units of the number of histories.
STRENGTHS = (0.01, 0.1, 1.0, 5.0, 20.0, 100.0)
#: Features that vary less than this count as if they varied that much: a flag that is almost never on says little.
LEAST_SPREAD = 0.05
#: A question with so many histories that answer yes is judged half by its own answers and half by those of all.
SHRINK = 50
#: Log-odds approach this and never reach it.
SUREST = 5.0
#: Trees learn questions with at least so many histories of either answer, and of them the most frequent ones.
FREQUENT, MOST_FREQUENT = 100, 40
#: They see at most so many histories that answer no, or so many per yes.
MOST_NO, NO_PER_YES = 2_000, 5
TREES, LEAVES = 60, 7

Floats = NDArray[np.float64]


def history_features(records: Records) -> NDArray[np.float32]:
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


def taught_answers(
    features_HF: NDArray[Any],
    answers_HQ: NDArray[np.int8],
    groups_H: NDArray[np.int64],
    *,
    trees: Features | None = None,
    seed: int = 0,
) -> NDArray[np.float32]:
    """How probable yes is for each history and question, where yes and no are equally frequent.

    Histories of one group (an entity) are held out together. A question that is not asked of a history is answered all
    the same. `trees` are the features of the histories for trees; without them, the regression answers all questions.
    """
    fold_H = folds_of(groups_H, FOLDS, np.random.default_rng((seed, 19)))
    scores: dict[float, Floats] = {strength: np.zeros(answers_HQ.shape, dtype=np.float64) for strength in STRENGTHS}
    with progress("learning which records answer the questions", FOLDS) as advance:
        for fold in range(FOLDS):
            own_H = fold_H == fold
            if own_H.any() and not own_H.all():
                for strength, score in _ridge(features_HF, answers_HQ, ~own_H, own_H):
                    scores[strength][own_H] = score
            advance(1)
    ranked_SQ = np.stack([_shrunk(_ranked(score_HQ, answers_HQ), answers_HQ) for score_HQ in scores.values()])
    best_Q = ranked_SQ.argmax(axis=0)
    score_HQ = np.stack([scores[STRENGTHS[best]][:, question] for question, best in enumerate(best_Q)], axis=1)
    if trees is not None:
        score_HQ = _with_trees(score_HQ, trees, answers_HQ, fold_H, seed=seed)
    return _probabilities(score_HQ, answers_HQ)


def _with_trees(
    score_HQ: Floats, features: Features, answers_HQ: NDArray[np.int8], fold_H: NDArray[np.int64], *, seed: int
) -> Floats:
    """The scores of frequent questions come from trees where these rank held-out answers better."""
    counts_Q = np.minimum((answers_HQ == 0).sum(axis=0), (answers_HQ == 1).sum(axis=0))
    frequent = np.argsort(-counts_Q, kind="stable")[:MOST_FREQUENT]
    frequent = frequent[counts_Q[frequent] >= FREQUENT]
    if not len(frequent):
        return score_HQ
    by_trees_HQ = score_HQ.copy()
    unordered_F, rng = unordered(features.x_NF, features.kinds), np.random.default_rng((seed, 21))
    with progress("learning frequent questions with trees", len(frequent) * FOLDS) as advance:
        for question in frequent.tolist():
            answer_H = answers_HQ[:, question]
            for fold in range(FOLDS):
                own_H = fold_H == fold
                yes, no = (np.flatnonzero(~own_H & (answer_H == answer)) for answer in (1, 0))
                if own_H.any() and len(yes) and len(no):
                    rows = np.concatenate([yes, rng.permutation(no)[: max(MOST_NO, NO_PER_YES * len(yes))]])
                    model = boosted_trees(TREES, seed=seed, unordered_F=unordered_F, leaves=LEAVES)
                    model = learned(model, features.x_NF[rows], answer_H[rows])
                    by_trees_HQ[own_H, question] = model.decision_function(features.x_NF[own_H])
                advance(1)
    better_Q = _ranked(by_trees_HQ, answers_HQ) > _ranked(score_HQ, answers_HQ)
    return np.where(better_Q, by_trees_HQ, score_HQ)


def _ridge(
    features_HF: NDArray[Any], answers_HQ: NDArray[np.int8], fitted_H: NDArray[np.bool_], asked_H: NDArray[np.bool_]
) -> Iterator[tuple[float, Floats]]:
    """For each strength, the scores of some histories by a regression on others."""
    x_HF, answers = features_HF[fitted_H], answers_HQ[fitted_H]
    mean_F, spread_F = x_HF.mean(axis=0), np.maximum(x_HF.std(axis=0), LEAST_SPREAD)
    x_HF, other_HF = (x_HF - mean_F) / spread_F, (features_HF[asked_H] - mean_F) / spread_F
    asked, yes = answers != UNASKED, answers == 1
    share_Q = yes.sum(axis=0) / np.maximum(asked.sum(axis=0), 1)
    # what is not asked says nothing: it counts as the mean
    centred_HQ = np.where(asked, yes - share_Q, 0.0) / np.sqrt(np.maximum(share_Q * (1 - share_Q), 1e-6))
    centred_HQ = centred_HQ.astype(np.float32)
    gram_FF, target_FQ = x_HF.T @ x_HF, x_HF.T @ centred_HQ
    for strength in STRENGTHS:
        stronger_FF = gram_FF + strength * len(x_HF) * np.eye(len(gram_FF), dtype=np.float32)
        yield strength, other_HF @ cho_solve(cho_factor(stronger_FF), target_FQ)


def _ranked(score_HQ: Floats, answers_HQ: NDArray[np.int8]) -> Floats:
    """The AUROC of each question."""
    auroc_Q = np.full(score_HQ.shape[1], 0.5)
    for question, (score_H, answer_H) in enumerate(zip(score_HQ.T, answers_HQ.T, strict=True)):
        asked_H = answer_H != UNASKED
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


def _probabilities(score_HQ: Floats, answers_HQ: NDArray[np.int8]) -> NDArray[np.float32]:
    """Linear discriminants: of two normal distributions with the same deviation, equally frequent."""
    yes = answers_HQ == 1
    no = (answers_HQ != UNASKED) & ~yes

    def mean(of_HQ: NDArray[np.bool_], values_HQ: Floats) -> Floats:
        mean_Q: Floats = (values_HQ * of_HQ).sum(axis=0) / np.maximum(of_HQ.sum(axis=0), 1)
        return mean_Q

    middle_Q = mean(no, score_HQ)
    spread_Q = np.sqrt(np.maximum(mean(no, (score_HQ - middle_Q) ** 2), 1e-12))
    apart_Q = np.where(yes.any(axis=0), (mean(yes, score_HQ) - middle_Q) / spread_Q, 0.0)
    apart_Q = np.maximum(_shrunk(apart_Q, answers_HQ), 0.0)
    logit_HQ = apart_Q * ((score_HQ - middle_Q) / spread_Q - apart_Q / 2)
    probability_HQ: NDArray[np.float32] = (1 / (1 + np.exp(-SUREST * np.tanh(logit_HQ / SUREST)))).astype(np.float32)
    return probability_HQ
