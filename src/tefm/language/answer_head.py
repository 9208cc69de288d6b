"""A language model with a head for a few tokens: of the logits of fifty thousand words, an answer needs two."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn


def answering(model: Any, tokens: Sequence[int]) -> tuple[Any, list[int]]:
    """The same model with a head for these tokens alone, and the columns of its logits that are theirs.

    All other weights are shared, and what a model does to its logits (a bound, a scale) it still does. Where the head
    is of another kind, or belongs to a model inside this one, the model is returned as it is.
    """
    head = model.get_output_embeddings()
    names = [name for name, module in model._modules.items() if module is head]
    if not names or type(head) is not nn.Linear or "forward" in vars(model):
        return model, list(tokens)
    few = nn.Linear(head.in_features, len(tokens), bias=head.bias is not None, device="meta")
    few.weight = nn.Parameter(head.weight.detach()[list(tokens)], requires_grad=False)
    if head.bias is not None:
        few.bias = nn.Parameter(head.bias.detach()[list(tokens)], requires_grad=False)
    same = copy.copy(model)
    same._modules = {**model._modules, **dict.fromkeys(names, few)}
    return same, list(range(len(tokens)))
