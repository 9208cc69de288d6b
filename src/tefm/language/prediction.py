"""Scores prompts: the logits of every answer, batched by length, with the common prefix computed once.

A history with many questions is read once: its keys and values are the prefix that every question about it continues.

Shapes: N prompts, Q answers, B prompts of a batch, T tokens, h hidden; H histories, P pairs of a history and a
question; U tokens of a tree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tefm.base.progress import progress
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import model_inputs, padded
from tefm.language.vocabulary import Ids

#: From this many prompts on, those of one length get a batch of their own.
SAME_LENGTH = 32
#: On a CPU, prompts are read as trees of about this many tokens where that leaves at most this share of all tokens.
TREE, WORTH = 512, 0.8
#: Families that take the positions and the mask of a tree as they are given; others compute their own.
TREES = ("llama", "qwen3")
#: Fewer questions per history than this are cheaper as whole prompts, which batch better.
SHARES_FROM = 3


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
    batch_tokens = batch_tokens or default_batch_tokens(backbone)
    shared = common_prefix(prompts) if share_prefix else 0
    if backbone.window is not None and max(map(len, prompts)) >= backbone.window:
        # the cache of such a layer drops its first tokens, and padding after a shared prefix would count as distance
        shared = 0
    with reading(backbone), progress(title or "", len(prompts), show=title is not None) as advance:
        reader = Reader(backbone, answers, prompts[0][None, :shared], pad)
        rests = [prompt[shared:] for prompt in prompts]
        trees = Tree.of_all(rests) if share_prefix and reads_trees(backbone) else []
        if sum(len(tree.ids) for tree in trees) <= WORTH * sum(map(len, rests)) and trees:
            for tree in trees:
                logits_NQ[tree.rows] = reader.tree_logits(tree)
                advance(len(tree.rows))
            return logits_NQ
        for rows in by_length([len(prompt) - shared for prompt in prompts], batch_tokens):
            logits_NQ[rows] = reader.logits([rests[row] for row in rows], np.zeros_like(rows))
            advance(len(rows))
    return logits_NQ


@contextmanager
def reading(backbone: Backbone) -> Iterator[None]:
    """A block without gradients, in the precision that suits the device."""
    with torch.no_grad(), autocast(backbone.device):
        yield


def reads_trees(backbone: Backbone) -> bool:
    """Whether trees of tokens are read as well as prompts, and faster."""
    family = backbone.model.config.model_type
    return family in TREES and backbone.window is None and backbone.device.type == "cpu"


class Reader:
    """Reads prompts that begin alike: the keys and values of their beginnings, all of one length, are computed once."""

    def __init__(
        self, backbone: Backbone, answers: Sequence[int], beginnings_HT: NDArray[np.int64], pad: int | None = None
    ) -> None:
        self.backbone, self.before, self.cache = backbone, beginnings_HT.shape[1], None
        self.pad = int(backbone.tokenizer.pad_token_id) if pad is None else pad
        self.model, self.columns = answering(backbone.model, answers)
        if self.before:
            ids_HT = torch.from_numpy(beginnings_HT).to(backbone.device)
            self.cache = self.model(input_ids=ids_HT, use_cache=True, logits_to_keep=1).past_key_values

    def logits(self, rests: Sequence[Ids], beginning_B: NDArray[np.int64]) -> NDArray[np.float32]:
        """The logits of the answers' first tokens after each rest, which continues the beginning with this number."""
        device, cache = self.backbone.device, copy.deepcopy(self.cache)
        if cache is not None:
            cache.batch_select_indices(torch.from_numpy(beginning_B).to(device))
        ids_BT, mask_BT = (tensor.to(device) for tensor in padded(rests, self.pad))
        inputs = model_inputs(ids_BT, mask_BT, before=self.before, window=self.backbone.window)
        output = self.model(**inputs, past_key_values=cache, use_cache=cache is not None, logits_to_keep=1)
        logits_BQ: NDArray[np.float32] = output.logits[:, -1, self.columns].float().cpu().numpy()
        return logits_BQ

    def tree_logits(self, tree: Tree) -> NDArray[np.float32]:
        """The logits of the answers' first tokens after each prompt of a tree; all continue the first beginning."""
        sees_UU = torch.zeros(len(tree.ids), len(tree.ids), dtype=torch.bool)
        for number, before in enumerate(tree.before):
            if before >= 0:
                sees_UU[number] = sees_UU[before]
            sees_UU[number, number] = True
        position_U = self.before + sees_UU.sum(dim=1) - 1
        hidden_UT = torch.cat([torch.zeros(len(tree.ids), self.before, dtype=torch.bool), ~sees_UU], dim=1)
        mask_UT = torch.zeros(hidden_UT.shape).masked_fill(hidden_UT, torch.finfo(torch.float32).min)
        cache = copy.deepcopy(self.cache)
        output = self.model(
            input_ids=torch.tensor([tree.ids]),
            position_ids=position_U[None],
            attention_mask=mask_UT[None, None],
            past_key_values=cache,
            use_cache=cache is not None,
        )
        logits_BQ: NDArray[np.float32] = output.logits[0, tree.last][:, self.columns].float().numpy()
        return logits_BQ


