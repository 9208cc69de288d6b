"""The new tokens: K×C codes and two markers, their names, their ids, and the initial values of their rows.

Training uses a compact vocabulary: a few hundred rows of the embedding instead of all of them.

Shapes: N records, K levels, C entries, P = K×C codes, v width of a code's vector, V tokens of the vocabulary, R tokens
in use, H width of the language model.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tefm.base.errors import SettingsError
from tefm.language.backbone import Backbone

BEGIN, END = "<|item_begin|>", "<|item_end|>"


@dataclass(frozen=True)
class CodeVocabulary:
    """The names of the code tokens.

    >>> words = CodeVocabulary.of("admission", levels=3, entries=128)
    >>> words.names[0], words.names[-1], len(words.tokens)
    ('<adm_a_0>', '<adm_c_127>', 386)
    >>> words.text([138 % 128, 5, 7])
    '<adm_a_10><adm_b_5><adm_c_7>'
    >>> CodeVocabulary.of("admission", levels=4, entries=128, profile=1).names[-1]  # of the entity
    '<adm_A_127>'
    """

    stem: str
    levels: int
    entries: int
    #: how many of the levels are those of the entity, the last ones; their tokens have capital letters
    profile: int = 0

    @classmethod
    def of(
        cls, record: str, *, levels: int, entries: int, profile: int = 0, taken: Collection[str] = ()
    ) -> CodeVocabulary:
        """The vocabulary for records of this name; names of up to four letters stay whole, longer ones keep three.

        A stem that is `taken`, by another domain of the same language model, gets a number.

        >>> CodeVocabulary.of("admissible", levels=2, entries=4, taken=["adm", "flow"]).stem
        'adm2'
        """
        letters = re.sub(r"[^a-z0-9]", "", record.lower()) or "rec"
        stem = letters if len(letters) <= 4 else letters[:3]
        names = (stem if number == 1 else f"{stem}{number}" for number in count(1))
        return cls(next(name for name in names if name not in taken), levels, entries, profile)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tokens of the codes, level after level."""
        return tuple(
            f"<{self.stem}_{level}_{entry}>"
            for level in string.ascii_lowercase[: self.levels - self.profile] + string.ascii_uppercase[: self.profile]
            for entry in range(self.entries)
        )

    @property
    def tokens(self) -> tuple[str, ...]:
        """All K×C+2 new tokens in the order of their ids."""
        return (*self.names, BEGIN, END)

    def text(self, code: list[int] | NDArray[np.integer]) -> str:
        """A code as text."""
        return "".join(self.names[level * self.entries + int(entry)] for level, entry in enumerate(code))


@dataclass(frozen=True)
class TokenIds:
    """The ids of the new tokens in the model: those of the codes are contiguous, and so are the two markers."""

    first: int
    levels: int
    entries: int
    #: the id of the first marker where the domains of a model share them; None: the markers follow the codes
    markers: int | None = None
    #: how many of the levels are those of the entity, the last ones
    profile: int = 0

    @property
    def past(self) -> int:
        """The id behind the last code."""
        return self.first + self.levels * self.entries

    @property
    def begin(self) -> int:
        return self.past if self.markers is None else self.markers

    @property
    def end(self) -> int:
        return self.begin + 1

    @property
    def all(self) -> list[int]:
        return [*range(self.first, self.past), self.begin, self.end]

    def of(self, codes_NK: NDArray[np.integer]) -> NDArray[np.int64]:
        """The token ids of codes."""
        return self.first + np.arange(self.levels) * self.entries + codes_NK.astype(np.int64)

    def level(self, level: int) -> slice:
        """The ids of one level."""
        return slice(self.first + level * self.entries, self.first + (level + 1) * self.entries)


def extend(backbone: Backbone, vocabulary: CodeVocabulary, *, share_markers: bool = False) -> TokenIds:
    """Add the new tokens to tokenizer and model; spare rows of a padded vocabulary are used before rows are added.

    Every new row is set to the mean of the existing ones; `start_rows` then makes them different. With
    `share_markers`, the markers are those of an earlier domain.
    """
    tokenizer, model = backbone.tokenizer, backbone.model
    added = list(vocabulary.names if share_markers else vocabulary.tokens)
    if existing := set(tokenizer.get_vocab()) & set(added):
        remedy = "use a backbone without codes, such as `backbone: smollm2-135m`"
        raise SettingsError("this backbone already has tokens with these names", value=min(existing), remedy=remedy)
    first = len(tokenizer)
    tokenizer.add_tokens(added, special_tokens=True)
    past = len(tokenizer)
    assert tokenizer.convert_tokens_to_ids(added) == list(range(first, past)), "new tokens are contiguous"
    if past > len(_tables(backbone)[0]):
        model.resize_token_embeddings(past, mean_resizing=False)
    with torch.no_grad():
        for table in _tables(backbone):
            table[first:past] = table[:first].mean(dim=0)
    markers = tokenizer.get_vocab()[BEGIN] if share_markers else None
    return TokenIds(first, vocabulary.levels, vocabulary.entries, markers, vocabulary.profile)


