"""Look-alikes, their check, and the search for features that settle an answer, on models whose rule is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor

from tefm.explain.check import EXACT, OTHERS, checked_share, joint_effect, other_values, precision
from tefm.explain.conditions import Condition, Rule
from tefm.explain.counts import NONE, exact_share
from tefm.explain.population import Population, mixed
from tefm.explain.reasons import ATTEMPTS, CHECKED, REAL, SEARCHED, Donors, Question, Reasoner
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
Truth = Callable[[Any], Any]
RULES: dict[str, Truth] = {
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


def model_of(rule: Truth) -> MaskedModel:
    """Answers 1 where the rule holds for the last record, and is 90% sure."""

    def logits(slots: Sequences) -> Any:
        return np.log(np.where(rule(slots.last)[:, None], [0.1, 0.9], [0.9, 0.1]))

    return MaskedModel(logits, Calibration())


def population(model: MaskedModel, count: int = 1_000, **how: Any) -> Population:
    slots = sequences(count, seed=1, **how)
    p_SQ = model(slots)
    return Population(slots, np.zeros(count, dtype=np.int64), p_SQ, model.decide(p_SQ))


@dataclass(frozen=True, eq=False)
class ExactTrial:
    """In place of a trial on a surrogate: the rule itself; the codes are the slots."""

    rule: Truth
    x_TD: Any
    donors_BTD: Any
    cut_Q: Tensor
    #: slots that the codes hold; others are lost
    carried: tuple[int, ...] = tuple(range(9))

    @property
    def shape(self) -> Any:
        return self.x_TD.shape

    def mixed(self, keep_CTD: Any) -> Any:
        return np.where(keep_CTD[:, None], self.x_TD, self.donors_BTD)

    def effects(self, cells_FTD: Any, of_class: int) -> Any:
        return np.zeros(len(cells_FTD))

    def moved(self, keep_CTD: Any) -> Tensor:
        moved_CBTD = (self.mixed(keep_CTD) != self.x_TD)[..., list(self.carried)[: self.x_TD.shape[1]]]
        return torch.from_numpy(moved_CBTD.any(axis=(1, 2, 3)))

    def answers(self, keep_CTD: Any) -> Tensor:
        return self.answers_to(self.mixed(keep_CTD), None)

    def answers_to(self, x_CBTD: Any, keep_TD: Any) -> Tensor:
        holds_CB = self.rule(x_CBTD[:, :, -1])
        return torch.from_numpy(np.where(holds_CB[..., None], [0.1, 0.9], [0.9, 0.1]))


def trial(rule: Truth, x_TD: Any, donors: Population, **how: Any) -> Any:
    near = donors.nearest(len(x_TD))[:SEARCHED]
    return ExactTrial(rule, x_TD, donors.records(near, len(x_TD)), torch.ones(2), **how)


# ---- features ---------------------------------------------------------------------------------------------------


def test_a_set_has_its_members_and_those_that_others_have() -> None:
    (x_D,) = np.array([[1, 2, 0, 4, 1, 1, 0, 1, 0]], dtype=np.uint8)
    found = features_of(x_D[None], LAYOUT)
    assert [feature.slots for feature in found] == [(0,), (1,), (2,), (3,), (4,), (5,), (7,)]
    assert [feature.slots for feature in found if feature.absent] == [(2,)]
    often_D = np.arange(9) == 8
    assert [feature.slots for feature in features_of(x_D[None], LAYOUT, often_D)][-2:] == [(7,), (8,)]
    empty = features_of(np.zeros((1, 9), dtype=np.uint8), LAYOUT)
    assert empty[-1] == Feature(0, (6, 7, 8), absent=True), "an empty set says something too"


def test_what_lasts_is_one_feature_and_a_field_of_the_entity_too() -> None:
    layout = Layout((Slot("born", "number", 9, static=True), *LAYOUT.slots[1:]))
    x_TD = np.array([[5, 1, 1, 1, 1, 1, 0, 1, 0], [5, 2, 1, 1, 1, 1, 1, 1, 0], [5, 2, 2, 1, 1, 1, 0, 1, 0]])
    found = features_of(x_TD, layout)
    assert [(of.record, of.span) for of in found if of.slots == (0,)] == [(2, 3)], "once"
    assert [(of.record, of.span) for of in found if of.slots == (1,)] == [(0, 1), (1, 1), (2, 1), (2, 2)]
    assert [(of.record, of.span) for of in found if of.slots == (7,)][-1] == (2, 3)
    assert not [of for of in found if of.slots == (6,) and of.span > 1], "a member that it does not have"


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_all_features_together_are_the_whole_sequence(seed: int, length: int) -> None:
    x_TD = np.random.default_rng(seed).integers(0, 2, (length, 9)).astype(np.uint8)
    assert keep_of(features_of(x_TD, LAYOUT, LAYOUT.member_D), x_TD.shape).all()


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


def test_texts_are_the_donors_unless_everything_else_stays() -> None:
    slots = Sequences(np.ones((3, 9)), np.array([0, 1, 3]), texts=["short", "long"])
    none = np.zeros(2, dtype=np.int64)
    donors = Population(slots, none, np.zeros((2, 2)), none)
    one = Sequences(np.ones((2, 9)), np.array([0, 2]), texts=["mine"])
    keep_TD = np.zeros((2, 9), dtype=bool)
    copies = donors.look_alikes(one, keep_TD, np.array([1, 0]))
    assert copies.texts == ["long", "short"]
    own = donors.look_alikes(one, keep_TD, np.array([1, 0]), own_context=True)
    assert own.texts == ["mine"] * 2


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


def rule_of(x_TD: Any, *features: Feature) -> Rule:
    return tuple(Condition.of(feature, x_TD) for feature in features)


def test_who_has_the_features() -> None:
    donors = population(model_of(RULES["one"]), 400, longest=3)
    one = sequences(1, seed=3, longest=1)
    having = donors.has(rule_of(one.x_ND, Feature(0, (0,))))
    assert having.sum() == (donors.slots.last[:, 0] == one.x_ND[0, 0]).sum()
    two = np.vstack([one.x_ND, one.x_ND])
    first = donors.has(rule_of(two, Feature(0, (0,))))
    before = donors.slots.starts[1:] - 2
    has = (donors.slots.lengths >= 2) & (donors.slots.x_ND[np.maximum(before, 0), 0] == one.x_ND[0, 0])
    assert first.sum() == has.sum(), "a sequence of one record has none before the last"


@given(st.integers(0, 2**32 - 1), st.data())
def test_a_condition_holds_as_a_plain_loop_says(seed: int, data: Any) -> None:
    slots = sequences(40, seed=seed % 1_000, longest=4)
    span = data.draw(st.sampled_from([1, 2, None]))
    back = data.draw(st.integers(0, 2)) if span == 1 else 0
    values = tuple(sorted(data.draw(st.sets(st.integers(1, 4), min_size=1, max_size=3))))
    condition = Condition((0,), values, back, span, anywhere=span != 1 and data.draw(st.booleans()))
    for number, held in enumerate(condition.holds(slots).tolist()):
        x_TD = slots[number]
        part = x_TD[: len(x_TD) - back]
        inside = [row[0] in values for row in (part if span is None else part[-span:])]
        enough = len(inside) >= (1 if condition.anywhere else span or 1)
        assert held == (enough and (any if condition.anywhere else all)(inside))


@given(st.integers(0, 2**32 - 1), st.data())
def test_made_up_cases_satisfy_the_rule_and_are_the_donors_elsewhere(seed: int, data: Any) -> None:
    donors, one = population(model_of(RULES["one"]), 60, longest=4), sequences(1, seed=seed % 1_000, longest=4)
    span = data.draw(st.sampled_from([1, None]))
    rule = (
        Condition((0,), (1, 3), 0, span, anywhere=data.draw(st.booleans())),
        Condition((6, 7, 8), (0,)),
        Condition((2,), (2, 3, 4)),
    )
    numbers = np.arange(60)
    cases = donors.made_up(one, rule, numbers)
    for condition in rule:
        assert condition.holds(cases).all()
    originals = donors.records(numbers, len(one.x_ND)).reshape(-1, 9)
    assert (cases.x_ND[:, [1, 3, 4, 5]] == originals[:, [1, 3, 4, 5]]).all()
    unchanged = rule[2].holds(cases.with_values(originals))
    assert (cases.last[unchanged, 2] == originals[cases.starts[1:] - 1][unchanged, 2]).all(), "who satisfies it stays"


def test_the_very_values_make_up_look_alikes() -> None:
    donors, one = population(model_of(RULES["one"]), 60, longest=4), sequences(1, seed=9, longest=4)
    features = [Feature(len(one.x_ND) - 1, (0,)), Feature(0, (7,))]
    numbers = np.arange(60)
    cases = donors.made_up(one, rule_of(one.x_ND, *features), numbers)
    assert (cases.x_ND == donors.look_alikes(one, keep_of(features, one.x_ND.shape), numbers).x_ND).all()


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
    assert precision(model, donors.look_alikes(one, both, near), 1).value == 1
    alone = precision(model, donors.look_alikes(one, first, near), 1)
    assert alone.count == (donors.slots.x_ND[near, 1] > 2).sum() and alone.low < 0.9
    joint = joint_effect(model, donors, one, (Condition((0,), (4,)),), 1, (0.1, 0.9), near)
    assert joint.flips.count == (donors.slots.x_ND[near, 0] <= 2).sum()


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
    assert settled("empty set", [4, 4, 1, 2, 3, 1, 0, 1, 0], 0) == {(7,)}


def test_a_feature_that_never_moves_the_codes_is_not_offered() -> None:
    x_TD = np.array([[4, 3, 1, 2, 3, 1, 0, 1, 0]], dtype=np.uint8)
    donors = population(model_of(RULES["one"]))
    search = Search.of(trial(RULES["one"], x_TD, donors, carried=(0, 2)), 1, features_of(x_TD, LAYOUT))
    assert {feature.slots for feature in search.features} == {(0,), (2,)}


def test_members_that_a_set_does_not_have_are_conditions_of_their_own() -> None:
    """Two members and no third one decide; that is three conditions, never "no others"."""
    rule = lambda x: (x[..., 6:] == [1, 1, 0]).all(-1)  # noqa: E731
    x_TD = np.array([[4, 3, 1, 2, 3, 1, 1, 1, 0]], dtype=np.uint8)
    donors = population(model_of(rule))
    offered = features_of(x_TD, LAYOUT, LAYOUT.member_D)
    best = Search.of(trial(rule, x_TD, donors), 1, offered).best(3, 0.95)
    assert {of.slots for of in best.features} == {(6,), (7,), (8,)} and best.precision == 1


def test_a_set_that_failed_the_check_grows() -> None:
    """The surrogate is content with fewer features than the model."""
    x_TD = np.array([[4, 1, 1, 2, 3, 1, 0, 1, 0]], dtype=np.uint8)
    search = Search.of(trial(RULES["one"], x_TD, population(model_of(RULES["one"]))), 1, features_of(x_TD, LAYOUT))
    assert [len(search.best(10, 0.95, least).features) for least in (0, 2, 4)] == [1, 2, 4]
    assert all(search.best(10, 0.95, least).precision == 1 for least in (0, 2, 4))


def test_the_surrogate_answers_in_parts_as_to_each_look_alike_alone(
    fitted: TEFM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of thousands of columns would otherwise need gigabytes at once."""
    import tefm.explain.trial as module

    parts = fitted.fitted.look_alikes
    assert parts is not None
    donors = parts.population
    x_TD = donors.slots[int(donors.slots.lengths.argmax())]
    assert len(x_TD) > 1
    keep_CTD = np.random.default_rng(0).random((8, *x_TD.shape)) < 0.5
    records = donors.records(donors.nearest(len(x_TD))[:5], len(x_TD))
    tried = module.Trial(parts.network, parts.surrogate, x_TD, records)
    answers, moved = tried.answers(keep_CTD), tried.moved(keep_CTD)
    monkeypatch.setattr(module, "MOST_SLOTS", 1)
    assert torch.allclose(tried.answers(keep_CTD), answers, atol=1e-6) and torch.equal(tried.moved(keep_CTD), moved)
    assert not tried.moved(np.ones_like(keep_CTD)).any()
    mixed_ND = np.where(keep_CTD[:, None], x_TD, records).reshape(-1, x_TD.shape[1]).astype(x_TD.dtype)
    codes_SK = torch.from_numpy(fitted.fitted.coder.encode(mixed_ND).astype(np.int64))
    rows_ST = torch.arange(len(codes_SK)).view(-1, len(x_TD))
    expected = parts.surrogate(parts.network.network.quantiser.embed(codes_SK), rows_ST).softmax(dim=1)
    assert torch.allclose(answers.flatten(0, 1), expected, atol=1e-5)