@dataclass
class Tree:
    """Prompts as one tree of tokens: what several of them begin with is there once, and read once.

    >>> (tree,) = Tree.of_all([np.array([1, 2, 4]), np.array([7]), np.array([1, 2, 3])])
    >>> tree.ids, tree.before, tree.rows, tree.last
    ([1, 2, 3, 4, 7], [-1, 0, 1, 1, -1], [2, 0, 1], [2, 3, 4])
    """

    #: the numbers of the prompts, and the last token of each
    rows: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    #: the tokens, and the one before each of them; −1 for a first one
    ids: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)

    @classmethod
    def of_all(cls, prompts: Sequence[Ids]) -> list[Tree]:
        """Trees of about `TREE` tokens, of prompts in the order of their tokens."""
        trees: list[Tree] = []
        path: list[int] = []  # the tokens of the prompt before
        for row, ids in sorted(enumerate(prompt.tolist() for prompt in prompts), key=itemgetter(1)):
            if not trees or len(trees[-1].ids) >= TREE:
                trees.append(cls())
                path = []
            tree = trees[-1]
            same = takewhile(lambda of: of[0] == of[1], zip([tree.ids[node] for node in path], ids, strict=False))
            path = path[: sum(1 for _ in same)]
            for token in ids[len(path) :]:
                tree.before.append(path[-1] if path else -1)
                path.append(len(tree.ids))
                tree.ids.append(token)
            tree.rows.append(row)
            tree.last.append(path[-1])
        return trees


# ---- many questions about each history ------------------------------------------------------------------------------


def pair_logits(
    backbone: Backbone,
    prefixes_H: Sequence[Ids],
    tails: Sequence[Ids],
    history_P: NDArray[np.int64],
    question_P: NDArray[np.int64],
    answers: Sequence[int],
    *,
    title: str | None = None,
) -> NDArray[np.float32]:
    """The logits of the answers' first tokens for pairs of a history and a question.

    A history with several questions is read once. Progress is displayed under `title`; without one, it is not.
    """
    logits_P2 = np.zeros((len(history_P), len(answers)), dtype=np.float32)
    asked_H = np.bincount(history_P, minlength=len(prefixes_H))
    pairs_of_H = np.split(np.argsort(history_P, kind="stable"), np.cumsum(asked_H)[:-1])
    longest = max((len(tail) for tail in tails), default=0)
    length_H = np.array([len(ids) for ids in prefixes_H], dtype=np.int64)
    # a layer that sees only so far back drops the first tokens of its cache, so questions cannot share it
    fits_H = np.full(len(prefixes_H), True) if backbone.window is None else length_H + longest < backbone.window
    shared_H = (asked_H >= SHARES_FROM) & fits_H & (length_H > 0)
    with reading(backbone), progress(title or "", len(history_P), show=title is not None) as advance:
        alone = np.flatnonzero(~shared_H[history_P])
        prompts = [np.concatenate([prefixes_H[history_P[p]], tails[question_P[p]]]) for p in alone]
        logits_P2[alone] = answer_logits(backbone, prompts, answers)
        advance(len(alone))
        for group in _groups(np.flatnonzero(shared_H), length_H, asked_H * longest, default_batch_tokens(backbone)):
            own = np.concatenate([pairs_of_H[history] for history in group])
            asked = [tails[question] for question in question_P[own]]
            # what all questions begin with ("Next admission:") is read once with each history
            same = common_prefix(asked)
            reader = Reader(backbone, answers, np.stack([np.append(prefixes_H[h], asked[0][:same]) for h in group]))
            rests, row_B = [tail[same:] for tail in asked], np.repeat(np.arange(len(group)), asked_H[group])
            for rows in similar_lengths([len(rest) for rest in rests]):
                logits_P2[own[rows]] = reader.logits([rests[row] for row in rows], row_B[rows])
            advance(len(own))
    return logits_P2


def _groups(
    histories: NDArray[np.int64], length_H: NDArray[np.int64], tokens_H: NDArray[np.int64], batch_tokens: int
) -> list[list[int]]:
    """Histories that are read together, the longest first: of one length, and as many as fill a batch."""
    groups: list[list[int]] = []
    tokens = 0
    for history in histories[np.argsort(-length_H[histories], kind="stable")].tolist():
        tokens += int(tokens_H[history])
        if not groups or length_H[history] != length_H[groups[-1][0]] or tokens > batch_tokens:
            groups.append([])
            tokens = int(tokens_H[history])
        groups[-1].append(history)
    return groups


def similar_lengths(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Groups of similar length, so that little is padded: the longest of a group is at most a quarter longer.

    >>> [group.tolist() for group in similar_lengths([5, 20, 4, 5, 16])]
    [[2, 0, 3], [4, 1]]
    """
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    groups: list[list[int]] = []
    for row in order.tolist():
        if not groups or lengths[row] > 1.25 * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(row)
    return [np.array(group, dtype=np.int64) for group in groups]


# ---- hidden states --------------------------------------------------------------------------------------------------


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
    states_Nh = np.zeros((len(prompts), backbone.hidden_size), dtype=np.float32)
    with reading(backbone):
        for rows in by_length([len(prompt) for prompt in prompts], default_batch_tokens(backbone)):
            ids_BT, mask_BT = (tensor.to(device) for tensor in padded([prompts[row] for row in rows], pad))
            inputs = model_inputs(ids_BT, mask_BT, window=backbone.window)
            states_BTh = backbone.model.base_model(**inputs, use_cache=False).last_hidden_state.float()
            states_Nh[rows] = pooled(states_BTh, mask_BT).cpu().numpy()
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
