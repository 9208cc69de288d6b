"""From sequences of a table to explanations in words: by look-alikes, or by the paper's masks; and what fields matter.

Shapes: S sequences, N records, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import model_validator

from tefm.base.errors import InputError, NotFittedError, did_you_mean
from tefm.base.progress import progress
from tefm.base.settings import Retired, Settings
from tefm.explain.cards import Finding
from tefm.explain.check import Joint, other_values
from tefm.explain.conditions import Condition, Rule
from tefm.explain.counts import NONE, exact_share
from tefm.explain.explanation import Explanation, Influence, JointEffect, Sensitive, Settling
from tefm.explain.in_words import describe_rationale, finding_of, text_finding
from tefm.explain.look_alikes import LookAlikes
from tefm.explain.over_time import trajectory_of
from tefm.explain.rationale_card import Rationale
from tefm.explain.reasons import Checked, Question, Reasoner, Reasons
from tefm.explain.similar import similar_cases
from tefm.explain.summary import Summary, summarise
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation
from tefm.rationale.masked_model import Of, Over, top_k
from tefm.rationale.verify import Answer, until_sufficient, verify
from tefm.scoring.weighted import Interval, bootstrap, resample_counts
from tefm.tables.layout import Slots
from tefm.tables.records import Records
from tefm.tables.references import References
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser

#: Sequences that are explained at once.
BATCH = 256
Known = TypeVar("Known")


class Choice(Settings):
    """Which slots of a sequence a mask keeps."""

    #: a share of the slots; None: the smallest rationale that is sufficient
    keep: float | None = None
    #: what `keep` is a share of: all slots, or those that a record has
    of: Of = "all"
    #: whether each record keeps that share, or the sequence as a whole, where the scores are highest
    over: Over = "sequence"

    RETIRED: ClassVar[Mapping[str, Retired]] = {"by": Retired("slot", "leave it out: every slot counts")}

    @model_validator(mode="after")
    def _is_share(self) -> Choice:
        if self.keep is not None and not 0 < self.keep <= 1:
            raise ValueError(f"keep is a share, not {self.keep} → give a number above 0, up to 1, like 0.05")
        return self


# ---- by look-alikes ---------------------------------------------------------------------------------------------


def look_alikes_of(fitted: Fitted) -> LookAlikes:
    """What explanations need; a model that was fitted without it cannot explain."""
    if fitted.look_alikes is None:
        leave = "without `quick`, or " if fitted.config.quick else ""
        settings = "{questions: 2000}" if fitted.config.quick else "default"
        remedy = f"fit it {leave}with `explanations: {settings}` in the task file"
        raise NotFittedError("this model cannot explain: it was fitted without explanations", remedy=remedy)
    return fitted.look_alikes


def explain_slots(
    fitted: Fitted, preparation: Preparation, slots: Sequences, question: Question, references: References | None = None
) -> list[Explanation]:
    """Why the model answers as it does for sequences of slots, which need no table."""
    return [one for one, _ in _with_rules(fitted, preparation, slots, question, references)]


def explain_population(
    fitted: Fitted, preparation: Preparation, slots: Sequences, question: Question
) -> tuple[list[Explanation], Summary]:
    """Explanations, and what they have in common."""
    explained = list(_with_rules(fitted, preparation, slots, question))
    cases = look_alikes_of(fitted).cases
    explanations = [one for one, _ in explained]
    return explanations, summarise(explanations, [cases.has(rule) for _, rule in explained])


def _with_rules(
    fitted: Fitted, preparation: Preparation, slots: Sequences, question: Question, references: References | None = None
) -> Iterator[tuple[Explanation, Rule]]:
    """Each explanation with its rule."""
    fitted = fitted.reading(question.above)
    parts, model, of_class = look_alikes_of(fitted), fitted.masked_model(), _class_number(fitted, question.of_class)
    without = parts.config.without if question.without is None else question.without
    sensitive = parts.config.sensitive if question.sensitive is None else question.sensitive
    slots_of = {name: preparation.slots_about(name, texts=False) for name in sensitive}
    no_reasons = frozenset(slot for name in without for slot in preparation.slots_about(name))
    reasoner = Reasoner(model, parts.network, parts.surrogate, parts.population, parts.cases, no_reasons)
    with progress("explaining", len(slots)) as advance:
        for number, p_Q in enumerate(model(slots).tolist()):
            sequence = slots.select([number])
            reasons = reasoner.reasons(sequence, p_Q, of_class, question)
            one = _explanation(fitted, preparation, sequence, reasons, question, references, slots_of)
            yield one, reasons.found.rule
            advance(1)


def _class_number(fitted: Fitted, name: str | None) -> int | None:
    if name is not None and name not in fitted.classes:
        remedy = did_you_mean(name, fitted.classes)
        raise InputError("the model does not know this class", value=name, remedy=remedy)
    return None if name is None else fitted.classes.index(name)


def _explanation(
    fitted: Fitted,
    preparation: Preparation,
    sequence: Sequences,
    reasons: Reasons,
    question: Question,
    references: References | None,
    sensitive: Mapping[str, tuple[int, ...]],
) -> Explanation:
    """Reasons in the words of the schema; `sensitive` are the slots of the fields that are marked."""
    vectoriser, schema, classes = preparation.vectoriser, preparation.schema, fitted.classes
    decoded_TD = _decoded(fitted, sequence)
    parts, x_TD, width = look_alikes_of(fitted), sequence.x_ND, sequence.x_ND.shape[1]
    population, cases = parts.population, parts.cases
    labelled = bool((cases.labels_S >= 0).any())

    def describe(condition: Condition) -> Finding:
        if condition.text is None:
            return finding_of(vectoriser, condition, x_TD, references=references, decoded_TD=decoded_TD)
        # without budgets, all columns are one text
        name = schema.text[condition.slots[0] - width] if schema.text_budgets else ", ".join(schema.text)
        return text_finding(name, condition, len(x_TD))

    def settling(found: Checked, answer: int) -> Settling:
        observed = cases.observed(found.rule, answer) if labelled else None
        findings = tuple(map(describe, found.rule))
        return Settling(classes[answer], findings, found.made_up, found.real, observed, found.without)

    def shares(joint: Joint, of_class: int) -> Iterator[Influence]:
        for condition, of, words in zip(joint.rule, joint.shares, joint.words, strict=True):
            # texts hardly ever repeat
            seen = cases.observed((condition,), of_class) if labelled and condition.text is None else None
            yield Influence(describe(condition), of.value, of.low, of.high, seen, words)

    def with_others(name: str) -> Sensitive:
        schema = vectoriser.table_schema
        title = next((field.display_name for field in schema.fields if field.name == name), name)
        told = other_values(fitted.masked_model(), population, sequence, sensitive[name], reasons.answer)
        return Sensitive(title, schema.fields_of(name), *told)

    similar, others = None, tuple(map(with_others, sensitive))
    if question.similar:
        rule, model = reasons.found.rule, fitted.masked_model()
        similar = similar_cases(cases, rule, x_TD, question.similar, model, vectoriser, classes)
    joint, mean_p_Q = None, population.p_SQ.mean(axis=0).tolist()
    if reasons.joint is not None:
        without, of_rule = reasons.joint.without, tuple(shares(reasons.joint, reasons.answer))
        joint = JointEffect(without.value, without.low, without.high, mean_p_Q[reasons.answer], of_rule)
    answer = Answer(classes[reasons.answer], dict(zip(classes, reasons.p_Q, strict=True)))
    explanation = Explanation(
        entity=preparation.sequence_noun,
        sequence=str(sequence.names[0]),
        record=schema.record,
        records=len(sequence.x_ND),
        classes=classes,
        label=schema.label,
        answer=answer,
        verdict=reasons.verdict,
        distinct=reasons.distinct,
        least=question.precision,
        most=question.most,
        settling=settling(reasons.found, reasons.answer),
        coverage=exact_share(int(cases.has(reasons.found.rule).sum()), len(cases)),
        base=reasons.base,
        flips=NONE if reasons.joint is None else reasons.joint.flips,
        joint=joint,
        threshold=_threshold(fitted, reasons.answer),
        real_world=_real_world(fitted, reasons),
        rival=None if reasons.rival is None else settling(reasons.rival, reasons.other),
        of_class=classes[reasons.of_class],
        mean_p=mean_p_Q[reasons.of_class],
        influences=() if reasons.features is None else tuple(shares(reasons.features, reasons.of_class)),
        sensitive=others,
        similar=similar,
        questions=reasons.questions + sum(of.same.of for of in others),
    )
    rule = reasons.found.rule if explanation.relevant else ()
    course = trajectory_of(vectoriser, sequence, rule, population.slots.x_ND, fitted.masked_model(), reasons.answer)
    return replace(explanation, trajectory=course)


def _decoded(fitted: Fitted, slots: Sequences) -> Slots | None:
    """What the codes give back; None where trees or a head read the slots themselves, so that nothing is lost."""
    return None if fitted.answerer.beside is not None else fitted.coder.decode(fitted.coder.encode(slots.x_ND))


def _threshold(fitted: Fitted, answer: int) -> float | None:
    """The probability from which the model gives an answer, where that is a threshold of its own."""
    calibration = fitted.calibration
    if calibration.threshold is None:
        return None
    return calibration.threshold if answer == calibration.positive else 1 - calibration.threshold


def _real_world(fitted: Fitted, reasons: Reasons) -> float | None:
    """The probability of the answer at the shares of the classes in the data, where training balanced them away."""
    labels_S = look_alikes_of(fitted).cases.labels_S
    counts = np.bincount(labels_S[labels_S >= 0], minlength=len(fitted.classes))
    if fitted.config.balance != "all" or not counts.all():
        return None
    odds_Q = np.array(reasons.p_Q) * (counts / counts.sum()) / np.array(fitted.shares)
    return float(odds_Q[reasons.answer] / odds_Q.sum())


# ---- by masks ---------------------------------------------------------------------------------------------------


def explain_masked(fitted: Fitted, preparation: Preparation, records: Records, choice: Choice) -> list[Rationale]:
    """The rationale of each sequence in the words of the schema, with the answers to masked records that check it."""
    if fitted.explainer is None:  # before anything is vectorised
        raise NotFittedError(
            "this model has not learned the paper's masks", remedy="fit it with rationale: default or rationale: paper"
        )
    rationales = []
    with progress("explaining", len(records)) as advance:
        for start in range(0, len(records), BATCH):
            batch = records.select(np.arange(start, min(start + BATCH, len(records))))
            slots, model = preparation.slots(batch), fitted.masked_model()
            scores_ND = fitted.explainer.rank(slots, model(slots))
            if choice.keep is None:
                keep_ND = until_sufficient(model, scores_ND, slots, over=choice.over)
            else:
                keep_ND = top_k(scores_ND, slots, choice.keep, of=choice.of, over=choice.over)
            decoded_ND = _decoded(fitted, slots)
            for number, verification in enumerate(verify(model, slots, keep_ND, fitted.classes)):
                rows = slice(int(slots.starts[number]), int(slots.starts[number + 1]))
                rationales.append(
                    describe_rationale(
                        preparation.vectoriser,
                        slots.x_ND[rows],
                        keep_ND[rows],
                        verification,
                        entity=preparation.sequence_noun,
                        sequence=str(slots.names[number]),
                        classes=fitted.classes,
                        decoded_ND=None if decoded_ND is None else decoded_ND[rows],
                    )
                )
            advance(len(batch))
    return rationales


def named(known: Mapping[str, Known], names: Sequence[str], noun: str, *, file: str | None) -> list[Known]:
    """What belongs to these names of sequences; a name that is not in the table is refused."""
    for name in names:
        if name not in known:
            remedy = did_you_mean(name, known) if known else "check the name"
            raise InputError(f"no such {noun} in this table", file=file, value=name, remedy=remedy)
    return [known[name] for name in names]


# ---- how much answers depend on each field ---------------------------------------------------------------------------


RESAMPLES = 1_000


def importance(fitted: Fitted, vectoriser: Vectoriser, slots: Sequences, *, seed: int) -> pl.DataFrame:
    """One row per field, the most important first; intervals are those of a bootstrap over the sequences."""
    count = len(slots)
    if count < 2:
        problem = "values cannot change places in a single sequence"
        raise InputError(problem, file=slots.file, remedy="give a table of several, at least a hundred")
    answerer, rng, rows = fitted.answerer.remembering(), np.random.default_rng((seed, 21)), []
    parts = list(vectoriser.parts)

    def answers(x_ND: NDArray[Any]) -> NDArray[np.float64]:
        return fitted.calibration.probabilities(answerer.logits(slots.with_values(x_ND)))

    p_SQ = answers(slots.x_ND)
    answer_S = fitted.decide(p_SQ)
    with progress("permuting one field at a time", len(parts)) as advance:
        for field, _, own in parts:
            x_ND = slots.x_ND.copy()
            x_ND[:, own] = slots.x_ND[_places(slots, rng), own]
            changed_SQ = answers(x_ND)
            effects = np.abs(changed_SQ - p_SQ).sum(axis=1) / 2, fitted.decide(changed_SQ) != answer_S
            counts = resample_counts(count, RESAMPLES, seed)
            change = Interval.of(bootstrap(lambda counts_RN, of=effects[0]: counts_RN @ of / count, counts))  # type: ignore[misc]
            rows.append({"field": field.name, "change": change.value, "low": change.low, "high": change.high})
            rows[-1]["flips"] = float(effects[1].mean())
            advance(1)
    return pl.DataFrame(rows).sort("change", descending=True)


def _places(slots: Sequences, rng: np.random.Generator) -> NDArray[np.int64]:
    """For each record the one of another sequence whose value it gets: at the same position, or the last."""
    order, donor_S = rng.permutation(len(slots)), np.empty(len(slots), dtype=np.int64)
    donor_S[order] = np.roll(order, 1)
    donor_N = donor_S[slots.sequence_N]
    position_N = np.arange(len(slots.values)) - slots.starts[slots.sequence_N]
    places_N: NDArray[np.int64] = slots.starts[donor_N] + np.minimum(position_N, slots.lengths[donor_N] - 1)
    return places_N
