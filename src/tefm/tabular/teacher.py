"""The teacher: how probable each class is for every record, from models that never saw that record's entity.

A network trained on the labels themselves memorises them: with a few hundred positive records and an encoder that can
distinguish every record, held-out AUROC falls while the training loss goes to zero. So it learns from *cross-fitted*
class probabilities instead (distillation): those of two plain models that were fitted without the record's entity. They
are smooth in the record, known for every record (labelled or not), and cannot leak the record's own label.

The label head of the tokenizer learns from the teacher of the records, the language model from that of the sequences.

Shapes: N records or sequences, M mixed ones, F features, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.base.training import side_by_side, threads_for
from tefm.scoring.calibration import log_softmax
from tefm.tabular.inputs import Features, for_regression

FOLDS = 5
#: In each fit, a frequent class has at most this many times the records of the rarest class.
CLASS_RATIO = 10
#: A class is never sampled below this many records.
CLASS_FLOOR = 10_000
#: Below this many training records there are `FEW_TREES`: there is too little to choose their number on.
FEW_RECORDS, FEW_TREES, FEW_RATE = 5_000, 100, 0.06
#: Otherwise trees are added until the loss of the first fold has not fallen for `PATIENCE` of them.
PATIENCE, MOST_TREES, RATE = 15, 500, 0.1
#: Trees take a category as unordered if it has at most this many values. Those of larger ones are in the order of their
#: frequency: unordered, they would be memorised.
UNORDERED = 16
#: How much of the log-probabilities comes from the linear model: the share with the lowest held-out loss.
LINEAR_SHARES = (0.0, 0.15, 0.3, 0.5, 0.7)
#: How much of them comes from a regression on words, beside the other two; and how strongly it may trust words.
WORD_SHARES, WORD_STRENGTHS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0), (0.3, 1.0, 3.0, 10.0)
#: Bytes of a value in the table that a model makes for itself.
FLOAT = 8
#: No class is less probable than this for the teacher.
LEAST = 1e-5


@dataclass(frozen=True, eq=False)
class Teacher:
    """Plain models of the label, a pair for each fold of the entities."""

    #: the logarithm of each class's probability, from the models that never saw the row's group
    log_NQ: NDArray[np.float32]
    #: the fold of each row, and the models that were fitted without it, for each fold that has some
    fold_N: NDArray[np.int64]
    folds: Mapping[int, Fold]
    linear_share: float

    @classmethod
    def fit(
        cls,
        choices: Sequence[Features],
        labels_N: NDArray[np.int64],
        groups_N: NDArray[np.int64],
        *,
        classes: int,
        seed: int = 0,
        known_NQ: NDArray[np.float32] | None = None,
    ) -> Teacher:
        """Fit both models on all folds but one, for each of them in turn.

        Of several `choices` of features, those with the lowest loss on the first fold are read. `labels_N` holds class
        numbers below `classes`, −1 where the label is unknown. `known_NQ` are log-probabilities from another teacher:
        where they have no higher loss on the first fold, they stay, and the other folds are not fitted.
        """
        rng = np.random.default_rng(seed)
        fold_N = folds_of(groups_N, rng)
        labelled_N = labels_N >= 0
        share_Q = np.bincount(labels_N[labelled_N], minlength=classes) / labelled_N.sum()
        log_2NQ = np.tile(np.log(np.maximum(share_Q, LEAST)), (2, len(labels_N), 1))
        fitted: dict[int, Fold] = {}
        best: tuple[Features, Callable[[], Any]] | None = None
        with progress("learning which features predict the label", FOLDS - 1 + len(choices)) as advance:
            folds = _folds(fold_N, labels_N)
            for number, held_out_N, rows in folds:
                advance(0, note=f"fold {number + 1} of {FOLDS}")
                rows, kept_Q = downsampled(rows, labels_N, classes, rng)
                stop, _ = downsampled(np.flatnonzero(held_out_N & labelled_N), labels_N, classes, rng)
                least = np.inf if known_NQ is None else loss_of(known_NQ[held_out_N], labels_N[held_out_N])
                for features in choices:
                    boosted = partial(boosted_trees, seed=seed, unordered_F=unordered(features))
                    untrained, grown = stopped_trees(boosted, features.x_NF, labels_N, rows, stop)
                    fold = Fold.fit(features, untrained(), labels_N, rows, kept_Q, grown)
                    log_2MQ = fold.answers(features.x_NF[held_out_N])
                    _, loss = _best_share(log_2MQ, labels_N[held_out_N], LINEAR_SHARES)
                    if loss < least:
                        least, best = loss, (features, untrained)
                        fitted[number], log_2NQ[:, held_out_N] = fold, log_2MQ
                    advance(1)
                if best is None and known_NQ is not None:
                    return cls(known_NQ, fold_N, {}, 0.0)
                if best is not None:
                    break
            if best is not None:
                chosen, untrained = best

                def learn(
                    held_out_N: NDArray[np.bool_], rows: NDArray[np.int64], kept_Q: NDArray[np.float64]
                ) -> tuple[Fold, NDArray[np.float64]]:
                    fold = Fold.fit(chosen, untrained(), labels_N, rows, kept_Q)
                    return fold, fold.answers(chosen.x_NF[held_out_N])

                others = list(folds)
                calls = [
                    partial(learn, held_out_N, *downsampled(rows, labels_N, classes, rng))
                    for _, held_out_N, rows in others
                ]
                results = side_by_side(calls, FLOAT * chosen.x_NF.size)
                for (number, held_out_N, _), (fold, log_2MQ) in zip(others, results, strict=True):
                    fitted[number], log_2NQ[:, held_out_N] = fold, log_2MQ
                    advance(1, note=f"fold {number + 1} of {FOLDS}")
        share, _ = _best_share(log_2NQ, labels_N, LINEAR_SHARES)
        return cls(_blend(log_2NQ, share).astype(np.float32), fold_N, fitted, share)

    def mixed(
        self, x_ND: NDArray[Any], rows: NDArray[np.int64], count: int, seed: int
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """New records, made of `rows` of the training records, and the log-probabilities of their classes.

        Each is a record of which a random part, at most half, is taken from another one of the same likely class. Both
        are of one fold, and the models that never saw it answer: no label of theirs is given away. A network that
        learns from such records too comes closer to the teacher than the training records alone allow (Bucila,
        Caruana, Niculescu-Mizil: Model compression, 2006).
        """
        rng = np.random.default_rng((seed, 6))
        kind_N = self.fold_N * self.log_NQ.shape[1] + self.log_NQ.argmax(axis=1)
        first_M = rng.choice(rows, count)
        second_M = first_M.copy()
        for kind in np.unique(kind_N[first_M]):
            chosen_M = kind_N[first_M] == kind
            second_M[chosen_M] = rng.choice(rows[kind_N[rows] == kind], int(chosen_M.sum()))
        taken_MD = rng.random((count, x_ND.shape[1])) < rng.uniform(0, 0.5, (count, 1))
        mixed_MD = np.where(taken_MD, x_ND[second_M], x_ND[first_M])
        log_MQ = self.log_NQ[first_M]
        parts = [(fold, np.flatnonzero(self.fold_N[first_M] == number)) for number, fold in self.folds.items()]
        parts = [(fold, part) for fold, part in parts if len(part)]
        calls = [partial(fold.answers, mixed_MD[part]) for fold, part in parts]
        for (_, part), log_2PQ in zip(parts, side_by_side(calls, FLOAT * mixed_MD.size), strict=True):
            log_MQ[part] = _blend(log_2PQ, self.linear_share)
        return mixed_MD, log_MQ

    def answers(self, x_ND: NDArray[Any]) -> NDArray[np.float32]:
        """The log-probabilities of the classes of other records, as the models of all folds see them."""
        if not self.folds:  # nothing could be learned: the shares of the classes
            return np.repeat(self.log_NQ[:1], len(x_ND), axis=0)
        log_2NQ = np.mean([fold.answers(x_ND) for fold in self.folds.values()], axis=0)
        return _blend(log_2NQ, self.linear_share).astype(np.float32)


def taught_by_words(
    log_NQ: NDArray[np.float32],
    words_NV: Any,
    labels_N: NDArray[np.int64],
    groups_N: NDArray[np.int64],
    *,
    seed: int = 0,
) -> NDArray[np.float32]:
    """What a teacher says, blended with logistic regressions on the words of texts that never saw the row's group.

    `words_NV` is sparse. How strongly a regression trusts words, and how much of the answer is its own, is what has the
    lowest held-out loss: texts that say nothing leave the teacher as it is.
    """
    from sklearn.linear_model import LogisticRegression

    fold_N = folds_of(groups_N, np.random.default_rng(seed))
    candidates: dict[float, NDArray[np.float64]] = {}
    with progress("learning which words predict the label", FOLDS * len(WORD_STRENGTHS)) as advance:
        for strength in WORD_STRENGTHS:
            words_NQ = log_NQ.astype(np.float64)
            for _, held_out_N, rows in _folds(fold_N, labels_N):
                model = LogisticRegression(C=strength, max_iter=500).fit(words_NV[rows], labels_N[rows])
                words_NQ[held_out_N] = _log_probabilities(model, words_NV[held_out_N], log_NQ.shape[1])
                advance(1)
            log_2NQ = np.stack([words_NQ, log_NQ])
            share, loss = _best_share(log_2NQ, labels_N, WORD_SHARES)
            candidates[loss] = _blend(log_2NQ, share)
    return candidates[min(candidates)].astype(np.float32)


@dataclass(frozen=True, eq=False)
class Fold:
    """The models of one fold; `kept_Q` is the share of each class that they were fitted on."""

    models: list[Any]
    kept_Q: NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        features: Features,
        trees: Any,
        labels_N: NDArray[np.int64],
        rows: NDArray[np.int64],
        kept_Q: NDArray[np.float64],
        grown: FirstTrees | None = None,
    ) -> Fold:
        """Both models, fitted on these rows; the trees may have been `grown` on them before."""
        x_NF, labels_M = features.x_NF[rows], labels_N[rows]
        return cls([learned(_linear(x_NF), x_NF, labels_M), grown or learned(trees, x_NF, labels_M)], kept_Q)

    def answers(self, x_NF: NDArray[Any]) -> NDArray[np.float64]:
        """The log-probabilities of both models, 2 × N × Q."""
        with threads_for(len(x_NF)):
            log_2NQ = np.stack([_log_probabilities(model, x_NF, len(self.kept_Q)) for model in self.models])
        # a class of which only a share was kept is more frequent than the models have seen
        return log_softmax(log_2NQ - np.log(self.kept_Q))


def _log_probabilities(model: Any, x_NF: Any, classes: int) -> NDArray[np.float64]:
    """What a model says of each class; one that it has not seen is as improbable as can be."""
    log_NQ = np.full((x_NF.shape[0], classes), np.log(LEAST))
    log_NQ[:, model.classes_] = np.log(np.maximum(model.predict_proba(x_NF), LEAST))
    return log_NQ


def learned(model: Any, x_NF: NDArray[Any], labels_N: NDArray[Any], **stopping: Any) -> Any:
    """The model, fitted with as many threads as its rows are worth."""
    with threads_for(len(x_NF)):
        return model.fit(x_NF, labels_N, **stopping)


def _linear(x_NF: NDArray[Any]) -> Any:
    """A logistic regression; whole numbers are categories."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    whole_F = np.array([bool((column_N == np.rint(column_N)).all()) for column_N in x_NF.T])
    columns = for_regression(np.flatnonzero(whole_F).tolist(), np.flatnonzero(~whole_F).tolist())
    return make_pipeline(columns, LogisticRegression(C=0.05, max_iter=200))


