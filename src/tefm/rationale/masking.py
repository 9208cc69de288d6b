"""Random parts of records, to learn from: whoever is asked about a rationale later has seen its like.

Shapes: S sequences, N records of all of them, D slots.
"""

from __future__ import annotations

import numpy as np

from tefm.rationale.masked_model import Encode, Keep
from tefm.rationale.select import order_of
from tefm.records.sequences import Sequences


def random_keep(sequences: Sequences, rng: np.random.Generator, least: float = 0.03) -> Keep:
    """A random part of the present slots of each record.

    The share is drawn per sequence, evenly on a logarithmic scale, for one slot and two are what is judged hardest;
    one record in twenty is empty.
    """
    share_S = np.exp(rng.uniform(np.log(least), 0.0, len(sequences)))
    present_ND = sequences.x_ND > 0
    size_N = np.ceil(share_S[sequences.sequence_N] * present_ND.sum(axis=1))
    size_N[rng.random(len(size_N)) < 0.05] = 0
    keep_ND: Keep = order_of(rng.random(present_ND.shape), sequences.x_ND) < size_N[:, None]
    return keep_ND


def with_masked_copies(sequences: Sequences, encode: Encode, copies: int, seed: int) -> Sequences:
    """The codes of sequences, and after them of so many copies of each of which only a random part is kept.

    A language model that reads whole records only has never been told what to say of one with three features, and
    says something all the same: the check of a rationale would rest on that.
    """
    rng = np.random.default_rng((seed, 4))
    many = sequences.select(np.tile(np.arange(len(sequences)), 1 + copies))
    masks = [np.ones(sequences.x_ND.shape, dtype=bool), *(random_keep(sequences, rng) for _ in range(copies))]
    masked = many.masked(np.concatenate(masks))
    return masked.with_values(encode(masked.x_ND))
