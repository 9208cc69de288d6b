"""The data of the tables: records as slots, divided by seed into train, validation and test.

What a table is measured on is written once, as arrays: every measurement reads them, and they can be taken to a machine
that has none of the libraries for tables.

Shapes: N records, D slots, S sequences.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.files import replacing
from tefm.language.prompts import Prompt
from tefm.pipeline import Part, TaskData
from tefm.records.layout import Layout, Slot, Slots
from tefm.records.phrases import Phrases
from tefm.records.sequences import Sequences

if TYPE_CHECKING:
    from tefm.datasets.base import Dataset
    from tefm.records.sequences import Sequences

PARTS = ("train", "validation", "test")
#: The data sets that tables are made of, their tasks (the first is the one meant), and what they are.
DATA: dict[str, tuple[str, ...]] = {
    "diabetes130": ("mortality", "readmission"),
    "mimic3": ("mortality",),
    "ddos": ("ddos",),
    "portscan": ("portscan",),
    "attack": ("attack",),
}
CLINICAL, FLOWS = ("diabetes130", "mimic3"), ("ddos", "portscan", "attack")
#: Buckets of a number where nothing else is said; five for flows, as the paper's text suggests.
BUCKETS = {name: 5 if name in FLOWS else 10 for name in DATA}
#: Sequences of a task when it is only to be seen that everything runs.
QUICK_SEQUENCES = 120


@dataclass(frozen=True)
class TaskArrays:
    """The sequences of a task: the rows of all of them one after another, where each begins, its part and class."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    part_S: NDArray[np.int8]
    labels_S: NDArray[np.int64]
    classes: tuple[str, ...]

    def of(self, part: str) -> NDArray[np.int64]:
        """The numbers of the sequences in a part."""
        return np.flatnonzero(self.part_S == PARTS.index(part))

    @property
    def positive(self) -> int:
        """The class that is asked for."""
        from tefm.language.prompts import positive_class

        return self.classes.index(positive_class(self.classes, np.bincount(self.labels_S).tolist()))


@dataclass(frozen=True)
class SplitData:
    """A data set as slots, learned on the training part of one split."""

    x_ND: Slots
    #: number of the part in `PARTS`
    part_N: NDArray[np.int8]
    #: records of one entity are held out together
    group_N: NDArray[np.int32]
    label_N: NDArray[np.str_]
    layout: Layout
    phrases: Phrases
    tasks: Mapping[str, TaskArrays]

    def in_part(self, part: str) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.part_N == PARTS.index(part)
        return found

    def task_data(
        self,
        name: str,
        prompt: Prompt,
        *,
        texts: Sequence[str] | None = None,
        training: NDArray[np.int64] | None = None,
    ) -> TaskData:
        """What a fit of a task is made from; `texts` of all sequences for the text baseline.

        `training` are the numbers of the training sequences, all of that part when left out.
        """
        task = self.tasks[name]
        chosen = {part: task.of(part) for part in ("train", "validation")}
        if training is not None:
            chosen["train"] = training
        parts = [self.part(name, part, numbers, texts=texts) for part, numbers in chosen.items()]
        layout, phrases = (self.layout, self.phrases) if texts is None else (None, None)
        return TaskData(parts[0], parts[1], task.classes, task.positive, prompt, layout, phrases)

    def part(self, name: str, part: str, numbers: NDArray[np.int64], *, texts: Sequence[str] | None = None) -> Part:
        """All records of a part, and some of its sequences."""
        task = self.tasks[name]
        sequences = Sequences(task.rows, task.starts, texts=texts).select(numbers)
        labels_S = task.labels_S[numbers]
        if texts is not None:
            return Part(sequences, labels_S)
        rows = np.flatnonzero(self.in_part(part))
        return Part(
            sequences.with_values(np.searchsorted(rows, sequences.rows)),
            labels_S,
            self.x_ND[rows],
            record_labels_N=self.label_N[rows].astype(object),
            groups_N=self.group_N[rows],
        )

    def sequences(self, task: str, part: str) -> tuple[Sequences, NDArray[np.int64]]:
        """The sequences of a part as slots, and their classes."""
        found = self.tasks[task]
        chosen = found.of(part)
        rows = Sequences(found.rows, found.starts).select(chosen)
        return rows.with_values(self.x_ND[rows.rows]), found.labels_S[chosen]

    def save(self, path: Path) -> None:
        body = {
            "slots": [(slot.field, slot.kind, slot.size, slot.member) for slot in self.layout.slots],
            "phrases": self.phrases.to_dict(),
            "tasks": {name: task.classes for name, task in self.tasks.items()},
        }
        arrays: dict[str, Any] = {"x": self.x_ND, "part": self.part_N, "group": self.group_N, "label": self.label_N}
        for name, task in self.tasks.items():
            arrays |= {f"{name}/rows": task.rows, f"{name}/starts": task.starts}
            arrays |= {f"{name}/part": task.part_S, f"{name}/labels": task.labels_S}
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, body=np.frombuffer(json.dumps(body).encode(), dtype=np.uint8), **arrays)

    @classmethod
    def load(cls, path: Path) -> SplitData:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        body = json.loads(arrays["body"].tobytes())
        tasks = {
            name: TaskArrays(
                rows=arrays[f"{name}/rows"],
                starts=arrays[f"{name}/starts"],
                part_S=arrays[f"{name}/part"],
                labels_S=arrays[f"{name}/labels"],
                classes=tuple(classes),
            )
            for name, classes in body["tasks"].items()
        }
        layout = Layout(tuple(Slot(*slot) for slot in body["slots"]))
        x_ND, part_N, group_N, label_N = (arrays[name] for name in ("x", "part", "group", "label"))
        return cls(x_ND, part_N, group_N, label_N, layout, Phrases.from_dict(body["phrases"]), tasks)