# ---- effects ----------------------------------------------------------------------------------------------------


def test_the_effect_of_a_feature_is_the_mean_change() -> None:
    model = model_of(RULES["one"])
    donors = population(model)
    one = Sequences(np.array([[4, 1, 1, 1, 1, 1, 0, 0, 0]], dtype=np.uint8), np.array([0, 1]))
    near = donors.nearest(1)[:64]
    conditions = rule_of(one.x_ND, Feature(0, (0,)), Feature(0, (1,)))
    deciding, idle = joint_effect(model, donors, one, conditions, 1, (0.1, 0.9), near).shares
    changed = donors.slots.x_ND[near, 0] <= 2
    assert deciding.value == pytest.approx(0.8 * changed.mean()) and deciding.low < deciding.value < deciding.high
    assert deciding.low > 0.3 and (idle.value, idle.low, idle.high) == pytest.approx((0, 0, 0))
    (against,) = joint_effect(model, donors, one, conditions[:1], 0, (0.1, 0.9), near).shares
    assert against.value == pytest.approx(-deciding.value)


@pytest.mark.parametrize("count", [1, 2, EXACT, EXACT + 2])
def test_shares_sum_to_the_joint_effect(count: int) -> None:
    """Of a sum, each share is its own part, however many there are; what decides nothing has no share."""
    weight_D = np.array([1.0, -0.5, 0.8, 0.3, 0.0, 0.6, 0, 0, 0])

    def logits(slots: Sequences) -> Any:
        p = 1 / (1 + np.exp(-((slots.last - 2.5) @ weight_D)))
        return np.log(np.stack([1 - p, p], axis=1))

    model = MaskedModel(logits, Calibration())
    donors, one = population(model), Sequences(np.array([[4, 1, 4, 4, 4, 4, 0, 0, 0]]), np.array([0, 1]))
    rule = rule_of(one.x_ND, *(Feature(0, (slot,)) for slot in range(count)))
    p_Q = model(one)[0].tolist()
    joint = joint_effect(model, donors, one, rule, 1, p_Q, donors.nearest(1)[:48])
    shares = [of.value for of in joint.shares]
    assert sum(shares) == pytest.approx(p_Q[1] - joint.without.value, abs=1e-9)
    assert all(of.low <= of.value <= of.high for of in joint.shares)
    assert shares[0] == max(shares) and (count < 5 or abs(shares[4]) < 1e-9)


