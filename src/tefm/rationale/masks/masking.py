"""Random parts of records for training, so that the model has seen inputs like those of a rationale.

Shapes: S sequences, N records of all of them, D slots.
"""

from __future__ import annotations

import numpy as np

from tefm.rationale.arrays import Keep
from tefm.rationale.masked_model import Encode
from tefm.rationale.masks.select import order_of
from tefm.records.sequences import Sequences


def random_keep(sequences: Sequences, rng: np.random.Generator, least: float = 0.03) -> Keep:
    """A random part of the present slots of each record.

    The share is drawn per sequence, uniformly on a logarithmic scale, because inputs of one or two slots are the
    hardest; one record in twenty is empty.
    """
    share_S = np.exp(rng.uniform(np.log(least), 0.0, len(sequences)))
    present_ND = sequences.x_ND > 0
    size_N = np.ceil(share_S[sequences.sequence_N] * present_ND.sum(axis=1))
    size_N[rng.random(len(size_N)) < 0.05] = 0
    keep_ND: Keep = order_of(rng.random(present_ND.shape), sequences.x_ND) < size_N[:, None]
    return keep_ND


def masked_copies(slots: Sequences, encode: Encode, rng: np.random.Generator) -> Sequences:
    """The codes of the sequences when only a random part of the slots is kept.

    A language model that has only seen whole records answers confidently, and wrongly, about a record with three
    features; what the check of a rationale says would depend on that.
    """
    return slots.with_values(encode(slots.masked(random_keep(slots, rng)).x_ND))
