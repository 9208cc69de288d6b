"""A new question from a few labelled sequences: a linear head on what the model makes of a history.

Neither the codes nor the language model change, so the answers to all other questions stay what they are.

Shapes: S sequences, F features, h hidden, d latent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.language.asking import QuestionWriter
from tefm.language.classifier import Classifier
from tefm.language.predict import last_states
from tefm.questions.book import Figure, Head, Reads
from tefm.questions.measure import auroc_of
from tefm.records.sequences import Sequences

#: Labelled sequences of each answer that a question takes at least.
LEAST_TAUGHT = 4
#: How strongly weights are held back; the one that does best in cross-validation is taken.
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
FOLDS = 5

Floats = NDArray[np.float64]
#: Codes to quantised latents.
Embed = Callable[[NDArray[Any]], NDArray[np.float32]]


class TaughtClassifier(Classifier):
    """The language model with a head in place of its own answers."""

    def __init__(self, classifier: Classifier, writer: QuestionWriter, embed: Embed, head: Head | None = None) -> None:
        super().__init__(classifier.backbone, writer)
        self.embed, self.head = embed, head

    def features(self, histories: Sequences, reads: Reads) -> Floats:
        """What a head reads of each history of codes."""
        parts = []
        if reads != "state":
            latent_Nd = self.embed(histories.codes_NK).astype(np.float64)
            mean_Sd = np.add.reduceat(latent_Nd, histories.starts[:-1]) / histories.lengths[:, None]
            parts += [mean_Sd, latent_Nd[histories.starts[1:] - 1]]
        if reads != "codes":
            parts.append(last_states(self.backbone, self.prompts(histories)).astype(np.float64))
        return np.concatenate(parts, axis=1)

    def all_features(self, histories: Sequences) -> dict[Reads, Floats]:
        """What a head may read of each history, in every choice."""
        codes_SF, state_Sh = self.features(histories, "codes"), self.features(histories, "state")
        return {"codes": codes_SF, "state": state_Sh, "both": np.concatenate([codes_SF, state_Sh], axis=1)}

    def logits(self, sequences: Sequences, *, batch_tokens: int | None = None, show: bool = False) -> NDArray[Any]:
        """The log-odds of yes as the logits of no and yes; each distinct history is read once."""
        assert self.head is not None, "it has been taught"
        first, number_S = self.distinct(sequences)
        score_F = self.head.score(self.features(sequences.select(first), self.head.reads))
        return np.stack([np.zeros(len(score_F)), score_F], axis=1)[number_S]


def learn(features: Mapping[Reads, Floats], yes_S: NDArray[np.bool_], *, share: float | None, seed: int) -> Head:
    """The head that does best in cross-validation.

    Its probabilities are those of the labelled sequences; with `share`, those of a population with this share of yes.
    """
    from sklearn.linear_model import LogisticRegression

    reads, strength = _best(features, yes_S, seed)
    x_SF = features[reads]
    mean_F, scale_F = _scale(x_SF)
    fitted = LogisticRegression(C=strength, max_iter=2_000).fit((x_SF - mean_F) / scale_F, yes_S)
    weights_F = fitted.coef_[0] / scale_F
    bias = float(fitted.intercept_[0] - weights_F @ mean_F)
    if share is not None:
        bias += _log_odds(share) - _log_odds(float(yes_S.mean()))
    return Head(reads=reads, weights=tuple(weights_F.tolist()), bias=bias)


def cross_validated(features: Mapping[Reads, Floats], yes_S: NDArray[np.bool_], *, seed: int) -> Figure:
    """What a head is worth on sequences that it has not seen, and whose labels had no part in any choice."""
    from sklearn.model_selection import StratifiedKFold

    score_S = np.zeros(len(yes_S))
    folds = StratifiedKFold(_folds(yes_S), shuffle=True, random_state=seed)
    for learned, left_out in folds.split(yes_S, yes_S):
        parts = {reads: x_SF[learned] for reads, x_SF in features.items()}
        head = learn(parts, yes_S[learned], share=None, seed=seed)
        score_S[left_out] = head.score(features[head.reads][left_out])
    return auroc_of(score_S, yes_S, seed=seed)


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


def _best(features: Mapping[Reads, Floats], yes_S: NDArray[np.bool_], seed: int) -> tuple[Reads, float]:
    """What to read and how strongly to hold weights back: the lowest log-loss in cross-validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    losses: dict[tuple[Reads, float], float] = {}
    folds = StratifiedKFold(_folds(yes_S), shuffle=True, random_state=seed)
    for reads, x_SF in features.items():
        mean_F, scale_F = _scale(x_SF)  # without labels, so all sequences may take part
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, max_iter=2_000)
            p_S2 = cross_val_predict(model, (x_SF - mean_F) / scale_F, yes_S, cv=folds, method="predict_proba")
            losses[reads, strength] = log_loss(yes_S, p_S2[:, 1])
    return min(losses, key=lambda choice: losses[choice])


def _folds(yes_S: NDArray[np.bool_]) -> int:
    return max(2, min(FOLDS, int(yes_S.sum()), int((~yes_S).sum())))


def _scale(x_SF: Floats) -> tuple[Floats, Floats]:
    """The mean of each feature, and its spread; one that does not vary has no weight."""
    spread_F = x_SF.std(axis=0)
    return x_SF.mean(axis=0), np.where(spread_F > 1e-9, spread_F, np.inf)


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))
