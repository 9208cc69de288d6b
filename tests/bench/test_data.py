"""The arrays of a split: as the table is, and never a patient in two parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tefm.base.errors import InputError
from tefm.bench.data import PARTS, Sources, SplitData


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, flows: Path) -> Sources:
    return Sources(tmp_path_factory.mktemp("data"), {"cicids2017": flows}, quick=True)


@pytest.fixture(scope="module")
def split(sources: Sources) -> SplitData:
    return sources.split("diabetes130", 0)


def test_no_entity_is_in_two_parts(split: SplitData) -> None:
    parts_of = {group: set(split.part_N[split.group_N == group]) for group in np.unique(split.group_N)}
    assert all(len(parts) == 1 for parts in parts_of.values())
    for task in split.tasks.values():
        for number in range(len(task.labels_S)):
            rows = task.rows[task.starts[number] : task.starts[number + 1]]
            assert set(split.part_N[rows]) == {task.part_S[number]}


def test_saved_arrays_are_the_same(split: SplitData, tmp_path: Path) -> None:
    split.save(tmp_path / "split.npz")
    again = SplitData.load(tmp_path / "split.npz")
    assert again.layout == split.layout and again.phrases == split.phrases
    assert (again.x_ND == split.x_ND).all() and (again.label_N == split.label_N).all()
    for name, task in split.tasks.items():
        assert again.tasks[name].classes == task.classes
        assert (again.tasks[name].rows == task.rows).all() and (again.tasks[name].labels_S == task.labels_S).all()


def test_sequences_of_a_part(split: SplitData) -> None:
    task = split.tasks["mortality"]
    for part in PARTS:
        sequences, labels = split.sequences("mortality", part)
        assert len(sequences) == len(labels) == (task.part_S == PARTS.index(part)).sum()
    sequences, labels = split.sequences("mortality", "test")
    number = task.of("test")[-1]
    assert (sequences.x_ND[-1] == split.x_ND[task.rows[task.starts[number + 1] - 1]]).all()
    assert labels[-1] == task.labels_S[number]
    assert task.classes[task.positive] == "died"


def test_texts_belong_to_the_sequences(sources: Sources) -> None:
    assert len(sources.texts("ddos", 0)) == len(sources.split("ddos", 0).tasks["ddos"].labels_S)


def test_flows_need_their_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data cicids2017=PATH"):
        Sources(tmp_path).split("ddos", 0)
