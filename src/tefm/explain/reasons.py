"""One explanation, from a sequence of slots to a verdict: search, widen, check, contest, influence of single features.

Two checks, and both can fail. *Made-up cases* satisfy the rule and otherwise vary like the population; *real cases* are
stored training sequences that satisfy it.

- `settled`: a rule determines the answer (a sufficient rule, or anchor): at least the share τ of its made-up cases, and
  of its real ones, of which there are enough, get the same answer; and no rule of the same sequence determines another.
- `made-up only`: there are too few real cases, or they do not bear the rule out.
- `real only`: the real cases bear the rule out, and made-up cases do not.
- `contested`: some features determine the answer, and others of the same sequence another one.
- `unsettled`: no rule of at most `most` conditions determines the answer, or the model hardly tells the sequence from
  any other: its probability of the answer is about that of the population.
- `default`: nearly everyone gets this answer, so that no feature is needed for it.

"At least τ" is the lower end of an exact 95% interval, over cases that the search has not asked about. The search may
try `ATTEMPTS` rules; the level of the interval of made-up cases accounts for that.

Shapes: T records of the explained sequence, D slots, M columns of text, B donors, Q classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import torch
from pydantic import model_validator

from tefm.base.settings import Settings
from tefm.explain.check import Joint, checked_share, joint_effect
from tefm.explain.conditions import Condition, Rule
from tefm.explain.counts import FEW, NONE, Share, exact_share
from tefm.explain.explanation import Outcome
from tefm.explain.population import Cases, Population
from tefm.explain.settle import Search
from tefm.explain.slot_features import Feature, features_of, keeps_of, text_features
from tefm.explain.trial import SEARCH, Trial
from tefm.explain.widen import Widening
from tefm.rationale.bag_of_words import ReadTexts, bags_by_column, texts_NM_of
from tefm.rationale.masked_model import MaskedModel, Numbers
from tefm.rationale.surrogate import FrozenCodes, Surrogate
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences

#: Donors of search and widening, of each check, of each effect, and of a rule without one of its conditions.
SEARCHED, CHECKED, EFFECT, WITHOUT = 144, 220, 32, 32
#: Real cases of a rule that the model is asked about, at most.
REAL = 120
#: Members that a set does not have are offered as features if more than this share of the donors have them.
OFTEN = 0.05
#: At most this many rules are checked.
ATTEMPTS = 3
#: The level of intervals, over all attempts together.
LEVEL = 0.95
#: At most this many conditions may settle another answer.
RIVAL = 5
#: A set that is more precise than it has to be leaves room for widening.
ROOM = 0.999
#: If the surrogate expects the precision to be this far below the target, a further attempt is not worth its questions.
HOPELESS = 0.05
#: An answer has at least this much evidence, in log-odds: p = 0.56 where the population has 0.50. Less is noise.
EVIDENCE = 0.25
#: Features of each sign whose joint effect on a class in question is measured on the model.
MEASURED = 4


class Question(Settings):
    """What is asked of an explanation."""

    #: the class that the evidence is about; None: the answer
    of_class: str | None = None
    #: of a label that is a number: the answer is whether it is above this; None: the training labels' median
    above: float | None = None
    #: at most this many conditions may settle an answer
    most: int = 10
    #: τ: the share of the made-up cases, and of the real ones, that must get the same answer
    precision: float = 0.9
    #: fields that are no reasons, and fields that the card marks; None: those of the fit
    without: tuple[str, ...] | None = None
    sensitive: tuple[str, ...] | None = None
    #: how many of the training sequences that are most like it are shown
    similar: int = 0

    @model_validator(mode="after")
    def _can_be_met(self) -> Question:
        if self.most < 1:
            raise ValueError(f"most is a number of conditions, not {self.most} → give 1 or more")
        if self.similar < 0:
            raise ValueError(f"similar is a number of sequences, not {self.similar} → give 1 or more, or leave it out")
        if not 0.5 <= self.precision < 1:
            raise ValueError(f"precision is a share, not {self.precision} → give 0.5 to below 1, like 0.9")
        return self


@dataclass(frozen=True)
class Checked:
    """A rule, and what the model says of its made-up cases and of its real ones."""

    rule: Rule
    #: the share of the made-up cases that get the answer
    made_up: Share
    #: the share of the real cases that get it, of those that the model was asked about
    real: Share
    #: the share of the made-up cases that get it without each of the conditions; empty where that was not asked
    without: tuple[Share, ...] = ()
    #: made-up cases that the model was asked about
    questions: int = 0

    def holds(self, least: float) -> bool:
        """Whether the rule determines the answer, as far as made-up cases can tell."""
        return bool(self.rule) and self.made_up.low >= least

    def is_real(self, least: float) -> bool:
        """Whether real cases bear it out."""
        return bool(self.rule) and self.real.of >= FEW and self.real.low >= least


@dataclass(frozen=True)
class Reasons:
    """Why the model gives one answer, in arrays; `explanation` puts it into words."""

    answer: int
    p_Q: tuple[float, ...]
    verdict: Outcome
    #: how much more probable the answer is than on average over the population, in log-odds
    evidence: float
    #: the rule that settles the answer, or the one that comes closest
    found: Checked
    #: the share of the population that gets the answer
    base: Share
    #: the effect of the rule on the probability of the answer
    joint: Joint | None
    #: the next most probable class, and the rule that comes closest to settling it, where tried
    other: int
    rival: Checked | None
    #: the class in question, and what the strongest features do to it together; not where the rule is about it
    of_class: int
    features: Joint | None
    #: made-up cases that checked rules
    checks: int

    @property
    def questions(self) -> int:
        """Cases that the model was asked about."""
        return self.checks + sum(of.questions for of in (self.joint, self.features) if of is not None)

    @property
    def distinct(self) -> bool:
        """Whether the model tells the sequence from others."""
        return self.evidence >= EVIDENCE or self.verdict == "default"


@dataclass(frozen=True, eq=False)
class Donors:
    """Donors for one sequence; those of the checks are not among those of the search."""

    search: Numbers
    checks: tuple[Numbers, ...]

    @classmethod
    def of(cls, population: Population, length: int) -> Donors:
        """Sequences of similar length; a small population is divided into fewer parts."""
        nearest = population.nearest(length)
        search = max(1, min(SEARCHED, len(nearest) // 4))
        rest = nearest[search:] if len(nearest) > search else nearest  # of a single one, nothing can be verified anyway
        attempts = min(ATTEMPTS, max(1, len(rest) // CHECKED))
        size = min(CHECKED, len(rest) // attempts)
        return cls(nearest[:search], tuple(rest[i * size : (i + 1) * size] for i in range(attempts)))


@dataclass(frozen=True, eq=False)
class Reasoner:
    """All that explanations of one model need."""

    model: MaskedModel
    network: FrozenCodes
    surrogate: Surrogate
    population: Population
    cases: Cases
    #: slots that no condition is about
    without: frozenset[int] = frozenset()

    def search(self, sequence: Sequences, answer: int) -> Search:
        """The search for features that settle an answer, on the surrogate."""
        x_TD = sequence.x_ND
        donors_B = Donors.of(self.population, len(x_TD)).search
        records_BTD = self.population.records(donors_B, len(x_TD))
        trial = Trial(self.network, self.surrogate, x_TD, records_BTD, calibration=self.model.calibration)
        layout = self.network.layout
        often_D = (trial.donors_BTD[:, -1] > 0).mean(axis=0) > OFTEN
        features = features_of(x_TD, layout, often_D)
        # the surrogate of an older model has not learned words
        if sequence.texts is not None and self.surrogate.words is not None:
            own_TM = texts_NM_of(sequence)
            donors_BTM = self.population.texts_NM[self.population.rows(donors_B, len(x_TD))]
            with torch.inference_mode():
                read = (
                    self.surrogate.read_words(bags_by_column(texts)).view(*texts.shape, -1)
                    for texts in (own_TM, donors_BTM)
                )
                trial = replace(trial, texts=ReadTexts(*read))
            differs_TM = (donors_BTM != own_TM).any(axis=0)  # where no donor has another text, it cannot matter
            features += [of for of in text_features(sequence) if differs_TM[of.record, of.slots[0] - x_TD.shape[1]]]
        features = [of for of in features if self.without.isdisjoint(of.slots)]
        if self.model.head is not None:
            trial = replace(trial, head=self.model.beside)

        def made(features: Sequence[Feature]) -> Slots:
            """Made-up cases of a set of features whose values vary from record to record."""
            rule = tuple(Condition.of(feature, x_TD) for feature in features if feature.slots[0] < x_TD.shape[1])
            return self.population.satisfying(rule, trial.donors_BTD[:SEARCH])

        return Search.of(trial, answer, features, made)

    def reasons(
        self,
        sequence: Sequences,
        p_Q: Sequence[float],
        of_class: int | None,
        asked: Question,
        search: Search | None = None,
    ) -> Reasons:
        """Explain the answer to one sequence of slots; `p_Q` are the model's probabilities for it.

        A `search` for its answer that exists already is used.
        """
        x_TD, model, population = sequence.x_ND, self.model, self.population
        answer = int(model.decide(np.array([p_Q]))[0])
        of_class = answer if of_class is None else of_class
        donors = Donors.of(population, len(x_TD))
        search = search or self.search(sequence, answer)
        base = exact_share(int((population.answers_S == answer).sum()), len(population))
        verdict: Outcome = "default" if base.low >= asked.precision else "unsettled"
        evidence = _log_odds(p_Q[answer]) - _log_odds(float(population.p_SQ[:, answer].mean()))
        found = Checked((), base, base)  # no rule: the base
        if verdict != "default" and evidence >= EVIDENCE:
            found = self._settle(search, sequence, donors, asked)
        if found.holds(asked.precision):
            verdict = "settled" if found.is_real(asked.precision) else "made-up only"
        elif found.is_real(asked.precision):
            verdict = "real only"
        other = max((number for number in range(len(p_Q)) if number != answer), key=lambda number: p_Q[number])
        rival = self._rival(search, sequence, donors, asked, other)
        if rival is not None and rival.holds(asked.precision) and found.holds(asked.precision):
            verdict = "contested"
        effect = partial(joint_effect, model, population, sequence, p_Q=p_Q, donors_B=donors.checks[0][:EFFECT])
        joint = effect(found.rule, answer) if found.rule else None
        strongest = () if joint is not None and of_class == answer else self._strongest(search, sequence, of_class)
        return Reasons(
            answer=answer,
            p_Q=tuple(p_Q),
            verdict=verdict,
            evidence=evidence,
            found=found,
            base=base,
            joint=joint,
            other=other,
            rival=rival,
            of_class=of_class,
            features=effect(strongest, of_class) if strongest else None,
            checks=found.questions + (rival.questions if rival else 0),
        )

    def _rival(
        self, search: Search, sequence: Sequences, donors: Donors, asked: Question, other: int
    ) -> Checked | None:
        """The rule of the same sequence that comes closest to settling another answer; None where that is hopeless."""
        if (self.population.answers_S == other).mean() >= asked.precision:
            return None  # features do not settle an answer that nearly everyone gets
        contest, asked = search.contest(other), asked.model_copy(update={"most": min(asked.most, RIVAL)})
        if contest.best(asked.most, asked.precision).precision < asked.precision - HOPELESS:
            return None
        return self._settle(contest, sequence, donors, asked, widen=False)

    def _strongest(self, search: Search, sequence: Sequences, of_class: int) -> Rule:
        """The features with the largest effects of each sign on a class, as the surrogate expects them one by one."""
        once = set(np.flatnonzero(self.network.layout.static_D).tolist())
        single = [feature for feature in search.features if feature.span == 1 or feature.slots[0] in once]
        effects_F = search.trial.effects(keeps_of([[of] for of in single], search.trial.shape), of_class)
        order = np.argsort(effects_F, kind="stable").tolist()
        chosen = [i for i in order[:MEASURED] if effects_F[i] < 0] + [i for i in order[-MEASURED:] if effects_F[i] > 0]
        texts_TM = None if sequence.texts is None else texts_NM_of(sequence)
        return tuple(Condition.of(single[i], sequence.x_ND, texts_TM) for i in chosen)

    def _settle(
        self, search: Search, sequence: Sequences, donors: Donors, asked: Question, *, widen: bool = True
    ) -> Checked:
        """The first rule that passes both checks; where none does, the best of those that were checked.

        Without `widen`, it has the very values of the sequence.
        """
        least, level = 1, 1 - (1 - LEVEL) / len(donors.checks)
        widening = Widening(search, self.population, self.network.layout)
        texts_TM = None if sequence.texts is None else texts_NM_of(sequence)
        results: list[Checked] = []
        questions, before = 0, None
        checks = iter(donors.checks)
        for enough, donors_B in zip(_targets(asked.precision), checks, strict=False):
            best = search.best(asked.most, enough, least)
            if best.features == before:
                break  # the search cannot do better
            # if the surrogate expects too much of this set, the next one is larger
            before, least = best.features, best.size + 1
            sets = [best.features]
            if widen and best.precision >= enough:
                sets.append(search.best(asked.most, ROOM, least - 1).features)
            rules = [tuple(Condition.of(of, search.trial.x_TD, texts_TM) for of in features) for features in sets]
            if len(rules) > 1:
                rules = [widening.widened(rule, enough) for rule in dict.fromkeys(rules)]
            # the one with most real cases, and of those the one with fewest conditions
            widest = max(rules, key=lambda rule: (int(self.cases.has(rule).sum()), -len(rule)))
            checked = self._checked(widest, sequence, search.answer, donors_B, asked.precision, level)
            questions += checked.made_up.of
            if widen and checked.holds(asked.precision):
                steps = self._needed(checked.rule, sequence, search, donors, enough)
                questions += sum(len(without) for _, without in steps) * len(donors.search[:WITHOUT])
                checked, (rule, without) = replace(checked, without=steps[0][1]), steps[-1]
                if len(steps) > 1 and (fresh_B := next(checks, None)) is not None:
                    smaller = self._checked(rule, sequence, search.answer, fresh_B, asked.precision, level)
                    questions += smaller.made_up.of
                    checked = replace(smaller, without=without) if smaller.holds(asked.precision) else checked
            results.append(checked)
            too_few = checked.real.of < FEW or checked.real.count == checked.real.of
            if checked.holds(asked.precision) and (checked.is_real(asked.precision) or too_few):
                break
            if best.precision < asked.precision - HOPELESS:
                break

        def passes(of: Checked) -> tuple[bool, bool, bool, float, float]:
            """Both checks before that of real cases before that of made-up ones, where what real cases say counts."""
            holds, is_real = of.holds(asked.precision), of.is_real(asked.precision)
            return holds and is_real, is_real, holds, of.real.low if holds else 0.0, of.made_up.low

        return replace(max(results, key=passes), questions=questions)

    def _checked(
        self, rule: Rule, sequence: Sequences, answer: int, donors_B: Numbers, least: float, level: float
    ) -> Checked:
        """A rule with what the model says of its made-up and of its real cases."""
        cases, rows = self.population.made_up(sequence, rule, donors_B), np.flatnonzero(self.cases.has(rule))[:REAL]
        made_up, real = checked_share(self.model, cases, answer, least, level=level), NONE
        if len(rows):
            real = checked_share(self.model, self.cases.slots.select(rows), answer, least, level=LEVEL)
        return Checked(rule, made_up, real)

    def _needed(
        self, rule: Rule, sequence: Sequences, search: Search, donors: Donors, enough: float
    ) -> list[tuple[Rule, tuple[Share, ...]]]:
        """The rule, and ever smaller ones that are precise enough, each with its precision without each condition.

        These are other made-up cases than those of the check.
        """
        donors_B, steps = donors.search[:WITHOUT], []
        while True:
            smaller = [(*rule[:at], *rule[at + 1 :]) for at in range(len(rule))]
            cases = reduce(Sequences.followed_by, [self.population.made_up(sequence, of, donors_B) for of in smaller])
            same_CB = (self.model.decide(self.model(cases)) == search.answer).reshape(len(rule), len(donors_B))
            without = tuple(exact_share(int(same_B.sum()), len(same_B)) for same_B in same_CB)
            steps.append((rule, without))
            at = max(range(len(rule)), key=lambda at: without[at].count)
            if len(rule) == 1 or without[at].value < enough:
                return steps
            rule = smaller[at]


def _log_odds(p: float) -> float:
    p = min(max(p, 1e-9), 1 - 1e-9)
    return math.log(p / (1 - p))


def _targets(least: float) -> Iterator[float]:
    """How precise the surrogate must expect a set to be before the model is asked: ever more, for ATTEMPTS attempts.

    >>> [round(target, 3) for target in _targets(0.9)]
    [0.95, 0.975, 0.988]
    """
    for attempt in range(1, ATTEMPTS + 1):
        yield 1 - (1 - least) / 2**attempt
