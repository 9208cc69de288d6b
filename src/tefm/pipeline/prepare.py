"""Tables become the arrays that `fit.py` takes: `Preparation` is learned once and saved with the model.

Shapes: N records, D slots, S sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.base.progress import note
from tefm.codes.tokenizer import RecordTokenizer
from tefm.language.prompts import NO_YES, escaped, question_prompt
from tefm.language.shortening import about_long
from tefm.pipeline.config import QUICK_SEQUENCES, ModelConfig
from tefm.pipeline.data import Given, Part, TaskData, shares_of
from tefm.pipeline.telling import with_repeats
from tefm.questions.question_data import Asking, Histories, question_data
from tefm.scoring.numbers import Cuts
from tefm.scoring.survival import Survival
from tefm.tables.chunks import whole_sequences
from tefm.tables.columns import completed
from tefm.tables.grouping import buckets_of
from tefm.tables.infer import MANY_NUMBERS
from tefm.tables.phrases import phrases_of
from tefm.tables.readers.table import Table, open_table
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences, balance, check_label, class_numbers, split
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import as_numbers

#: The share of sequences that is held out for validation where no table is given for it.
VALIDATION_SHARE = 0.1


@dataclass(frozen=True)
class Preparation:
    """How a model sees tables: which rows make a sequence, and what each record becomes."""

    schema: Schema
    config: ModelConfig
    vectoriser: Vectoriser
    #: where the label is a number: the classes that it becomes
    cuts: Cuts | None = None

    # ---- sequences --------------------------------------------------------------------------------------------

    @property
    def entity(self) -> str | None:
        """The column that names the entity of each sequence; windows have none."""
        return None if self.config.window else self.schema.entity

    def records(self, frame: pl.DataFrame, **how: Any) -> Records:
        """A table with its sequences; `how` they are grouped is as in `Records.of_frame`."""
        return records_of(frame, self.schema, self.config, **how).cut(self.cuts)

    def readable(self, table: Any, *, labelled: bool = False, absent: bool = False) -> Table:
        """The open table; an error lists all columns that it lacks, the label among them where it is needed.

        With `absent`, missing columns of fields and texts count as absent; the entity and the time are always needed.
        """
        schema, vectoriser = self.schema, self.vectoriser
        roles = (self.entity, schema.time, *((schema.label, schema.observed) if labelled else ()))
        return completed(
            open_table(table, meds=schema.meds),
            vectoriser.table_schema,
            roles=[name for name in roles if name is not None],
            texts=schema.text,
            absent=absent,
        )

    def to_predict(self, table: Any, *, absent: bool = False, labelled: bool = False) -> Records:
        """A table with its sequences; labels are not needed, and with `labelled` read where the table has them."""
        opened = self.readable(table, absent=absent)
        frame = opened.frame()
        if not frame.height:
            raise InputError("the table has no rows", file=opened.name, remedy="give a table with records")
        labelled = labelled and self.schema.label in opened.columns
        return self.records(frame, labelled=labelled, whole=False, file=opened.name)

    def batches(
        self, table: Any, *, absent: bool = False, each_record: bool = False
    ) -> Iterator[tuple[Records, Sequences]]:
        """A table part by part: its rows with their sequences, and the sequences as slots.

        With `each_record`, a sequence comes as it was after its first record, after its second, and so on.
        """
        if each_record and self.entity is None:
            raise InputError(
                f"predictions after each record need the records of an entity; this model reads {self.one_sequence}",
                remedy="predict without --each-record",
            )
        opened, empty = self.readable(table, absent=absent), True
        for frame in whole_sequences(opened, self.schema, window=self.config.window):
            empty = False
            records = self.records(frame, labelled=False, whole=False, file=opened.name)
            for part in records.after_each() if each_record else (records,):
                yield part, self.slots(part)
        if empty:
            raise InputError("the table has no rows", file=opened.name, remedy="give a table with records")

    def to_evaluate(self, table: Any, *, absent: bool = False) -> tuple[Records, int]:
        """A table with its labelled sequences, and how many have no label."""
        opened = self.readable(table, labelled=True, absent=absent)
        records = self.records(opened.frame(), file=opened.name)
        labelled = records.select(chosen(records.sequences, self.config, evaluated=True))
        if not len(labelled):
            raise InputError(
                "no sequence of this table has a label",
                file=records.file,
                column=self.schema.label,
                remedy="fill it in, or predict without it",
            )
        return labelled, int((~records.sequences.labelled).sum())

    def unknown(self, records: Records, classes: Sequence[str]) -> tuple[str, ...]:
        """The labels of sequences that are none of these classes; where all of them are, that is an error."""
        labels = np.asarray(records.sequences.labels)
        unknown = tuple(sorted({str(label) for label in labels if label not in classes}))
        if unknown and not np.isin(labels, classes).any():
            raise InputError(
                "the model knows none of the classes in this table",
                file=records.file,
                column=self.schema.label,
                value=unknown[0],
                remedy=f"the model knows {', '.join(classes)}: check the column, or fit on all classes",
            )
        return unknown

    # ---- what a model reads -----------------------------------------------------------------------------------

    def slots(self, records: Records) -> Sequences:
        """The sequences with the slots of their records and the texts of their prompts."""
        return records.as_slots(self.vectoriser)

    def slots_about(self, name: str, *, texts: bool = True) -> tuple[int, ...]:
        """The slots that a field is read into; of a column of text, the one that follows those of the layout."""
        layout, text = self.vectoriser.layout, self.schema.text if texts else ()
        if name in text:
            # without budgets, all columns are one text
            return (layout.width + (text.index(name) if self.schema.text_budgets else 0),)
        fields = self.vectoriser.table_schema.fields_of(name)
        if not fields:
            remedy = did_you_mean(name, (*layout.fields, *text))
            raise SettingsError("`explanations` names a field that the model does not read", value=name, remedy=remedy)
        return tuple(slot for field in fields for slot in layout.of_field(field).tolist())

    # ---- in words ---------------------------------------------------------------------------------------------

    @property
    def sequence_noun(self) -> str:
        """What a sequence is called."""
        return "segment" if self.config.window else self.schema.entity or self.schema.record

    @property
    def one_sequence(self) -> str:
        """What a sequence is made of."""
        schema, window = self.schema, self.config.window
        if window:
            return f"{window} consecutive {schema.record}s"
        return f"the {schema.record}s of one {schema.entity}" if schema.entity else f"one {schema.record}"

    @property
    def title(self) -> str:
        """What is predicted from what."""
        what = self.schema.label or "questions"
        if self.cuts is not None and len(self.cuts.names) == 2:  # a number read as one of two classes
            what = f"{what} {self.cuts.names[1]}"
        return f"{what} from {self.one_sequence}"


def records_of(frame: pl.DataFrame, schema: Schema, config: ModelConfig, **how: Any) -> Records:
    """A table with its sequences: windows, or the records of each entity; `how` is as in `Records.of_frame`."""
    if schema.number is not None and (config.balance != "none" or config.background is not None):
        setting = "balance" if config.balance != "none" else "background"
        remedy = f"leave it out, or predict classes: `label: {{column: {schema.label}, kind: category}}`"
        raise SettingsError(f"`{setting}` needs classes, but the label {schema.label!r} is a number", remedy=remedy)
    return Records.of_frame(frame, schema, window=config.window, background=config.background, **how)


def chosen(
    sequences: Sequences, config: ModelConfig, *, evaluated: bool = False, most: int | None = None
) -> NDArray[np.int64]:
    """Which sequences of a part are used to train or to evaluate: the labelled ones, balanced as the config says.

    `quick` takes a sample of at most `most`.
    """
    used = np.flatnonzero(sequences.labelled)
    if config.balance == "all" or (config.balance == "train" and not evaluated):
        used = used[balance(sequences.select(used), seed=config.seed)]
    if config.quick and most is not None and len(used) > most:
        used = np.sort(np.random.default_rng(config.seed).permutation(used)[:most])
    return used


def label_numbers(sequences: Sequences, classes: Sequence[str]) -> NDArray[np.int64]:
    """The class number of each sequence; −1 without a label, or with one that the model does not know."""
    number = {name: number for number, name in enumerate(classes)}
    if sequences.labels is None:
        return np.full(len(sequences), -1, dtype=np.int64)
    return np.array([number.get(label, -1) for label in sequences.labels], dtype=np.int64)


# ---- from a table to the data of a fit ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A table that is ready to be fitted."""

    given: Given
    preparation: Preparation
    training: Records
    held_out: Records


