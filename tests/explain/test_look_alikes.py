"""Look-alikes, their check, and the search for features that settle an answer, on models whose rule is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor

from tefm.explain.check import coverage, effects, expected_effects, flips, precision, strongest
from tefm.explain.counts import exact_share
from tefm.explain.population import Population, mixed
from tefm.explain.reasons import ATTEMPTS, CHECKED, SEARCHED, Donors, Question, Reasoner
from tefm.explain.settle import Search
from tefm.explain.slot_features import Feature, features_of, keep_of
from tefm.model.estimator import TEFM
from tefm.rationale.masked_model import MaskedModel
from tefm.scoring.calibration import Calibration
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

#: Six categories of four values each, and a set of three members.
LAYOUT = Layout(
    (
        *(Slot(f"f{number}", "category", 4) for number in range(6)),
        *(Slot("dx", "flag", 1, member) for member in "abc"),
    )
)
Rule = Callable[[Any], Any]
RULES: dict[str, Rule] = {
    "one": lambda x: x[..., 0] > 2,
    "pair": lambda x: (x[..., 0] > 2) & (x[..., 1] > 2),
    "xor": lambda x: (x[..., 0] > 2) ^ (x[..., 1] > 2),
    "copy": lambda x: (x[..., 0] > 2) | (x[..., 1] > 2),
    "empty set": lambda x: (x[..., 6:] == 0).all(-1),
}


def sequences(count: int, *, seed: int = 0, longest: int = 1, copy: bool = False) -> Sequences:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, count)
    x_ND = rng.integers(1, 5, (lengths.sum(), 9)).astype(np.uint8)
    x_ND[:, 6:] = rng.random((len(x_ND), 3)) < 0.4
    if copy:
        x_ND[:, 1] = x_ND[:, 0]
    return Sequences(x_ND, np.concatenate([[0], np.cumsum(lengths)]))


def model_of(rule: Rule) -> MaskedModel:
    """Answers 1 where the rule holds for the last record, and is 90% sure."""

    def logits(slots: Sequences) -> Any:
        return np.log(np.where(rule(slots.last)[:, None], [0.1, 0.9], [0.9, 0.1]))

    return MaskedModel(logits, Calibration())


def population(model: MaskedModel, count: int = 1_000, **how: Any) -> Population:
    slots = sequences(count, seed=1, **how)
    p_SQ = model(slots)
    return Population(slots, p_SQ, model.decide(p_SQ), np.zeros(count, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class _Judge:
    """In place of a surrogate: the decisions are those of the most probable class."""

    cut_Q: Tensor


@dataclass(frozen=True, eq=False)
class ExactTrial:
    """In place of a trial on a surrogate: the rule itself; the codes are the slots."""

    rule: Rule
    x_TD: Any
    donors_BTD: Any
    surrogate: _Judge
    #: slots that the codes hold; others are lost
    carried: tuple[int, ...] = tuple(range(9))

    @property
    def shape(self) -> Any:
        return self.x_TD.shape

    def mixed(self, keep_CTD: Any) -> Any:
        return np.where(keep_CTD[:, None], self.x_TD, self.donors_BTD)

    def codes(self, keep_CTD: Any) -> Tensor:
        return torch.from_numpy(self.mixed(keep_CTD)[..., list(self.carried)].astype(np.int64))

    def answers(self, keep_CTD: Any) -> Tensor:
        holds_CB = self.rule(self.mixed(keep_CTD)[:, :, -1])
        return torch.from_numpy(np.where(holds_CB[..., None], [0.1, 0.9], [0.9, 0.1]))


def trial(rule: Rule, x_TD: Any, donors: Population, **how: Any) -> Any:
    near = donors.nearest(len(x_TD))[:SEARCHED]
    return ExactTrial(rule, x_TD, donors.records(near, len(x_TD)), _Judge(torch.ones(2)), **how)


# ---- features ---------------------------------------------------------------------------------------------------


def test_a_set_has_its_members_and_its_whole_value() -> None:
    (x_D,) = np.array([[1, 2, 0, 4, 1, 1, 0, 1, 0]], dtype=np.uint8)
    found = features_of(x_D[None], LAYOUT)
    assert [feature.slots for feature in found] == [(0,), (1,), (2,), (3,), (4,), (5,), (7,), (6, 7, 8)]
    assert [feature.slots for feature in found if feature.absent] == [(2,)]
    assert [feature.size for feature in features_of(np.ones((1, 9), dtype=np.uint8), LAYOUT)] == [*[1] * 9, 3]
    empty = features_of(np.zeros((1, 9), dtype=np.uint8), LAYOUT)
    assert empty[-1] == Feature(0, (6, 7, 8), absent=True), "an empty set says something too"


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_all_features_together_are_the_whole_sequence(seed: int, length: int) -> None:
    x_TD = np.random.default_rng(seed).integers(0, 2, (length, 9)).astype(np.uint8)
    assert keep_of(features_of(x_TD, LAYOUT), x_TD.shape).all()


# ---- look-alikes ------------------------------------------------------------------------------------------------


def test_a_look_alike_keeps_its_features_and_has_the_rest_from_one_donor() -> None:
    donors = population(model_of(RULES["one"]), 50, longest=4)
    one = sequences(1, seed=9, longest=4)
    keep_TD = np.zeros(one.x_ND.shape, dtype=bool)
    keep_TD[-1, [0, 7]] = True
    numbers = np.arange(50)
    copies = donors.look_alikes(one, keep_TD, numbers)
    assert len(copies) == 50 and (copies.lengths == len(one.x_ND)).all()
    for number in numbers.tolist():
        own = donors.slots[number]
        paired = own[np.maximum(np.arange(len(own) - len(one.x_ND), len(own)), 0)]
        assert (copies[number] == np.where(keep_TD, one.x_ND, paired)).all()


def test_texts_and_times_are_the_donors_unless_everything_else_stays() -> None:
    slots = Sequences(np.ones((3, 9)), np.array([0, 1, 3]), texts=["short", "long"], gaps=["", "", "a day"])
    none = np.zeros(2, dtype=np.int64)
    donors = Population(slots, np.zeros((2, 2)), none, none)
    one = Sequences(np.ones((2, 9)), np.array([0, 2]), texts=["mine"], gaps=["", "a year"])
    keep_TD = np.zeros((2, 9), dtype=bool)
    copies = donors.look_alikes(one, keep_TD, np.array([1, 0]))
    assert copies.texts == ["long", "short"] and copies.gaps == ["", "a day", "", ""]
    own = donors.look_alikes(one, keep_TD, np.array([1, 0]), own_context=True)
    assert own.texts == ["mine"] * 2 and own.gaps == ["", "a year"] * 2


def test_donors_of_the_check_are_not_those_of_the_search() -> None:
    donors = Donors.of(population(model_of(RULES["one"]), 1_000, longest=3), 2)
    parts = [donors.search, *donors.checks]
    assert [len(part) for part in parts] == [SEARCHED] + [CHECKED] * ATTEMPTS
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    few = Donors.of(population(model_of(RULES["one"]), 100), 1)
    assert (len(few.search), [len(check) for check in few.checks]) == (25, [75])
    for count in (1, 2, 3):
        least = Donors.of(population(model_of(RULES["one"]), count), 1)
        assert len(least.search) == 1 and all(len(check) for check in least.checks)


def test_who_has_the_features() -> None:
    donors = population(model_of(RULES["one"]), 400, longest=3)
    one = sequences(1, seed=3, longest=1)
    keep_TD = keep_of([Feature(0, (0,))], one.x_ND.shape)
    share = coverage(donors, one, keep_TD)
    assert share.count == (donors.slots.last[:, 0] == one.x_ND[0, 0]).sum()
    two = Sequences(np.vstack([one.x_ND, one.x_ND]), np.array([0, 2]))
    first = coverage(donors, two, keep_of([Feature(0, (0,))], two.x_ND.shape))
    before = donors.slots.starts[1:] - 2
    has = (donors.slots.lengths >= 2) & (donors.slots.x_ND[np.maximum(before, 0), 0] == one.x_ND[0, 0])
    assert first.count == has.sum(), "a sequence of one record has none before the last"


def test_mixtures_are_made_of_two_sequences() -> None:
    slots = sequences(300, longest=3)
    other = mixed(slots, np.random.default_rng(0))
    assert (other.starts == slots.starts).all()
    same = (other.x_ND == slots.x_ND).mean()
    assert 0.4 < same < 0.95
    assert (mixed(slots, np.random.default_rng(0)).x_ND == other.x_ND).all()


# ---- shares -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.data())
def test_the_interval_is_exact(of: int, data: Any) -> None:
    count = data.draw(st.integers(0, of))
    share = exact_share(count, of, 0.9)
    assert share.low <= share.value <= share.high
    if count:
        assert binom.sf(count - 1, of, share.low) == pytest.approx(0.05, abs=1e-6)
    if count < of:
        assert binom.cdf(count, of, share.high) == pytest.approx(0.05, abs=1e-6)


# ---- the check --------------------------------------------------------------------------------------------------


def test_precision_is_the_share_of_look_alikes_with_the_answer() -> None:
    rule = RULES["pair"]
    model = model_of(rule)
    donors, one = (
        population(model),
        Sequences(np.array([[4, 4, 1, 1, 1, 1, 0, 0, 0]], dtype=np.uint8), np.array([0, 1])),
    )
    shape, near = one.x_ND.shape, donors.nearest(1)[:CHECKED]
    first, both = keep_of([Feature(0, (0,))], shape), keep_of([Feature(0, (0,)), Feature(0, (1,))], shape)
    assert precision(model, donors, one, both, 1, near).value == 1
    alone = precision(model, donors, one, first, 1, near)
    assert alone.count == (donors.slots.x_ND[near, 1] > 2).sum() and alone.low < 0.9
    assert flips(model, donors, one, first, 1, near).count == (donors.slots.x_ND[near, 0] <= 2).sum()


# ---- the search -------------------------------------------------------------------------------------------------


def settled(rule: str, x_D: list[int], answer: int, *, copy: bool = False, **how: Any) -> set[tuple[int, ...]]:
    """The slots of the features that the search finds precise enough; empty where there are none."""
    donors = population(model_of(RULES[rule]), copy=copy)
    x_TD = np.array([x_D], dtype=np.uint8)
    search = Search.of(trial(RULES[rule], x_TD, donors, **how), answer, features_of(x_TD, LAYOUT))
    best = search.best(10, 0.95)
    return {feature.slots for feature in best.features} if best.precision >= 0.95 else set()


def test_one_field() -> None:
    assert settled("one", [4, 1, 1, 2, 3, 1, 0, 1, 0], 1) == {(0,)}
    assert settled("one", [1, 1, 1, 2, 3, 1, 0, 1, 0], 0) == {(0,)}


def test_a_pair_that_decides_together() -> None:
    assert settled("pair", [4, 3, 1, 2, 3, 1, 0, 1, 0], 1) == {(0,), (1,)}
    assert settled("pair", [1, 3, 1, 2, 3, 1, 0, 1, 0], 0) == {(0,)}, "one of them is enough for no"


@pytest.mark.parametrize(("first", "second"), [(4, 1), (1, 4), (4, 4), (1, 1)])
def test_an_exclusive_or(first: int, second: int) -> None:
    """Neither of the two says anything alone."""
    answer = int((first > 2) != (second > 2))
    assert settled("xor", [first, second, 1, 2, 3, 1, 0, 1, 0], answer) == {(0,), (1,)}


def test_of_a_copy_and_its_original_one_is_enough() -> None:
    assert settled("copy", [4, 4, 1, 2, 3, 1, 0, 1, 0], 1, copy=True) in ({(0,)}, {(1,)})


def test_what_a_record_does_not_have() -> None:
    assert settled("empty set", [4, 4, 1, 2, 3, 1, 0, 0, 0], 1) == {(6, 7, 8)}
    assert len(settled("empty set", [4, 4, 1, 2, 3, 1, 0, 1, 0], 0)) == 1, "a member, or the whole set"


def test_a_feature_that_never_moves_the_codes_is_not_offered() -> None:
    x_TD = np.array([[4, 3, 1, 2, 3, 1, 0, 1, 0]], dtype=np.uint8)
    donors = population(model_of(RULES["one"]))
    search = Search.of(trial(RULES["one"], x_TD, donors, carried=(0, 2)), 1, features_of(x_TD, LAYOUT))
    assert {feature.slots for feature in search.features} == {(0,), (2,)}


def test_a_member_of_a_kept_set_is_no_further_feature() -> None:
    """The whole set decides with two fields; its member would add nothing to it."""
    rule = lambda x: (x[..., 6:] == [1, 1, 0]).all(-1) & (x[..., 0] > 1) & (x[..., 1] > 1)  # noqa: E731
    x_TD = np.array([[4, 3, 1, 2, 3, 1, 1, 1, 0]], dtype=np.uint8)
    donors = population(model_of(rule))
    search = Search.of(trial(rule, x_TD, donors), 1, features_of(x_TD, LAYOUT))
    best = search.best(10, 1.1)  # never enough, so that it keeps on adding
    slots = {feature.slots for feature in best.features}
    assert (6, 7, 8) in slots and not {(6,), (7,)} & slots, slots


def test_the_whole_value_of_a_set_counts_its_members() -> None:
    """These two members and no others settle the answer; that is no set of one feature."""
    rule = lambda x: (x[..., 6:] == [1, 1, 0]).all(-1)  # noqa: E731
    x_TD = np.array([[4, 3, 1, 2, 3, 1, 1, 1, 0]], dtype=np.uint8)
    search = Search.of(trial(rule, x_TD, population(model_of(rule))), 1, features_of(x_TD, LAYOUT))
    alone, both = search.best(1, 0.95), search.best(2, 0.95)
    assert alone.precision < 0.95 and alone.size == 1
    assert [feature.slots for feature in both.features] == [(6, 7, 8)] and (both.size, both.precision) == (2, 1)
    for most in range(1, 8):
        assert search.best(most, 1.1).size <= most


def test_a_set_that_failed_the_check_grows() -> None:
    """The surrogate is content with fewer features than the model."""
    x_TD = np.array([[4, 1, 1, 2, 3, 1, 0, 1, 0]], dtype=np.uint8)
    search = Search.of(trial(RULES["one"], x_TD, population(model_of(RULES["one"]))), 1, features_of(x_TD, LAYOUT))
    assert [len(search.best(10, 0.95, least).features) for least in (0, 2, 4)] == [1, 2, 4]
    assert all(search.best(10, 0.95, least).precision == 1 for least in (0, 2, 4))


def test_look_alikes_are_encoded_in_parts_that_fit_into_memory(fitted: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of thousands of columns would otherwise need gigabytes at once; the codes are the same."""
    import tefm.explain.trial as module

    parts = fitted.fitted.look_alikes
    assert parts is not None
    donors, x_TD = parts.population, parts.population.slots[0]
    keep_CTD = np.random.default_rng(0).random((7, *x_TD.shape)) < 0.5
    records = donors.records(np.arange(1, 9), len(x_TD))
    whole = module.Trial(parts.network, parts.surrogate, x_TD, records)
    codes = whole.codes(keep_CTD)
    monkeypatch.setattr(module, "MOST_SLOTS", 1)
    assert torch.equal(module.Trial(parts.network, parts.surrogate, x_TD, records).codes(keep_CTD), codes)
    coder = fitted.fitted.coder
    for number, keep_TD in enumerate(keep_CTD):
        mixed_BTD = np.where(keep_TD, x_TD, records)
        expected = coder.encode(mixed_BTD.reshape(-1, x_TD.shape[1]).astype(x_TD.dtype))
        assert (codes[number].reshape(-1, codes.shape[-1]).numpy() == expected).all()


