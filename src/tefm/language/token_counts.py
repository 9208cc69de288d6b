"""The length of sequences in tokens, in several text formats. Counting needs tokenizers, not models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Texts tokenised at a time: enough to use the tokenizer's threads, with little memory.
BATCH = 1_000


@dataclass(frozen=True)
class TokenCount:
    """Tokens per sequence, for one format of the sequences and one tokenizer."""

    format: str
    tokenizer: str
    mean: float
    median: float
    largest: int
    #: tokens of all sequences, as a share of the tokens of the same sequences as prose
    share_of_prose: float


def counts(texts: list[str], tokenizer: Any) -> NDArray[np.int64]:
    """The number of tokens of each text, without special tokens; `tokenizer` is one of `transformers`."""
    lengths: list[int] = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH], add_special_tokens=False, return_attention_mask=False, verbose=False
        )
        lengths.extend(map(len, batch["input_ids"]))
    return np.array(lengths, dtype=np.int64)


def count_forms(
    texts_by_format: dict[str, list[str]], name: str, tokenizer: Any, lengths: dict[str, NDArray[Any]]
) -> list[TokenCount]:
    """Count every format of some sequences with a tokenizer of this name, and compare it with the format `prose`.

    `lengths` holds token counts that are known already, such as those of codes: a code is one token in every model.
    """
    counted = {format_: counts(texts, tokenizer) for format_, texts in texts_by_format.items()} | lengths
    prose = counted["prose"].sum()
    return [
        TokenCount(
            format_,
            name,
            float(tokens.mean()),
            float(np.median(tokens)),
            int(tokens.max()),
            float(tokens.sum() / prose) if prose else float("nan"),  # nothing is a share of empty prose
        )
        for format_, tokens in counted.items()
    ]