def start_rows(backbone: Backbone, ids: TokenIds, vectors_Pv: NDArray[np.floating], *, seed: int = 0) -> None:
    """Initialise the rows of the codes from one vector per code (level after level), at the scale of existing rows.

    Vectors whose width differs from the model's go through a fixed random projection, which preserves their angles.
    """
    vectors = torch.from_numpy(np.asarray(vectors_Pv, dtype=np.float32))
    assert len(vectors) == ids.levels * ids.entries, "one vector per code"
    width = backbone.hidden_size
    if vectors.shape[1] != width:
        generator = torch.Generator().manual_seed(seed)
        projection_VH = torch.randn(vectors.shape[1], width, generator=generator)
        vectors = vectors @ projection_VH / vectors.shape[1] ** 0.5
    vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
    with torch.no_grad():
        for table in _tables(backbone):
            existing = table[: ids.first]
            # the median, since spare and untrained rows are near zero
            scale = existing.norm(dim=1).median()
            table[ids.first : ids.past] = existing.mean(dim=0) + scale * vectors.to(table)


def word_vectors(codes_NK: NDArray[np.integer], record_NH: NDArray[np.floating], entries: int) -> NDArray[np.float32]:
    """For each code the sum of its records' word embeddings, each as the difference from the mean of all records.

    `start_rows` uses only the direction, so a sum serves as well as a mean. Unused codes get a random vector.
    """
    centred_NH = np.asarray(record_NH, dtype=np.float32) - record_NH.mean(axis=0)
    vectors_PH = np.zeros((codes_NK.shape[1] * entries, centred_NH.shape[1]), dtype=np.float32)
    for level in range(codes_NK.shape[1]):
        codes_N = level * entries + codes_NK[:, level].astype(np.int64)
        np.add.at(vectors_PH, codes_N, centred_NH)
    unused_P = ~vectors_PH.any(axis=1)
    vectors_PH[unused_P] = np.random.default_rng(0).normal(size=(int(unused_P.sum()), vectors_PH.shape[1]))
    return vectors_PH


def _tables(backbone: Backbone) -> list[Tensor]:
    """The weights of the embedding, and of the head if it is separate."""
    modules: list[Any] = [backbone.model.get_input_embeddings()]
    if not backbone.tied:
        modules.append(backbone.model.get_output_embeddings())
    return [module.weight for module in modules]


# ---- tokens in use --------------------------------------------------------------------------------------------------

Ids = NDArray[np.int64]
#: Token ids → their numbers among the tokens in use.
ToLocal = Callable[[ArrayLike], Ids]


def tokens_of(backbone: Backbone, codes: Sequence[int], sequences: Iterable[ArrayLike]) -> Ids:
    """All tokens of these sequences in order, with those of the codes and the one that pads."""
    seen = np.zeros(len(_tables(backbone)[0]), dtype=bool)
    for ids in ([backbone.tokenizer.pad_token_id], codes, *sequences):
        seen[np.asarray(ids, dtype=np.int64)] = True
    return np.flatnonzero(seen)


@contextmanager
def rows_in_use(backbone: Backbone, tokens_R: Ids) -> Iterator[ToLocal]:
    """Restrict the model to these tokens for the block, with new ids: 0 for the first of `tokens_R`, 1 for the next, …

    The given function turns token ids into the new ones. At the end the trained rows are written back into the whole
    vocabulary; rows out of use are what they were before, to the bit. The softmax is over the tokens in use.
    """
    modules: list[Any] = [backbone.model.get_input_embeddings(), backbone.model.get_output_embeddings()]
    embedding = modules[0]
    number_V = np.full(len(embedding.weight), -1, dtype=np.int64)
    number_V[tokens_R] = np.arange(len(tokens_R))

    def to_local(ids: ArrayLike) -> Ids:
        numbers = number_V[np.asarray(ids, dtype=np.int64)]
        assert (numbers >= 0).all(), "a token that is not in use"
        return numbers

    rows = torch.from_numpy(tokens_R).to(backbone.device)
    whole = [(module, name, weight) for module in modules for name, weight in module.named_parameters()]
    # a head that shares the embedding's rows still shares them
    compact = {id(weight): nn.Parameter(weight.detach()[rows]) for _, _, weight in whole}
    padding = embedding.padding_idx
    for module, name, weight in whole:
        setattr(module, name, compact[id(weight)])
    if padding is not None:  # the row that gets no gradient
        embedding.padding_idx = int(number_V[padding]) if number_V[padding] >= 0 else None
    try:
        yield to_local
    finally:
        embedding.padding_idx = padding
        with torch.no_grad():
            for module, name, weight in whole:
                weight[rows] = getattr(module, name).detach()
                setattr(module, name, weight)