def test_records_are_read_once_and_answered_as_whole_sequences(fitted: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers as those of the surrogate to each look-alike on its own, also in several calls."""
    import tefm.explain.trial as module

    monkeypatch.setattr(module, "SETS", 3)
    parts = fitted.fitted.look_alikes
    assert parts is not None
    donors = parts.population
    number = int(donors.slots.lengths.argmax())
    x_TD = donors.slots[number]
    assert len(x_TD) > 1
    keep_CTD = np.random.default_rng(0).random((8, *x_TD.shape)) < 0.5
    records = donors.records(donors.nearest(len(x_TD))[:5], len(x_TD))
    tried = module.Trial(parts.network, parts.surrogate, x_TD, records)
    answers = torch.cat([tried.answers(keep_CTD[:2]), tried.answers(keep_CTD[2:])])
    codes_SK = tried.codes(keep_CTD).reshape(-1, tried.codes(keep_CTD).shape[-1])
    rows_ST = torch.arange(len(codes_SK)).view(-1, len(x_TD))
    expected = parts.surrogate(parts.network.quantiser.embed(codes_SK), rows_ST).softmax(dim=1)
    assert torch.allclose(answers.flatten(0, 1), expected, atol=1e-5)


# ---- effects ----------------------------------------------------------------------------------------------------


def test_the_effect_of_a_feature_is_the_mean_change() -> None:
    model = model_of(RULES["one"])
    donors = population(model)
    one = Sequences(np.array([[4, 1, 1, 1, 1, 1, 0, 0, 0]], dtype=np.uint8), np.array([0, 1]))
    near = donors.nearest(1)[:64]
    deciding, idle = effects(model, donors, one, [Feature(0, (0,)), Feature(0, (1,))], 1, 0.9, near)
    changed = donors.slots.x_ND[near, 0] <= 2
    assert deciding.value == pytest.approx(0.8 * changed.mean()) and deciding.low < deciding.value < deciding.high
    assert deciding.low > 0.3 and (idle.value, idle.low, idle.high) == pytest.approx((0, 0, 0))
    against = effects(model, donors, one, [Feature(0, (0,))], 0, 0.1, near)[0]
    assert against.value == pytest.approx(-deciding.value)
    expected = expected_effects(trial(RULES["one"], one.x_ND, donors), [Feature(0, (0,)), Feature(0, (1,))], 1)
    assert expected[0] > 0.3 and expected[1] == pytest.approx(0)
    assert strongest(np.array([0.0, 0.0]), 3).tolist() == []


# ---- everything together ----------------------------------------------------------------------------------------


def reasons(rule: Rule, x_D: list[int], monkeypatch: pytest.MonkeyPatch, **asked: Any) -> Any:
    """What the whole search says, with the rule itself in place of the surrogate."""
    import tefm.explain.reasons as module

    model = model_of(rule)
    donors = population(model)
    judge = _Judge(torch.ones(2))
    monkeypatch.setattr(module, "Trial", lambda _n, surrogate, x, records: ExactTrial(rule, x, records, surrogate))

    class Network:
        layout = LAYOUT

    one = Sequences(np.array([x_D], dtype=np.uint8), np.array([0, 1]))
    reasoner = Reasoner(model, Network(), judge, donors)  # type: ignore[arg-type]
    return reasoner.reasons(one, model(one)[0].tolist(), None, Question(**asked))


def test_a_settled_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasons(RULES["one"], [4, 1, 1, 2, 3, 1, 0, 1, 0], monkeypatch)
    assert found.verdict == "settled" and found.answer == 1
    assert [feature.slots for feature in found.features] == [(0,)]
    assert found.precision.value == 1 and found.precision.low >= 0.9
    assert found.coverage.value == pytest.approx(0.25, abs=0.05)
    assert found.flips.value == pytest.approx(0.5, abs=0.1)
    assert found.other == 0 and found.rival is None, "hopeless"
    assert found.mean_p == pytest.approx(0.5, abs=0.05)


def test_a_contested_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first field says yes, the second no, and whoever has both is decided by a third."""

    def rule(x: Any) -> Any:
        yes, no = x[..., 0] == 4, x[..., 1] == 4
        return np.where(yes & ~no, True, np.where(no & ~yes, False, x[..., 2] > 2))

    found = reasons(rule, [4, 4, 4, 1, 1, 1, 0, 0, 0], monkeypatch, precision=0.7)
    assert found.verdict == "contested"
    assert found.rival.precision.low >= 0.7


def test_an_answer_that_too_many_features_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasons(lambda x: x[..., :6].sum(-1) % 2 == 0, [1, 1, 1, 2, 2, 1, 0, 1, 0], monkeypatch, most=3)
    assert found.verdict == "unsettled" and found.precision.low < 0.9 and len(found.features) <= 3
    whole = reasons(lambda x: x[..., :6].sum(-1) % 2 == 0, [1, 1, 1, 2, 2, 1, 0, 1, 0], monkeypatch, most=6)
    assert whole.precision.low < 0.9 or len(whole.features) == 6


def test_a_rare_answer_is_not_contested_by_what_everyone_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any feature at all, look-alikes get the other answer."""
    found = reasons(lambda x: (x[..., :3] == 1).all(-1), [1, 1, 1, 2, 3, 1, 0, 1, 0], monkeypatch)
    assert found.verdict == "settled" and {feature.slots for feature in found.features} == {(0,), (1,), (2,)}
    assert found.rival is None


def test_an_answer_that_nearly_everyone_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasons(lambda x: (x[..., :4] == 1).all(-1), [4, 1, 1, 2, 3, 1, 0, 1, 0], monkeypatch)
    assert found.verdict == "default" and found.answer == 0 and not found.features
    assert found.base.low >= 0.9
