"""Random parts of records for training, so that the model has seen inputs like those of a rationale.

Shapes: S sequences, N records of all of them, D slots.
"""

from __future__ import annotations

import numpy as np

from tefm.rationale.masked_model import Encode, Keep
from tefm.rationale.select import order_of
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


def with_masked_copies(sequences: Sequences, encode: Encode, copies: int, seed: int) -> Sequences:
    """The codes of all sequences, followed by `copies` copies of each with a random part of its slots.

    A language model trained on whole records only has never learned what to predict from three features, and predicts
    something all the same; the check of a rationale would depend on that.
    """
    rng = np.random.default_rng((seed, 4))
    repeated = sequences.select(np.tile(np.arange(len(sequences)), 1 + copies))
    masks = [np.ones(sequences.x_ND.shape, dtype=bool), *(random_keep(sequences, rng) for _ in range(copies))]
    masked = repeated.masked(np.concatenate(masks))
    return masked.with_values(encode(masked.x_ND))