# ---- other values of a field ----------------------------------------------------------------------------------------


def test_the_answer_with_other_values_of_a_field() -> None:
    """Of three other values of f0 one keeps the answer, and f1 does not matter; two stays have them both times."""
    model = model_of(RULES["one"])
    donors = population(model, longest=3)
    one = Sequences(np.array([[3, 3, 1, 1, 1, 1, 0, 0, 0]] * 2, dtype=np.uint8), np.array([0, 2]))
    same, *ends = other_values(model, donors, one, [0], 1)
    assert same.of == OTHERS and same.value < 0.7 and ends == pytest.approx([0.1, 0.9])
    same, *ends = other_values(model, donors, one, [1], 1)
    assert same.value == 1 and ends == pytest.approx([0.9, 0.9])
    alike = replace(donors, slots=donors.slots.with_values(np.full_like(donors.slots.x_ND, 3)))
    assert other_values(model, alike, one, [0], 1)[0] == NONE, "no one has another one"


# ---- everything together ----------------------------------------------------------------------------------------


def reasons(rule: Truth, x_D: list[int], monkeypatch: pytest.MonkeyPatch, **asked: Any) -> Any:
    """What the whole search says, with the rule itself in place of the surrogate."""
    import tefm.explain.reasons as module

    model = model_of(rule)
    donors = population(model)
    exact = lambda _n, _s, x_TD, records, **_: ExactTrial(rule, x_TD, records, torch.ones(2))  # noqa: E731
    monkeypatch.setattr(module, "Trial", exact)

    class Network:
        layout = LAYOUT

    one = Sequences(np.array([x_D], dtype=np.uint8), np.array([0, 1]))
    reasoner = Reasoner(model, Network(), None, donors, donors)  # type: ignore[arg-type]
    return reasoner.reasons(one, model(one)[0].tolist(), None, Question(**asked))