@dataclass(frozen=True)
class Sources:
    """Where the data sets are, and where their arrays are kept."""

    folder: Path
    #: name → folder or file; `diabetes130` needs none
    places: Mapping[str, Path] = field(default_factory=dict)
    quick: bool = False

    def split(self, name: str, seed: int, buckets: int | None = None) -> SplitData:
        """The arrays of a split, made when they are not there yet."""
        buckets = buckets or BUCKETS[name]
        path = self.folder / f"{name}_{seed}_B{buckets}.npz"
        if not path.exists():
            self._make(name, seed, buckets).save(path)
        return SplitData.load(path)

    def texts(self, name: str, seed: int) -> list[str]:
        """The records of every sequence of the first task as terse text."""
        # which survivors are asked about depends on the split; segments of flows are the same in all
        path = self.folder / (f"{name}.texts.json.gz" if name in FLOWS else f"{name}_{seed}.texts.json.gz")
        if not path.exists():
            from tefm.records.serialise import serialise

            data = self.dataset(name, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
                json.dump(serialise(data.frame, data.schema, data.sequences, "compact"), file)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found: list[str] = json.load(file)
        return found

    def dataset(self, name: str, seed: int) -> Dataset:
        """The table itself; of flows, those that are in a segment."""
        from tefm.datasets import cicids2017, diabetes130, mimic3

        if name == "diabetes130":
            data = diabetes130(seed=seed)
        elif name == "mimic3":
            data = mimic3(self._place("mimic3"), seed=seed)
        else:
            data = _in_sequences(cicids2017(self._place("cicids2017"), task=name))  # type: ignore[arg-type]
        return _small(data) if self.quick else data

    def _place(self, source: str) -> Path:
        if source not in self.places:
            raise InputError(
                f"the arrays of {source} are not there, and its files are needed to make them",
                file=self.folder,
                remedy=f"--data {source}=PATH",
            )
        return self.places[source]

    def _make(self, name: str, seed: int, buckets: int) -> SplitData:
        from tefm.records.grouping import by_entity
        from tefm.records.phrases import phrases_of
        from tefm.records.splitting import split
        from tefm.records.vectorise import Vectoriser

        data = self.dataset(name, seed)
        frame, schema = data.frame, data.schema.with_buckets(buckets)
        # records outside of the task's sequences teach the codes too, but never those of an entity that is judged
        everyone = data.sequences if schema.entity is None else by_entity(frame, schema)
        parts = split(everyone, seed=seed)
        part_N = np.zeros(frame.height, dtype=np.int8)
        group_N = np.zeros(frame.height, dtype=np.int32)
        part_N[everyone.rows] = np.repeat([PARTS.index(part) for part in parts], everyone.lengths)
        # entities are numbered in the order of their names, as a fit from a table does
        numbers = np.arange(len(everyone))
        if schema.entity is not None:
            numbers = np.argsort(np.argsort(everyone.names.astype(str)))
        group_N[everyone.rows] = np.repeat(numbers, everyone.lengths)
        tasks = {DATA[name][0]: data.sequences}
        if name == "diabetes130":
            tasks["readmission"] = _readmission(data, everyone, seed)
        vectoriser = Vectoriser.fit(frame[np.flatnonzero(part_N == 0)], schema)
        return SplitData(
            vectoriser.transform(frame),
            part_N,
            group_N,
            frame[str(schema.label)].to_numpy().astype(str),
            vectoriser.layout,
            phrases_of(vectoriser),
            {task: _arrays(sequences, part_N) for task, sequences in tasks.items()},
        )


def _arrays(sequences: Sequences, part_N: NDArray[np.int8]) -> TaskArrays:
    assert sequences.labels is not None
    classes = tuple(sorted(set(sequences.labels)))
    labels_S = np.array([classes.index(label) for label in sequences.labels])
    return TaskArrays(sequences.rows, sequences.starts, part_N[sequences.last], labels_S, classes)


def _readmission(data: Dataset, everyone: Sequences, seed: int, most: int = 2_000) -> Sequences:
    """A task the codes are not trained for: one admission of each patient, drawn at random, with those before it;
    is the patient back within 30 days? As many who are as who are not."""
    from tefm.records.sequences import Sequences
    from tefm.records.splitting import balance

    rng = np.random.default_rng((seed, 7))
    ends = np.array([rng.integers(1, length + 1) for length in everyone.lengths])
    rows = [everyone[i][: ends[i]] for i in range(len(everyone))]
    last = np.array([row[-1] for row in rows])
    back, alive = data.frame["readmitted"].to_numpy()[last], data.frame["outcome"].to_numpy()[last] == "survived"
    labels = np.where(back == "<30", "yes", "no").astype(object)
    labels[~alive] = None
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    found = Sequences(np.concatenate(rows), starts, everyone.ids, labels, everyone.ends)
    found = found.select(found.labelled)
    found = found.select(balance(found, seed=seed))
    assert found.labels is not None
    kept = [rng.permutation(np.flatnonzero(found.labels == name))[:most] for name in ("yes", "no")]
    return found.select(np.sort(np.concatenate(kept)))


def _small(data: Dataset) -> Dataset:
    """A few sequences of every class, and their records alone."""
    sequences = data.sequences
    assert sequences.labels is not None
    classes: Sequence[str] = sorted(set(sequences.labels))
    each = -(-QUICK_SEQUENCES // len(classes))
    kept = np.sort(np.concatenate([np.flatnonzero(sequences.labels == name)[:each] for name in classes]))
    return _in_sequences(replace(data, sequences=sequences.select(kept)))


def _in_sequences(data: Dataset) -> Dataset:
    """Without the records that belong to no sequence, as the last flows that make no whole segment."""
    from tefm.records.sequences import Sequences

    found = data.sequences
    rows = np.sort(found.rows)
    renumbered = Sequences(np.searchsorted(rows, found.rows), found.starts, found.ids, found.labels, found.ends)
    return replace(data, frame=data.frame[rows], sequences=renumbered)
