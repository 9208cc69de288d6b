"""Logistic regression on the words of a sequence's text, weighted by TF-IDF.

Six settings, chosen on validation: single words, or words and pairs of neighbours (the 100,000 most frequent that occur
in two texts or more, sublinear counts); C of 1, 10 or 100.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.tabular.learners import Candidate, Chosen, Examples, LearningTask, choose, regressions

NGRAMS = (1, 2)
STRENGTHS = (1.0, 10.0, 100.0)
MOST_TERMS = 100_000
#: A word is anything between blanks and punctuation, including a single digit.
WORD = r"\w+"

Texts = NDArray[np.object_]


def fit_tfidf(train: Examples[Texts], validation: Examples[Texts], task: LearningTask) -> Chosen:
    """A logistic regression on the words of a sequence's text."""

    def candidates() -> Iterator[Candidate]:
        for longest in NGRAMS:
            terms = _terms(train.inputs, longest)
            yield from regressions(train, terms.transform, STRENGTHS, {"ngrams": longest}, task)

    return choose(candidates(), train.seen[0], validation, task)


def _terms(texts: Texts, longest: int) -> Any:
    """A fitted TF-IDF vectoriser of terms of up to `longest` words."""
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
