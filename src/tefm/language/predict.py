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

from tefm.console import progress
from tefm.language.backbone import Backbone, autocast

Ids = NDArray[np.int64]


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
    batch_tokens = batch_tokens or (4_096 if device.type == "cpu" else 131_072)
    shared = common_prefix(prompts) if share_prefix else 0
    columns = torch.tensor(list(answers), device=device)
    with torch.no_grad(), autocast(device), progress(what or "", len(prompts), show=what is not None) as advance:
        cache = _cache(backbone, prompts[0][:shared]) if shared else None
        for rows in by_length([len(prompt) - shared for prompt in prompts], batch_tokens):
            last_BV = _last_logits(backbone, [prompts[row][shared:] for row in rows], cache, shared)
            out_NQ[rows] = last_BV[:, columns].float().cpu().numpy()
            advance(len(rows))
    return out_NQ


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
    """Batches of similar length, the longest first, so that too little memory shows at once."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def padded(sequences: Sequence[Ids], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask, padded on the left."""
    width = max(len(ids) for ids in sequences)
    ids_BT = np.full((len(sequences), width), pad, dtype=np.int64)
    mask_BT = np.zeros((len(sequences), width), dtype=np.int64)
    for row, ids in enumerate(sequences):
        ids_BT[row, width - len(ids) :], mask_BT[row, width - len(ids) :] = ids, 1
    return torch.from_numpy(ids_BT).to(device), torch.from_numpy(mask_BT).to(device)


def _cache(backbone: Backbone, prefix: Ids) -> Any:
    """What the model remembers of the tokens that all prompts begin with."""
    ids = torch.from_numpy(prefix)[None].to(backbone.device)
    return backbone.model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values


def _last_logits(backbone: Backbone, sequences: Sequence[Ids], cache: Any, shared: int) -> Tensor:
    """The logits after the last token of each sequence."""
    ids_BT, mask_BT = padded(sequences, backbone.tokenizer.pad_token_id, backbone.device)
    whole = len(sequences[0]) == ids_BT.shape[1] and all(len(ids) == ids_BT.shape[1] for ids in sequences)
    given: dict[str, Any] = {"input_ids": ids_BT, "logits_to_keep": 1, "use_cache": cache is not None}
    given["position_ids"] = (shared + mask_BT.cumsum(dim=1) - 1).clamp_min(0)
    if cache is not None:
        given["past_key_values"] = copy.deepcopy(cache)
        given["past_key_values"].batch_repeat_interleave(len(sequences))
    if not whole:  # without padding there is nothing to mask, and attention is faster
        given["attention_mask"] = torch.cat([mask_BT.new_ones(len(sequences), shared), mask_BT], dim=1)
    last: Tensor = backbone.model(**given).logits[:, -1]
    return last
