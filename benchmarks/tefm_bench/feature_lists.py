"""Methods that name features of a sequence, each a set for every size: all are judged by the same check.

Methods that rank slots give their first features; a search is asked for the best set of each size. Whatever a method
learns beforehand (an extractor, trees, a surrogate) is not counted as time or questions.

Shapes: S sequences, N records of all of them, T records of one, D slots, F features, C sets of features, B donors,
Q classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field as Setting
from torch import Tensor

from tefm.base.errors import TefmError
from tefm.base.settings import Settings
from tefm.explain.look_alikes import LookAlikes
from tefm.explain.population import Population
from tefm.explain.reasons import SEARCHED, Donors, Question, Reasoner, Reasons
from tefm.explain.settle import Search
from tefm.explain.slot_features import Feature, distinct, features_of, keep_of, within
from tefm.explain.trial import Trial
from tefm.pipeline.fitted import Fitted
from tefm.rationale.extractor import MaskExplainer
from tefm.rationale.masked_model import Keep, MaskedModel, Numbers
from tefm.scoring.calibration import Floats
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences
from tefm_bench.anchors import anchor
from tefm_bench.label_counts import Counts
from tefm_bench.rationales import learned_masks

#: Sizes of the sets; the last one is how many features may settle an answer.
SIZES = (1, 3, 5, 10)
OURS, SHAP, RANDOM = "ours", "SHAP", "random"
#: What our method says for other answers.
RIVALS = "rivals"
ANCHORS, KERNEL_SHAP, GREEDY = "Anchors", "KernelSHAP on the language model", "search on the language model"
METHODS = (
    OURS,
    ANCHORS,
    SHAP,
    "LightGBM + TreeSHAP",
    "integrated gradients",
    "log-odds table",
    "dual fidelity (the paper's)",
    "prediction fidelity only (the paper's)",
    KERNEL_SHAP,
    GREEDY,
    RANDOM,
)
#: No set reaches this: a search that wants it never stops early.
NEVER = 2.0
#: By size: what a method names.
Sets = dict[int, tuple[Feature, ...]]
#: Another answer, and the features that come closest to settling it.
Rival = tuple[int, tuple[Feature, ...]]


class Effort(Settings):
    """How much each method may do."""

    #: sequences to explain, and those for the methods that ask the language model a great deal
    sequences: int = 50
    queried: int = 15
    #: also explain default answers: for a quick run, whose model may know one answer only
    defaults: bool = False
    #: after so many seconds, such a method begins no further sequence
    patience: float = 60.0
    #: donors of the check
    donors: int = 200
    #: subsets that SHAP samples, and KernelSHAP on the language model, each with so many donors
    samples: int = 256
    kernel_samples: int = 256
    kernel_donors: int = 4
    #: questions that Anchors may ask about one sequence
    anchor_questions: int = 20_000
    #: donors of the search on the language model
    greedy_donors: int = 32
    #: changes to the settings of the paper's extractor, to learn from 1,000 training sequences
    masks: dict[str, Any] = Setting(default={"questions": 3_000})


@dataclass(frozen=True)
class CountingModel(MaskedModel):
    """The model, with a count of what it was asked."""

    asked: list[int] = field(default_factory=list)

    def __call__(self, sequences: Sequences, keep_ND: Keep | None = None) -> Floats:
        self.asked.append(len(sequences))
        return super().__call__(sequences, keep_ND)

    @property
    def questions(self) -> int:
        return sum(self.asked)


@dataclass(frozen=True)
class Named:
    """What a method names for one sequence, and what that took."""

    #: the number of the sequence
    number: int
    sets: Sets
    questions: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Subject:
    """A fitted model, and the sequences whose answers are explained."""

    fitted: Fitted
    slots: Sequences
    p_SQ: Floats
    answers_S: Numbers
    #: the donors that methods may use
    population: Population
    training: Sequences
    labels_S: Numbers
    seed: int
    effort: Effort

    @property
    def model(self) -> CountingModel:
        """The language model without a memory of what other methods asked."""
        model = self.fitted.masked_model()
        return CountingModel(model.logits, model.calibration)

    @cached_property
    def parts(self) -> LookAlikes:
        assert self.fitted.look_alikes is not None, "the model explains its answers"
        return self.fitted.look_alikes

    @property
    def layout(self) -> Layout:
        return self.parts.network.layout

    def masks(self, **settings: Any) -> MaskExplainer:
        """The paper's extractor."""
        assert self.fitted.coder is not None, "the model reads codes"
        settings = {"seed": self.seed, **self.effort.masks, **settings}
        return learned_masks(self.fitted.coder, self.training, self.fitted.masked_model(), "paper", settings)

    @cached_property
    def dual(self) -> MaskExplainer:
        """The paper's own; its surrogate knows masked records, which attribution needs."""
        return self.masks()


