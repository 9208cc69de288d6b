"""The arrays of a split: they match the table, and no patient is in two parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tefm_bench.data import DIABETES, PARTS, Sources, SplitData
from tefm_bench.datasets.set_aside import diabetes130_of

from tefm.base.errors import InputError


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
            assert set(split.part_N[task.sequences[number]]) == {task.part_S[number]}


def test_saved_arrays_are_the_same(split: SplitData, tmp_path: Path) -> None:
    split.save(tmp_path / "split.npz")
    again = SplitData.load(tmp_path / "split.npz")
    assert again.layout == split.layout and again.phrases == split.phrases
    assert (again.x_ND == split.x_ND).all() and (again.label_N == split.label_N).all()
    for name, task in split.tasks.items():
        assert again.tasks[name].classes == task.classes
        assert (again.tasks[name].sequences.rows == task.sequences.rows).all()
        assert (again.tasks[name].sequences.starts == task.sequences.starts).all()
        assert (again.tasks[name].labels_S == task.labels_S).all() and (again.tasks[name].part_S == task.part_S).all()


def test_sequences_of_a_part(split: SplitData) -> None:
    task = split.tasks["mortality"]
    for part in PARTS:
        sequences, labels = split.sequences("mortality", part)
        assert len(sequences) == len(labels) == (task.part_S == PARTS.index(part)).sum()
    sequences, labels = split.sequences("mortality", "test")
    number = task.of("test")[-1]
    assert (sequences.x_ND[-1] == split.x_ND[task.sequences[number][-1]]).all()
    assert labels[-1] == task.labels_S[number]
    assert task.classes[task.positive] == "died"


def test_texts_belong_to_the_sequences(sources: Sources) -> None:
    texts, data = sources.texts("ddos", 0), sources.split("ddos", 0)
    assert len(texts) == len(data.tasks["ddos"].labels_S)
    task = data.tasks["ddos"]
    tested = data.texts("ddos", task.of("test"), texts)
    assert tested.texts == [texts[number] for number in task.of("test")]
    assert tested.counts == [10] * len(tested) and (tested.labels_S == task.labels_S[task.of("test")]).all()


def test_the_data_of_a_fit_are_the_sequences_of_its_parts(split: SplitData) -> None:
    data = split.task_data("mortality")
    for part, name in ((data.training, "train"), (data.validation, "validation")):
        sequences, labels_S = split.sequences("mortality", name)
        assert (part.with_values(part.slots_ND).x_ND == sequences.x_ND).all()
        assert (part.sequences.starts == sequences.starts).all() and (part.labels_S == labels_S).all()
        assert len(part.slots_ND) == split.in_part(name).sum(), "codes learn from all records of the part"


def test_patients_set_aside_are_in_no_part(tmp_path: Path) -> None:
    patients = {name: set(Sources(tmp_path).dataset(name, 0).frame["patient_nbr"]) for name in DIABETES}
    aside = set(diabetes130_of("set aside").frame["patient_nbr"])
    assert len(aside) == 14_306 and not aside & patients["diabetes130-open"]
    assert aside | patients["diabetes130-open"] == patients["diabetes130"]


def test_flows_need_their_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data cicids2017=PATH"):
        Sources(tmp_path).split("ddos", 0)
