"""Training with the tokens in use only: a few hundred rows of the embedding instead of the whole vocabulary.

SmolLM2 has 49,152 rows, and a fine-tuning run uses some four hundred of them. The others cost half of the time of a
step (gradients, clipping, the optimiser, logits), and a full softmax pushes all of them away from every answer.

Shapes: V tokens of the vocabulary, R tokens in use, H width of the language model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from tefm.language.backbone import Backbone

Ids = NDArray[np.int64]
#: Token ids → their numbers among the tokens in use.
ToLocal = Callable[[ArrayLike], Ids]


def tokens_of(backbone: Backbone, codes: Sequence[int], sequences: Iterable[ArrayLike]) -> Ids:
    """All tokens of these sequences in order, with those of the codes and the one that pads."""
    seen = np.zeros(len(_embedding(backbone).weight), dtype=bool)
    for ids in ([backbone.tokenizer.pad_token_id], codes, *sequences):
        seen[np.asarray(ids, dtype=np.int64)] = True
    return np.flatnonzero(seen)


@contextmanager
def rows_in_use(backbone: Backbone, tokens_R: Ids) -> Iterator[ToLocal]:
    """Inside, the model has these tokens only, with new ids: 0 for the first of `tokens_R`, 1 for the next, …

    The given function turns token ids into the new ones. At the end the trained rows are written back into the whole
    vocabulary; rows out of use are what they were before, to the bit. The softmax is over the tokens in use.
    """
    embedding, head = _embedding(backbone), backbone.model.get_output_embeddings()
    number_V = np.full(len(embedding.weight), -1, dtype=np.int64)
    number_V[tokens_R] = np.arange(len(tokens_R))

    def to_local(ids: ArrayLike) -> Ids:
        numbers = number_V[np.asarray(ids, dtype=np.int64)]
        assert (numbers >= 0).all(), "a token that is not in use"
        return numbers

    rows = torch.from_numpy(tokens_R).to(backbone.device)
    whole = [(module, name, weight) for module in (embedding, head) for name, weight in module.named_parameters()]
    # a head that shares the embedding's rows goes on sharing them
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


def _embedding(backbone: Backbone) -> Any:
    return backbone.model.get_input_embeddings()
