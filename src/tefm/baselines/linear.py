"""Logistic regressions: of the slots of a sequence, and of its words.

Settings, chosen on validation (6 each). Slots: one-hot categories, scaled numbers and flags as they are; C of 0.003,
0.01, 0.03, 0.1, 0.3, 1. Words: TF-IDF of words, or of words and pairs of neighbours (at most 100,000 that occur in two
texts or more, sublinear counts); C of 1, 10, 100.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.baselines.choice import Chosen, Examples, Fitted, Task, choose
from tefm.baselines.inputs import Features

STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
NGRAMS = (1, 2)
TEXT_STRENGTHS = (1.0, 10.0, 100.0)
MOST_TERMS = 100_000
#: A word is what stands between blanks and punctuation, a single digit too.
WORD = r"\w+"

Texts = NDArray[np.object_]


def fit_logistic(train: Examples[Features], validation: Examples[Features], task: Task) -> Chosen:
    """A logistic regression of the slots."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    features = train.inputs
    columns = ColumnTransformer(
        [
            ("category", OneHotEncoder(handle_unknown="ignore"), features.of_kind("category")),
            ("number", StandardScaler(), features.of_kind("number")),
            ("flag", "passthrough", features.of_kind("flag")),
        ]
    )
    columns.fit(features.x_NF)
    candidates = _regressions(train, lambda these: columns.transform(these.x_NF), STRENGTHS, {}, task)
    return choose(candidates, validation, task)


def fit_tfidf(train: Examples[Texts], validation: Examples[Texts], task: Task) -> Chosen:
    """A logistic regression of the words of a sequence's text."""

    def candidates() -> Iterator[tuple[Fitted, dict[str, Any]]]:
        for longest in NGRAMS:
            terms = _terms(train.inputs, longest)
            yield from _regressions(train, terms.transform, TEXT_STRENGTHS, {"ngrams": longest}, task)

    return choose(candidates(), validation, task)


def _terms(texts: Texts, longest: int) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    terms = TfidfVectorizer(
        ngram_range=(1, longest),
        token_pattern=WORD,
        min_df=2,
        max_features=MOST_TERMS,
        sublinear_tf=True,
        dtype=np.float32,
    )
    try:
        return terms.fit(texts)
    except ValueError as error:
        raise InputError(
            f"no word occurs in two of the {len(texts)} training texts",
            value=texts[0] if len(texts) else None,
            remedy="give one text per sequence, as `serialise` writes them, or leave tfidf out",
        ) from error


def _regressions(
    train: Examples[Any],
    transform: Callable[[Any], Any],
    strengths: tuple[float, ...],
    settings: dict[str, Any],
    task: Task,
) -> Iterator[tuple[Fitted, dict[str, Any]]]:
    """One regression for each strength."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x_NF, (seen, places_N) = transform(train.inputs), train.seen
    for strength in strengths:
        linear = LogisticRegression(C=strength, max_iter=1_000, random_state=task.seed)
        with warnings.catch_warnings():
            # a fit that stops early is a weaker candidate, and validation says whether it is good enough
            warnings.simplefilter("ignore", ConvergenceWarning)
            linear.fit(x_NF, places_N)

        def predict(inputs: Any, linear: Any = linear) -> NDArray[Any]:
            p_NQ: NDArray[Any] = linear.predict_proba(transform(inputs))
            return p_NQ

        yield Fitted(predict, seen, task.classes), {**settings, "C": strength}
