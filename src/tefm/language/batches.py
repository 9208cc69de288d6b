"""Examples become batches: padded on the left, so that what is to be predicted ends at the right edge.

Only the last positions of a batch need logits then, whatever the backbone: that is most of the memory saved.

Shapes: B examples, T tokens, L last tokens that hold all targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: What the loss ignores.
NOTHING = -100


@dataclass(frozen=True)
class Example:
    """Token ids, and which of them are to be predicted."""

    ids: NDArray[np.int64]
    target: NDArray[np.bool_]

    @classmethod
    def answering(cls, prompt: NDArray[np.int64], answer: NDArray[np.int64]) -> Example:
        """A prompt with its answer as the target."""
        return cls(np.concatenate([prompt, answer]), np.arange(len(prompt) + len(answer)) >= len(prompt))


@dataclass(frozen=True)
class Batch:
    ids_BT: Tensor
    mask_BT: Tensor
    labels_BL: Tensor
    #: how far back the model sees (Backbone.window)
    window: int | None = None

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What the model is given."""
        return model_inputs(self.ids_BT, self.mask_BT, window=self.window)

    @property
    def targets(self) -> int:
        """How many tokens are to be predicted."""
        return int((self.labels_BL != NOTHING).sum())

    def part(self, rows: slice) -> Batch:
        """Some of the examples; never none: a part without any gets the first one with nothing to predict."""
        if len(self.ids_BT[rows]):
            return Batch(self.ids_BT[rows], self.mask_BT[rows], self.labels_BL[rows], self.window)
        first = self.part(slice(0, 1))
        return replace(first, labels_BL=torch.full_like(first.labels_BL, NOTHING))

    def to(self, device: torch.device) -> Batch:
        ids_BT, mask_BT, labels_BL = (
            part.to(device, non_blocking=True) for part in (self.ids_BT, self.mask_BT, self.labels_BL)
        )
        return Batch(ids_BT, mask_BT, labels_BL, self.window)


def model_inputs(ids_BT: Tensor, mask_BT: Tensor, before: int = 0, *, window: int | None = None) -> dict[str, Tensor]:
    """Ids, positions and attention of a batch that is padded on the left, after `before` tokens in a cache.

    Padding attends to itself: some attention kernels answer a token that may look nowhere with NaN, and a NaN does
    not stay where it is. Without padding the model needs no mask and takes its fastest path. Beyond `window` the
    model makes its own mask, since only it knows which of its layers see how far.
    """
    given = {"input_ids": ids_BT, "position_ids": before + (mask_BT.cumsum(dim=1) - 1).clamp_min(0)}
    width = ids_BT.shape[1]
    if window is not None and before + width > window:
        given["attention_mask"] = torch.cat([mask_BT.new_ones(len(mask_BT), before), mask_BT], dim=1)
    elif bool((mask_BT == 0).any()):
        sees_TT = torch.ones(width, width, dtype=torch.bool, device=ids_BT.device).tril()
        itself_TT = torch.eye(width, dtype=torch.bool, device=ids_BT.device)
        sees_BTT = (sees_TT & (mask_BT[:, None, :] == 1)) | itself_TT
        if before:
            # padding may look at the cache as well: what it sees reaches nobody
            sees_BTT = torch.cat([sees_BTT.new_ones(len(ids_BT), width, before), sees_BTT], dim=2)
        hidden = torch.finfo(torch.float32).min
        given["attention_mask"] = torch.zeros(sees_BTT.shape, device=ids_BT.device).masked_fill(~sees_BTT, hidden)[
            :, None
        ]
    return given


def padded(sequences: Sequence[NDArray[np.int64]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask of sequences, padded on the left."""
    width = max(len(ids) for ids in sequences)
    ids_BT = np.full((len(sequences), width), pad, dtype=np.int64)
    mask_BT = np.zeros((len(sequences), width), dtype=np.int64)
    for row, ids in enumerate(sequences):
        ids_BT[row, width - len(ids) :], mask_BT[row, width - len(ids) :] = ids, 1
    return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)


def collate(examples: Sequence[Example], pad: int, window: int | None = None) -> Batch:
    """One batch out of examples.

    >>> batch = collate([Example.answering(np.array([5, 6]), np.array([7])),
    ...                  Example.answering(np.array([8]), np.array([9]))], pad=0)
    >>> batch.ids_BT.tolist(), batch.labels_BL.tolist()
    ([[5, 6, 7], [0, 8, 9]], [[7], [9]])
    """
    ids_BT, mask_BT = padded([example.ids for example in examples], pad)
    last = max(len(example.ids) - int(example.target.argmax()) for example in examples)
    labels_BL = np.full((len(examples), last), NOTHING, dtype=np.int64)
    for row, example in enumerate(examples):
        ids, target = example.ids[-last:], example.target[-last:]
        labels_BL[row, last - len(ids) :][target] = ids[target]
    return Batch(ids_BT, mask_BT, torch.from_numpy(labels_BL), window)


class ShuffledBatches:
    """Which examples each step sees: every one once per pass, those of similar length together.

    The order depends on the seed and the pass alone, so that a run can go on from any step.
    """

    #: batches sorted by length together; more would pad less and shuffle less
    POOL = 16

    def __init__(self, lengths_N: NDArray[np.integer], batch: int, seed: int) -> None:
        self.lengths_N, self.batch, self.seed = lengths_N, batch, seed
        self.per_pass = -(-len(lengths_N) // batch)
        self._pass = -1
        self._batches: list[NDArray[np.int64]] = []

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        number, place = divmod(step, self.per_pass)
        if number != self._pass:
            self._pass, self._batches = number, self._shuffled(np.random.default_rng((self.seed, number)))
        return self._batches[place]

    def _shuffled(self, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        order_N = rng.permutation(len(self.lengths_N))
        batches = []
        for start in range(0, len(order_N), self.batch * self.POOL):
            pool = order_N[start : start + self.batch * self.POOL]
            pool = pool[np.argsort(self.lengths_N[pool], kind="stable")]
            batches += [pool[at : at + self.batch] for at in range(0, len(pool), self.batch)]
        return [batches[place] for place in rng.permutation(len(batches))]
