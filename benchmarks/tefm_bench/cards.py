"""The cards that `tefm explain` makes: how many answers are settled, and what unused cases say of the rules.

Half of the donors make the cards. The other half, and real cases that the model was not asked about, judge them.

Shapes: S sequences, Q classes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from tefm.explain.check import precision
from tefm.explain.conditions import Condition, Rule
from tefm.explain.counts import FEW, Share, exact_share
from tefm.explain.population import Cases
from tefm.explain.reasons import REAL, Donors, Question, Reasoner, Reasons
from tefm.explain.slot_features import features_of
from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.model.task import Task
from tefm.rationale.masked_model import Numbers
from tefm.tables.sequences import Sequences
from tefm_bench.measurement import Bench, Figures
from tefm_bench.table_runs import DIGITS, TableRun
from tefm_bench.user_tables import ALL_TABLES

#: Unused cases that judge a rule, at most.
JUDGED = 400
LEAST = Question().precision


class CardRun(TableRun):
    """The cards of a user table with one seed, of our model with the defaults of `tefm fit`."""

    KIND: ClassVar[str] = "cards"

    #: test sequences that are explained, of those whose answer nearly everyone else does not get
    sequences: int = 60
    #: no further one is begun after this many seconds
    patience: float = 240.0

    @property
    def task(self) -> Task:
        return ALL_TABLES[self.table].task_for(self.seed, **self.settings)

    def measure(self, bench: Bench) -> Figures:
        data = self.open(bench)
        model, began = TEFM(data.schema, **dict(data.task.model)), time.perf_counter()
        outcome = fit_frame(model, data.own.frame, data.task.split, compare=False, file=data.task.table)
        fitted, parts = model.fitted, model.fitted.look_alikes
        assert parts is not None, "the task explains"
        fitting = time.perf_counter() - began
        slots = model.preparation.slots(data.test.select(~data.is_other))
        asked, population = fitted.masked_model(), parts.population
        p_SQ = asked(slots)
        answers_S = asked.decide(p_SQ)
        shares = [exact_share(int((population.answers_S == q).sum()), len(population)) for q in range(p_SQ.shape[1])]
        is_default_S = np.array([of.low >= LEAST for of in shares])[answers_S]
        order = np.random.default_rng((self.seed, 5)).permutation(len(slots))
        chosen = order[~is_default_S[order]][: self.sequences]
        everyone, cards = np.arange(len(population)), []
        began = time.perf_counter()
        for number in chosen.tolist():
            if time.perf_counter() - began > self.patience:
                break
            # each card asks with an empty memory, as the first one of a call
            own, judges = (population.select(everyone[half::2]) for half in (0, 1))
            reasoner = Reasoner(fitted.masked_model(), parts.network, parts.surrogate, own, parts.cases)
            started = time.perf_counter()
            reasons = reasoner.reasons(slots.select([number]), p_SQ[number].tolist(), None, Question())
            seconds = time.perf_counter() - started
            cards.append(
                {"seconds": round(seconds, 3), **_of_card(reasons), **_judged(reasoner, judges, slots, number, reasons)}
            )
        auroc = getattr(outcome.test.scores, "auroc", None)
        return {
            "classes": list(fitted.classes),
            "share": fitted.answerer.share,
            "trees": None if fitted.trees is None else fitted.trees.count,
            "default": float(is_default_S.mean()),
            "auroc": None if auroc is None else auroc.value,
            "fitting": round(fitting, 1),
            "cards": cards,
        }


def _of_card(reasons: Reasons) -> Figures:
    """What a card says, in numbers."""
    found, joint = reasons.found, reasons.joint
    gap = 0.0
    if joint is not None:
        gap = sum(of.value for of in joint.shares) - (reasons.p_Q[reasons.answer] - joint.without.value)
    return {
        "verdict": reasons.verdict,
        "conditions": len(found.rule),
        "trends": sum(bool(condition.trend) for condition in found.rule),
        "made_up": _interval(found.made_up),
        "real": _interval(found.real),
        "opposite": reasons.rival is not None and reasons.rival.holds(LEAST),
        "gap": round(abs(gap), DIGITS),
        "questions": reasons.questions,
    }


def _judged(reasoner: Reasoner, judges: Any, slots: Sequences, number: int, reasons: Reasons) -> Figures:
    """What cases that the card has not used say of its rule, and whether a random rule of as many passes the check."""
    sequence, rule, answer = slots.select([number]), reasons.found.rule, reasons.answer
    has_S = reasoner.cases.has(rule)
    facts: Figures = {"cases": int(has_S.sum()), "coverage": float(has_S.mean())}
    if not rule:
        return facts
    donors_B = judges.nearest(len(sequence.x_ND))[:JUDGED]
    facts["unused made_up"] = _interval(precision(reasoner.model, judges.made_up(sequence, rule, donors_B), answer))
    others = np.flatnonzero(Cases(slots, np.full(len(slots), -1)).has(rule))
    real = reasoner.cases.slots.select(np.flatnonzero(has_S)[REAL:][:JUDGED])
    real = real.followed_by(slots.select(others[others != number][:JUDGED]))
    facts["unused real"] = _interval(precision(reasoner.model, real, answer))
    drawn = _random_rule(reasoner, sequence, len(rule), number)
    checks: Numbers = Donors.of(reasoner.population, len(sequence.x_ND)).checks[0]
    cases = reasoner.population.made_up(sequence, drawn, checks)
    facts["random"] = precision(reasoner.model, cases, answer, level=1 - 0.05 / 3).low >= LEAST
    return facts


def _random_rule(reasoner: Reasoner, sequence: Sequences, size: int, seed: int) -> Rule:
    x_TD = sequence.x_ND
    features = [of for of in features_of(x_TD, reasoner.network.layout) if not of.varied]
    chosen = np.random.default_rng(seed).permutation(len(features))[:size]
    return tuple(Condition.of(features[i], x_TD) for i in chosen.tolist())


def _interval(share: Share) -> list[float]:
    return [share.count, share.of, round(share.low, 4), round(share.high, 4)]


# ---- what the table shows -------------------------------------------------------------------------------------------


def summary(figures: Figures) -> dict[str, float | None]:
    """The figures of one seed."""
    cards = figures["cards"]
    if not cards:
        return {"cards": 0}

    def share(having: list[bool]) -> float | None:
        return float(np.mean(having)) if having else None

    settled = [of for of in cards if of["verdict"] in ("settled", "made-up only", "real only")]
    real = [of for of in cards if of["verdict"] == "settled"]

    def within(name: str, passed: str) -> float | None:
        """Of rules that a check bears out, how often unused cases are in the interval; too few of them do not count."""
        told: list[Mapping[str, Any]] = [of for of in settled if of[name][2] >= LEAST and of[passed][1] >= FEW]
        # of few unused cases the share itself is uncertain: their interval must meet the stated one
        return share([of[passed][2] <= of[name][3] and of[passed][3] >= of[name][2] for of in told])

    return {
        "cards": len(cards),
        "settled": share([of in settled for of in cards]),
        "both": share([of in real for of in cards]),
        "real": share([of["cases"] >= FEW for of in settled]),
        "coverage": float(np.median([of["coverage"] for of in settled])) if settled else None,
        "conditions": float(np.mean([of["conditions"] for of in settled])) if settled else None,
        "within_made_up": within("made_up", "unused made_up"),
        "within_real": within("real", "unused real"),
        "random": share([of["random"] for of in cards if "random" in of]),
        "opposite": share([of["opposite"] for of in cards]),
        "gap": max(of["gap"] for of in cards),
        "questions": float(np.median([of["questions"] for of in cards])),
        "seconds": float(np.median([of["seconds"] for of in cards])),
        "auroc": figures["auroc"],
        "default": figures["default"],
    }