def prepare(
    training: Records,
    config: ModelConfig,
    *,
    validation: Records | None = None,
    tokenizer: RecordTokenizer | None = None,
) -> Prepared:
    """Vectorise a table, once, and choose what is learned of it: labelled sequences, answers to questions in words.

    Without a validation table, a tenth of the sequences is held out. `tokenizer` is one that was learned before.
    Without a label, the first question takes its place.
    """
    schema = training.schema
    if schema.label is None and config.questions is None:
        raise InputError(
            "there is no label to learn: TEFM requires y to be passed, but the target y is None",
            file=training.file,
            remedy="name its column in the schema, `label: COLUMN`, or give y; or ask questions, about every field "
            "with `questions=[{'next': '*'}]`",
        )
    if schema.label is None:  # the codes have no label to learn from
        config = config.model_copy(update={"task_aware": False})
    if validation is None:
        parts = split(
            training.sequences,
            shares=(1 - VALIDATION_SHARE, VALIDATION_SHARE, 0.0),
            seed=config.seed,
            stratify=schema.number is None,
        )
        learned, held_out = (training.part(parts == part) for part in ("train", "validation"))
    else:  # without rows that are in no sequence
        learned, held_out = (records.part(np.arange(len(records))) for records in (training, validation))
    buckets = None
    if schema.number is not None:
        values_S, survival = learned.numbers_S, None
        if (followed := learned.followed) is not None:
            survival = Survival.of(followed)
            values_S = survival.completed(followed)
        buckets = buckets_of(values_S[~np.isnan(values_S)], schema, training.file)
        buckets = buckets.model_copy(update={"survival": survival})
        learned, held_out = learned.cut(buckets), held_out.cut(buckets)
    elif schema.label is not None:
        _say_if_number(learned)
    if schema.label is not None:
        check_label(learned.sequences.labels, column=schema.label, file=training.file)
    if tokenizer is None:
        vectoriser = learned.vectoriser(seed=config.tokenizer_config.seed)
        extended = with_repeats(learned, vectoriser, config)
        if extended != schema:
            learned, held_out = learned.with_schema(extended), held_out.with_schema(extended)
            vectoriser = learned.vectoriser(seed=config.tokenizer_config.seed)
    else:
        vectoriser = tokenizer.vectoriser
        refuse_label_in_codes(vectoriser.table_schema, schema, file=training.file)
    data_of = _questions_alone if schema.label is None else _labelled
    preparation, data = data_of(learned, held_out, config, vectoriser)
    if buckets is not None:
        preparation, data = replace(preparation, cuts=buckets), replace(data, buckets=buckets)
    if (settings := config.explanations_config) is not None:  # unknown names are refused before anything is learned
        for name in settings.without:
            preparation.slots_about(name)
        for name in settings.sensitive:
            preparation.slots_about(name, texts=False)
    _say_what_is_learned(data)
    levels = config.tokenizer_config.levels if tokenizer is None else tokenizer.coder.config.levels
    if remark := about_long(data.training.sequences.lengths, levels, data.prompt.code_tokens):
        note(remark)
    given = Given(data, config, None if tokenizer is None else tokenizer.coder)
    return Prepared(given, preparation, learned, held_out)