def name_features(subject: Subject) -> tuple[dict[str, list[Named]], dict[str, Any], dict[str, str]]:
    """The features that every method names; our reasons and the slot scores of rankings; what was not measured."""
    named: dict[str, list[Named]] = {}
    basis: dict[str, Any] = {}
    missing: dict[str, str] = {}
    named[OURS], basis[OURS], basis[RIVALS] = ours(subject)
    for name, rank in _rankings(subject).items():
        try:
            named[name], basis[name] = ranked(subject, rank)
        except TefmError as error:
            missing[name] = str(error)
    for name, explain in {ANCHORS: _anchors, KERNEL_SHAP: _kernel_shap, GREEDY: _greedy}.items():
        try:
            named[name] = list(_queried(subject, explain))
        except TefmError as error:
            missing[name] = str(error)
    return named, basis, missing


# ---- ours -------------------------------------------------------------------------------------------------------


def ours(subject: Subject) -> tuple[list[Named], list[Reasons], list[Rival]]:
    """The sets that the surrogate finds best, the explanations that a user gets, and the best case against each."""
    model, parts = subject.model, subject.parts
    reasoner = Reasoner(model, parts.network, parts.surrogate, subject.population, subject.population)
    named, explained, rivals = [], [], []
    for number in range(len(subject.slots)):
        sequence = subject.slots.select([number])
        started = time.perf_counter()
        search = reasoner.search(replace(sequence, texts=None), int(subject.answers_S[number]))
        reasons = reasoner.reasons(sequence, subject.p_SQ[number].tolist(), None, Question(), search)
        seconds = time.perf_counter() - started
        named.append(Named(number, best_sets(search), reasons.checks, seconds))
        explained.append(reasons)
        rivals.append(_rival(search, subject.p_SQ[number]))
    return named, explained, rivals


def best_sets(search: Search) -> Sets:
    """The best set of each size."""
    return {size: search.best(size, NEVER).features for size in SIZES}


def _rival(search: Search, p_Q: Floats) -> Rival:
    """The next most probable answer, searched for as our own is."""
    other = max((q for q in range(len(p_Q)) if q != search.answer), key=lambda q: float(p_Q[q]))
    asked = Question()
    target = 1 - (1 - asked.precision) / 2
    return other, search.contest(other).best(asked.most, target, 1).features


# ---- methods that rank slots ------------------------------------------------------------------------------------

Scores = NDArray[np.floating[Any]]


def _rankings(subject: Subject) -> dict[str, Callable[[], Callable[[Sequences], Scores]]]:
    """For each method: what learns, if anything has to, and gives a function from sequences to scores of slots."""
    from tefm_bench import attribution

    answers_S, effort, seed = subject.answers_S, subject.effort, subject.seed

    def of_dual(method: Callable[..., Scores], **settings: Any) -> Callable[[], Callable[[Sequences], Scores]]:
        return lambda: partial(method, attribution.surrogate_of(subject.dual), labels_S=answers_S, **settings)

    def of_masks(explainer: Callable[[], MaskExplainer]) -> Callable[[], Callable[[Sequences], Scores]]:
        def learned() -> Callable[[Sequences], Scores]:
            learned_masks = explainer()
            return lambda slots: learned_masks.rank(slots, subject.p_SQ)

        return learned

    def trees() -> Callable[[Sequences], Scores]:
        labelled = np.flatnonzero(subject.labels_S >= 0)
        return lambda slots: attribution.by_tree_shap(
            subject.training.select(labelled),
            subject.labels_S[labelled],
            slots,
            subject.layout,
            labels_S=answers_S,
            seed=seed,
        )

    return {
        SHAP: of_dual(attribution.by_shap, samples=effort.samples, seed=seed),
        "LightGBM + TreeSHAP": trees,
        "integrated gradients": of_dual(attribution.by_integrated_gradients),
        "log-odds table": lambda: partial(log_odds, subject),
        "dual fidelity (the paper's)": of_masks(lambda: subject.dual),
        "prediction fidelity only (the paper's)": of_masks(lambda: subject.masks(code_weight=0.0)),
        RANDOM: lambda: lambda slots: np.random.default_rng(seed).random(slots.x_ND.shape),
    }


