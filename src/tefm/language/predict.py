"""From prompts to the scores of the answers: batched by length, the part all prompts share computed once.

Shapes: N prompts, Q answers, B prompts of a batch, T tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tefm.base.progress import progress
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import model_inputs, padded

Ids = NDArray[np.int64]

#: Prompts of one length that are worth a batch of their own.
ALIKE = 32


def answer_logits(
    backbone: Backbone,
    prompts: Sequence[Ids],
    answers: Sequence[int],
    *,
    batch_tokens: int | None = None,
    share_prefix: bool = True,
    what: str | None = None,
) -> NDArray[np.float32]:
    """Per prompt the logits of the answers' first tokens.

    `batch_tokens` bounds the tokens of a batch; without it, 4,096 on a CPU and 131,072 on a GPU.
    """
    out_NQ = np.zeros((len(prompts), len(answers)), dtype=np.float32)
    if not len(prompts):
        return out_NQ
    device = backbone.device
    batch_tokens = batch_tokens or usual_tokens(backbone)
    shared = common_prefix(prompts) if share_prefix else 0
    if backbone.window is not None and shared >= backbone.window:
        shared = 0  # a cache that has forgotten its beginning cannot be shared
    columns = torch.tensor(list(answers), device=device)
    with torch.no_grad(), autocast(device), progress(what or "", len(prompts), show=what is not None) as advance:
        cache = _cache(backbone, prompts[0][:shared]) if shared else None
        for rows in by_length([len(prompt) - shared for prompt in prompts], batch_tokens):
            last_BV = _last_logits(backbone, [prompts[row][shared:] for row in rows], cache, shared)
            out_NQ[rows] = last_BV[:, columns].float().cpu().numpy()
            advance(len(rows))
    return out_NQ


def usual_tokens(backbone: Backbone) -> int:
    """The tokens of a batch that does not learn."""
    return 4_096 if backbone.device.type == "cpu" else 131_072


def common_prefix(prompts: Sequence[Ids]) -> int:
    """How many tokens all prompts begin with; at least one is left to each.

    >>> common_prefix([np.array([1, 2, 3, 4]), np.array([1, 2, 5])])
    2
    """
    most = min(len(prompt) for prompt in prompts) - 1
    first = prompts[0][:most]
    for prompt in prompts[1:]:
        differs = np.flatnonzero(prompt[: len(first)] != first)
        if len(differs):
            first = first[: differs[0]]
    return len(first)


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Batches of similar length, the longest first, so that too little memory shows at once.

    Where enough prompts have one length they stay among themselves: without padding, attention needs no mask.
    """
    lengths_N = np.asarray(lengths)
    order = np.argsort(-lengths_N, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths_N[order[start]]))
        batch = order[start : start + max(1, batch_tokens // longest)]
        alike = int((lengths_N[batch] == longest).sum())
        if alike >= ALIKE:
            batch = batch[:alike]
        yield batch
        start += len(batch)


def _cache(backbone: Backbone, prefix: Ids) -> Any:
    """What the model remembers of the tokens that all prompts begin with."""
    ids = torch.from_numpy(prefix)[None].to(backbone.device)
    return backbone.model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values


def _last_logits(backbone: Backbone, sequences: Sequence[Ids], cache: Any, shared: int) -> Tensor:
    """The logits after the last token of each sequence."""
    ids_BT, mask_BT = (part.to(backbone.device) for part in padded(sequences, backbone.tokenizer.pad_token_id))
    if cache is not None:
        cache = copy.deepcopy(cache)
        cache.batch_repeat_interleave(len(sequences))
    given = model_inputs(ids_BT, mask_BT, before=shared, window=backbone.window)
    last: Tensor = backbone.model(**given, past_key_values=cache, use_cache=cache is not None, logits_to_keep=1).logits[
        :, -1
    ]
    return last
