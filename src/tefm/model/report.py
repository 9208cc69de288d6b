"""Measure what a report shows: a fitted model on labelled sequences.

Shapes: N records, S sequences, Q classes, K levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.progress import note
from tefm.codes.doctor import examine
from tefm.explain.cards import quoted
from tefm.explain.reasons import Question
from tefm.explain.summary import Summary
from tefm.model.explainer import explain_population
from tefm.model.remarks import FEW, given_away, open_questions, rare, repeated
from tefm.model.run import COUNTED, compare_with_tabular, count_tokens, split_parts, used_records
from tefm.model.task import Split, Task
from tefm.pipeline.prepare import chosen, label_numbers
from tefm.scoring.breakdown import (
    confusion,
    difference_between,
    ranking_curves,
    reliability,
    scores_by_class,
    scores_by_group,
    threshold_counts,
)
from tefm.scoring.survival import Survival
from tefm.show.figures import (
    Case,
    ExplainedExamples,
    FieldGroups,
    Figures,
    Method,
    Outcome,
    Overview,
    titles_of,
)
from tefm.show.terminal import BASELINES
from tefm.tables.overview import groups_of, missing_shares, tied_records
from tefm.tables.readers.table import Table, open_table
from tefm.tables.records import Records
from tefm.tables.sequences import PARTS, Sequences

if TYPE_CHECKING:
    from tefm.model.estimator import TEFM
    from tefm.pipeline.fitted import Fitted

#: Sequences that are explained one by one: each asks the model many times.
EXPLAINED = 40
#: Fields whose groups are scored.
GROUPED = 20
#: Classes that are counted in the head of the page.
CLASSES_COUNTED = 25


def task_of(model: TEFM, name: str | None) -> Task:
    """The task file to report on.

    What a model says about its table is only shown: a model may come from a stranger, so it opens nothing by itself.
    """
    if name is not None:
        return Task.load(name)
    stored = model.source_ or {}
    known = f"; the model says that it was fitted on {stored['table']!r}" if "table" in stored else ""
    known += f" with the query {stored['query']!r}" if stored.get("query") else ""
    raise InputError(
        f"name the table to report on{known}",
        remedy="--table TABLE for the test part of the table it was fitted on, a task file for its test part, "
        "or a table with labelled sequences",
    )


def split_of(model: TEFM) -> Split:
    """How the table that a model was fitted on was split, as its bundle says."""
    if model.source_ is None or "split" not in model.source_:
        problem = "this model does not know how its table was split"
        raise InputError(problem, remedy="name the task file, or a table with labelled sequences")
    return Split.checked(model.source_["split"])


def figures_of(model: TEFM, source: Any, *, split: Split | None = None) -> Figures:
    """Measure a model on the labelled sequences of a table, or on the test part of a `Task` or of a table and a split.

    Where there is a training part, tabular models are trained on it, for comparison.
    """
    if isinstance(source, Task):
        opened = open_table(source.table, query=source.query, meds=model.preparation.schema.meds)
        source, split = opened, source.split
    return _measured(
        model, _whole_table(model.reading(), source) if split is None else _test_part(model, source, split)
    )


def figures_of_fit(
    model: TEFM, used: Records, part_of_used: NDArray[np.str_], outcome: Outcome, *, explained: int = EXPLAINED
) -> Figures:
    """Measure a model right after its fit, on the test sequences of the table that it was fitted on.

    `used` are the sequences of all parts, as `used_records` gives them; `explained` is how many are explained.
    """
    classes = _classes_by_part(used.sequences, part_of_used, model.fitted.classes)
    about, warnings = "the test part, not used in training", tuple(map(_sentence, outcome.remarks))
    verdict, test = _verdict(outcome.to_dict()), used.part(part_of_used == "test")
    part = _Part(test, about, True, classes, outcome.baselines, warnings, verdict)
    return _measured(model, part, explained)


def _measured(model: TEFM, part: _Part, count: int = EXPLAINED) -> Figures:
    whole, model = model.fitted, model.reading()  # a number is read as whether it is above the median
    fitted = model.fitted
    records, sequences = part.records, part.records.sequences
    labels_S = label_numbers(sequences, fitted.classes)
    note(f"report: predicting {len(sequences):,} sequences")
    x_ND = records.slots(model.preparation.vectoriser)  # labelled or not
    slots = model.preparation.slots(records)
    codes = fitted.codes(slots)
    p_SQ = whole.probabilities(slots, codes)
    known_S = labels_S if whole.buckets is None else records.numbers_S
    evaluation = whole.evaluation(codes, p_SQ, known_S, followed=records.followed)
    remaining = _remaining(whole, records, p_SQ)
    p_SQ = fitted.calibration.fold(p_SQ)
    predicted_S = fitted.decide(p_SQ)
    scores = evaluation.scores.to_dict()
    two = len(fitted.classes) == 2
    groups, more_groups = _groups(model, part, p_SQ, labels_S)
    # without a threshold of its own, the model predicts the more probable class
    own = 0.5 if fitted.calibration.threshold is None else fitted.calibration.threshold
    explained = None
    if fitted.look_alikes is not None:
        wrong = np.flatnonzero(labels_S != predicted_S)
        surest = wrong[np.argsort(-p_SQ[wrong, predicted_S[wrong]], kind="stable")]
        explained = _explained(model, slots, labels_S, surest, count)
    note(f"report: examining the codes of {len(x_ND):,} records")
    return Figures(
        title=model.preparation.title,
        label=str(model.preparation.schema.label),
        facts=_facts(model, part),
        positive=fitted.classes[fitted.positive] if two else None,
        methods=(
            Method(fitted.config.title, scores, evaluation.tokens_mean),
            *(
                Method(BASELINES.get(name, name), baseline["test_calibrated"], 0.0)
                for name, baseline in part.baselines.items()
            ),
        ),
        confusion=confusion(labels_S, predicted_S, fitted.classes),
        verdict=part.verdict,
        curves=ranking_curves(p_SQ, labels_S, predicted_S, fitted.classes, positive=fitted.positive),
        thresholds=threshold_counts(p_SQ[:, fitted.positive], labels_S == fitted.positive, own) if two else None,
        overview=_overview(model, part),
        groups=groups,
        more_groups=more_groups,
        tokens=tuple(
            replace(count, tokenizer=file_name(count.tokenizer)) for count in count_tokens(model, records, codes=codes)
        ),
        calibration=reliability(
            p_SQ[:, fitted.positive] if two else p_SQ[np.arange(len(p_SQ)), predicted_S],
            labels_S == (fitted.positive if two else predicted_S),
        ),
        tokens_counted=min(COUNTED, len(sequences)),
        few=FEW,
        by_class=() if two else scores_by_class(labels_S, predicted_S, fitted.classes),
        codes=examine(fitted.coder, x_ND),
        explained=explained,
        remaining=remaining,
        warnings=(
            *part.warnings,
            *_differs_from_fit(model, scores, part),
            *map(_sentence, rare(fitted.classes, sequences)),
        ),
    )


def _remaining(whole: Fitted, records: Records, p_SQ: NDArray[np.float64]) -> Any:
    """Of times until an event, the share without it over time: Kaplan–Meier, and as the model predicts."""
    if whole.buckets is None or records.followed is None:
        return None
    curve, predicted = Survival.of(records.followed), 1 - p_SQ.mean(axis=0).cumsum()[:-1]
    return (curve.times, curve.shares), (whole.buckets.upper, tuple(predicted.tolist()))


# ---- the sequences ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The records of a report, and what was found out about them."""

    #: all rows, and the labelled sequences
    records: Records
    about: str
    is_test: bool
    #: part → class → sequences, for the parts that are known
    classes: Mapping[str, Mapping[str, int]]
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    #: which model is better on these sequences, where the fit says so
    verdict: str | None = None

    @property
    def file(self) -> str:
        return self.records.file or "the table"


