"""One explanation, from a sequence of slots to a verdict: search, check, contest, influence of single features.

- `settled`: some features determine the answer (a sufficient rule, or anchor). Of sequences that share them and
  otherwise vary like the population, at least the share τ gets the same answer, and no features of the same sequence
  determine another answer.
- `contested`: some features determine the answer, and others of the same sequence another one.
- `unsettled`: no set of at most `most` features determines the answer, or the model hardly tells the sequence from any
  other: its probability of the answer is about that of the population.
- `default`: nearly everyone gets this answer, so that no feature is needed for it.

"At least τ" is the lower end of an exact 95% interval, over look-alikes that the search has not seen. The search may
try `ATTEMPTS` sets; the interval's level accounts for that.

Shapes: T records of the explained sequence, D slots, M columns of text, B donors, Q classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from pydantic import model_validator

from tefm.base.settings import Settings
from tefm.codes.network import CodeNetwork
from tefm.explain.check import Effect, coverage, effects, expected_effects, flips, precision, strongest, text_parts
from tefm.explain.counts import Share, exact_share
from tefm.explain.explanation import Outcome
from tefm.explain.population import Population
from tefm.explain.settle import Search
from tefm.explain.slot_features import Feature, features_of, keep_of, size_of, text_features
from tefm.explain.trial import Trial
from tefm.rationale.bag_of_words import ReadTexts, bags_by_column, texts_NM_of
from tefm.rationale.masked_model import MaskedModel, Numbers
from tefm.rationale.surrogate import Surrogate
from tefm.tables.sequences import Sequences

#: Donors of the search, of each check, and of each effect.
SEARCHED, CHECKED, EFFECT = 96, 200, 48
#: At most this many sets are checked.
ATTEMPTS = 3
#: The level of intervals, over all attempts together.
LEVEL = 0.95
#: If the surrogate expects the precision to be this far below the target, a further attempt is not worth its questions.
HOPELESS = 0.05
#: An answer has at least this much evidence, in log-odds: p = 0.56 where the population has 0.50. Less is noise.
EVIDENCE = 0.25
#: Features of each sign whose effect is measured on the model.
MEASURED = 6


class Question(Settings):
    """What is asked of an explanation."""

    #: the class that the evidence is about; None: the answer
    of_class: str | None = None
    #: of a label that is a number: the answer is whether it is above this; None: the training labels' median
    above: float | None = None
    #: at most this many features may settle an answer
    most: int = 10
    #: τ: the share of the look-alikes that must get the same answer
    precision: float = 0.9

    @model_validator(mode="after")
    def _can_be_met(self) -> Question:
        if self.most < 1:
            raise ValueError(f"most is a number of features, not {self.most} → give 1 or more")
        if not 0.5 <= self.precision < 1:
            raise ValueError(f"precision is a share, not {self.precision} → give 0.5 to below 1, like 0.9")
        return self


@dataclass(frozen=True)
class Checked:
    """A set of features, and its precision."""

    features: tuple[Feature, ...]
    precision: Share
    #: look-alikes that the model was asked about
    questions: int


@dataclass(frozen=True)
class Reasons:
    """Why the model gives one answer, in arrays; `explanation` puts it into words."""

    answer: int
    p_Q: tuple[float, ...]
    verdict: Outcome
    #: how much more probable the answer is than on average over the population, in log-odds
    evidence: float
    #: the features that settle the answer, or those that come closest
    features: tuple[Feature, ...]
    precision: Share
    coverage: Share
    #: the share of the population that gets the answer
    base: Share
    #: how often the answer changes when the features are replaced
    flips: Share
    #: of a settled answer, the next most probable class, and the set that comes closest to settling it, where tried
    other: int | None
    rival: Checked | None
    #: the class that the effects are about, and its mean probability in the population
    of_class: int
    mean_p: float
    effects: tuple[Effect, ...]
    #: look-alikes that the model was asked about, and those among them that checked the sets of features
    questions: int
    checks: int

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
    network: CodeNetwork
    surrogate: Surrogate
    population: Population

    def search(self, sequence: Sequences, answer: int) -> Search:
        """The search for features that settle an answer, on the surrogate."""
        x_TD = sequence.x_ND
        donors_B = Donors.of(self.population, len(x_TD)).search
        records_BTD = self.population.records(donors_B, len(x_TD))
        trial = Trial(self.network, self.surrogate, x_TD, records_BTD, calibration=self.model.calibration)
        features = features_of(x_TD, self.network.layout)
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
        if self.model.head is not None:
            trial = replace(trial, head=self.model.beside)
        return Search.of(trial, answer, features)

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
        found = Checked((), base, 0)  # no features: the base
        if verdict != "default" and evidence >= EVIDENCE:
            found = self._settle(search, sequence, donors, asked)
        questions, other, rival = found.questions, None, None
        if found.features and found.precision.low >= asked.precision:
            other = max((number for number in range(len(p_Q)) if number != answer), key=lambda number: p_Q[number])
            verdict = "settled"
            contest = search.contest(other)
            # features do not settle an answer that nearly everyone gets, and a hopeless one is not worth questions
            common = (population.answers_S == other).mean() >= asked.precision
            if not common and contest.best(asked.most, asked.precision).precision >= asked.precision - HOPELESS:
                rival = self._settle(contest, sequence, donors, asked)
                questions += rival.questions
                verdict = "contested" if rival.precision.low >= asked.precision else "settled"
        keep_TD, fresh = keep_of(found.features, search.trial.shape), donors.checks[0]
        # the members of a set one by one, not its whole value as well
        single = [feature for feature in search.features if len(feature.slots) == 1 or feature.absent]
        expected_F = expected_effects(search.trial, single, of_class)
        measured = [single[i] for i in strongest(expected_F, MEASURED).tolist()]
        found_effects = effects(model, population, sequence, measured, of_class, p_Q[of_class], fresh[:EFFECT])
        asked_parts = 0
        for number, effect in enumerate(found_effects):
            if effect.feature.slots[0] >= x_TD.shape[1] and not effect.feature.absent:
                words, count = text_parts(model, sequence, effect.feature, of_class, p_Q[of_class])
                found_effects[number], asked_parts = replace(effect, words=words), asked_parts + count
        return Reasons(
            answer=answer,
            p_Q=tuple(p_Q),
            verdict=verdict,
            evidence=evidence,
            features=found.features,
            precision=found.precision,
            coverage=coverage(population, sequence, keep_TD),
            base=base,
            flips=flips(model, population, sequence, keep_TD, answer, fresh),
            other=other,
            rival=rival,
            of_class=of_class,
            mean_p=float(population.p_SQ[:, of_class].mean()),
            effects=tuple(found_effects),
            checks=questions,
            questions=questions + len(fresh) + len(measured) * len(fresh[:EFFECT]) + asked_parts,
        )

    def _settle(self, search: Search, sequence: Sequences, donors: Donors, asked: Question) -> Checked:
        """The smallest set that passes the check; where none does, the most precise of those that were checked."""
        least = 1
        level = 1 - (1 - LEVEL) / len(donors.checks)
        results: list[Checked] = []
        for enough, donors_B in zip(_targets(asked.precision), donors.checks, strict=False):
            best = search.best(asked.most, enough, least)
            if results and best.features == results[-1].features:
                break  # the search cannot do better
            least = size_of(best.features) + 1  # if the surrogate expects too much of this set, the next one is larger
            keep_TD = keep_of(best.features, search.trial.shape)
            share = precision(self.model, self.population, sequence, keep_TD, search.answer, donors_B, level=level)
            results.append(Checked(best.features, share, (len(results) + 1) * len(donors_B)))
            if share.low >= asked.precision or best.precision < asked.precision - HOPELESS:
                break
        questions = results[-1].questions
        return replace(max(results, key=lambda checked: checked.precision.low), questions=questions)


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