def ranked(subject: Subject, learn: Callable[[], Callable[[Sequences], Scores]]) -> tuple[list[Named], Scores]:
    """The first features of a ranking of slots, and the scores."""
    rank = learn()
    started = time.perf_counter()
    scores_ND = rank(subject.slots)
    seconds = (time.perf_counter() - started) / max(1, len(subject.slots))
    slots = subject.slots
    per_sequence = (scores_ND[slots.starts[i] : slots.starts[i + 1]] for i in range(len(slots)))
    return [
        Named(number, first_sets(by_score(slots[number], scores_TD, subject.layout)), 0, seconds)
        for number, scores_TD in enumerate(per_sequence)
    ], scores_ND


def by_score(x_TD: Slots, scores_TD: Scores, layout: Layout) -> list[Feature]:
    """All features, the best first; one about several records has the mean of their scores.

    >>> from tefm.tables.layout import Slot
    >>> layout = Layout((Slot("age", "number", 9), Slot("dx", "flag", 1, "a"), Slot("dx", "flag", 1, "b")))
    >>> [f.slots for f in by_score(np.array([[3, 1, 0]]), np.array([[0.1, 0.2, 0.3]]), layout)]
    [(1,), (0,)]
    """
    features = [feature for feature in features_of(x_TD, layout) if not feature.varied]
    scores_F = [float(scores_TD[f.records][:, list(f.slots)].sum()) / f.span for f in features]
    return [features[number] for number in np.argsort(-np.array(scores_F), kind="stable").tolist()]


def first_sets(ordered: Sequence[Feature]) -> Sets:
    """The first features for each size."""
    sets: Sets = {}
    for size in SIZES:
        kept: tuple[Feature, ...] = ()
        for feature in ordered:
            if not within(feature, kept):
                kept = distinct((*kept, feature))
            if len(kept) == size:
                break
        sets[size] = kept
    return sets


def log_odds(subject: Subject, slots: Sequences) -> Scores:
    """By how much a value raises the log-odds of the answer in the training labels: no model at all."""
    cases, x_ND = subject.parts.cases, slots.x_ND.astype(np.int64)
    counts = Counts.of(cases.slots, cases.labels_S, subject.layout, len(subject.fitted.classes))
    value_ND = counts.start_D[:-1] + x_ND
    answer_N = subject.answers_S[slots.sequence_N]
    is_last_N = np.zeros(len(x_ND), dtype=bool)
    is_last_N[slots.starts[1:] - 1] = True
    scores_ND = np.empty(x_ND.shape)
    for last, counts_VQ, all_Q in ((True, counts.last_VQ, counts.total_Q), (False, counts.earlier_VQ, counts.longer_Q)):
        at = np.flatnonzero(is_last_N == last)
        having_ND = counts_VQ.sum(axis=1)[value_ND[at]]
        class_ND = counts_VQ[value_ND[at], answer_N[at, None]]
        class_N1 = all_Q[answer_N[at], None]
        scores_ND[at] = _log_ratio(class_ND, having_ND) - _log_ratio(class_N1, all_Q.sum())
    return scores_ND


def _log_ratio(count: Any, of: Any) -> Any:
    return np.log((count + 0.5) / (of - count + 0.5))


# ---- methods that ask the language model a great deal -----------------------------------------------------------


def _queried(subject: Subject, explain: Callable[[Subject, CountingModel, int], Sets]) -> Iterator[Named]:
    """The first sequences, as many as the effort allows; at least one."""
    begun = time.perf_counter()
    for number in range(min(subject.effort.queried, len(subject.slots))):
        if number and time.perf_counter() - begun > subject.effort.patience:
            break
        model, started = subject.model, time.perf_counter()
        sets = explain(subject, model, number)
        yield Named(number, sets, model.questions, time.perf_counter() - started)