def _whole_table(model: TEFM, table: Any) -> _Part:
    records = _known(model, model.preparation.to_evaluate(table)[0])
    warning = (
        "A saved model does not know which sequences it was trained on. If it was trained on some of these, every "
        "score on this page is too good. Report on the task file instead of a table to use the test part."
    )
    classes = {"this table": _class_counts(records.sequences, model.fitted.classes)}
    return _Part(records, "all labelled sequences of the table", False, classes, warnings=(warning,))


def _known(model: TEFM, records: Records) -> Records:
    """The sequences, if the model knows all of their classes."""
    if unknown := model.preparation.unknown(records, model.fitted.classes):
        raise InputError(
            "the table has a class that the model does not know",
            file=records.file,
            column=model.preparation.schema.label,
            value=unknown[0],
            remedy="leave these records out; `tefm evaluate` counts them as errors",
        )
    return records


def _test_part(model: TEFM, opened: Table, split: Split) -> _Part:
    """The test part of `tefm fit`, and tabular models on the same split."""
    whole, model = model, model.reading()
    preparation, config = model.preparation, model.fitted.config
    opened = preparation.readable(opened, labelled=True)
    records = preparation.records(opened.frame(), file=opened.name)
    parts, split_remarks = split_parts(config, records.sequences, split, classes=records.cuts is None)
    used, part_of_used = used_records(config, records, parts)
    compared, sampled = compare_with_tabular(whole, records, parts)
    baselines = {name: baseline.figures for name, baseline in compared.items()}
    training = records.part(parts == "train").frame
    remarks = [*split_remarks, *open_questions(records), *given_away(training, preparation), *sampled]
    remarks += repeated(used, part_of_used)
    tested = records.part(parts == "test")
    test = _known(model, tested.select(chosen(tested.sequences, config, evaluated=True)))
    about, verdict = "the test part of the task, not used in training", _verdict(model.figures_.get("test", {}))
    classes = _classes_by_part(used.sequences, part_of_used, model.fitted.classes)
    return _Part(test, about, True, classes, baselines, tuple(map(_sentence, remarks)), verdict)


