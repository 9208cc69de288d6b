"""What a reader of the figures of a fit has to know: remarks about its sequences and texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.model.estimator import TEFM
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.prepare import Preparation
from tefm.scoring.metrics import Verdict
from tefm.tables.columns import needed_columns
from tefm.tables.grouping import numbers_of_label
from tefm.tables.leakage import check_leakage
from tefm.tables.overview import ambiguities
from tefm.tables.readers.source import selected
from tefm.tables.records import Records
from tefm.tables.sequences import Sequences
from tefm.tables.words import text_of

#: With fewer test sequences of a class than this, what the figures say about it is chance.
FEW = 20
#: A share of test sequences that repeat training sequences is worth a word from here on.
REPEATED = 0.1
#: Training records that are searched for fields that give the label away, and such fields that get a remark each.
LOOKED_AT, NAMED = 20_000, 3


def open_questions(records: Records) -> list[str]:
    """Remarks about the spelling of labels, and about entities with ties or different labels (windows have none)."""
    schema = records.schema if records.window is None else records.schema.model_copy(update={"entity": None})
    return ambiguities(records.frame, schema, background=records.background, file=records.file)


def unlabelled(sequences: Sequences) -> list[str]:
    """A remark about the sequences without a label."""
    count = int((~sequences.labelled).sum())
    remark = f"{count:,} of {len(sequences):,} sequences have no label: they are neither trained on nor scored"
    return [remark] if count else []


def thinned(config: ModelConfig, training: Sequences) -> list[str]:
    """A remark about a balance that leaves next to nothing of a class, because another one is rare."""
    if config.balance == "none":
        return []
    names, counts = np.unique(np.asarray(training.labels)[training.labelled].astype(str), return_counts=True)
    if not len(counts) or counts.min() >= FEW:
        return []
    name, count = names[counts.argmin()], counts.min()
    left = f"{count * len(counts):,} of {counts.sum():,} training sequences"
    return [f"`balance` samples every class down to the rarest ({name}, {count}): {left} are used"]


def repeated(records: Records, parts: NDArray[np.str_]) -> list[str]:
    """A remark about test sequences that equal a training sequence in all fields."""
    frame, sequences = records.frame, records.sequences
    columns = selected(frame, needed_columns(frame.columns, records.schema))
    row_hashes = columns.hash_rows(seed=0).to_numpy()[sequences.rows]
    hashes = np.array([hash(rows.tobytes()) for rows in np.split(row_hashes, sequences.starts[1:-1])])
    test_hashes = hashes[parts == "test"]
    count = int(np.isin(test_hashes, hashes[parts == "train"]).sum())
    if count < REPEATED * max(1, len(test_hashes)):
        return []
    same = f"{count:,} of {len(test_hashes):,} test sequences are equal to a training sequence in all fields"
    return [f"{same}: expect lower scores on new sequences"]


def without_unseen(sequences: Sequences, parts: NDArray[np.str_]) -> tuple[NDArray[np.str_], list[str]]:
    """Parts without the sequences whose class is not in the training part, and a remark about them."""
    labels = sequences.labels if sequences.labels is not None else np.full(len(sequences), None)
    known = {None, *labels[parts == "train"]}
    unseen = np.array([label not in known for label in labels])
    if not unseen.any():
        return parts, []
    names = ", ".join(sorted(set(labels[unseen])))
    remark = f"{unseen.sum():,} sequences are not scored: no training sequence has their class ({names})"
    return np.where(unseen, "", parts), [remark]


def cut_texts(model: TEFM, training: Records) -> list[str]:
    """Remarks about texts that are too long for the prompt."""
    fitted = model.fitted
    texts = training.with_texts().texts
    if texts is None:
        return []
    return fitted.classifier.writer.shortener.remarks(texts, training.sequences.lengths.tolist())


def given_away(training: pl.DataFrame, preparation: Preparation) -> list[str]:
    """Remarks about fields that may be known only after the outcome, from a sample of the training records."""
    schema, vectoriser = preparation.schema, preparation.vectoriser
    if schema.label is None:
        return []
    records = training[np.random.default_rng(0).permutation(training.height)[:LOOKED_AT]]
    if preparation.cuts is not None:
        labels_N = preparation.cuts.names_of(numbers_of_label(records, schema))
    else:
        labels_N = text_of(records[schema.label], schema.missing_words).to_numpy()
    leaks = check_leakage(vectoriser.transform(records), vectoriser.layout, labels_N)
    remarks = []
    for leak in leaks[:NAMED]:
        field = schema.field(leak.field)
        how = "of the schema" if field.side else f"with `ignore: [{', '.join(field.source)}]` in the task file"
        if field.clock or field.repeats:
            how = f"with `{'time' if field.clock else 'repeat'}_fields: none` in the schema"
        remarks.append(f"field {leak.field!r} {leak.reason}: if it is known only after the outcome, leave it out {how}")
    if more := leaks[NAMED:]:
        remarks.append(f"so do {len(more)} more fields: {', '.join(leak.field for leak in more)}")
    return remarks


def behind(verdict: Verdict | None, config: ModelConfig) -> list[str]:
    """What may help where a tabular model is better."""
    if verdict is None or verdict.better in (None, config.title) or config.reads != "codes":
        return []
    trees = "boosted trees on the fields answer too, weighted on validation"
    return [f"with `beside: trees` in the task file, {trees}: try it where a tabular model is better"]


def rare(classes: Sequence[str], tested: Sequences) -> list[str]:
    """A remark about the classes that are too rare in the test part."""
    counts = {name: int((np.asarray(tested.labels) == name).sum()) for name in classes}
    few = [f"{name} ({count})" for name, count in counts.items() if count < FEW]
    return [f"too few test sequences for reliable figures: {', '.join(few)}"] if few else []
