"""Free text for tabular models: words weighted by TF-IDF, learned from the training part alone.

Trees get few columns, logistic regression all words. Validation chooses the form, whether the text of the last record
or of all records is read, and whether any is.

Shapes: N sequences, F features, V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.baselines.inputs import Features
from tefm.records.sequences import Sequences

#: Between the kind of the fields and the form of the text, in the name of a kind.
PLUS = " + "
#: The forms: the strongest directions of all words, the words that say most about the label, all words.
COMPONENTS, TELLING, WORDS = "text components", "telling words", "words"
LAST, ALL = " of the last record", " of all records"
#: Columns for trees.
MOST_COMPONENTS, MOST_TELLING = 200, 1_000
#: Words and pairs of neighbours, the most frequent ones that occur in two texts or more.
MOST_WORDS, LONGEST = 50_000, 2


def scoped(forms: Sequence[str], sequences: Sequences) -> list[str]:
    """The forms of text to choose from; one record's text is that of all."""
    scopes = (LAST, ALL) if sequences.lengths.max(initial=1) > 1 else (ALL,)
    return [form + scope for form in forms for scope in scopes]


def sequence_texts(notes: Sequence[str], sequences: Sequences, form: str) -> list[str]:
    """The text of each sequence.

    >>> sequences = Sequences(np.arange(3), np.array([0, 2, 3]))
    >>> sequence_texts(["cough", "", "well"], sequences, "words of all records")
    ['cough\\n', 'well']
    """
    if form.endswith(LAST):
        return [notes[row] for row in sequences.last.tolist()]
    return ["\n".join(notes[row] for row in sequences[i].tolist()) for i in range(len(sequences))]


def words_of(texts: Sequence[str], train: NDArray[np.int64]) -> Any | None:
    """The weight of each word in each text, N × V, sparse; None where no word occurs in two of the training texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    terms = TfidfVectorizer(
        ngram_range=(1, LONGEST),
        token_pattern=r"\w+",
        min_df=2,
        max_features=MOST_WORDS,
        sublinear_tf=True,
        dtype=np.float32,
    )
    try:
        terms.fit([texts[i] for i in train.tolist()])
    except ValueError:  # no such word
        return None
    return terms.transform(texts).tocsr()


def with_text(
    features: Features, texts: Sequence[str], form: str, labels: NDArray[Any], parts: NDArray[np.str_]
) -> Features:
    """The features and the words of the texts; without a word that occurs twice in training, the features alone."""
    train = np.flatnonzero(parts == "train")
    words_NV = words_of(texts, train)
    if words_NV is None:
        return features
    if form.startswith(WORDS):
        return Features(features.x_NF, features.kinds, words_NV)
    return features.with_numbers(_columns(words_NV, form, train, labels[train].astype(str)))


def _columns(words_NV: Any, form: str, train: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.float32]:
    """Few columns in place of all words."""
    if form.startswith(COMPONENTS):
        from sklearn.decomposition import TruncatedSVD

        count = min(MOST_COMPONENTS, words_NV.shape[1] - 1, len(train) - 1)
        if count > 0:
            components: NDArray[np.float32] = (
                TruncatedSVD(count, random_state=0).fit(words_NV[train]).transform(words_NV)
            )
            return components
    from sklearn.feature_selection import SelectKBest, chi2

    chosen = SelectKBest(chi2, k=min(MOST_TELLING, words_NV.shape[1])).fit(words_NV[train], labels)
    telling: NDArray[np.float32] = chosen.transform(words_NV).toarray()
    return telling