def _classes_by_part(
    used: Sequences, part_of_used: NDArray[np.str_], classes: Sequence[str]
) -> dict[str, dict[str, int]]:
    return {part: _class_counts(used.select(part_of_used == part), classes) for part in PARTS}


def _class_counts(sequences: Sequences, classes: Sequence[str]) -> dict[str, int]:
    """How many sequences each class has, the most frequent first."""
    counts = Counter(dict.fromkeys(classes, 0))
    counts.update(np.asarray(sequences.labels).astype(str).tolist())
    return dict(counts.most_common())


def _verdict(figures: Mapping[str, Any]) -> str | None:
    """The sentence on which model is better, where the figures of a fit have one."""
    verdict = figures.get("verdict")
    return None if verdict is None else f"{verdict['sentence']}."


def _differs_from_fit(model: TEFM, scores: Mapping[str, Any], part: _Part) -> tuple[str, ...]:
    """A warning if the test part has other scores than those that were stored when the model was fitted."""
    stored = model.figures_.get("test")
    if not part.is_test or stored is None:
        return ()
    name = "accuracy" if "accuracy" in stored else "mae"
    if (stored["n"], stored[name]["value"]) == (scores["n"], scores[name]["value"]):
        return ()
    return (
        f"When the model was fitted, its test part had other scores ({stored['n']:,} sequences, "
        f"{titles_of(stored)[name]} {stored[name]['value']:.3f}). The table or the task file have changed since, so "
        "the model may have been trained on some of these sequences.",
    )


def file_name(path: str) -> str:
    """The last part of a path: a page that is shared tells nothing about the folders of a machine.

    >>> file_name("/home/me/stays.csv"), file_name("smollm2-135m"), file_name("C:\\\\data\\\\stays.csv")
    ('stays.csv', 'smollm2-135m', 'stays.csv')
    """
    return PureWindowsPath(path).name or path  # splits at both kinds of slashes


def _sentence(remark: str) -> str:
    return f"{remark[0].upper()}{remark[1:]}."


