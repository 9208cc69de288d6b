"""Batches of examples, padded on the left, so that the targets end at the right edge.

Only the last positions of a batch then need logits, which saves most of the memory with any backbone.

Shapes: B examples, T tokens, L last tokens that hold all targets, A answers of an example, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: The label of a token that is not a target: the loss ignores it.
NOTHING = -100


@dataclass(frozen=True)
class Example:
    """Token ids, and which of them are to be predicted."""

    ids: NDArray[np.int64]
    target: NDArray[np.bool_]
    #: for each answer the first tokens of all classes' answers, and how probable each class is
    classes: Sequence[tuple[NDArray[np.int64], NDArray[np.floating]]] | None = None
    #: the branch of each token where several prompts share their beginning, which is branch 0; no branch sees another
    branch: NDArray[np.int64] | None = None

    @classmethod
    def answering(
        cls,
        prompt: NDArray[np.int64],
        answer: NDArray[np.int64],
        classes: tuple[NDArray[np.int64], NDArray[np.floating]] | None = None,
    ) -> Example:
        """A prompt with its answer as the target."""
        target = np.arange(len(prompt) + len(answer)) >= len(prompt)
        return cls(np.concatenate([prompt, answer]), target, None if classes is None else [classes])

    @classmethod
    def branching(cls, beginning: NDArray[np.int64], branches: Sequence[Example]) -> Example:
        """Several prompts with the same beginning, which the model reads once; the branches are what follows it.

        >>> both = Example.branching(np.array([5]), [Example.answering(np.array([6, 7]), np.array([1])),
        ...                                          Example.answering(np.array([8]), np.array([2]))])
        >>> both.ids.tolist(), both.branch.tolist()
        ([5, 6, 7, 1, 8, 2], [0, 1, 1, 1, 2, 2])
        """
        classes = [of_answer for branch in branches for of_answer in branch.classes or ()]
        return cls(
            np.concatenate([beginning, *(branch.ids for branch in branches)]),
            np.concatenate([np.zeros(len(beginning), dtype=bool), *(branch.target for branch in branches)]),
            classes or None,
            np.repeat(np.arange(len(branches) + 1), [len(beginning), *(len(branch.ids) for branch in branches)]),
        )


@dataclass(frozen=True)
class Batch:
    """Token ids, their mask (0 for padding), and the labels of the last positions."""

    ids_BT: Tensor
    mask_BT: Tensor
    labels_BL: Tensor
    #: how far back the model sees (Backbone.window)
    window: int | None = None
    #: the probability of each class for each answer, and the first tokens of the classes' answers; None where all
    #: answers are certain
    classes_BAQ: Tensor | None = None
    first_BAQ: Tensor | None = None
    #: the branch of each token; None where there are no branches
    branch_BT: Tensor | None = None

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The keyword arguments of the model's forward pass."""
        return model_inputs(self.ids_BT, self.mask_BT, window=self.window, branch_BT=self.branch_BT)

    @property
    def targets(self) -> int:
        """How many tokens are to be predicted."""
        return int((self.labels_BL != NOTHING).sum())

    def part(self, rows: slice) -> Batch:
        """Some of the examples; an empty part gets the first example without targets, since no batch may be empty."""
        if len(self.ids_BT[rows]):
            return self._each(lambda tensor: tensor[rows])
        first = self.part(slice(0, 1))
        return replace(first, labels_BL=torch.full_like(first.labels_BL, NOTHING))

    def to(self, device: torch.device) -> Batch:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {
            name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **changed)


def model_inputs(
    ids_BT: Tensor, mask_BT: Tensor, before: int = 0, *, window: int | None = None, branch_BT: Tensor | None = None
) -> dict[str, Tensor]:
    """Ids, positions and attention mask of a batch padded on the left, after `before` tokens in a cache.

    Padding attends to itself: some attention kernels return NaN for a token that attends to nothing, and the NaN
    spreads. Without padding the model needs no mask and takes its fastest path. Beyond `window` the model builds its
    own mask, since only it knows how far back each of its layers sees. A token of a branch sees the beginning and its
    own branch, and its position is counted among these.
    """
    inputs = {"input_ids": ids_BT, "position_ids": before + (mask_BT.cumsum(dim=1) - 1).clamp_min(0)}
    width = ids_BT.shape[1]
    if window is not None and before + width > window:
        assert branch_BT is None, "the mask of branches does not know how far back each layer sees"
        inputs["attention_mask"] = torch.cat([mask_BT.new_ones(len(mask_BT), before), mask_BT], dim=1)
    elif branch_BT is not None or bool((mask_BT == 0).any()):
        sees_TT = torch.ones(width, width, dtype=torch.bool, device=ids_BT.device).tril()
        itself_TT = torch.eye(width, dtype=torch.bool, device=ids_BT.device)
        sees_BTT = (sees_TT & (mask_BT[:, None, :] == 1)) | itself_TT
        if branch_BT is not None:
            sees_BTT &= (branch_BT[:, None, :] == 0) | (branch_BT[:, None, :] == branch_BT[:, :, None])
            inputs["position_ids"] = before + sees_BTT.sum(dim=2) - 1
        if before:
            # padding may attend to the cache as well: nothing attends to padding
            sees_BTT = torch.cat([sees_BTT.new_ones(len(ids_BT), width, before), sees_BTT], dim=2)
        hidden = torch.finfo(torch.float32).min
        inputs["attention_mask"] = torch.zeros(sees_BTT.shape, device=ids_BT.device).masked_fill(~sees_BTT, hidden)[
            :, None
        ]
    return inputs