def _say_if_number(training: Records) -> None:
    """Say that the values of a number are taken as classes, where the schema does not ask for a number."""
    given = training.sequences.labels
    labels = pl.Series([] if given is None else list(given), dtype=pl.String).drop_nulls()
    if (count := labels.n_unique()) > MANY_NUMBERS and as_numbers(labels).null_count() == 0:
        label = f"`label: {{column: {training.schema.label}, kind: number}}`"
        note(f"the label is a number with {count:,} different values, treated as classes; {label} predicts a number")


def _say_what_is_learned(data: TaskData) -> None:
    if data.labelled:
        counts = np.bincount(data.training.labels_S, minlength=len(data.classes))
        by_class = ", ".join(f"{count:,} {name}" for name, count in zip(data.classes, counts, strict=True))
        if data.buckets is not None:
            by_class = f"a number, in {len(data.classes)} buckets: {', '.join(data.classes)}"
        trained, validated = len(data.training.sequences), len(data.validation.sequences)
        note(f"{trained:,} sequences to train on ({by_class}), {validated:,} to validate on")
    if (asked := data.questions) is not None:
        note(
            f"{len(asked.trained):,} questions to train on, {int(asked.held_out_Q.sum()):,} held out, about "
            f"{len(asked.training):,} histories ({len(asked.validation):,} to validate on)"
        )


