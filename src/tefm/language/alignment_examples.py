"""Training examples of the alignment: the phrases of the schema are tokenised once and assembled per record.

Shapes: N records, D slots, K levels, H width of the language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.batches import Example
from tefm.language.plain import PlainText
from tefm.language.vocabulary import TokenIds
from tefm.records.phrases import Phrases

Ids = NDArray[np.int64]


class AlignmentExamples:
    """Makes the training examples of the alignment: codes → words and words → codes."""

    def __init__(self, phrases: Phrases, tokenizer: Any, ids: TokenIds) -> None:
        self.phrases, self.ids = phrases, ids
        values = [f" {words}" for field in phrases.fields for slot in field.values for words in slot]
        titles = [f" {field.title}:" for field in phrases.fields]
        frame = [f"This {phrases.record}", ",", ".", f" This {phrases.record} is"]
        # a value of a category may look like a code
        plain = list(map(PlainText(tokenizer), [*values, *titles, *frame]))
        tokenised = iter(tokenizer(plain, add_special_tokens=False)["input_ids"])
        #: per slot the token ids of its values 1, 2, …
        self._values = {
            slot: [next(tokenised) for _ in slot_values]
            for field in phrases.fields
            for slot, slot_values in zip(field.slots, field.values, strict=True)
        }
        self._titles = [next(tokenised) for _ in titles]
        self._opening, self._comma, self._stop, self._closing = list(tokenised)

    @property
    def words(self) -> list[list[int]]:
        """The token ids of everything that a description may hold, besides codes."""
        values = [ids for slot_values in self._values.values() for ids in slot_values]
        return [*values, *self._titles, self._opening, self._comma, self._stop, self._closing]

    def present(self, x_D: NDArray[Any]) -> list[int]:
        """The numbers of the fields that have a value in this record."""
        return [number for number, field in enumerate(self.phrases.fields) if any(x_D[slot] for slot in field.slots)]

    def to_words(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`This admission <code> Age: 70–80. …`: the values are the target; the code and the titles are given."""
        parts = [(self._opening, False), (self._code(code_K), False)]
        for number in fields:
            parts += [(self._titles[number], False), (self._value(x_D, number), True)]
        return _example(parts)

    def to_code(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`Age: 70–80. … This admission is <code>`: the code is the target."""
        return Example.answering(self.code_prompt(x_D, fields), self.ids.of(code_K))

    def code_prompt(self, x_D: NDArray[Any], fields: Sequence[int]) -> Ids:
        """A record in words, up to where its code begins."""
        tokens: list[int] = []
        for number in fields:
            tokens += self._titles[number] + self._value(x_D, number)
        return np.array([*tokens, *self._closing, self.ids.begin], dtype=np.int64)

    def _code(self, code_K: NDArray[np.integer]) -> list[int]:
        return [self.ids.begin, *self.ids.of(code_K).tolist(), self.ids.end]

    def _value(self, x_D: NDArray[Any], number: int) -> list[int]:
        field = self.phrases.fields[number]
        if not field.several:
            return self._values[field.slots[0]][int(x_D[field.slots[0]]) - 1] + self._stop
        tokens: list[int] = []
        for slot in field.slots:
            if x_D[slot]:
                tokens += (self._comma if tokens else []) + self._values[slot][0]
        return tokens + self._stop

    def mean_embeddings(self, embedding_VH: NDArray[np.floating], x_ND: NDArray[Any]) -> NDArray[np.float32]:
        """The mean embedding of the words of each record's values."""
        sum_NH = np.zeros((len(x_ND), embedding_VH.shape[1]), dtype=np.float32)
        counts_N = np.zeros(len(x_ND), dtype=np.int64)
        for slot, values in self._values.items():
            for number, ids in enumerate(values, start=1):
                rows = np.flatnonzero(x_ND[:, slot] == number)
                sum_NH[rows] += embedding_VH[ids].mean(axis=0)
                counts_N[rows] += 1
        return (sum_NH / np.maximum(counts_N, 1)[:, None]).astype(np.float32)


def _example(parts: Sequence[tuple[list[int], bool]]) -> Example:
    ids = np.array([token for tokens, _ in parts for token in tokens], dtype=np.int64)
    return Example(ids, np.repeat([target for _, target in parts], [len(tokens) for tokens, _ in parts]))