def unordered(features: Features) -> NDArray[np.bool_]:
    """Which features trees take as unordered categories."""
    is_category_F = np.array([kind == "category" for kind in features.kinds])
    return is_category_F & (features.x_NF.max(axis=0) <= UNORDERED)


def boosted_trees(
    trees: int, *, seed: int, unordered_F: NDArray[np.bool_], leaves: int = 15, rate: float = FEW_RATE
) -> Any:
    """Boosted trees, which make other errors than a regression."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=trees,
        max_leaf_nodes=leaves,
        learning_rate=rate,
        l2_regularization=1.0,
        max_features=0.5,
        categorical_features=unordered_F,
        early_stopping=False,
        random_state=seed,
    )


@dataclass(frozen=True, eq=False)
class FirstTrees:
    """The first trees of a boosted model; those after them raised its loss on other records."""

    model: Any
    n_iter_: int

    @property
    def classes_(self) -> NDArray[np.int64]:
        return self.model.classes_

    def predict_proba(self, x_NF: NDArray[Any]) -> NDArray[np.float64]:
        """What the whole model said when it had no more trees than these."""
        return next(islice(self.model.staged_predict_proba(x_NF), self.n_iter_ - 1, None))


def stopped_trees(
    boosted: Callable[..., Any],
    x_NF: NDArray[Any],
    labels_N: NDArray[np.int64],
    rows: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> tuple[Callable[[], Any], FirstTrees | None]:
    """What makes trees, yet to be fitted, that are as many as do best on other groups; and those fitted on `rows`.

    They do best where their loss on `stop` is lowest. Of few rows, there are a fixed number of trees, none of them
    fitted. Records of the same groups would not do: where all records of a group have one label, it could be looked up.
    """
    stop = stop[np.isin(labels_N[stop], labels_N[rows])]
    if len(rows) < FEW_RECORDS or not len(stop):
        return partial(boosted, FEW_TREES), None
    model = boosted(MOST_TREES, rate=RATE).set_params(early_stopping=True, n_iter_no_change=PATIENCE)
    learned(model, x_NF[rows], labels_N[rows], X_val=x_NF[stop], y_val=labels_N[stop])
    count = max(1, int(np.argmax(model.validation_score_)))  # the first score is that of no tree at all
    return partial(boosted, count, rate=RATE), FirstTrees(model, count)


def folds_of(groups_N: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The fold of each row; a group is in one fold."""
    return (rng.permutation(int(groups_N.max()) + 1) % FOLDS)[groups_N]


