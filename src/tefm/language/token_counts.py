"""The length of sequences in tokens, in several text formats. Counting needs tokenizers, not models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError

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
    texts_by_format: dict[str, list[str]],
    tokenizers: dict[str, Any],
    lengths: dict[str, NDArray[Any]] | None = None,
) -> list[TokenCount]:
    """Count every format of the same sequences with every tokenizer, and compare it with prose.

    `lengths` holds token counts that are known already, such as those of codes: a code is one token in every model.
    """
    lengths = lengths or {}
    if "prose" not in texts_by_format:
        raise InputError(
            "token counts are given as a share of prose, which is not among the texts",
            value=", ".join(texts_by_format) or None,
            remedy='add "prose": serialise(frame, schema, sequences, "prose")',
        )
    sizes = {name: len(texts) for name, texts in texts_by_format.items()}
    sizes |= {name: len(tokens) for name, tokens in lengths.items()}
    if min(sizes.values()) < 1 or len(set(sizes.values())) > 1:
        raise InputError(
            "the formats differ in their number of sequences, or are empty: "
            + ", ".join(f"{name} has {size:,}" for name, size in sizes.items()),
            remedy="give one text, or one length, per sequence in every format, and at least one sequence",
        )
    accounts = []
    for name, tokenizer in tokenizers.items():
        counted = {format_: counts(texts, tokenizer) for format_, texts in texts_by_format.items()}
        prose = counted["prose"].sum()
        for format_, tokens in (counted | lengths).items():
            share = float(tokens.sum() / prose) if prose else float("nan")  # nothing is a share of empty prose
            accounts.append(
                TokenCount(format_, name, float(tokens.mean()), float(np.median(tokens)), int(tokens.max()), share)
            )
    return accounts
