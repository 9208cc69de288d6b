"""Scores prompts: the logits of every answer, batched by length, with the common prefix computed once.

Shapes: N prompts, Q answers, B prompts of a batch, T tokens, h hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tefm.base.progress import progress
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import model_inputs, padded

Ids = NDArray[np.int64]

#: From this many prompts on, those of one length get a batch of their own.
SAME_LENGTH = 32


def answer_logits(
    backbone: Backbone,
    prompts: Sequence[Ids],
    answers: Sequence[int],
    *,
    batch_tokens: int | None = None,
    share_prefix: bool = True,
    pad: int | None = None,
    title: str | None = None,
) -> NDArray[np.float32]:
    """The logits of the answers' first tokens, for every prompt.

    `batch_tokens` limits the tokens of a batch: 4,096 on a CPU and 131,072 on a GPU by default. Progress is displayed
    under `title`; without one, it is not. `pad` is the id of the padding where it is not the tokenizer's.
    """
    logits_NQ = np.zeros((len(prompts), len(answers)), dtype=np.float32)
    if not len(prompts):
        return logits_NQ
    device = backbone.device
    batch_tokens = batch_tokens or default_batch_tokens(backbone)
    shared = common_prefix(prompts) if share_prefix else 0
    if backbone.window is not None and max(map(len, prompts)) >= backbone.window:
        # the cache of such a layer drops its first tokens, and padding after a shared prefix would count as distance
        shared = 0
    pad = int(backbone.tokenizer.pad_token_id) if pad is None else pad
    model, columns = answering(backbone.model, answers)
    with torch.no_grad(), autocast(device), progress(title or "", len(prompts), show=title is not None) as advance:
        cache = None
        if shared:  # the keys and values of the tokens that all prompts begin with
            ids_1T = torch.from_numpy(prompts[0][:shared])[None].to(device)
            cache = model(input_ids=ids_1T, use_cache=True, logits_to_keep=1).past_key_values
        for rows in by_length([len(prompt) - shared for prompt in prompts], batch_tokens):
            ids_BT, mask_BT = (tensor.to(device) for tensor in padded([prompts[row][shared:] for row in rows], pad))
            own = copy.deepcopy(cache)
            if own is not None:
                own.batch_repeat_interleave(len(rows))
            inputs = model_inputs(ids_BT, mask_BT, before=shared, window=backbone.window)
            output = model(**inputs, past_key_values=own, use_cache=own is not None, logits_to_keep=1)
            logits_NQ[rows] = output.logits[:, -1, columns].float().cpu().numpy()
            advance(len(rows))
    return logits_NQ


def last_states(backbone: Backbone, prompts: Sequence[Ids]) -> NDArray[np.float32]:
    """What the model makes of every prompt: the hidden state that it would write the next token from."""
    return _states(backbone, prompts, lambda states_BTh, _: states_BTh[:, -1])


def mean_states(backbone: Backbone, prompts: Sequence[Ids]) -> NDArray[np.float32]:
    """What the model makes of the words of every prompt: the mean of its hidden states.

    The first token is left out: language models use it as an attention sink, whatever it is.
    """

    def mean(states_BTh: Tensor, mask_BT: Tensor) -> Tensor:
        counted_BT = mask_BT.bool() & ((mask_BT.cumsum(dim=1) > 1) | (mask_BT.sum(dim=1, keepdim=True) == 1))
        return (states_BTh * counted_BT[..., None]).sum(dim=1) / counted_BT.sum(dim=1, keepdim=True)

    return _states(backbone, prompts, mean)


def _states(
    backbone: Backbone, prompts: Sequence[Ids], pooled: Callable[[Tensor, Tensor], Tensor]
) -> NDArray[np.float32]:
    """One vector per prompt, from the hidden states of its tokens and where they are."""
    device, pad = backbone.device, int(backbone.tokenizer.pad_token_id)
    states_Nh = np.zeros((len(prompts), int(backbone.model.config.hidden_size)), dtype=np.float32)
    with torch.no_grad(), autocast(device):
        for rows in by_length([len(prompt) for prompt in prompts], default_batch_tokens(backbone)):
            ids_BT, mask_BT = (tensor.to(device) for tensor in padded([prompts[row] for row in rows], pad))
            inputs = model_inputs(ids_BT, mask_BT, window=backbone.window)
            output = backbone.model(**inputs, output_hidden_states=True, use_cache=False, logits_to_keep=1)
            states_Nh[rows] = pooled(output.hidden_states[-1].float(), mask_BT).cpu().numpy()
    return states_Nh


def default_batch_tokens(backbone: Backbone) -> int:
    """The tokens of a batch in prediction, where no gradients take memory."""
    return 4_096 if backbone.device.type == "cpu" else 131_072


def common_prefix(prompts: Sequence[Ids]) -> int:
    """The number of tokens that all prompts begin with; at least one token of each prompt is left out.

    >>> common_prefix([np.array([1, 2, 3, 4]), np.array([1, 2, 5])])
    2
    """
    longest = min(len(prompt) for prompt in prompts) - 1
    prefix = prompts[0][:longest]
    for prompt in prompts[1:]:
        differences = np.flatnonzero(prompt[: len(prefix)] != prefix)
        if len(differences):
            prefix = prefix[: differences[0]]
    return len(prefix)


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Batches of similar length, the longest first, so that a lack of memory shows at once.

    Where enough prompts have the same length they get a batch without padding, which needs no attention mask.
    """
    lengths_N = np.asarray(lengths)
    order = np.argsort(-lengths_N, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths_N[order[start]]))
        batch = order[start : start + max(1, batch_tokens // longest)]
        same_length = int((lengths_N[batch] == longest).sum())
        if same_length >= SAME_LENGTH:
            batch = batch[:same_length]
        yield batch
        start += len(batch)


# ---- a head for a few tokens ----------------------------------------------------------------------------------------


def answering(model: Any, tokens: Sequence[int]) -> tuple[Any, list[int]]:
    """The model with a head for these tokens alone, and the columns of its logits that are theirs.

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