def _facts(model: TEFM, part: _Part) -> dict[str, str]:
    """Name and value of what the head of the page says."""
    fitted, preparation, sequences = model.fitted, model.preparation, part.records.sequences
    schema = preparation.schema
    counts = Counter(np.asarray(sequences.labels).astype(str).tolist()).most_common()
    counted = [f"{count:,} × {quoted(name)}" for name, count in counts[:CLASSES_COUNTED]]
    counted += [f"{len(counts) - CLASSES_COUNTED:,} more classes"] if len(counts) > CLASSES_COUNTED else []
    several = fitted.config.window or schema.entity
    records = f" with {len(sequences.rows):,} {schema.record}s" if several else ""
    backbone = fitted.classifier.backbone.model
    facts = {
        "Task": f"{schema.label}: {', '.join(map(quoted, fitted.classes))}",
        "One sequence": preparation.one_sequence,
        "Data": f"{file_name(part.file)}, {part.about}",
        "Sequences": f"{len(sequences):,}{records}; {schema.label}: {', '.join(counted)}",
        "Language model": f"{file_name(fitted.config.backbone)}, {backbone.config.num_hidden_layers} blocks, "
        f"{backbone.num_parameters() / 1e6:,.1f} million parameters",
    }
    coder = fitted.coder
    supervision = "trained with the labels of the training records" if coder.classes_ else "trained without labels"
    facts["Codes"] = (
        f"{coder.layout.width:,} slots become {coder.config.levels} numbers with {coder.config.entries} values "
        f"each (K{coder.config.levels}-C{coder.config.entries}), {supervision}"
    )
    if coder.profile_levels:
        titles = ", ".join(schema.field(name).display_name for name in schema.static)
        facts["Codes of the entity"] = f"{titles}: {coder.profile_levels} numbers, once per sequence"
    facts["Decision"] = f"{fitted.decision_in_words}, temperature {fitted.calibration.temperature:.3f}"
    return facts


# ---- groups and data ------------------------------------------------------------------------------------------------


def _groups(
    model: TEFM, part: _Part, p_SQ: NDArray[np.float64], labels_S: NDArray[np.int64]
) -> tuple[tuple[FieldGroups, ...], int]:
    """The scores by groups of the fields that make the largest difference, and how many more fields there are."""
    fitted = model.fitted
    correct_S = fitted.decide(p_SQ) == labels_S
    frame = part.records.frame[part.records.sequences.last]
    fields = groups_of(frame, model.preparation.schema, part.file)
    fields.sort(key=lambda groups: -difference_between(groups.group_N, correct_S))
    positive: dict[str, Any] = {}
    if len(fitted.classes) == 2:
        positive = {"p_S": p_SQ[:, fitted.positive], "positive_S": labels_S == fitted.positive}
    return tuple(
        FieldGroups(groups.field, scores_by_group(groups.group_N, groups.names, correct_S, **positive, least=FEW))
        for groups in fields[:GROUPED]
    ), len(fields[GROUPED:])


def _overview(model: TEFM, part: _Part) -> Overview:
    schema, frame, sequences = model.preparation.schema, part.records.frame, part.records.sequences
    lengths = sequences.lengths
    return Overview(
        part.classes,
        frame.height,
        missing_shares(frame, schema, part.file),
        len(schema.fields),
        (float(lengths.min()), float(np.median(lengths)), float(lengths.mean()), float(lengths.max())),
        tied_records(frame, schema, sequences),
    )


# ---- explanations -------------------------------------------------------------------------------------------------


def _explained(
    model: TEFM, slots: Sequences, labels_S: NDArray[np.int64], wrong: NDArray[np.int64], count: int
) -> ExplainedExamples:
    """Explanations of `count` sequences, drawn at random.

    `wrong` are the numbers of all sequences with a wrong prediction, the most confident first.
    """
    fitted = model.fitted
    two = len(fitted.classes) == 2
    question = Question(of_class=fitted.classes[fitted.positive] if two else None)

    def explained(numbers: NDArray[np.int64]) -> tuple[list[Case], Summary]:
        explanations, summary = explain_population(fitted, model.preparation, slots.select(numbers), question)
        labels = [fitted.classes[label] for label in labels_S[numbers]]
        return [Case(explanation, label) for explanation, label in zip(explanations, labels, strict=True)], summary

    cases, summary = explained(np.random.default_rng(fitted.config.seed).permutation(len(slots))[:count])
    return ExplainedExamples(summary, (*_examples(cases), *explained(wrong[:1])[0]), len(wrong))


def _examples(cases: list[Case]) -> list[Case]:
    """The first correct prediction of up to two classes, a settled one where there is one."""
    correct = [case for case in cases if case.label == case.explanation.answer.says]
    by_class: dict[str, Case] = {}
    for case in sorted(correct, key=lambda case: case.explanation.verdict != "settled"):
        by_class.setdefault(case.label, case)
    return list(by_class.values())[:2]
