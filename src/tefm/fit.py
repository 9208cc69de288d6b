"""A task from table to bundle: split, fit, judge on the test part once, save; beside what users do today."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.files import check_replaceable
from tefm.base.progress import note
from tefm.bundle import is_saved
from tefm.language.distributed import is_first
from tefm.language.token_counts import Account, account
from tefm.model import TEFM, Evaluation
from tefm.records.readers.table import open_table
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.records.serialise import FORMATS, serialise
from tefm.records.splitting import PARTS, split
from tefm.records.vectorise import Vectoriser, needed_columns
from tefm.task import Split, Task

#: With fewer test sequences of a class than this, what the figures say about it is chance.
FEW = 20
#: A share of test sequences that repeat training sequences is worth a word from here on.
REPEATED = 0.1
#: Sequences whose texts are counted: counting a long text takes longer than predicting from its codes.
COUNTED = 200


@dataclass(frozen=True)
class Outcome:
    """What came of a task."""

    model: TEFM
    sequences: dict[str, int]
    test: Evaluation
    #: figures of tabular models on the same sequences; empty when LightGBM is not installed
    baselines: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: list[Account] = field(default_factory=list)
    #: what a reader of the figures has to know
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "classes": list(self.model.classes_),
            "sequences": self.sequences,
            "test": self.test.to_dict(),
            "baselines": {name: found["test_calibrated"] for name, found in self.baselines.items()},
            "tokens": [vars(found) for found in self.tokens],
            "remarks": list(self.remarks),
        }


def fit_task(task: Task, folder: Path, *, device: str | None = None, compare: bool = True) -> Outcome:
    """Fit a task and save its bundle; a run that was killed goes on when it is called again."""
    check_replaceable(folder, is_saved)
    opened = open_table(task.table, query=task.query)
    model = TEFM(task.schema_for(opened), device=device, **dict(task.model))
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    outcome = fit_frame(model, opened.frame(), task.split, checkpoint=checkpoint, compare=compare, file=opened.name)
    model.source_ = {"table": str(Path(task.table).absolute()), "query": task.query, "split": task.split.model_dump()}
    model.save(folder)
    if is_first():
        shutil.rmtree(checkpoint, ignore_errors=True)
    return outcome


def fit_frame(
    model: TEFM,
    frame: pl.DataFrame,
    shares: Split,
    *,
    checkpoint: Path | None = None,
    compare: bool = True,
    file: str | None = None,
) -> Outcome:
    """Fit a model on the training part of a table, and judge it on the test part, once."""
    assert model.schema is not None, "the schema is known"
    sequences = model.sequences(frame, model.schema, file=file)
    parts, told = parted(model, sequences, shares)
    for remark in told:
        note(f"! {remark}")  # now, and not only after the hours of training
    rows = {part: np.sort(sequences.select(parts == part).rows) for part in PARTS}
    tables = {part: open_table(frame[rows[part]], name=file) for part in PARTS}
    model.fit(tables["train"], validation=tables["validation"], checkpoint=checkpoint)
    test = model.evaluate(tables["test"])
    model.figures_["test"] = test.to_dict()
    judged, of_judged = judged_sequences(model, sequences, parts)
    counts: dict[str, int] = {part: int((of_judged == part).sum()) for part in PARTS}
    baselines = compared(model, frame, judged, of_judged) if compare else {}
    tested = judged.select(of_judged == "test")
    remarks = (*told, *repeated(frame, model.schema, judged, of_judged), *rare(model.classes_, tested))
    return Outcome(model, counts, test, baselines, count_tokens(model, frame, tested), remarks)


def parted(model: TEFM, sequences: Sequences, shares: Split) -> tuple[NDArray[np.str_], list[str]]:
    """The part of each sequence, and remarks about those that are not learned from."""
    parts = split(sequences, shares=shares.shares, by=shares.by, seed=shares.seed)
    parts, unseen = without_unseen(sequences, parts)
    return parts, [*unlabelled(sequences), *unseen, *thinned(model, sequences.select(parts == "train"))]


def unlabelled(sequences: Sequences) -> list[str]:
    """A remark about the sequences that cannot be learned from."""
    count = int((~sequences.labelled).sum())
    said = f"{count:,} of {len(sequences):,} sequences have no label: they are neither learned from nor judged"
    return [said] if count else []


def thinned(model: TEFM, training: Sequences) -> list[str]:
    """A remark about a balance that leaves next to nothing of a class, because another one is rare."""
    if model.config.balance == "none":
        return []
    names, counts = np.unique(np.asarray(training.labels)[training.labelled].astype(str), return_counts=True)
    if not len(counts) or counts.min() >= FEW:
        return []
    name, count = names[counts.argmin()], counts.min()
    left = f"{count * len(counts):,} of {counts.sum():,} training sequences"
    return [f"balance keeps as many of each class as the rarest has ({name}, {count}): {left} are learned from"]


def repeated(frame: pl.DataFrame, schema: Schema, sequences: Sequences, parts: NDArray[np.str_]) -> list[str]:
    """A remark about test sequences that say in all fields what a training sequence says."""
    said = frame.select(needed_columns(open_table(frame), schema)).hash_rows(seed=0).to_numpy()[sequences.rows]
    hashes = np.array([hash(one.tobytes()) for one in np.split(said, sequences.starts[1:-1])])
    tested = hashes[parts == "test"]
    count = int(np.isin(tested, hashes[parts == "train"]).sum())
    known = f"{count:,} of {len(tested):,} test sequences are the same in all fields as one that was learned from"
    return [f"{known}: the figures say less about new ones"] if count >= REPEATED * max(1, len(tested)) else []


def without_unseen(sequences: Sequences, parts: NDArray[np.str_]) -> tuple[NDArray[np.str_], list[str]]:
    """Parts without the sequences whose class is not in the training part, and a remark about them."""
    labels = sequences.labels if sequences.labels is not None else np.full(len(sequences), None)
    known = {None, *labels[parts == "train"]}
    unseen = np.array([label not in known for label in labels])
    if not unseen.any():
        return parts, []
    names = ", ".join(sorted(set(labels[unseen])))
    remark = f"{unseen.sum():,} sequences are not judged: no training sequence has their class ({names})"
    return np.where(unseen, "", parts), [remark]


def rare(classes: Sequence[str], tested: Sequences) -> list[str]:
    """A remark about the classes that are too rare to be judged."""
    counts = {name: int((np.asarray(tested.labels) == name).sum()) for name in classes}
    few = [f"{name} ({count})" for name, count in counts.items() if count < FEW]
    return [f"few test sequences, so chance decides about: {', '.join(few)}"] if few else []


def judged_sequences(model: TEFM, sequences: Sequences, parts: NDArray[np.str_]) -> tuple[Sequences, NDArray[np.str_]]:
    """The sequences that the model learns from and is judged on, with their parts."""
    kept = []
    for part in PARTS:
        here = np.flatnonzero(parts == part)
        kept.append(here[model.chosen(sequences.select(here), test=part == "test")])
    chosen = np.concatenate(kept)
    return sequences.select(chosen), parts[chosen]


def compared(
    model: TEFM, frame: pl.DataFrame, sequences: Sequences, parts: NDArray[np.str_]
) -> dict[str, dict[str, Any]]:
    """LightGBM and logistic regression on the slots of the same sequences; nothing when LightGBM is not installed."""
    from importlib.util import find_spec

    from tefm.baselines.tabular import evaluate_tabular

    if find_spec("lightgbm") is None:
        note("no comparison with LightGBM: pip install 'tefm[doctor]'")
        return {}
    note("beside it: LightGBM and logistic regression on the slots of the same sequences")
    if model.tokenizer_ is not None:
        vectoriser = model.tokenizer_.vectoriser
    else:
        assert model.schema_ is not None
        vectoriser = Vectoriser.fit(frame[np.sort(sequences.select(parts == "train").rows)], model.schema_)
    return evaluate_tabular(
        vectoriser.transform(frame),
        vectoriser.layout,
        sequences,
        np.asarray(sequences.labels),
        parts,
        ("last", "flat") if model.config.window else ("last", "history"),
        positive=model.positive_,
        seed=model.config.seed,
    )


def count_tokens(
    model: TEFM, frame: pl.DataFrame, sequences: Sequences, families: Mapping[str, Any] | None = None
) -> list[Account]:
    """What the model reads of some sequences, and what the same records would cost as text, also in other families."""
    assert model.schema_ is not None
    some = sequences.select(np.arange(len(sequences)) < COUNTED)
    texts: dict[str, list[str]] = {name: serialise(frame, model.schema_, some, name) for name in FORMATS}
    read = np.array([len(prompt) for prompt in model.reader.prompts(model.read(frame, some))])
    form = "codes" if model.config.inputs == "codes" else "compact"
    own = {model.config.backbone: model.reader.backbone.tokenizer}
    return account(texts, own, lengths={f"{form}, with the question": read}) + account(texts, dict(families or {}))
