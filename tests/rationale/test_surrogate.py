"""The surrogate: what it reads, and the masked sequences it learns from."""

from __future__ import annotations

import numpy as np
import torch

from tefm.rationale.masked_model import random_keep
from tefm.rationale.surrogate import PLACES, Surrogate, held_out, rows_of, trimmed
from tefm.scoring.calibration import Calibration
from tefm.tables.sequences import Sequences


def test_a_sequence_is_read_alone_and_in_order() -> None:
    torch.manual_seed(0)
    surrogate = Surrogate(4, 3, 8)
    latent_Nd = torch.randn(6, 4)
    together = surrogate(latent_Nd, rows_of(np.array([0, 1, 4, 6])))
    assert together.shape == (3, 3)
    for i, rows in enumerate((slice(0, 1), slice(1, 4), slice(4, 6))):
        alone = surrogate(latent_Nd[rows], rows_of(np.array([0, rows.stop - rows.start])))
        torch.testing.assert_close(together[i : i + 1], alone)
    turned = surrogate(latent_Nd[1:4].flip(0), rows_of(np.array([0, 3])))
    assert not torch.allclose(together[1:2], turned)


def test_old_records_share_the_last_place() -> None:
    torch.manual_seed(0)
    surrogate = Surrogate(4, 2, 8)
    latent_Nd = torch.randn(PLACES + 4, 4)
    rows_ST = rows_of(np.array([0, len(latent_Nd)]))
    swapped = latent_Nd.clone()
    swapped[[0, 3]] = latent_Nd[[3, 0]]
    torch.testing.assert_close(surrogate(latent_Nd, rows_ST), surrogate(swapped, rows_ST))


def test_random_masks_keep_present_slots_of_every_size() -> None:
    x_ND = np.zeros((3_000, 40), dtype=np.uint8)
    x_ND[:, :20] = 1
    sequences = Sequences(x_ND, np.arange(0, 3_001, 2))
    keep_ND = random_keep(sequences, np.random.default_rng(0))
    assert not keep_ND[:, 20:].any()
    size_N = keep_ND.sum(axis=1)
    assert set(size_N) == set(range(21))
    assert 0.03 < (size_N == 0).mean() < 0.07
    assert (size_N == 1).mean() > 0.1
    size_NT = size_N.reshape(-1, 2)
    full = size_NT[(size_NT > 0).all(axis=1)]
    assert (full[:, 0] == full[:, 1]).all()  # one share per sequence


def test_versions_of_a_sequence_are_held_out_together() -> None:
    origin_S = np.tile(np.arange(50), 3)
    held_S = held_out(origin_S, seed=0)
    assert held_S.sum() == 15
    assert (held_S.reshape(3, 50) == held_S[:50]).all()


def test_places_that_no_sequence_reaches_are_cut() -> None:
    rows_ST = rows_of(np.array([0, 1, 2, 6]))
    assert rows_ST.shape == (3, 4)
    assert trimmed(rows_ST[:2]).tolist() == [[0], [1]]


def test_it_uses_the_threshold_of_the_model() -> None:
    p_SQ = np.random.default_rng(0).dirichlet([1.0, 1.0], 200)
    for calibration in (Calibration(), Calibration(threshold=0.6, positive=0), Calibration(threshold=0.2, positive=1)):
        surrogate = Surrogate(4, 2, 8)
        surrogate.decide_like(calibration)
        assert np.array_equal(surrogate.decide(torch.from_numpy(p_SQ)).numpy(), calibration.predict(p_SQ))
