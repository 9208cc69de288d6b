"""Encoder and decoder: absent is absent, a soft mask fades, losses are sums over slots."""

import numpy as np
import pytest
import torch

from tefm.codes.config import TokenizerConfig
from tefm.codes.network import CodeNetwork, SlotInput, slot_weights
from tefm.tables.layout import Layout, Slot

LAYOUT = Layout(
    (
        Slot("colour", "category", 3),
        Slot("size", "number", 4),
        Slot("open", "flag", 1),
        Slot("dx", "number", 2),
        Slot("dx", "flag", 1, "a"),
        Slot("dx", "flag", 1, "b"),
    )
)


def records(rows=40, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, LAYOUT.sizes_D + 1, (rows, 6)).astype(np.uint8))


def network(recipe="ours", layout=LAYOUT):
    torch.manual_seed(0)
    return CodeNetwork(layout, TokenizerConfig(latent=8, hidden=16, entries=4, recipe=recipe))


def test_numbers_are_thermometers_and_categories_one_hot():
    columns = SlotInput(LAYOUT)(torch.tensor([[2, 3, 1, 0, 0, 1]], dtype=torch.uint8))
    #               size ≥ 1…4  count ≥ 1…2  colour = 1…3   open  a  b
    assert columns.tolist() == [[1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1]]


def test_a_masked_slot_is_an_absent_slot():
    x, net = records(), network()
    keep = torch.ones(x.shape)
    keep[:, [0, 3]] = 0
    absent = x.clone()
    absent[:, [0, 3]] = 0
    assert torch.equal(net.encode_latent(x, keep), net.encode_latent(absent))


def test_a_soft_mask_has_a_gradient_and_ends_at_both_extremes():
    x, net = records(), network()
    keep = torch.full(x.shape, 0.5, requires_grad=True)
    net.encode_latent(x, keep).square().sum().backward()
    assert keep.grad is not None and float(keep.grad[x > 0].abs().sum()) > 0
    assert float(keep.grad[x == 0].abs().sum()) == 0  # absent slots have nothing to keep
    assert torch.equal(net.encode_latent(x, torch.ones(x.shape)), net.encode_latent(x))


def test_the_papers_loss_of_a_record_is_the_sum_over_its_slots():
    x, net = records(), network("paper")
    weights, latent = slot_weights(LAYOUT, net.config, x), torch.randn(len(x), 8)
    scaled = x / torch.from_numpy(LAYOUT.sizes_D)
    expected = (net.decoder(latent) - scaled).square().sum(dim=1)
    assert torch.allclose(net.loss(latent, x, weights), expected, atol=1e-5)


def test_likelihood_of_each_slot_is_its_own():
    """Changing one slot of the target changes the loss by that slot's likelihood ratio alone."""
    x, net = records(), network()
    weights, latent = slot_weights(LAYOUT, net.config, x), torch.randn(len(x), 8)
    other = x.clone()
    other[:, 1] = (x[:, 1] + 1) % 5
    logits = next(part for group, part in net.split(net.decoder(latent)) if group.size == 4)
    logp = logits[:, 0].log_softmax(dim=1)
    expected = logp.gather(1, x[:, 1:2].long()) - logp.gather(1, other[:, 1:2].long())
    difference = net.loss(latent, other, weights) - net.loss(latent, x, weights)
    assert torch.allclose(difference, expected[:, 0], atol=1e-4)


def test_rare_flags_weigh_more():
    x = torch.zeros(1024, 6, dtype=torch.uint8)
    x[:32, 4], x[:1, 5] = 1, 1
    weights = slot_weights(LAYOUT, network().config, x)
    assert weights[4] == pytest.approx(2.0)  # one record in 32
    assert weights[5] == pytest.approx(4.0)  # one in 1,024
    assert weights[:4].tolist() == [1, 1, 1, 1]
    assert slot_weights(LAYOUT, network("paper").config, x).tolist() == [1] * 6


def test_among_numbers_alone_a_near_miss_costs_less():
    """The squared distance of the expected bucket weighs 100; the paper's recipe has none, nor has a mixed table."""
    layout = Layout((Slot("size", "number", 4), Slot("weight", "number", 4)))
    net, latent, target = network(layout=layout), torch.randn(1, 8), torch.tensor([[2, 3]], dtype=torch.uint8)
    _, logits = net.split(net.decoder(latent))[0]
    p = logits[0].softmax(dim=1)
    expected = (p * torch.arange(5) / 4).sum(dim=1)
    likelihood = -p[[0, 1], [2, 3]].log().sum()
    distance = (expected - torch.tensor([2, 3]) / 4).square().sum()
    weights = slot_weights(layout, net.config, target)
    assert net.loss(latent, target, weights).item() == pytest.approx(float(likelihood + 100 * distance), rel=1e-4)
    median = (p.cumsum(dim=1) < 0.5).sum(dim=1)
    assert net.decode(latent).tolist() == [median.tolist()]
    assert network("paper", layout).ordinal_weight == network().ordinal_weight == 0


@pytest.mark.parametrize("recipe", ["ours", "paper"])
def test_decoded_slots_stay_in_range(recipe):
    net = network(recipe)
    slots = net.decode(torch.randn(500, 8) * 50)
    assert bool((slots >= 0).all()) and bool((slots <= torch.from_numpy(LAYOUT.sizes_D)).all())


def test_decode_puts_every_slot_in_its_place():
    """The decoder's outputs are grouped by size; decoding sorts them back."""
    net = network()
    slots = torch.tensor([3, 2, 1, 0, 0, 1])
    with torch.no_grad():
        last = net.decoder[-1]
        last.weight.zero_()
        for group, bias in net.split(last.bias[None]):
            target = slots[net.order_D[group.first : group.last]]
            if group.size == 1:
                bias[0].copy_(torch.where(target > 0, 9.0, -9.0))
            else:
                bias[0].zero_().scatter_(1, target[:, None], 9.0)
    assert net.decode(torch.randn(3, 8)).tolist() == [slots.tolist()] * 3
