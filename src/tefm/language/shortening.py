"""What does not fit into a prompt: texts within their budgets, long histories in few tokens; and texts in tokens.

Special tokens in a text (`<|im_end|>`, `<adm_a_3>`) are split by a blank, so that they are read as letters,
not as the end of a turn or as codes.

Every text keeps its first tokens, up to its budget. If the texts of a sequence are too long, the oldest are cut first.

Beyond a limit of tokens, the oldest records of a history are shortened to one token each, their coarsest code; where
that is still too much, several neighbouring records share one. The last records matter most and stay whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tefm.tables.sequences import Text, notes_of


class PlainText:
    """Splits the tokenizer's added tokens in texts; any other text stays as it is."""

    def __init__(self, tokenizer: Any) -> None:
        special = set(tokenizer.all_special_tokens)
        special |= {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        # other tokens of one character, or with blanks, occur in ordinary text and are allowed there
        added = {token for token in tokenizer.get_added_vocab() if len(token) > 1 and not re.search(r"\s", token)}
        self._special = re.compile("|".join(map(re.escape, sorted(special | added))) or r"(?!)")

    def __call__(self, text: str) -> str:
        """The text with every special token split by a blank."""
        while (split := self._special.sub(_split, text)) != text:
            text = split
        return text


def _split(match: re.Match[str]) -> str:
    token = match[0]
    return f"{token[0]} {token[1:]}" if len(token) > 1 else " "  # one character cannot be split


#: The maximum number of shortened texts in memory; beyond it, the memory is emptied.
REMEMBERED_TEXTS = 100_000


class Shortened(NamedTuple):
    """The beginning of a text, its tokens, and whether it was longer."""

    text: str
    tokens: int
    is_cut: bool


class Shortener:
    """Shortens texts: `budgets` for each column of notes, `alone` for a text without columns, `most` for all."""

    def __init__(self, tokenizer: Any, budgets: Sequence[int], *, alone: int, most: int) -> None:
        self.tokenizer, self.plain = tokenizer, PlainText(tokenizer)
        self.budgets, self.alone, self.most = tuple(budgets), alone, most
        self._known: dict[tuple[str, int], Shortened] = {}

    def __call__(self, text: Text, records: int) -> list[str]:
        """The text of each record, empty where there is none."""
        return ["\n".join(part.text for part in parts if part.text) for parts, _ in self._parts(text, records)]

    def remarks(self, texts: Sequence[Text], records: Sequence[int]) -> list[str]:
        """What a user should know about the texts of the training sequences: how many of them are cut."""
        count = shortened = old = 0
        for text, length in zip(texts, records, strict=True):
            for note, (parts, is_old) in zip(notes_of(text, length), self._parts(text, length), strict=True):
                count += (own := sum(map(bool, note)))
                shortened += 0 if is_old else sum(part.is_cut for part in parts)
                old += own if is_old else 0
        of, remarks = f"of {count:,} texts of the training part", []
        if shortened:  # longer than their own budget
            remarks.append(
                f"{shortened:,} {of} are longer than their budget and are cut; raise `tokens` in `text:`,"
                " or `text_tokens` in `prompt:`"
            )
        if old:  # left out, or cut further, because their sequence has too many tokens of text
            remarks.append(
                f"{old:,} {of} are left out or cut, the oldest first, since a prompt has at most {self.most:,} tokens"
                " of text; raise `all_text_tokens` in `prompt:`, or lower the budgets"
            )
        return remarks

    def _parts(self, text: Text, records: int) -> list[tuple[list[Shortened], bool]]:
        """The shortened texts of each record, and whether they were cut for all texts to fit."""
        if isinstance(text, str):
            alone = self._shortened(text, self.alone)
            return [([], False)] * (records - 1) + [([alone], False)]
        written, left = [], self.most
        for note in reversed(notes_of(text, records)):
            budgets = self.budgets or (self.alone,) * len(note)
            parts = [self._shortened(part, budget) for part, budget in zip(note, budgets, strict=True)]
            is_old = sum(part.tokens for part in parts) > left
            if is_old:
                parts = self._within(parts, left)
            left -= sum(part.tokens for part in parts)
            written.append((parts, is_old))
        return written[::-1]

    def _within(self, parts: Sequence[Shortened], left: int) -> list[Shortened]:
        kept = []
        for part in parts:
            kept.append(self._shortened(part.text, left))
            left -= kept[-1].tokens
        return kept

    def _shortened(self, text: str, budget: int) -> Shortened:
        """The first tokens of a text."""
        if not text or budget < 1:
            return Shortened("", 0, bool(text))
        if (known := self._known.get((text, budget))) is not None:
            return known
        if len(self._known) >= REMEMBERED_TEXTS:
            self._known = {}
        plain = self.plain(text)
        ids = self.tokenizer(plain, add_special_tokens=False)["input_ids"]
        short = Shortened(plain, len(ids), False)
        if len(ids) > budget:
            # decoding may drop blanks
            short = Shortened(self.plain(self.tokenizer.decode(ids[:budget])), budget, True)
        self._known[text, budget] = short
        return short


# ---- the length of sequences in tokens ------------------------------------------------------------------------------

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
        batch = tokenizer(texts[start : start + BATCH], add_special_tokens=False, verbose=False)
        lengths.extend(map(len, batch["input_ids"]))
    return np.array(lengths, dtype=np.int64)


def count_forms(
    texts_by_format: dict[str, list[str]], name: str, tokenizer: Any, lengths: dict[str, NDArray[Any]]
) -> list[TokenCount]:
    """Count every format of some sequences with a tokenizer of this name, and compare it with the format `prose`.

    `lengths` holds token counts that are known already, such as those of codes: a code is one token in every model.
    """
    counted = {format_: counts(texts, tokenizer) for format_, texts in texts_by_format.items()} | lengths
    prose = float(counted["prose"].sum()) or float("nan")  # nothing is a share of empty prose
    return [
        TokenCount(format_, name, float(of.mean()), float(np.median(of)), int(of.max()), float(of.sum() / prose))
        for format_, of in counted.items()
    ]


# ---- long histories --------------------------------------------------------------------------------------------------


#: Tokens of codes in a prompt, at most, where `code_tokens` is not set.
CODE_TOKENS = 1_024


class Condensed(NamedTuple):
    """How a long history is shortened: one token for every `group` of its `old` records, the others whole."""

    old: int
    group: int


def condensed(records: int, levels: int, most: int | None) -> Condensed:
    """How many of the oldest records to shorten, so that a history has at most this number of tokens.

    As many records as possible stay whole, and half of the tokens are always theirs.

    >>> condensed(10, levels=3, most=30), condensed(12, levels=3, most=30), condensed(1_000, levels=3, most=30)
    (Condensed(old=0, group=1), Condensed(old=3, group=1), Condensed(old=995, group=67))
    """
    if most is None or records * levels <= most:
        return Condensed(0, 1)
    whole = max(1, most // (2 * levels))
    old = math.ceil((records * levels - most) / (levels - 1)) if levels > 1 else records
    if old <= records - whole:
        return Condensed(old, 1)
    old = max(0, records - whole)
    return Condensed(old, math.ceil(old / max(1, most - whole * levels)))


def coarse(tokens_N: NDArray[np.int64], group: int) -> NDArray[np.int64]:
    """One token for every `group` of records: the most frequent one, of equally frequent ones the latest.

    >>> coarse(np.array([5, 7, 7, 8, 9]), 3).tolist()
    [7, 9]
    """
    periods = (tokens_N[start : start + group] for start in range(0, len(tokens_N), group))
    return np.array([_most_frequent(period) for period in periods], dtype=np.int64)


def _most_frequent(tokens: NDArray[np.int64]) -> int:
    latest_first = tokens[::-1]
    values, first, counts = np.unique(latest_first, return_index=True, return_counts=True)
    return int(values[np.lexsort((first, -counts))[0]])


def about_long(lengths_S: NDArray[np.integer], levels: int, most: int | None = CODE_TOKENS) -> str | None:
    """A remark about histories that are too long for the prompt.

    >>> about_long(np.array([3, 400]), levels=4)[:52]
    '1 of 2 sequences have more than 256 records: their o'
    """
    if most is None or not (long := int((lengths_S * levels > most).sum())):
        return None
    return (
        f"{long:,} of {len(lengths_S):,} sequences have more than {most // levels:,} records: their oldest records are "
        f"shortened to one token each, or one for several (`code_tokens` in `prompt:`, now {most:,})"
    )
