"""Models that learn a new question from a few labelled sequences: of a history's codes and fields, blended (stacked).

Neither the codes nor the language model change, so the answers to all other questions stay what they are.

Codes may have lost what the question needs, so fields are read too. The state of the language model is read only where
the model reads texts: otherwise it holds less than the codes.

Shapes: S sequences, F features, M models, C settings of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from tefm.base.errors import InputError
from tefm.base.progress import progress
from tefm.tabular.heads import Floats, Head, HeadPart, Linear, Reads, Trees, joined_trees, nodes_of
from tefm.tabular.question_teacher import LEAST_SPREAD

#: The fewest labelled sequences of each answer.
LEAST_TAUGHT = 4
#: Strengths of a logistic regression (C), chosen in cross-validation.
STRENGTHS = (0.0001, 0.001, 0.01, 0.1)
FOLDS = 5
#: Rounds in which the model joins the blend that lowers its loss most; in the beginning, all have the same share.
ROUNDS = 10
#: Trees learn from at most this many labelled sequences.
MOST_ROWS = 2_000
#: Boosted trees: their number, their leaves, and how many times they are grown, each from other samples.
BOOSTED, LEAVES, BAGS = 100, 4, 3
#: Random trees, and the fewest sequences in a leaf of any tree.
RANDOM, LEAST_LEAF = 100, 3

#: Row numbers to learn from, and those that are left out; several times.
Folds = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]


def learn(
    features: Mapping[Reads, NDArray[Any]], yes_S: NDArray[np.bool_], *, share: float | None, seed: int
) -> tuple[Head, Floats]:
    """Models of all that can be read, in the blend that does best in cross-validation, and held-out log-odds.

    Its probabilities are those of the labelled sequences; with `share`, those of a population with this share of yes.
    The held-out log-odds of a sequence come from models that had not seen it, in a blend that was chosen on the others.
    """
    import sklearn

    learners, folds = [learner for learner in LEARNERS if learner.reads in features], _folds(yes_S, seed)
    scores: list[Floats] = []
    parts = []
    # a check of the settings of each of thousands of small trees takes as long as the tree
    with sklearn.config_context(skip_parameter_validation=True):
        with progress("learning the question", len(learners)) as advance:
            for learner in learners:
                scores.append(learner.held_out(features[learner.reads], yes_S, folds, seed))
                advance(1)
        for learner, number, of in zip(learners, *_blend(scores, yes_S), strict=True):
            model = learner.fit(features[learner.reads], yes_S, learner.settings[number], seed)
            parts.append(HeadPart(reads=learner.reads, share=float(of), model=model))
    shift = 0.0 if share is None else float(logit(share) - logit(yes_S.mean()))
    score_S = np.zeros(len(yes_S))
    for others, own in folds:
        best, share_M = _blend([score_CS[:, others] for score_CS in scores], yes_S[others])
        score_S[own] = share_M @ np.stack([score_CS[c, own] for score_CS, c in zip(scores, best, strict=True)])
    return Head(parts=tuple(parts), shift=shift), score_S


def check_labels(yes_S: NDArray[np.bool_], *, file: str | None, column: str) -> None:
    """Refuse fewer labelled sequences than anything can be learned from."""
    for answer, count in (("yes", int(yes_S.sum())), ("no", int((~yes_S).sum()))):
        if count < LEAST_TAUGHT:
            raise InputError(
                f"{count} labelled sequences answer {answer}",
                file=file,
                column=column,
                remedy=f"give at least {LEAST_TAUGHT} of each answer; 8 to 100 are better",
            )


def _folds(yes_S: NDArray[np.bool_], seed: int) -> Folds:
    """Row numbers to learn from and row numbers to score, several times."""
    from sklearn.model_selection import StratifiedKFold

    folds = max(2, min(FOLDS, int(yes_S.sum()), int((~yes_S).sum())))
    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(yes_S, yes_S))


def _blend(scores: Sequence[Floats], yes_S: NDArray[np.bool_]) -> tuple[list[int], Floats]:
    """The number of each model's best setting, and its share in the answer: those with the lowest loss."""
    best = [int(np.argmin([_loss(score_S, yes_S) for score_S in score_CS])) for score_CS in scores]
    return best, _shares(np.stack([score_CS[c] for score_CS, c in zip(scores, best, strict=True)]), yes_S)


