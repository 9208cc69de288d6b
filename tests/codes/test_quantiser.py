"""The residual quantiser: cross-checked against another implementation, and its own promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vector_quantize_pytorch import ResidualVQ

from tefm.codes.quantiser import ResidualQuantiser, lloyd, straight_through


def quantiser(levels=3, entries=8, latent=6, seed=0, **settings):
    fresh = ResidualQuantiser(levels, entries, latent, **settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        scale = 0.5 ** torch.arange(levels)[:, None, None]
        fresh.codebooks_KCd.copy_(torch.randn(levels, entries, latent, generator=generator) * scale)
    return fresh


def latents(records=200, latent=6, seed=1):
    return torch.randn(records, latent, generator=torch.Generator().manual_seed(seed))


def errors(q, x, codes):
    return (x - q.embed(codes)).square().sum(dim=1)


def test_agrees_with_vector_quantize_pytorch_on_the_same_codebooks():
    ours, x = quantiser(), latents()
    theirs = ResidualVQ(dim=6, num_quantizers=3, codebook_size=8)
    for layer, entries in zip(theirs.layers, ours.codebooks_KCd, strict=True):
        layer._codebook.embed.data.copy_(entries[None])
        layer._codebook.initted.fill_(True)
    latent, indices, _ = theirs.eval()(x)
    quantised = ours(x)
    assert torch.equal(quantised.codes_NK, indices)
    assert torch.allclose(quantised.latent_Nd, latent, atol=1e-5)
    assert torch.allclose(ours.embed(quantised.codes_NK), latent, atol=1e-5)


def test_losses_are_sums_over_dimensions_and_levels():
    q, x = quantiser(gradient=True), latents(50)
    quantised = q(x)
    residual, expected = x, 0.0
    for k in range(3):
        picked = q.codebooks_KCd[k][quantised.codes_NK[:, k]]
        expected += float((residual - picked).square().sum(dim=1).mean().detach())
        residual = residual - picked
    assert float(quantised.commitment) == pytest.approx(expected, rel=1e-5)
    assert float(quantised.codebook) == pytest.approx(expected, rel=1e-5)


def test_stop_gradients_move_the_right_side_only():
    q, x = quantiser(gradient=True), latents(50).requires_grad_()
    q(x).commitment.backward()
    assert x.grad is not None and float(x.grad.abs().sum()) > 0
    assert q.codebooks_KCd.grad is None or float(q.codebooks_KCd.grad.abs().sum()) == 0
    x.grad = None
    q(x).codebook.backward()
    assert float(q.codebooks_KCd.grad.abs().sum()) > 0
    assert x.grad is None or float(x.grad.abs().sum()) == 0


@given(seed=st.integers(0, 10_000), levels=st.integers(1, 4), entries=st.integers(2, 9), beam=st.integers(2, 12))
def test_beam_search_never_does_worse_than_greedy(seed, levels, entries, beam):
    q, x = quantiser(levels, entries, seed=seed), latents(20, seed=seed + 1)
    greedy, wide = q.encode(x, 1), q.encode(x, beam)
    assert wide.shape == (20, levels)
    assert bool((errors(q, x, wide) <= errors(q, x, greedy) + 1e-4).all())


def test_a_wide_beam_finds_the_best_of_all_codes():
    q, x = quantiser(levels=3, entries=4), latents(40)
    grid = torch.cartesian_prod(*[torch.arange(4)] * 3)
    best = torch.stack([errors(q, row.expand(64, -1), grid).min() for row in x])
    assert torch.allclose(errors(q, x, q.encode(x, 64)), best, atol=1e-4)
    assert float(errors(q, x, q.encode(x, 1)).mean()) > float(best.mean())  # greedy is not the optimum here


def test_initialise_and_settle_leave_no_entry_unused():
    x = torch.randn(500, 6, generator=torch.Generator().manual_seed(3))
    x[:400] = x[0]  # most records are the same
    q = ResidualQuantiser(2, 32, 6)
    q.initialise(x, torch.Generator().manual_seed(0))
    q.settle(x, 5)
    codes = q(x).codes_NK
    assert [len(codes[:, k].unique()) for k in range(2)] == [32, 32]


def test_lloyd_lowers_the_error():
    x = latents(300)
    start = x[:10].clone()
    before = torch.cdist(x, start).min(dim=1).values.square().mean()
    entries, code = lloyd(x, start, 10)
    assert float((x - entries[code]).square().sum(dim=1).mean()) < float(before)


def test_fewer_records_than_entries():
    q = ResidualQuantiser(2, 16, 6)
    x = latents(5)
    q.initialise(x, torch.Generator().manual_seed(0))
    assert float(errors(q, x, q.encode(x)).max()) < 1e-6


def test_dead_entries_are_replaced_and_the_living_stay():
    q, x = quantiser(levels=1, entries=4), latents(100)
    with torch.no_grad():
        q.codebooks_KCd[0, 3] = 1e6
    quantised = q(x)
    q.follow(quantised)
    alive = q.codebooks_KCd[0, :3].clone()
    assert q.replace_dead(quantised, torch.Generator().manual_seed(0)) == 1
    assert torch.equal(q.codebooks_KCd[0, :3], alive)
    assert bool((q.codebooks_KCd[0, 3] == x).all(dim=1).any())


def test_ema_moves_entries_to_the_mean_of_what_picks_them():
    q, x = quantiser(levels=1, entries=2, decay=0.5), latents(400)
    q.initialise(x, torch.Generator().manual_seed(0))
    for _ in range(60):
        q.follow(q(x))
    codes = q(x).codes_NK[:, 0]
    for entry in range(2):
        assert torch.allclose(q.codebooks_KCd[0, entry], x[codes == entry].mean(dim=0), atol=1e-2)


def test_straight_through_gives_the_quantised_value_and_a_gradient():
    x, target = latents(30).requires_grad_(), latents(30, seed=9)
    passed = straight_through(x, target)
    assert torch.allclose(passed, target, atol=1e-4)
    passed.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.ones_like(x))