def _folds(
    fold_N: NDArray[np.int64], labels_N: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.int64]]]:
    """The number of each fold, its rows, and the labelled rows of the others.

    A fold is left out where the others have one class only: there is nothing to learn, and what was known stays.
    """
    for number in range(FOLDS):
        held_out_N = fold_N == number
        rows = np.flatnonzero(~held_out_N & (labels_N >= 0))
        if held_out_N.any() and len(np.unique(labels_N[rows])) > 1:
            yield number, held_out_N, rows


def _best_share(
    log_2NQ: NDArray[np.float64], labels_N: NDArray[np.int64], shares: Sequence[float]
) -> tuple[float, float]:
    """The share of the first model with the lowest loss on labelled rows, and this loss."""
    rows = np.flatnonzero(labels_N >= 0)
    losses = [loss_of(_blend(log_2NQ[:, rows], share), labels_N[rows]) for share in shares]
    return shares[int(np.argmin(losses))], min(losses)


def loss_of(log_NQ: NDArray[Any], labels_N: NDArray[np.int64]) -> float:
    """The log loss on labelled rows; 0 without any."""
    rows = np.flatnonzero(labels_N >= 0)
    return -float(log_NQ[rows, labels_N[rows]].mean()) if len(rows) else 0.0


def _blend(log_2NQ: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """The log-probabilities of two models as one; `share` is that of the first."""
    return log_softmax(share * log_2NQ[0] + (1 - share) * log_2NQ[1])


def downsampled(
    rows: NDArray[np.int64], labels_N: NDArray[np.int64], classes: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The rows with frequent classes sampled down, and the share of each class that is kept.

    A rare outcome does not mean fitting all records.
    """
    count_Q = np.bincount(labels_N[rows], minlength=classes)
    limit = max(CLASS_FLOOR, CLASS_RATIO * int(count_Q[count_Q > 0].min()))
    samples = [rng.permutation(rows[labels_N[rows] == number])[:limit] for number in range(classes)]
    return np.sort(np.concatenate(samples)), np.minimum(1.0, limit / np.maximum(count_Q, 1))
