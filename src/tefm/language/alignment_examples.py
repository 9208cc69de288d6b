"""Records in the model's own words: the phrases of the schema, tokenised once, put together per record.

Shapes: N records, D slots, K levels, H width of the language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.batches import Example
from tefm.language.vocabulary import TokenIds
from tefm.records.phrases import Phrases

Ids = NDArray[np.int64]


class AlignmentExamples:
    """Writes the examples of the alignment: codes → words and words → codes."""

    def __init__(self, phrases: Phrases, tokenizer: Any, ids: TokenIds) -> None:
        self.phrases, self.ids = phrases, ids
        flat = [f" {words}" for field in phrases.fields for values in field.values for words in values]
        titles = [f" {field.title}:" for field in phrases.fields]
        marks = [f"This {phrases.record}", ",", ".", f" This {phrases.record} is"]
        said = iter(tokenizer([*flat, *titles, *marks], add_special_tokens=False)["input_ids"])
        #: per slot the token ids of its values 1, 2, …
        self._values = {
            slot: [next(said) for _ in values]
            for field in phrases.fields
            for slot, values in zip(field.slots, field.values, strict=True)
        }
        self._titles = [next(said) for _ in titles]
        self._opening, self._comma, self._stop, self._asking = list(said)

    def present(self, x_D: NDArray[Any]) -> list[int]:
        """The fields that a record says something about."""
        return [number for number, field in enumerate(self.phrases.fields) if any(x_D[slot] for slot in field.slots)]

    def to_words(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`This admission <code> Age: 70–80. …`: the values are the target, given code and titles."""
        parts = [(self._opening, False), (self._code(code_K), False)]
        for number in fields:
            parts += [(self._titles[number], False), (self._value(x_D, number), True)]
        return _example(parts)

    def to_code(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`Age: 70–80. … This admission is <code>`: the code is the target."""
        prompt = self.asking(x_D, fields)
        return Example.answering(prompt, self.ids.of(code_K))

    def asking(self, x_D: NDArray[Any], fields: Sequence[int]) -> Ids:
        """The words of a record, up to where its code is to come."""
        parts: list[int] = []
        for number in fields:
            parts += self._titles[number]
            parts += self._value(x_D, number)
        return np.array([*parts, *self._asking, self.ids.begin], dtype=np.int64)

    def _code(self, code_K: NDArray[np.integer]) -> list[int]:
        return [self.ids.begin, *self.ids.of(code_K).tolist(), self.ids.end]

    def _value(self, x_D: NDArray[Any], number: int) -> list[int]:
        field = self.phrases.fields[number]
        if not field.several:
            return self._values[field.slots[0]][int(x_D[field.slots[0]]) - 1] + self._stop
        said: list[int] = []
        for slot in field.slots:
            if x_D[slot]:
                said += (self._comma if said else []) + self._values[slot][0]
        return said + self._stop

    def vectors(self, embedding_VH: NDArray[np.floating], x_ND: NDArray[Any]) -> NDArray[np.float32]:
        """Per record the mean embedding of its values' words."""
        out_NH = np.zeros((len(x_ND), embedding_VH.shape[1]), dtype=np.float32)
        counts_N = np.zeros(len(x_ND), dtype=np.int64)
        for slot, values in self._values.items():
            for number, ids in enumerate(values, start=1):
                rows = np.flatnonzero(x_ND[:, slot] == number)
                out_NH[rows] += embedding_VH[ids].mean(axis=0)
                counts_N[rows] += 1
        return (out_NH / np.maximum(counts_N, 1)[:, None]).astype(np.float32)


def _example(parts: Sequence[tuple[list[int], bool]]) -> Example:
    ids = np.array([token for tokens, _ in parts for token in tokens], dtype=np.int64)
    return Example(ids, np.repeat([target for _, target in parts], [len(tokens) for tokens, _ in parts]))