def test_a_settled_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasons(RULES["one"], [4, 1, 1, 2, 3, 1, 0, 1, 0], monkeypatch)
    assert found.verdict == "settled" and found.answer == 1
    assert found.found.rule == (Condition((0,), (3, 4)),), "the very value was 4"
    assert found.found.made_up.value == 1 and found.found.made_up.low >= 0.9
    assert found.found.real.value == 1 and found.found.real.of == REAL // 2, (
        "they agree so clearly that half of them are enough"
    )
    assert found.joint.flips.value == pytest.approx(0.5, abs=0.2)
    assert found.other == 0 and found.rival is None, "hopeless"


@pytest.mark.parametrize("seed", range(8))
def test_a_settled_rule_holds_for_its_own_case_and_for_unused_donors(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The precision on donors that nothing has used is within the stated interval, and no condition is idle."""
    rng = np.random.default_rng(seed)
    weight_D = np.where(rng.random(9) < 0.5, rng.normal(size=9), 0)
    rule = lambda x: (x * weight_D).sum(-1) > 2.5 * weight_D.sum()  # noqa: E731
    x_D = rng.integers(1, 5, 9)
    x_D[6:] = rng.random(3) < 0.4
    found = reasons(rule, x_D.tolist(), monkeypatch)
    model, one = model_of(rule), Sequences(x_D[None].astype(np.uint8), np.array([0, 1]))
    settled = found.found
    for condition in settled.rule:
        assert condition.holds(one).all()
        assert weight_D[list(condition.slots)].any(), "nothing that the answer does not depend on"
    unused = population(model, 3_000).select(np.arange(1_000, 3_000)) if settled.rule else None
    if unused is not None:
        share = precision(model, unused.made_up(one, settled.rule, np.arange(2_000)), found.answer)
        assert share.low <= settled.made_up.high and share.high >= settled.made_up.low
    if found.joint is not None:
        total = sum(of.value for of in found.joint.shares)
        assert total == pytest.approx(found.p_Q[found.answer] - found.joint.without.value, abs=0.01)


def test_random_rules_fail_the_check() -> None:
    model = model_of(RULES["pair"])
    donors, rng = population(model), np.random.default_rng(0)
    passed = []
    for number in range(40):
        one = sequences(1, seed=number)
        slots = rng.choice(np.arange(2, 6), 2, replace=False).tolist()
        rule = rule_of(one.x_ND, *(Feature(0, (slot,)) for slot in slots))
        answer = int(model.decide(model(one))[0])
        if answer:
            passed.append(precision(model, donors.made_up(one, rule, donors.nearest(1)[:CHECKED]), 1).low >= 0.9)
    assert len(passed) > 5 and not any(passed)


@pytest.mark.parametrize("share", [0.8, 0.9, 0.93, 0.97, 1.0])
def test_a_check_that_ends_early_has_a_valid_interval(share: float) -> None:
    """The share itself is outside in at most 5%, and the check passes as often as one that asks about all cases."""
    model, rng, runs = model_of(RULES["one"]), np.random.default_rng(0), 400
    asked, outside, passed, all_passed = [], 0, 0, 0
    for _ in range(runs):
        x_D = np.where(rng.random((CHECKED, 1)) < share, 4, 1) * np.ones((1, 9), dtype=np.uint8)
        cases = Sequences(x_D.astype(np.uint8), np.arange(CHECKED + 1))
        found = checked_share(model, cases, 1, 0.9)
        asked.append(found.of)
        outside += not found.low <= share <= found.high
        passed += found.low >= 0.9
        all_passed += precision(model, cases, 1).low >= 0.9
    assert outside <= 0.05 * runs + 8
    assert abs(passed - all_passed) <= 0.1 * runs
    assert np.mean(asked) < (0.8 if share != 0.93 else 1) * CHECKED
    few = checked_share(model, cases.select(np.arange(30)), 1, 0.9)
    assert few.of == 30 and few.low == exact_share(30, 30).low if share == 1 else few.of == 30


def test_a_contested_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first field says yes, the second no, and whoever has both is decided by a third."""

    def rule(x: Any) -> Any:
        yes, no = x[..., 0] == 4, x[..., 1] == 4
        return np.where(yes & ~no, True, np.where(no & ~yes, False, x[..., 2] > 2))

    found = reasons(rule, [4, 4, 4, 1, 1, 1, 0, 0, 0], monkeypatch, precision=0.7)
    assert found.verdict == "contested"
    assert found.rival.made_up.low >= 0.7


def test_an_answer_that_too_many_features_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasons(lambda x: x[..., :6].sum(-1) % 2 == 0, [1, 1, 1, 2, 2, 1, 0, 1, 0], monkeypatch, most=3)
    assert found.verdict == "unsettled" and found.found.made_up.low < 0.9 and len(found.found.rule) <= 3
    whole = reasons(lambda x: x[..., :6].sum(-1) % 2 == 0, [1, 1, 1, 2, 2, 1, 0, 1, 0], monkeypatch, most=6)
    assert whole.found.made_up.low < 0.9 or len(whole.found.rule) == 6


def test_the_order_of_two_events_comes_out_in_words_of_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yes where the last event 4 comes after the last event 1: "no 1 after the last 4"."""
    rng = np.random.default_rng(0)

    def later(x_TD: Any) -> Any:
        back = lambda value: np.where((x_TD[..., 0] == value).any(-1), (x_TD[..., ::-1, 0] == value).argmax(-1), 99)  # noqa: E731
        return back(4) < back(1)

    def logits(slots: Sequences) -> Any:
        yes = np.array([later(slots[number]) for number in range(len(slots))])
        return np.log(np.where(yes[:, None], [0.1, 0.9], [0.9, 0.1]))

    @dataclass(frozen=True, eq=False)
    class Ordered(ExactTrial):
        def answers_to(self, x_CBTD: Any, keep_CTD: Any) -> Tensor:
            return torch.from_numpy(np.where(later(x_CBTD)[..., None], [0.1, 0.9], [0.9, 0.1]))

    import tefm.explain.reasons as module

    exact = lambda _n, _s, x_TD, records, **_: Ordered(later, x_TD, records, torch.ones(2))  # noqa: E731
    monkeypatch.setattr(module, "Trial", exact)
    layout = Layout(tuple(Slot(name, "category", 4) for name in ("event", "ward")))

    class Network:
        pass

    Network.layout = layout  # type: ignore[attr-defined]
    model = MaskedModel(logits, Calibration())
    slots = Sequences(rng.integers(1, 5, (9_000, 2)).astype(np.uint8), np.arange(0, 9_001, 9))
    p_SQ = model(slots)
    donors = Population(slots, model.decide(p_SQ), p_SQ, model.decide(p_SQ))
    reasoner, verdicts, fields, orders = Reasoner(model, Network(), None, donors, donors), [], [], []  # type: ignore[arg-type]
    for _ in range(12):
        one = Sequences(rng.integers(1, 5, (9, 2)).astype(np.uint8), np.array([0, 9]))
        found = reasoner.reasons(one, model(one)[0].tolist(), None, Question())
        verdicts.append(found.verdict)
        assert all(condition.holds(one).all() for condition in found.found.rule)
        fields += [condition.slots for condition in found.found.rule]
        for condition in found.found.rule:
            if condition.after is not None:
                yes = found.answer == 1
                assert condition.after == (0, 4 if yes else 1) and {1, 2, 3, 4} - {*condition.values} <= {
                    1 if yes else 4
                }
                orders.append(condition)
    assert np.mean([verdict == "settled" for verdict in verdicts]) >= 0.9, verdicts
    assert set(fields) == {(0,)}, "the ward plays no part"
    assert len(orders) >= 3 and all(donors.has((of,)).mean() >= 0.4 for of in orders), orders


def test_a_rare_answer_is_not_contested_by_what_everyone_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any feature at all, look-alikes get the other answer."""
    found = reasons(lambda x: (x[..., :3] == 1).all(-1), [1, 1, 1, 2, 3, 1, 0, 1, 0], monkeypatch)
    assert found.verdict == "made-up only" and set(found.found.rule) == {Condition((n,), (1,)) for n in range(3)}
    assert 0 < found.found.real.of == found.found.real.count < 36, "too few to bear it out"
    assert found.rival is None


def test_an_answer_that_nearly_everyone_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reasons(lambda x: (x[..., :4] == 1).all(-1), [4, 1, 1, 2, 3, 1, 0, 1, 0], monkeypatch)
    assert found.verdict == "default" and found.answer == 0 and not found.found.rule
    assert found.base.low >= 0.9


def test_a_trend_comes_out_as_one_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yes where f0 rose over the last eight records (benchmarks/planted.py), with noise; f1 is noise alone."""
    import tefm.explain.reasons as module

    rng = np.random.default_rng(0)

    def planted(count: int) -> Any:
        x_STD = rng.normal(size=(count, 12, 2))
        rises_S = rng.random(count) < 0.5
        sorted_S8 = np.sort(rng.normal(size=(count, 8)), axis=1)
        x_STD[:, 4:, 0] = np.where(rises_S[:, None], sorted_S8, sorted_S8[:, ::-1]) + rng.normal(0, 0.3, (count, 8))
        return (np.digitize(x_STD, np.linspace(-1.5, 1.5, 8)) + 1).astype(np.uint8)

    def rose(x_TD: Any) -> Any:
        return (x_TD[..., -8:, 0] * (np.arange(8) - 3.5)).sum(-1) > 0

    @dataclass(frozen=True, eq=False)
    class Rising(ExactTrial):
        def answers_to(self, x_CBTD: Any, keep_CTD: Any) -> Tensor:
            return torch.from_numpy(np.where(rose(x_CBTD)[..., None], [0.1, 0.9], [0.9, 0.1]))

    def logits(slots: Sequences) -> Any:
        yes = rose(slots.x_ND.reshape(len(slots), 12, 2))
        return np.log(np.where(yes[:, None], [0.1, 0.9], [0.9, 0.1]))

    exact = lambda _n, _s, x_TD, records, **_: Rising(rose, x_TD, records, torch.ones(2))  # noqa: E731
    monkeypatch.setattr(module, "Trial", exact)

    class Network:
        layout = Layout(tuple(Slot(name, "number", 9) for name in ("pulse", "noise")))

    model, slots = (
        MaskedModel(logits, Calibration()),
        Sequences(planted(2_000).reshape(-1, 2), np.arange(0, 24_001, 12)),
    )
    p_SQ = model(slots)
    donors = Population(slots, model.decide(p_SQ), p_SQ, model.decide(p_SQ))
    reasoner, rules, verdicts = Reasoner(model, Network(), None, donors, donors), [], []  # type: ignore[arg-type]
    for x_TD in planted(20):
        one = Sequences(x_TD, np.array([0, 12]))
        found = reasoner.reasons(one, model(one)[0].tolist(), None, Question())
        assert all(condition.holds(one).all() for condition in found.found.rule)
        verdicts.append(found.verdict)
        rules.append((found.answer, found.found.rule))
    expected = [Condition((0,), (), span=8, trend=1 if answer else -1) in rule for answer, rule in rules]
    assert np.mean([verdict == "settled" for verdict in verdicts]) >= 0.9, verdicts
    assert np.mean(expected) >= 0.95, rules
    assert np.mean([len(rule) - 1 for _, rule in rules]) <= 0.3, rules


@given(st.integers(0, 2**32 - 1), st.sampled_from([-1, 1]), st.integers(1, 8))
def test_made_up_cases_of_a_trend_have_it(seed: int, trend: int, size: int) -> None:
    rng, condition = np.random.default_rng(seed), Condition((0,), (), span=4, trend=trend)
    x_BTD = rng.integers(0, size + 1, (20, 5, 2)).astype(np.uint8)
    before = x_BTD.copy()
    condition.enforce(x_BTD, np.ones(size + 1))
    cases = Sequences(x_BTD.reshape(-1, 2), np.arange(0, 101, 5))
    assert condition.holds(cases).all()
    had_B = condition.holds(Sequences(before.reshape(-1, 2), np.arange(0, 101, 5)))
    assert (x_BTD[had_B] == before[had_B]).all() and (x_BTD[..., 1] == before[..., 1]).all()
    assert not condition.holds(Sequences(before[:, 2:].reshape(-1, 2), np.arange(0, 61, 3))).any(), "too few records"
