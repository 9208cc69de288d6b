"""The data of the benchmark: records as slots, split by seed into train, validation and test.

The arrays of a split are written once and read by every measurement, so a machine that only measures does not need the
files of the data sets.

Shapes: N records, D slots, S sequences.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tefm.base.errors import InputError
from tefm.base.files import replacing
from tefm.language.prompts import Prompt, Style, positive_class
from tefm.pipeline.data import Part, TaskData
from tefm.tables.layout import Layout, Slots
from tefm.tables.phrases import Phrases
from tefm.tables.sequences import PARTS, Sequences
from tefm_bench.text_model import Texts, TextTask

if TYPE_CHECKING:
    from tefm.datasets.diabetes130 import Dataset

#: The data sets, and the task of each.
DATA: dict[str, str] = {
    "diabetes130-open": "mortality",
    "diabetes130": "mortality",
    "mimic3": "mortality",
    "ddos": "ddos",
    "portscan": "portscan",
    "attack": "attack",
}
#: Diabetes130 without the patients who are set aside for a last test, and with all patients, as results were measured
#: before these were set aside.
DIABETES = ("diabetes130-open", "diabetes130")
CLINICAL, FLOWS = (*DIABETES, "mimic3"), ("ddos", "portscan", "attack")
#: Buckets per number by default; five for flows, as the paper's text suggests.
BUCKETS = {name: 5 if name in FLOWS else 10 for name in DATA}
#: Sequences of a task in a quick run.
QUICK_SEQUENCES = 120


@dataclass(frozen=True)
class TaskArrays:
    """The sequences of a task, with the part and the class of each."""

    #: row numbers into the slots of the split
    sequences: Sequences
    #: the index of the part in `PARTS`
    part_S: NDArray[np.int8]
    labels_S: NDArray[np.int64]
    classes: tuple[str, ...]

    def of(self, part: str) -> NDArray[np.int64]:
        """The indices of the sequences in a part."""
        return np.flatnonzero(self.part_S == PARTS.index(part))

    @property
    def positive(self) -> int:
        """The number of the positive class."""
        return self.classes.index(positive_class(self.classes, np.bincount(self.labels_S).tolist()))


@dataclass(frozen=True)
class SplitData:
    """The records of a data set as slots, vectorised as learned from the training part of one split."""

    x_ND: Slots
    #: the index of the part in `PARTS`
    part_N: NDArray[np.int8]
    #: the records of one entity are held out together
    group_N: NDArray[np.int32]
    label_N: NDArray[np.str_]
    layout: Layout
    phrases: Phrases
    tasks: Mapping[str, TaskArrays]

    def in_part(self, part: str) -> NDArray[np.bool_]:
        """Which records are in a part."""
        in_part_N: NDArray[np.bool_] = self.part_N == PARTS.index(part)
        return in_part_N

    def prompt(self, task: str, style: Style = "compact") -> Prompt:
        """The question of a task."""
        if task == "attack":
            return Prompt.preset("generic", style, label="attack", record="flow")
        classes, positive = self.tasks[task].classes, self.tasks[task].positive
        preset = "mortality" if task == "mortality" else "intrusion"
        return Prompt.preset(preset, style, positive=classes[positive], negative=classes[1 - positive])

    def task_data(self, task: str, style: Style = "compact") -> TaskData:
        """The input of `pipeline.fit`."""
        arrays = self.tasks[task]
        return TaskData(
            self._part(task, "train", arrays.of("train")),
            self._part(task, "validation", arrays.of("validation")),
            arrays.classes,
            arrays.positive,
            self.prompt(task, style),
            self.layout,
            self.phrases,
        )

    def _part(self, task: str, part: str, indices: NDArray[np.int64]) -> Part:
        """All records of a part, and the chosen sequences among them."""
        arrays = self.tasks[task]
        sequences = arrays.sequences.select(indices)
        rows = np.flatnonzero(self.in_part(part))
        return Part(
            sequences.with_values(np.searchsorted(rows, sequences.rows)),
            arrays.labels_S[indices],
            self.x_ND[rows],
            record_labels_N=self.label_N[rows].astype(object),
            groups_N=self.group_N[rows],
        )

    def sequences(self, task: str, part: str) -> tuple[Sequences, NDArray[np.int64]]:
        """The sequences of a part as slots, and their class numbers."""
        arrays = self.tasks[task]
        indices = arrays.of(part)
        sequences = arrays.sequences.select(indices)
        return sequences.with_values(self.x_ND[sequences.rows]), arrays.labels_S[indices]

    def text_task(self, task: str, style: Style, texts: Sequence[str]) -> TextTask:
        """The input of `TextModel.fit`; `texts` are those of all sequences."""
        arrays = self.tasks[task]
        training_part = self.texts(task, arrays.of("train"), texts)
        validation = self.texts(task, arrays.of("validation"), texts)
        return TextTask(training_part, validation, arrays.classes, arrays.positive, self.prompt(task, style))

    def texts(self, task: str, indices: NDArray[np.int64], texts: Sequence[str]) -> Texts:
        """Some sequences of a task as text; `texts` are those of all its sequences."""
        arrays = self.tasks[task]
        counts_S = arrays.sequences.lengths[indices]
        return Texts([texts[i] for i in indices.tolist()], counts_S.tolist(), arrays.labels_S[indices])

    def save(self, path: Path) -> None:
        body = {
            "slots": self.layout.to_json(),
            "phrases": asdict(self.phrases),
            "tasks": {name: task.classes for name, task in self.tasks.items()},
        }
        arrays: dict[str, Any] = {"x": self.x_ND, "part": self.part_N, "group": self.group_N, "label": self.label_N}
        for name, task in self.tasks.items():
            arrays |= {f"{name}/rows": task.sequences.rows, f"{name}/starts": task.sequences.starts}
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
                sequences=Sequences(arrays[f"{name}/rows"], arrays[f"{name}/starts"]),
                part_S=arrays[f"{name}/part"],
                labels_S=arrays[f"{name}/labels"],
                classes=tuple(classes),
            )
            for name, classes in body["tasks"].items()
        }
        layout = Layout.from_json(body["slots"])
        x_ND, part_N, group_N, label_N = (arrays[name] for name in ("x", "part", "group", "label"))
        return cls(x_ND, part_N, group_N, label_N, layout, TypeAdapter(Phrases).validate_python(body["phrases"]), tasks)


@dataclass(frozen=True)
class Sources:
    """Where the data sets are, and where their arrays are stored."""

    folder: Path
    #: name → folder or file; `diabetes130` needs none
    paths: Mapping[str, Path] = field(default_factory=dict)
    quick: bool = False

    def split(self, name: str, seed: int, buckets: int | None = None) -> SplitData:
        """The arrays of a split, written first if they do not exist."""
        buckets = buckets or BUCKETS[name]
        path = self.folder / f"{name}_{seed}_B{buckets}.npz"
        if not path.exists():
            self._make(name, seed, buckets).save(path)
        return SplitData.load(path)

    def texts(self, name: str, seed: int) -> list[str]:
        """The records of every sequence of the first task as compact text."""
        # balancing draws other survivors in each split; the segments of flows are the same in all splits
        path = self.folder / (f"{name}.texts.json.gz" if name in FLOWS else f"{name}_{seed}.texts.json.gz")
        if not path.exists():
            from tefm.tables.serialise import serialise

            data = self.dataset(name, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
                json.dump(serialise(data.frame, data.schema, data.sequences, "compact"), file)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            texts: list[str] = json.load(file)
        return texts

    def dataset(self, name: str, seed: int) -> Dataset:
        """The table itself; for flows, only those in a segment."""
        from tefm_bench.datasets.cicids2017 import cicids2017
        from tefm_bench.datasets.mimic3 import mimic3
        from tefm_bench.datasets.set_aside import diabetes130_of

        if name in DIABETES:
            data = diabetes130_of("all" if name == "diabetes130" else "open", seed=seed)
        elif name == "mimic3":
            data = mimic3(self._path("mimic3"), seed=seed)
        else:
            data = _in_sequences(cicids2017(self._path("cicids2017"), task=name))  # type: ignore[arg-type]
        return _small(data) if self.quick else data

    def _path(self, source: str) -> Path:
        if source not in self.paths:
            raise InputError(
                f"there are no arrays of {source}, and its files are needed to make them",
                file=self.folder,
                remedy=f"give --data {source}=PATH",
            )
        return self.paths[source]

    def _make(self, name: str, seed: int, buckets: int) -> SplitData:
        from tefm.tables.grouping import by_entity
        from tefm.tables.phrases import phrases_of
        from tefm.tables.sequences import split
        from tefm.tables.vectorise import Vectoriser

        data = self.dataset(name, seed)
        frame, schema = data.frame, data.schema.with_buckets(buckets)
        # codes also learn from records outside the task's sequences, but never from those of a held-out entity
        everyone = data.sequences if schema.entity is None else by_entity(frame, schema)
        parts = split(everyone, seed=seed)
        part_N = np.zeros(frame.height, dtype=np.int8)
        group_N = np.zeros(frame.height, dtype=np.int32)
        part_N[everyone.rows] = np.repeat([PARTS.index(part) for part in parts], everyone.lengths)
        # entities are numbered in the order of their names, as in a fit from a table
        numbers = np.arange(len(everyone))
        if schema.entity is not None:
            numbers = np.argsort(np.argsort(everyone.names.astype(str)))
        group_N[everyone.rows] = np.repeat(numbers, everyone.lengths)
        vectoriser = Vectoriser.fit(frame[np.flatnonzero(part_N == 0)], schema)
        return SplitData(
            vectoriser.transform(frame),
            part_N,
            group_N,
            frame[str(schema.label)].to_numpy().astype(str),
            vectoriser.layout,
            phrases_of(vectoriser),
            {DATA[name]: _task_arrays(data.sequences, part_N)},
        )


def _task_arrays(sequences: Sequences, part_N: NDArray[np.int8]) -> TaskArrays:
    assert sequences.labels is not None
    classes = tuple(sorted(set(sequences.labels)))
    labels_S = np.array([classes.index(label) for label in sequences.labels])
    return TaskArrays(Sequences(sequences.rows, sequences.starts), part_N[sequences.last], labels_S, classes)


def _small(data: Dataset) -> Dataset:
    """A few sequences of every class, and only their records."""
    sequences = data.sequences
    assert sequences.labels is not None
    classes: Sequence[str] = sorted(set(sequences.labels))
    per_class = -(-QUICK_SEQUENCES // len(classes))
    first = np.sort(np.concatenate([np.flatnonzero(sequences.labels == name)[:per_class] for name in classes]))
    return _in_sequences(replace(data, sequences=sequences.select(first)))


def _in_sequences(data: Dataset) -> Dataset:
    """Without the records that are in no sequence, such as the last flows, too few for a segment."""
    rows = np.sort(data.sequences.rows)
    renumbered = data.sequences.with_values(np.searchsorted(rows, data.sequences.rows))
    return replace(data, frame=data.frame[rows], sequences=renumbered)