def padded(sequences: Sequence[NDArray[np.int64]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask of sequences, padded on the left."""
    width = max(len(ids) for ids in sequences)
    ids_BT = np.full((len(sequences), width), pad, dtype=np.int64)
    mask_BT = np.zeros((len(sequences), width), dtype=np.int64)
    for row, ids in enumerate(sequences):
        ids_BT[row, width - len(ids) :], mask_BT[row, width - len(ids) :] = ids, 1
    return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)


def collate(examples: Sequence[Example], pad: int, window: int | None = None) -> Batch:
    """Put examples into one batch.

    >>> batch = collate([Example.answering(np.array([5, 6]), np.array([7])),
    ...                  Example.answering(np.array([8]), np.array([9]))], pad=0)
    >>> batch.ids_BT.tolist(), batch.labels_BL.tolist()
    ([[5, 6, 7], [0, 8, 9]], [[7], [9]])
    """
    ids_BT, mask_BT = padded([example.ids for example in examples], pad)
    last = max(len(example.ids) - int(example.target.argmax()) for example in examples)
    labels_BT = padded([np.where(example.target, example.ids, NOTHING) for example in examples], NOTHING)[0]
    branch_BT = None
    if any(example.branch is not None for example in examples):
        branches = [np.zeros(len(of.ids), dtype=np.int64) if of.branch is None else of.branch for of in examples]
        branch_BT = padded(branches, 0)[0]
    return Batch(ids_BT, mask_BT, labels_BT[:, -last:], window, *_classes(examples), branch_BT)


def _classes(examples: Sequence[Example]) -> tuple[Tensor | None, Tensor | None]:
    """The probabilities of the classes and their first tokens, with zeros where there are fewer answers or classes."""
    if all(example.classes is None for example in examples):
        return None, None
    known = [_certain(example) if example.classes is None else example.classes for example in examples]
    most = max(len(tokens_Q) for answers in known for tokens_Q, _ in answers)
    p_BAQ = np.zeros((len(known), max(map(len, known)), most), dtype=np.float32)
    first_BAQ = np.zeros(p_BAQ.shape, dtype=np.int64)
    for row, answers in enumerate(known):
        for number, (tokens_Q, p_Q) in enumerate(answers):
            first_BAQ[row, number, : len(tokens_Q)], p_BAQ[row, number, : len(p_Q)] = tokens_Q, p_Q
    return torch.from_numpy(p_BAQ), torch.from_numpy(first_BAQ)


def _certain(example: Example) -> list[tuple[NDArray[np.int64], NDArray[np.floating]]]:
    """The answers of an example as the only ones."""
    begins = example.target & ~np.append(False, example.target[:-1])
    return [(example.ids[place, None], np.ones(1)) for place in np.flatnonzero(begins)]


class ShuffledBatches:
    """The examples of each step: every example once per pass, examples of similar length together.

    The order depends only on the seed and the pass, so that a run can resume from any step.
    """

    #: batches sorted by length together; more would pad less and shuffle less
    POOL = 16

    def __init__(self, lengths_N: NDArray[np.integer], batch: int, seed: int) -> None:
        self.lengths_N, self.batch, self.seed = lengths_N, batch, seed
        self.per_pass = -(-len(lengths_N) // batch)
        self._pass = -1
        self._batches: list[NDArray[np.int64]] = []

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        pass_number, position = divmod(step, self.per_pass)
        if pass_number != self._pass:
            rng = np.random.default_rng((self.seed, pass_number))
            self._pass, self._batches = pass_number, self._shuffled(rng)
        return self._batches[position]

    def _shuffled(self, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        order_N = rng.permutation(len(self.lengths_N))
        batches = []
        for start in range(0, len(order_N), self.batch * self.POOL):
            pool = order_N[start : start + self.batch * self.POOL]
            pool = pool[np.argsort(self.lengths_N[pool], kind="stable")]
            batches += [pool[first : first + self.batch] for first in range(0, len(pool), self.batch)]
        return [batches[number] for number in rng.permutation(len(batches))]
