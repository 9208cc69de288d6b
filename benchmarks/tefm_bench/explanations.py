"""How precise explanations are: every method names features, and look-alikes that no method has seen judge them.

Shapes: S sequences, R resamples, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.base.errors import InputError
from tefm.base.progress import note
from tefm.explain.check import precision
from tefm.explain.conditions import Condition
from tefm.explain.counts import exact_share
from tefm.explain.population import Population
from tefm.explain.reasons import EFFECT, Question
from tefm.explain.slot_features import Feature, keep_of
from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.model.task import Task
from tefm.pipeline.prepare import label_numbers
from tefm.rationale.masked_model import MaskedModel, Numbers
from tefm.tables.sequences import Sequences
from tefm_bench.feature_lists import OURS, RIVALS, SIZES, Effort, Named, Subject, name_features
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.table_runs import DIGITS, TableRun
from tefm_bench.user_data import UserData
from tefm_bench.user_tables import ALL_TABLES

#: The level of the interval that verifies a set: one of four sizes may pass.
LEVEL = 1 - 0.05 / len(SIZES)


class ExplanationRun(TableRun):
    """A user table with one seed: our model, fitted once, and what every method says about the same test sequences."""

    KIND: ClassVar[str] = "explanations"

    effort: Effort = Setting(default_factory=Effort)

    @property
    def task(self) -> Task:
        """The task file of the table, with the defaults of `tefm fit`: the model explains its answers."""
        return ALL_TABLES[self.table].task_for(self.seed, **self.settings)

    def measure(self, bench: Bench) -> Figures:
        data = self.open(bench)
        model = TEFM(data.schema, **dict(data.task.model))
        fit_frame(model, data.own.frame, data.task.split, compare=False, file=data.task.table)
        subject, judge, facts = _subject(model, data, self.seed, self.effort)
        named, basis, missing = name_features(subject)
        for name, reason in missing.items():
            note(f"{self.table}: {name} was not measured: {reason}")
        reasons = basis[OURS]
        return {
            **facts,
            "verdicts": [of.verdict for of in reasons],
            "product_sizes": [len(of.found.rule) for of in reasons],
            "asked": [of.questions for of in reasons],
            "opposite": [judge.verified(number, *rival) for number, rival in enumerate(basis[RIVALS])],
            "methods": {name: judge.judged(of) for name, of in named.items()},
            "missing": missing,
        }


def _subject(model: TEFM, data: UserData, seed: int, effort: Effort) -> tuple[Subject, Judge, Figures]:
    """The sequences to explain, drawn among those whose answer is no default, and half of the donors for the judge."""
    fitted, preparation = model.fitted, model.preparation
    parts = fitted.look_alikes
    assert parts is not None, "the task explains"
    population, masked_model = parts.population, fitted.masked_model()
    test = data.test.select(~data.is_other)
    rows_S = data.test_rows[~data.is_other]
    slots = preparation.slots(test)
    p_SQ = masked_model(slots)
    answers_S = masked_model.decide(p_SQ)
    classes = p_SQ.shape[1]
    bases = [exact_share(int((population.answers_S == q).sum()), len(population)) for q in range(classes)]
    is_default_S = np.array([base.low >= Question().precision for base in bases])[answers_S]
    order = np.random.default_rng((seed, 5)).permutation(len(slots))
    chosen = order[~is_default_S[order] | effort.defaults][: effort.sequences]
    if not len(chosen):
        raise InputError(
            "all test sequences get the default answer, so there is nothing to explain",
            file=data.task.table,
            remedy="measure another seed",
        )
    train = data.records.select(data.parts == "train")
    everyone = np.arange(len(population))
    subject = Subject(
        fitted,
        slots.select(chosen),
        p_SQ[chosen],
        answers_S[chosen],
        population.select(everyone[::2]),
        preparation.slots(train),
        label_numbers(train.sequences, fitted.classes),
        seed,
        effort,
    )
    judge = Judge(
        fitted.masked_model(), population.select(everyone[1::2]), population, subject.slots, subject.answers_S, effort
    )
    answer_p_S = p_SQ[chosen, answers_S[chosen]]
    facts = {
        "classes": list(fitted.classes),
        "test": len(slots),
        "default": float(is_default_S.mean()),
        "rows": rows_S[chosen].tolist(),
        "answers": answers_S[chosen].tolist(),
        "labels": label_numbers(test.sequences, fitted.classes)[chosen].tolist(),
        "p": answer_p_S.round(DIGITS).tolist(),
        "base": [round(bases[answer].value, DIGITS) for answer in answers_S[chosen]],
        "agreement": parts.agreement.version_same,
    }
    return subject, judge, facts


@dataclass(frozen=True, eq=False)
class Judge:
    """The check, on donors that no method has seen; the same set is judged once."""

    model: MaskedModel
    population: Population
    #: all stored training sequences, for the coverage
    everyone: Population
    slots: Sequences
    answers_S: Numbers
    effort: Effort
    _known: dict[tuple[int, bytes], tuple[int, int, float, float]] = field(default_factory=dict)

    def judged(self, named: Sequence[Named]) -> Figures:
        """What a method named, set by set; lists of lists are by sequence and size."""
        verdicts = [[self._judge(of.number, of.sets[size]) for size in SIZES] for of in named]
        names = ("same", "of", "coverage", "flips")
        return {
            "sequences": [of.number for of in named],
            "sizes": [[len(of.sets[size]) for size in SIZES] for of in named],
            **{name: [[verdict[i] for verdict in of] for of in verdicts] for i, name in enumerate(names)},
            "questions": [of.questions for of in named],
            "seconds": [round(of.seconds, 4) for of in named],
        }

    def verified(self, number: int, answer: int, features: Sequence[Feature]) -> bool | None:
        """Whether features settle an answer; None for one that nearly everyone gets."""
        if (self.everyone.answers_S == answer).mean() >= Question().precision:
            return None
        sequence, donors_B = self.slots.select([number]), self._donors(number)
        keep_TD = keep_of(features, sequence.x_ND.shape)
        share = precision(self.model, self.population.look_alikes(sequence, keep_TD, donors_B), answer)
        return bool(features) and share.low >= Question().precision

    def _donors(self, number: int) -> Numbers:
        return self.population.nearest(int(self.slots.lengths[number]))[: self.effort.donors]

    def _judge(self, number: int, features: Sequence[Feature]) -> tuple[int, int, float, float]:
        sequence, answer = self.slots.select([number]), int(self.answers_S[number])
        keep_TD = keep_of(features, sequence.x_ND.shape)
        key = number, keep_TD.tobytes()
        if key not in self._known:
            donors_B = self._donors(number)
            share = precision(self.model, self.population.look_alikes(sequence, keep_TD, donors_B), answer)
            without = self.population.look_alikes(sequence, ~keep_TD, donors_B[:EFFECT], own_context=True)
            changed = 1 - precision(self.model, without, answer).value
            covered = float(self.everyone.has(tuple(Condition.of(of, sequence.x_ND) for of in features)).mean())
            self._known[key] = share.count, share.of, round(covered, DIGITS), round(changed, DIGITS)
        return self._known[key]


# ---- what tables show -------------------------------------------------------------------------------------------


def precisions(method: Mapping[str, Any]) -> NDArray[np.float64]:
    """The precision of each sequence at each size."""
    values: NDArray[np.float64] = np.array(method["same"]) / np.maximum(np.array(method["of"]), 1)
    return values


def summary(figures: Figures, name: str) -> dict[str, float | None]:
    """The figures of a method, by column; None where a method names nothing that the column is about."""
    method = figures["methods"].get(name)
    if method is None:
        return {"sequences": 0}
    values = {f"precision_{size}": float(of.mean()) for size, of in zip(SIZES, precisions(method).T, strict=True)}
    least = Question().precision
    passed = np.array(
        [
            [exact_share(same, of, LEVEL).low >= least for same, of in zip(*row, strict=True)]
            for row in zip(method["same"], method["of"], strict=True)
        ]
    )
    sizes, covered = np.array(method["sizes"]), np.array(method["coverage"])
    passed &= sizes > 0
    verified = passed.any(axis=1)
    first = passed.argmax(axis=1)[verified]
    values |= {
        "sequences": len(passed),
        "verified": float(verified.mean()),
        "questions": float(np.mean(method["questions"])),
        "seconds": float(np.median(method["seconds"])),
        **{f"flips_{size}": float(of.mean()) for size, of in zip(SIZES, np.array(method["flips"]).T, strict=True)},
    }
    nothing: dict[str, float | None] = {"size": None, "coverage": None}
    if verified.any():
        nothing = {
            "size": float(np.median(sizes[verified, first])),
            "coverage": float(np.median(covered[verified, first])),
        }
    rest: dict[str, float | None] = {}
    if name == OURS:
        tried = [of for of in figures["opposite"] if of is not None]
        settled = [verdict in ("settled", "real only", "made-up only", "contested") for verdict in figures["verdicts"]]
        rest = {
            "default": figures["default"],
            "settled": float(np.mean(settled)),
            "opposite": float(np.mean(tried)) if tried else None,
        }
    return {**values, **nothing, **rest}


class Ahead(Measurement):
    """How much more precise our sets are than a method's, of the same size and on the same sequences; a run per seed.

    The 95% interval is from a bootstrap over sequences; one that several seeds explain is drawn for all of them.
    """

    KIND: ClassVar[str] = "explanations-ahead"

    runs: tuple[ExplanationRun, ...]
    method: str
    resamples: int = 2_000

    @property
    def description(self) -> str:
        return f"{self.KIND} of {self.method}, {self.runs[0].table}, {len(self.runs)} seeds from {self.runs[0].seed}"

    def needs(self) -> tuple[Measurement, ...]:
        return self.runs

    def measure(self, bench: Bench) -> Figures:
        rows, gains = [], []
        for run in self.runs:
            figures = bench.figures(run)
            assert figures is not None, "it was measured before"
            ours, theirs = figures["methods"][OURS], figures["methods"].get(self.method)
            if theirs is not None:
                at = theirs["sequences"]
                rows += [figures["rows"][number] for number in at]
                gains.append(precisions(ours)[at] - precisions(theirs))
        if not gains:
            return {}
        gain_SK = np.concatenate(gains)
        low_K, high_K = bootstrap(gain_SK, np.array(rows), self.resamples)
        means = gain_SK.mean(axis=0)
        return {
            f"{size}": {"value": float(means[i]), "low": float(low_K[i]), "high": float(high_K[i])}
            for i, size in enumerate(SIZES)
        }


def bootstrap(
    values_SK: NDArray[np.float64], rows_S: NDArray[Any], resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of a 95% interval of the means; values with the same row number are drawn together."""
    _, group_S = np.unique(rows_S, return_inverse=True)
    groups = int(group_S.max()) + 1
    sum_GK = np.zeros((groups, values_SK.shape[1]))
    np.add.at(sum_GK, group_S, values_SK)
    count_G = np.bincount(group_S, minlength=groups)
    drawn_RG = np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    mean_RK = drawn_RG @ sum_GK / (drawn_RG @ count_G)[:, None]
    low_K, high_K = np.quantile(mean_RK, (0.025, 0.975), axis=0)
    return low_K, high_K