def _carried(subject: Subject, number: int) -> list[Feature]:
    """The features that count as one and that the codes carry, which takes no question to find."""
    x_TD, parts = subject.slots[number], subject.parts
    donors_B = subject.population.nearest(len(x_TD))[:SEARCHED]
    trial = Trial(parts.network, parts.surrogate, x_TD, subject.population.records(donors_B, len(x_TD)))
    return [
        feature
        for feature in Search.of(trial, int(subject.answers_S[number]), features_of(x_TD, subject.layout)).features
        if len(feature.slots) == 1 or feature.absent
    ]


def _donors(subject: Subject, number: int) -> Numbers:
    """All donors that our own search and its checks use."""
    donors = Donors.of(subject.population, int(subject.slots.lengths[number]))
    return np.concatenate([donors.search, *donors.checks])


def _anchors(subject: Subject, model: CountingModel, number: int) -> Sets:
    found, _ = anchor(
        model,
        subject.population,
        subject.slots.select([number]),
        int(subject.answers_S[number]),
        _carried(subject, number),
        _donors(subject, number),
        most=subject.effort.anchor_questions,
        size=SIZES[-1],
        seed=subject.seed,
    )
    return first_sets(found)


def _kernel_shap(subject: Subject, model: CountingModel, number: int) -> Sets:
    """SHAP values of the probability of the answer; a feature that is left out has donors' values."""
    from tefm_bench.attribution import kernel_values

    features, sequence = _carried(subject, number), subject.slots.select([number])
    if not features:
        return first_sets([])
    donors_B, answer = _donors(subject, number)[: subject.effort.kernel_donors], int(subject.answers_S[number])

    def probabilities(kept_CF: NDArray[Any]) -> NDArray[np.float64]:
        sets = [[feature for feature, kept in zip(features, kept_F, strict=True) if kept] for kept_F in kept_CF > 0.5]
        keep_CTD = np.stack([keep_of(kept, sequence.x_ND.shape) for kept in sets])
        p_C: NDArray[np.float64] = ask(model, subject.population, sequence, keep_CTD, donors_B)[:, :, answer].mean(
            axis=1
        )
        return p_C

    values_F = kernel_values(probabilities, len(features), subject.effort.kernel_samples, SIZES[-1], subject.seed)
    return first_sets([features[i] for i in np.argsort(-values_F, kind="stable").tolist()])


def _greedy(subject: Subject, model: CountingModel, number: int) -> Sets:
    """Our search with the language model in place of the surrogate: what the model allows."""
    parts, sequence = subject.parts, subject.slots.select([number])
    donors_B = _donors(subject, number)[: subject.effort.greedy_donors]
    records = subject.population.records(donors_B, len(sequence.x_ND))
    asking = ModelTrial(
        parts.network,
        parts.surrogate,
        sequence.x_ND,
        records,
        model=model,
        population=subject.population,
        sequence=sequence,
        donors_B=donors_B,
    )
    features = features_of(sequence.x_ND, subject.layout)
    return best_sets(Search.of(asking, int(subject.answers_S[number]), features))


def ask(
    model: MaskedModel, population: Population, sequence: Sequences, keep_CTD: Keep, donors_B: Numbers
) -> NDArray[np.float64]:
    """The model's probabilities for the look-alikes of several sets of features, C × B × Q."""
    sets, donors = len(keep_CTD), len(donors_B)
    x_TD, donors_BTD = sequence.x_ND, population.records(donors_B, len(sequence.x_ND))
    mixed_CBTD = np.where(keep_CTD[:, None], x_TD, donors_BTD).astype(x_TD.dtype)
    # the texts and times of the donors, once per set
    one_set = population.look_alikes(sequence, keep_CTD[0], donors_B)
    together = one_set.select(np.tile(np.arange(donors), sets)).with_values(mixed_CBTD.reshape(-1, x_TD.shape[1]))
    p_CBQ: NDArray[np.float64] = model(together).reshape(sets, donors, -1)
    return p_CBQ


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelTrial(Trial):
    """A trial in which the language model itself answers."""

    model: MaskedModel
    population: Population
    sequence: Sequences
    donors_B: Numbers

    def answers(self, keep_CTD: Keep) -> Tensor:
        """The probability of each class for each look-alike, C × B × Q."""
        return torch.from_numpy(ask(self.model, self.population, self.sequence, keep_CTD, self.donors_B))