def _shares(score_MS: Floats, yes_S: NDArray[np.bool_]) -> Floats:
    """The share of each model in the blend with the lowest loss.

    All begin alike; in each round the one joins again that lowers the loss most (Caruana et al.: Ensemble selection
    from libraries of models, 2004).
    """
    count_M = np.ones(len(score_MS))
    best = (_loss(score_MS.mean(axis=0), yes_S), count_M.copy())
    for _ in range(ROUNDS):
        losses = [_loss((count_M @ score_MS + score_S) / (count_M.sum() + 1), yes_S) for score_S in score_MS]
        count_M[int(np.argmin(losses))] += 1
        if min(losses) < best[0]:
            best = (min(losses), count_M.copy())
    share_M: Floats = best[1] / best[1].sum()
    return share_M


def _loss(score_S: Floats, yes_S: NDArray[np.bool_]) -> float:
    """The log-loss of log-odds of yes."""
    return float(np.logaddexp(0, np.where(yes_S, -score_S, score_S)).mean())


# ---- models -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learner:
    """A kind of model, what it reads, and the settings that are tried."""

    reads: Reads
    #: features, answers, a setting and a seed to a model
    fit: Callable[[NDArray[Any], NDArray[np.bool_], float, int], Linear | Trees]
    settings: Sequence[float]

    def held_out(self, x_SF: NDArray[Any], yes_S: NDArray[np.bool_], folds: Folds, seed: int) -> Floats:
        """The log-odds of yes, for each setting from models that have not seen the sequence, C × S."""
        score_CS = np.zeros((len(self.settings), len(yes_S)))
        for setting, score_S in zip(self.settings, score_CS, strict=True):
            for learned, left_out in folds:
                score_S[left_out] = self.fit(x_SF[learned], yes_S[learned], setting, seed).score(x_SF[left_out])
        return score_CS


def _linear(x_SF: NDArray[Any], yes_S: NDArray[np.bool_], strength: float, seed: int, least: float = 0.0) -> Linear:
    """A logistic regression on features of the same spread; one that does not vary has no weight."""
    from sklearn.linear_model import LogisticRegression

    x_SF = x_SF.astype(np.float64)
    mean_F, spread_F = x_SF.mean(axis=0), x_SF.std(axis=0)
    spread_F = np.where(spread_F > 1e-9, np.maximum(spread_F, least), np.inf)
    fitted = LogisticRegression(C=strength, max_iter=2_000).fit((x_SF - mean_F) / spread_F, yes_S)
    weights_F = fitted.coef_[0] / spread_F
    return Linear(weights=tuple(weights_F.tolist()), bias=float(fitted.intercept_[0] - weights_F @ mean_F))


def _boosted(x_SF: NDArray[Any], yes_S: NDArray[np.bool_], leaves: float, seed: int) -> Trees:
    """Small trees, each of which corrects those before it; several such models, since one depends on its samples."""
    from sklearn.ensemble import GradientBoostingClassifier

    x_SF, yes_S = _sample(x_SF, yes_S, seed)
    models = [
        GradientBoostingClassifier(
            n_estimators=BOOSTED,
            learning_rate=0.05,
            max_leaf_nodes=int(leaves),
            min_samples_leaf=LEAST_LEAF,
            subsample=0.8,
            max_features=0.3,
            random_state=BAGS * seed + bag,
        ).fit(x_SF, yes_S)
        for bag in range(BAGS)
    ]
    trees = [tree.tree_ for model in models for tree in model.estimators_[:, 0]]
    nodes = [nodes_of(tree, models[0].learning_rate / BAGS * tree.value[:, 0, 0]) for tree in trees]
    return joined_trees(nodes, shares=False, bias=float(logit(yes_S.mean())))


def _random(x_SF: NDArray[Any], yes_S: NDArray[np.bool_], least: float, seed: int) -> Trees:
    """Extremely randomised trees, which need the fewest labels."""
    from sklearn.ensemble import ExtraTreesClassifier

    forest = ExtraTreesClassifier(RANDOM, min_samples_leaf=int(least), max_features=0.3, random_state=seed)
    trees = [tree.tree_ for tree in forest.fit(*_sample(x_SF, yes_S, seed)).estimators_]
    nodes = [nodes_of(tree, tree.value[:, 0, 1] / tree.value[:, 0].sum(axis=1) / len(trees)) for tree in trees]
    return joined_trees(nodes, shares=True)


def _sample(x_SF: NDArray[Any], yes_S: NDArray[np.bool_], seed: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    chosen = np.sort(np.random.default_rng((seed, 23)).permutation(len(yes_S))[:MOST_ROWS])
    return x_SF[chosen].astype(np.float32), yes_S[chosen]


LEARNERS = (
    Learner("codes", _linear, STRENGTHS),
    Learner("fields", partial(_linear, least=LEAST_SPREAD), STRENGTHS),
    Learner("slots", _boosted, (LEAVES,)),
    Learner("slots", _random, (LEAST_LEAF,)),
    Learner("state", _linear, STRENGTHS),
)
