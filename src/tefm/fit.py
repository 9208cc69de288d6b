"""A task from table to bundle: split, fit, score the test part once, compare with LightGBM, save."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.files import check_replaceable
from tefm.base.progress import job, log, stage
from tefm.bundle import is_saved
from tefm.language.distributed import is_first
from tefm.language.token_counts import TokenCount, count_forms
from tefm.model import TEFM
from tefm.pipeline import expected_shares
from tefm.prepare import chosen, sequences_of
from tefm.records.readers.table import open_table
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.records.serialise import FORMATS, serialise
from tefm.records.splitting import PARTS, split
from tefm.records.vectorise import Vectoriser, needed_columns
from tefm.task import ModelConfig, Outcome, Split, Task

#: With fewer test sequences of a class than this, what the figures say about it is chance.
FEW = 20
#: A share of test sequences that repeat training sequences is worth a word from here on.
REPEATED = 0.1
#: Sequences whose texts are counted: counting a long text takes longer than predicting from its codes.
COUNTED = 200


def fit_task(task: Task, folder: Path, *, device: str | None = None, compare: bool = True) -> tuple[TEFM, Outcome]:
    """Fit a task and save its bundle; an interrupted run resumes when it is called again."""
    check_replaceable(folder, is_saved)
    opened = open_table(task.table, query=task.query)
    model = TEFM(task.schema_for(opened), device=device, **dict(task.model))
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    outcome = fit_frame(model, opened.frame(), task.split, checkpoint=checkpoint, compare=compare, file=opened.name)
    model.source_ = {"table": str(Path(task.table).absolute()), "query": task.query, "split": task.split.model_dump()}
    model.save(folder)
    if is_first():
        shutil.rmtree(checkpoint, ignore_errors=True)
    return model, outcome


def fit_frame(
    model: TEFM,
    frame: pl.DataFrame,
    shares: Split,
    *,
    checkpoint: Path | None = None,
    compare: bool = True,
    file: str | None = None,
) -> Outcome:
    """Fit a model on the training part of a table, and score it on the test part, once."""
    schema, config = model.schema, model.config
    assert schema is not None, "the schema is known"
    sequences = sequences_of(frame, schema, config, file=file)
    parts, remarks = split_parts(config, sequences, shares)
    for remark in remarks:
        log.warning(remark)  # now, and not only after hours of training
    rows = {part: np.sort(sequences.select(parts == part).rows) for part in PARTS}
    tables = {part: open_table(frame[rows[part]], name=file) for part in PARTS}
    with job(task_shares(config)):
        model.fit(tables["train"], validation=tables["validation"], checkpoint=checkpoint)
        with stage("test", "scoring the test part"):
            test = model.evaluate(tables["test"])
        model.figures_["test"] = test.to_dict()
        used, part_of_used = used_sequences(config, sequences, parts)
        baselines = compare_with_tabular(model, frame, used, part_of_used) if compare else {}
    tested = used.select(part_of_used == "test")
    remarks += [*repeated(frame, schema, used, part_of_used), *rare(model.fitted.classes, tested)]
    return Outcome(
        config.inputs,
        model.fitted.classes,
        {part: int((part_of_used == part).sum()) for part in PARTS},
        test,
        baselines,
        tuple(count_tokens(model, frame, tested)),
        tuple(remarks),
        model.fitted.alignment,
    )


def task_shares(config: ModelConfig) -> dict[str, float]:
    """How the time of a task is divided: the stages, scoring the test part, fitting tabular models to compare with."""
    return {**expected_shares(config), "test": 0.02, "compare": 0.05}


def split_parts(config: ModelConfig, sequences: Sequences, shares: Split) -> tuple[NDArray[np.str_], list[str]]:
    """The part of each sequence, and remarks about those that are not trained on."""
    parts = split(sequences, shares=shares.shares, by=shares.by, seed=shares.seed)
    parts, unseen = without_unseen(sequences, parts)
    return parts, [*unlabelled(sequences), *unseen, *thinned(config, sequences.select(parts == "train"))]


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
    return [f"balance keeps as many of each class as the rarest has ({name}, {count}): {left} are used"]


def repeated(frame: pl.DataFrame, schema: Schema, sequences: Sequences, parts: NDArray[np.str_]) -> list[str]:
    """A remark about test sequences that equal a training sequence in all fields."""
    columns = frame.select(needed_columns(open_table(frame), schema))
    row_hashes = columns.hash_rows(seed=0).to_numpy()[sequences.rows]
    hashes = np.array([hash(rows.tobytes()) for rows in np.split(row_hashes, sequences.starts[1:-1])])
    test_hashes = hashes[parts == "test"]
    count = int(np.isin(test_hashes, hashes[parts == "train"]).sum())
    if count < REPEATED * max(1, len(test_hashes)):
        return []
    same = f"{count:,} of {len(test_hashes):,} test sequences are equal to a training sequence in all fields"
    return [f"{same}: the figures say less about new sequences"]


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


def rare(classes: Sequence[str], tested: Sequences) -> list[str]:
    """A remark about the classes that are too rare in the test part."""
    counts = {name: int((np.asarray(tested.labels) == name).sum()) for name in classes}
    few = [f"{name} ({count})" for name, count in counts.items() if count < FEW]
    return [f"too few test sequences to say anything about: {', '.join(few)}"] if few else []


def used_sequences(
    config: ModelConfig, sequences: Sequences, parts: NDArray[np.str_]
) -> tuple[Sequences, NDArray[np.str_]]:
    """The sequences that the model is trained and scored on, with their parts."""
    numbers = []
    for part in PARTS:
        members = np.flatnonzero(parts == part)
        numbers.append(members[chosen(sequences.select(members), config, test=part == "test")])
    used = np.concatenate(numbers)
    return sequences.select(used), parts[used]


def compare_with_tabular(
    model: TEFM, frame: pl.DataFrame, sequences: Sequences, parts: NDArray[np.str_]
) -> dict[str, dict[str, Any]]:
    """LightGBM and logistic regression on the slots of the same sequences; nothing when LightGBM is not installed."""
    from importlib.util import find_spec

    from tefm.baselines.compare import BaselineData, evaluate_baselines

    if find_spec("lightgbm") is None:
        log.warning("no comparison with LightGBM: pip install 'tefm[doctor]'")
        return {}
    preparation = model.preparation
    vectoriser = preparation.vectoriser or Vectoriser.fit(
        frame[np.sort(sequences.select(parts == "train").rows)], preparation.schema
    )
    with stage("compare", "fitting LightGBM and logistic regression on the same sequences, for comparison"):
        records = open_table(frame[sequences.rows], name=sequences.file)
        data = BaselineData(
            vectoriser.transform(records),
            vectoriser.layout,
            sequences.with_values(np.arange(len(sequences.rows))),
            np.asarray(sequences.labels),
            parts,
        )
        return evaluate_baselines(
            data,
            kinds=("last", "flat") if preparation.config.window else ("last", "history"),
            positive=model.fitted.positive,
            seed=preparation.config.seed,
        )


def count_tokens(
    model: TEFM,
    frame: pl.DataFrame,
    sequences: Sequences,
    families: Mapping[str, Any] | None = None,
    *,
    read: Sequences | None = None,
) -> list[TokenCount]:
    """How many tokens the model reads per sequence, and how many the same records take as text.

    `read` is what the language model reads for these sequences, where that is known already.
    """
    fitted, preparation = model.fitted, model.preparation
    counted = np.arange(min(COUNTED, len(sequences)))
    few = sequences.select(counted)
    texts: dict[str, list[str]] = {name: serialise(frame, preparation.schema, few, name) for name in FORMATS}
    few_read = fitted.read(preparation.slots(frame, few)) if read is None else read.select(counted)
    lengths = np.array([len(prompt) for prompt in fitted.classifier.prompts(few_read)])
    form = "codes" if fitted.coder is not None else "compact"
    own = {fitted.config.backbone: fitted.classifier.backbone.tokenizer}
    return count_forms(texts, own, lengths={f"{form}, with the question": lengths}) + count_forms(
        texts, dict(families or {})
    )
