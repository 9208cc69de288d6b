"""A task from table to bundle: split, fit, score the test part once, compare with LightGBM, save."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import SettingsError
from tefm.base.files import check_replaceable, check_writable, held
from tefm.base.progress import in_part, job, log, stage, warn
from tefm.language.shortening import TokenCount, count_forms
from tefm.language.training_loop import is_first
from tefm.model.ask import scored_on_test, test_histories
from tefm.model.bundle import Bundle, is_saved
from tefm.model.domains import Domains
from tefm.model.estimator import TEFM
from tefm.model.remarks import (
    behind,
    cut_texts,
    given_away,
    open_questions,
    rare,
    repeated,
    thinned,
    unlabelled,
    without_unseen,
)
from tefm.model.task import Split, Task
from tefm.pipeline.config import QUICK_REMARK, QUICK_SEQUENCES, ModelConfig
from tefm.pipeline.data import feature_kinds
from tefm.pipeline.fit import expected_shares, extend, fit_domains, language_config, of_all
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, Prepared, chosen, label_numbers, records_of
from tefm.questions.book import Book
from tefm.questions.config import EVERY
from tefm.questions.question_data import Histories
from tefm.scoring.breakdown import confusion
from tefm.scoring.decision import one_answer
from tefm.scoring.metrics import Predicted, Verdict
from tefm.scoring.metrics import compare as compare_models
from tefm.scoring.numbers import compare_numbers
from tefm.scoring.survival import concordance
from tefm.show.figures import Outcome
from tefm.show.terminal import BASELINES
from tefm.tables.layout import Slots
from tefm.tables.readers.databases import shown_location
from tefm.tables.records import Records
from tefm.tables.sequences import PARTS, Sequences, record_texts, split
from tefm.tables.serialise import FORMATS, serialise

if TYPE_CHECKING:
    from tefm.tabular.baselines import BaselineData, Compared

#: Sequences whose texts are counted: counting a long text takes longer than predicting from its codes.
COUNTED = 200
#: Training sequences that LightGBM and logistic regression learn from, at most.
MOST_COMPARED = 200_000


def fit_tasks(
    tasks: Mapping[str, Task], folder: Path, *, device: str | None = None, compare: bool = True
) -> tuple[Domains, dict[str, Outcome]]:
    """Fit tasks and save one bundle; an interrupted run resumes when it is called again.

    Several tasks become the domains of one language model; a single one has no name, "".
    """
    with _saving_to(folder) as checkpoint:
        language_config({name: task.model for name, task in tasks.items()})  # before tables are read
        tables = {name: TaskTable.of(task, device) for name, task in tasks.items()}
        outcomes = fit_frames(tables, checkpoint=checkpoint, compare=compare)
        domains = Domains({name: table.model for name, table in tables.items()})
        domains.save(folder)
    return domains, outcomes


def extend_task(
    domains: Domains, name: str, task: Task, folder: Path, *, device: str | None = None, compare: bool = True
) -> tuple[Domains, Outcome]:
    """Add a task to a model as one more domain, and save all of it; the others answer as before. Resumes too."""
    if name in domains:
        remedy = "rename the task file: a domain is named after its task file"
        raise SettingsError("the model already has a domain with this name", value=name, remedy=remedy)
    with _saving_to(folder) as checkpoint:
        table = TaskTable.of(task.model_copy(update={"model": domains.extension(task.model)}), device)
        outcomes = fit_frames({"": table}, extends=domains, checkpoint=checkpoint, compare=compare)
        extended = Domains({**domains, name: table.model})
        extended.save(folder)
    return extended, outcomes[""]


@contextmanager
def _saving_to(folder: Path) -> Iterator[Path]:
    """Hold the folder that a model is saved to; gives the folder beside it that an interrupted fit resumes from."""
    with held(folder) if is_first() else nullcontext():
        check_replaceable(folder, is_saved)
        check_writable(folder)
        checkpoint = folder.with_name(f"{folder.name}.checkpoint")
        yield checkpoint
        if is_first():
            shutil.rmtree(checkpoint, ignore_errors=True)


@dataclass(frozen=True)
class TaskTable:
    """A model to be fitted, and the table to fit it on and to score it on."""

    model: TEFM
    records: Records
    split: Split
    #: what the bundle says about where the model comes from
    source: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, task: Task, device: str | None = None) -> TaskTable:
        opened = task.open()
        schema, config = task.schema_for(opened), task.model
        if schema.label is None and config.questions is None and schema.entity is not None:
            warn(
                "no label: the model learns to predict the next value of every field, and can be taught questions later"
            )
            config = config.model_copy(update={"questions": [{"next": EVERY}]})
        source = {"table": shown_location(task.table), "query": task.query, "split": task.split.model_dump()}
        model = TEFM(schema, device=device, **dict(config))
        records = records_of(opened.frame(), schema, config, file=opened.name).timed()
        return cls(model, records, task.split, source)

    @classmethod
    def of_frame(cls, model: TEFM, frame: pl.DataFrame, split: Split, *, file: str | None = None) -> TaskTable:
        assert model.schema is not None, "the schema is known"
        return cls(model, records_of(frame, model.schema, model.config, file=file).timed(), split)

    @property
    def config(self) -> ModelConfig:
        return self.model.config


def fit_frame(
    model: TEFM, frame: pl.DataFrame, shares: Split, *, compare: bool = True, file: str | None = None
) -> Outcome:
    """Fit a model on the training part of a table, and score it on the test part, once."""
    table = TaskTable.of_frame(model, frame, shares, file=file)
    return fit_frames({"": table}, compare=compare)[""]


def fit_frames(
    tables: Mapping[str, TaskTable],
    *,
    extends: Domains | None = None,
    checkpoint: Path | None = None,
    compare: bool = True,
) -> dict[str, Outcome]:
    """Fit several tables, by name, whose models share one language model.

    With `extends`, that is the language model of these domains, and `Domains.extension` made the settings. A table
    that cannot be fitted is refused before anything is learned.
    """
    started, outcomes = {}, {}
    for name, table in tables.items():
        with in_part(name):
            started[name] = start(table)
    with job(of_all({name: task_shares(begun.config) for name, begun in started.items()})):
        device = next(iter(tables.values())).model.device
        given = {name: begun.prepared.given for name, begun in started.items()}
        if extends is None:
            fitted = fit_domains(given, device=device, checkpoint=checkpoint)
        else:
            fitted = {
                name: extend(added, extends.backbone, extends.stems, device=device, checkpoint=checkpoint)
                for name, added in given.items()
            }
        for name, begun in started.items():
            with in_part(name):
                outcomes[name] = scored(begun, fitted[name], compare=compare)
    return outcomes


@dataclass(frozen=True)
class Started:
    """A table that is split and prepared."""

    table: TaskTable
    prepared: Prepared
    #: the part of each sequence
    parts: NDArray[np.str_]
    remarks: list[str]

    @property
    def config(self) -> ModelConfig:
        return self.table.config

    @property
    def tested(self) -> Records:
        return self.table.records.select(self.parts == "test")


def start(table: TaskTable) -> Started:
    """Split a table and prepare its model; what is odd about it is said now, not only after hours of training."""
    records, config = table.records, table.config
    if records.schema.label is None:
        parts = split(records.sequences, shares=table.split.shares, by=table.split.by, seed=table.split.seed)
        remarks = [QUICK_REMARK] if config.quick else []
    else:
        parts, remarks = split_parts(config, records.sequences, table.split, classes=records.schema.number is None)
        remarks += open_questions(records)
        for remark in remarks:
            warn(remark)  # before the table is prepared, which may be refused
    training, validation = (records.part(parts == part) for part in ("train", "validation"))
    prepared = table.model.prepared_records(training, validation)
    preparation = prepared.preparation
    table = replace(table, records=records.with_schema(preparation.schema).cut(preparation.cuts))
    leaks = given_away(prepared.training.frame, preparation)
    for remark in leaks:
        warn(remark)
    return Started(table, prepared, parts, [*remarks, *leaks])


def scored(started: Started, fitted: Fitted, *, compare: bool = True) -> Outcome:
    """The model of a table, with its figures on the test part."""
    model, records, config = started.table.model, started.table.records, started.config
    model.adopt(replace(Bundle.of_fit(started.prepared, fitted), source=started.table.source))
    if records.schema.label is None:
        return _score_questions_alone(started, compare=compare)
    remarks = list(started.remarks)
    used, part_of_used = used_records(config, records, started.parts)
    tested = used.select(part_of_used == "test")
    is_number = fitted.buckets is not None
    labels_S: NDArray[Any] = tested.numbers_S if is_number else label_numbers(tested.sequences, fitted.classes)
    with stage("test", "scoring the test part"):
        slots = model.preparation.slots(tested)
        codes = fitted.codes(slots)
        p_SQ = fitted.probabilities(slots, codes)
        unlabelled_count = int((~started.tested.sequences.labelled).sum())
        test = replace(fitted.evaluation(codes, p_SQ, labels_S, followed=tested.followed), unlabelled=unlabelled_count)
    model.figures_["test"] = test.to_dict()
    predicted_S = fitted.decide(p_SQ)
    book = None if config.questions is None else _score_questions(started, *_tested(started), compare=compare)
    baselines: dict[str, Compared] = {}
    if compare:
        baselines, sampled = compare_with_tabular(model, records, started.parts)
        remarks += sampled
        compared = {BASELINES.get(name, name): of.figures["test_calibrated"] for name, of in baselines.items()}
        model.figures_["test"]["compared"] = compared
    remarks += cut_texts(model, used.select(part_of_used == "train"))
    if fitted.buckets is not None:
        remarks, verdict = [*remarks, *repeated(used, part_of_used)], None
        if baselines and (other := baselines["lightgbm"].numbers) is not None:
            models = {config.title: fitted.buckets.predicted(p_SQ), BASELINES["lightgbm"]: other}
            verdict = compare_numbers(models, labels_S)
    else:
        answers_Q = np.bincount(predicted_S, minlength=len(fitted.classes))
        one_class = one_answer(answers_Q, fitted.classes, fitted.calibration.rule)
        for remark in one_class:
            warn(remark)
        remarks += [*one_class, *repeated(used, part_of_used), *rare(fitted.classes, tested.sequences)]
        verdict = verdict_of(fitted, Predicted.of(p_SQ, labels_S, predicted_S, fitted.positive), baselines)
    remarks += behind(verdict, config)
    if verdict is not None:
        model.figures_["test"]["verdict"] = verdict.to_dict()
    return Outcome(
        config.title,
        fitted.classes,
        {part: int((part_of_used == part).sum()) for part in PARTS},
        test,
        {name: compared.figures for name, compared in baselines.items()},
        tuple(count_tokens(model, tested, codes=codes)),
        tuple(remarks),
        verdict,
        None if is_number else confusion(labels_S, predicted_S, fitted.classes),
        book,
    )


def _tested(started: Started) -> tuple[Histories, Slots]:
    """The histories of the test part that questions are asked about, and their slots."""
    questions = started.prepared.given.data.questions
    assert questions is not None, "there are questions"
    return test_histories(started.prepared.preparation, questions, started.tested)


def _score_questions(started: Started, tested: Histories, x_ND: Slots, *, compare: bool) -> Book:
    """Measure the answers to questions in words on the test part."""
    model, data = started.table.model, started.prepared.given.data
    with stage("questions of the test part", "answering questions about the test part", loops=2 if compare else 1):
        book = scored_on_test(model.fitted, data, tested, x_ND, compare=compare)
    model.fitted_ = replace(model.fitted, book=book)
    return book


def _score_questions_alone(started: Started, *, compare: bool) -> Outcome:
    """Score a task of questions without a label: the first question is the one that is scored in detail."""
    model, data = started.table.model, started.prepared.given.data
    assert data.questions is not None, "there are questions"
    first = int(data.questions.trained[0])
    histories, x_ND = _tested(started)
    asked = np.flatnonzero(histories.answers_HQ[:, first] >= 0)
    labels_S = histories.answers_HQ[asked, first].astype(np.int64)
    with stage("test", "scoring the test part"):
        rows = histories.histories.select(asked)
        test = model.fitted.evaluate(rows.with_values(x_ND[rows.rows]), labels_S)
    book = _score_questions(started, histories, x_ND, compare=compare)
    model.figures_["test"] = test.to_dict()
    question = book.entries[first].question.text
    remark = f"without a label, these are the scores of the first question, “{question}”"
    return Outcome(
        started.table.config.title,
        model.fitted.classes,
        {part: int((started.parts == part).sum()) for part in PARTS},
        test,
        tokens=tuple(count_tokens(model, started.tested)),
        remarks=(*started.remarks, remark),
        questions=book,
    )


def verdict_of(fitted: Fitted, ours: Predicted, baselines: Mapping[str, Compared]) -> Verdict | None:
    """The model compared with the tabular model that did best on validation."""
    if not baselines:
        return None
    metric = "auroc" if len(fitted.classes) == 2 else "accuracy"
    best = max(baselines, key=lambda name: baselines[name].figures["validation"][metric]["value"] or 0.0)
    other = Predicted.of(baselines[best].test_NQ, ours.labels_N, baselines[best].predicted_N, fitted.positive)
    models = {fitted.config.title: ours, BASELINES.get(best, best): other}
    return compare_models(models)


def task_shares(config: ModelConfig) -> dict[str, float]:
    """How the time of a task is divided: the stages, scoring the test part, fitting tabular models to compare with."""
    questions = 0.2 * (config.questions is not None)
    return {**expected_shares(config), "test": 0.02, "questions of the test part": questions, "compare": 0.05}


def split_parts(
    config: ModelConfig, sequences: Sequences, shares: Split, *, classes: bool = True
) -> tuple[NDArray[np.str_], list[str]]:
    """The part of each sequence, and remarks about those that are not trained on; labels may be no `classes`."""
    parts = split(sequences, shares=shares.shares, by=shares.by, seed=shares.seed, stratify=classes)
    parts, unseen = without_unseen(sequences, parts) if classes else (parts, [])
    quick = [QUICK_REMARK] if config.quick else []
    return parts, [*quick, *unlabelled(sequences), *unseen, *thinned(config, sequences.select(parts == "train"))]


def used_records(
    config: ModelConfig, records: Records, parts: NDArray[np.str_], *, whole_training: bool = False
) -> tuple[Records, NDArray[np.str_]]:
    """The sequences that the model is trained and scored on, with their parts.

    With `whole_training`, all labelled sequences of the training part, also where the model's training is balanced.
    """
    numbers = []
    for part in PARTS:
        members = np.flatnonzero(parts == part)
        settings = config.model_copy(update={"balance": "none"}) if whole_training and part == "train" else config
        most = {"train": QUICK_SEQUENCES, "validation": QUICK_SEQUENCES // 4, "test": None}[part]
        own = records.sequences.select(members)
        numbers.append(members[chosen(own, settings, evaluated=part != "train", most=most)])
    used = np.concatenate(numbers)
    return records.select(used), parts[used]


def compare_with_tabular(
    model: TEFM, records: Records, parts: NDArray[np.str_]
) -> tuple[dict[str, Compared], list[str]]:
    """LightGBM and logistic regression with the same labels, and a remark if they are fitted on a sample.

    They learn from all labelled training sequences, as a user would fit them, and as the codes do; `balance` applies to
    validation and test as for our model, and so do calibration and decision. Nothing when LightGBM is not installed.
    """
    from importlib.util import find_spec

    from tefm.tabular.baselines import fit_baselines, fit_numbers, stratified_sample

    if find_spec("lightgbm") is None:
        log.warning("no comparison with LightGBM: pip install 'tefm[doctor]'")
        return {}, []
    preparation, fitted = model.preparation, model.fitted
    records, parts = used_records(preparation.config, records, parts, whole_training=True)
    remarks, training = [], np.flatnonzero(parts == "train")
    if len(training) > MOST_COMPARED:
        count = f"{MOST_COMPARED:,} of {len(training):,} training sequences"
        remarks.append(f"LightGBM and logistic regression learn from {count}, drawn at random")
        log.warning(remarks[0])
        labels = np.asarray(records.sequences.labels)[training].astype(str)
        drawn = training[stratified_sample(labels, MOST_COMPARED, preparation.config.seed)]
        used = np.concatenate([drawn, np.flatnonzero(parts != "train")])
        records, parts = records.select(used), parts[used]
    data, kinds = baseline_data(preparation, records, parts), feature_kinds(preparation.config, records.sequences)
    if fitted.buckets is not None:
        with stage("compare", "fitting LightGBM's quantile regression on the same sequences, for comparison"):
            compared = fit_numbers(data, fitted.buckets, kinds=kinds, seed=preparation.config.seed)
        if (followed := records.select(parts == "test").followed) is not None:
            for of in compared.values():
                assert of.numbers is not None, "they predict numbers"
                of.figures["test_calibrated"] |= {"concordance": concordance(of.numbers.mean_S, followed).to_dict()}
        return compared, remarks
    with stage("compare", "fitting LightGBM and logistic regression on the same sequences, for comparison"):
        baselines = fit_baselines(
            data,
            kinds=kinds,
            positive=fitted.positive,
            decision=fitted.decision,
            shares=fitted.shares,
            seed=preparation.config.seed,
        )
    return baselines, remarks


def baseline_data(preparation: Preparation, records: Records, parts: NDArray[np.str_]) -> BaselineData:
    """What tabular models are given: the slots, raw values and texts of the sequences, with labels and parts."""
    from tefm.tables.vectorise import raw_values
    from tefm.tabular.baselines import BaselineData

    slots = preparation.slots(records)
    train_N = np.repeat(parts == "train", slots.lengths)
    vectoriser, own_rows = preparation.vectoriser, records.frame[records.sequences.rows]
    return BaselineData(
        slots.x_ND,
        vectoriser.layout,
        slots.with_values(np.arange(len(slots.values))),
        np.asarray(slots.labels),
        parts,
        raw=raw_values(own_rows, vectoriser, slots.x_ND, train_N),
        notes=record_texts(slots),
        numbers=None if records.cuts is None else records.numbers_S,
    )


def count_tokens(model: TEFM, records: Records, *, codes: Sequences | None = None) -> list[TokenCount]:
    """How many tokens the model reads per sequence, and how many the same records take as text.

    `codes` are those of the sequences, where they are known.
    """
    fitted, preparation = model.fitted, model.preparation
    counted = np.arange(min(COUNTED, len(records)))
    some = records.select(counted)
    few, schema = some.sequences, preparation.schema
    texts: dict[str, list[str]] = {name: serialise(records.frame, schema, few, name) for name in FORMATS}
    few_codes = fitted.codes(preparation.slots(some)) if codes is None else codes.select(counted)
    lengths = np.array([len(prompt) for prompt in fitted.classifier.prompts(few_codes)])
    form = "codes"
    if few_codes.texts is not None:  # every form has the text that the prompt has
        write = fitted.classifier.writer.shortener
        notes = ["\n".join(filter(None, write(*of))) for of in zip(few_codes.texts, few.lengths, strict=True)]
        texts = {name: [f"{text}\n{note}" for text, note in zip(of, notes, strict=True)] for name, of in texts.items()}
        form = "codes and text"
    tokenizer = fitted.classifier.backbone.tokenizer
    forms = count_forms(texts, fitted.config.backbone, tokenizer, {f"{form}, with the question": lengths})
    if form == "codes and text":
        forms = [replace(of, format=f"{of.format} and text") if of.format in texts else of for of in forms]
    return forms
