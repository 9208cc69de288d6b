"""Stage 2, alignment: the model learns to describe a code in words, and to write the code of a description.

The phrases of the schema are tokenised once and assembled per record.

Shapes: N records, D slots, K levels, H width of the language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.training import History, identity
from tefm.language.backbone import Backbone
from tefm.language.batches import Batch, Example, ShuffledBatches, collate
from tefm.language.config import AlignConfig
from tefm.language.shortening import PlainText
from tefm.language.training_loop import train
from tefm.language.vocabulary import TokenIds, rows_in_use, tokens_of
from tefm.tables.phrases import Phrases

#: The maximum number of training records.
MOST_RECORDS = 200_000
#: Fields of a description that is the target, drawn anew each time.
FIELDS = 4


def align(
    backbone: Backbone,
    examples: AlignmentExamples,
    x_ND: NDArray[Any],
    codes_NK: NDArray[np.integer],
    config: AlignConfig,
    *,
    checkpoint: Path | None = None,
) -> History:
    """Align codes and words: trains the backbone in place."""
    if len(x_ND) > MOST_RECORDS:
        rows = np.sort(np.random.default_rng(config.seed).permutation(len(x_ND))[:MOST_RECORDS])
        x_ND, codes_NK = x_ND[rows], codes_NK[rows]
    batches = ShuffledBatches((x_ND != 0).sum(axis=1), config.batch, config.seed)
    tokens = tokens_of(backbone, examples.ids.all, examples.words)
    with rows_in_use(backbone, tokens) as to_local:
        pad, window = int(to_local(backbone.tokenizer.pad_token_id)), backbone.window

        def batch_of(step: int) -> Batch:
            rng = np.random.default_rng((config.seed, 1, step))
            backward = rng.random() < config.backward
            drawn = [_draw(examples, x_ND[row], codes_NK[row], backward, config, rng) for row in batches[step]]
            return collate([replace(example, ids=to_local(example.ids)) for example in drawn], pad, window)

        return train(
            backbone,
            to_local(examples.ids.all).tolist(),
            batch_of,
            config.total_steps(len(x_ND)),
            config,
            title="aligning codes and words",
            checkpoint=checkpoint,
            fingerprint=identity(tokens, x_ND, codes_NK) if checkpoint else "",
        )


def _draw(
    examples: AlignmentExamples,
    x_D: NDArray[Any],
    code_K: NDArray[np.integer],
    backward: bool,
    config: AlignConfig,
    rng: np.random.Generator,
) -> Example:
    """One record as an example, with all of its fields or a random part of them."""
    fields = np.array(examples.present(x_D))
    if backward:
        if rng.random() >= config.whole:
            fields = fields[rng.random(len(fields)) < rng.random()]
        return examples.to_code(x_D, code_K, fields.tolist())
    if config.whole < 1:
        fields = rng.permutation(fields)[:FIELDS]
    if not len(fields):  # an empty record has no words to predict
        return examples.to_code(x_D, code_K, [])
    return examples.to_words(x_D, code_K, fields.tolist())


# ---- training examples ----------------------------------------------------------------------------------------------


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
        code = [self.ids.begin, *self.ids.of(code_K).tolist(), self.ids.end]
        parts = [(self._opening, False), (code, False)]
        for number in fields:
            parts += [(self._titles[number], False), (self._value(x_D, number), True)]
        ids = np.array([token for tokens, _ in parts for token in tokens], dtype=np.int64)
        return Example(ids, np.repeat([target for _, target in parts], [len(tokens) for tokens, _ in parts]))

    def to_code(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`Age: 70–80. … This admission is <code>`: the code is the target."""
        return Example.answering(self.code_prompt(x_D, fields), self.ids.of(code_K))

    def code_prompt(self, x_D: NDArray[Any], fields: Sequence[int]) -> NDArray[np.int64]:
        """A record in words, up to where its code begins."""
        tokens: list[int] = []
        for number in fields:
            tokens += self._titles[number] + self._value(x_D, number)
        return np.array([*tokens, *self._closing, self.ids.begin], dtype=np.int64)

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