def _labelled(
    records: Records, held_out: Records, config: ModelConfig, vectoriser: Vectoriser
) -> tuple[Preparation, TaskData]:
    """The data of a fit on a label."""
    everything, schema = records.sequences, records.schema
    classes, natural_S = class_numbers(np.asarray(everything.labels)[everything.labelled])
    used = chosen(everything, config, most=QUICK_SEQUENCES)
    labels_S = label_numbers(everything.select(used), classes)
    validated = held_out.select(chosen(held_out.sequences, config, evaluated=True, most=QUICK_SEQUENCES // 4))
    validated = validated.select(np.isin(np.asarray(validated.sequences.labels), classes))  # others cannot be predicted
    # counted before balancing, where a tie would be decided by the order of the names
    positive = config.positive_number(classes, np.bincount(natural_S, minlength=len(classes)).tolist())
    prompt = config.prompt_for(classes, positive, schema)
    preparation = Preparation(schema, config, vectoriser)
    learned = _part(preparation, records.select(used), labels_S)
    if not config.quick:
        learned = _with_others(learned, preparation, records, used, classes)
    return preparation, TaskData(
        learned,
        _part(preparation, validated, label_numbers(validated.sequences, classes)),
        classes,
        positive,
        prompt,
        vectoriser.layout,
        phrases_of(vectoriser),
        shares=shares_of(labels_S if config.balance == "all" else natural_S, len(classes)),
        # probabilities are calibrated on the population, while early stopping is balanced like the training
        stopping=chosen(validated.sequences, config) if config.balance == "train" else None,
        questions=None if config.questions is None else question_data(asking_of(preparation), records, held_out),
    )


def _questions_alone(
    records: Records, held_out: Records, config: ModelConfig, vectoriser: Vectoriser
) -> tuple[Preparation, TaskData]:
    """The data of a fit without a label: the first trained question is what the model answers by default."""
    prompt = config.prompt_for(NO_YES, 1, records.schema)
    preparation = Preparation(records.schema, config, vectoriser)
    asked = question_data(asking_of(preparation), records, held_out)
    first = int(asked.trained[0])
    default = {"message": f"{{records}} {escaped(asked.questions[first].text)}"}
    training = _answering(preparation, records, asked.training, first)
    return preparation, TaskData(
        training,
        _answering(preparation, held_out, asked.validation, first),
        NO_YES,
        1,
        question_prompt(prompt).model_copy(update=default),
        vectoriser.layout,
        phrases_of(vectoriser),
        shares=shares_of(training.labels_S, 2),
        questions=asked,
        labelled=False,
    )


def _answering(preparation: Preparation, records: Records, histories: Histories, question: int) -> Part:
    """The records of a part, with the histories that answer a question in place of labelled sequences."""
    known = np.flatnonzero(histories.answers_HQ[:, question] >= 0)
    labels_S = histories.answers_HQ[known, question].astype(np.int64)
    return _part(preparation, records.with_sequences(histories.histories.select(known)), labels_S)


def asking_of(preparation: Preparation) -> Asking:
    """What is asked of a table."""
    settings = preparation.config.questions_config
    assert settings is not None, "questions need settings"
    return Asking(settings, preparation.vectoriser, preparation.config.seed)


def _part(preparation: Preparation, records: Records, labels_S: NDArray[np.int64]) -> Part:
    """All rows of a table as slots, and the sequences that are learned from or validated on."""
    return Part(
        records.with_texts(),
        labels_S,
        records.slots(preparation.vectoriser),
        numbers_S=None if records.cuts is None else records.numbers_S,
        record_labels_N=records.labels_N,
        groups_N=records.entities_N,
    )


def _with_others(
    part: Part, preparation: Preparation, records: Records, used: NDArray[np.int64], classes: Sequence[str]
) -> Part:
    """The part with the sequences that are not used: they have no label, or are left out for the balance."""
    others = records.select(np.setdiff1d(np.arange(len(records)), used))
    labels_S = label_numbers(others.sequences, classes)
    return replace(part, others=others.with_texts(), other_labels_S=labels_S)


def refuse_label_in_codes(tokenized: Schema, schema: Schema, *, file: str | None = None) -> None:
    """Refuse codes that hold the label: they would give the answer away."""
    field = None if schema.label is None else tokenized.field_reading(schema.label)
    if field is not None:
        raise InputError(
            f"the tokenizer encodes the label as its field {field.name!r}: the codes would give the answer away",
            file=file,
            column=schema.label,
            remedy="fit a tokenizer without this field (its schema needs `label:` or `ignore:` for the column), "
            "or leave `tokenizer` out",
        )
