"""Diabetes130: the embedded table, its mortality task, and that no input knows the answer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tefm.datasets import diabetes130
from tefm.datasets.diabetes130 import DIED
from tefm.tables.leakage import check_leakage, label_copies
from tefm.tables.schema import Field, Schema
from tefm.tables.vectorise import Vectoriser


@pytest.fixture(scope="module")
def data():
    return diabetes130()


@pytest.fixture(scope="module")
def vectoriser(data):
    return Vectoriser.fit(data.frame, data.schema)


@pytest.fixture(scope="module")
def slots(data, vectoriser):
    return vectoriser.transform(data.frame)


def test_every_encounter_has_242_slots(data, vectoriser, slots):
    assert slots.shape == (101_766, 242)
    assert len(vectoriser.layout.of_field("diagnoses")) == 1 + 200
    assert len(data.schema.fields) == 42


def test_as_many_survivors_as_deaths(data):
    assert Counter(data.sequences.labels) == {"died": 1639, "survived": 1639}


def test_all_patients_when_not_balanced(data):
    everyone = diabetes130(balanced=False).sequences
    assert len(everyone) == data.frame["patient_nbr"].n_unique() == 71_518
    assert len(everyone.rows) == data.frame.height
    assert Counter(everyone.labels)["died"] == 1639


def test_the_seed_chooses_the_survivors(data):
    def survivors(sequences):
        return sequences.ids[sequences.labels == "survived"].tolist()

    assert survivors(diabetes130(seed=0).sequences) == survivors(data.sequences)
    assert survivors(diabetes130(seed=1).sequences) != survivors(data.sequences)


def test_a_sequence_is_one_patient_in_order_and_ends_with_its_label(data):
    encounters, patients = data.frame["encounter_id"].to_numpy(), data.frame["patient_nbr"].to_numpy()
    last = data.frame["discharge_disposition_id"].to_numpy()[data.sequences.last]
    assert data.sequences.labels.tolist() == ["died" if code in DIED else "survived" for code in last]
    for i in range(0, len(data.sequences), 50):
        rows = data.sequences[i]
        assert set(patients[rows]) == {data.sequences.ids[i]}
        assert (np.diff(encounters[rows]) > 0).all()


def test_no_field_knows_the_answer(data, vectoriser, slots):
    roles = {"outcome", "encounter_id", "patient_nbr"}
    later = {"discharge_disposition_id", "readmitted"}
    assert not (roles | later | {"weight", "payer_code"}) & set(data.schema.columns)
    last = data.sequences.last
    assert check_leakage(slots[last], vectoriser.layout, data.sequences.labels) == []
    assert label_copies(data.frame[last], data.schema) == []


def test_the_disposition_would_have_been_found(data):
    last = data.frame[data.sequences.last]
    schema = Schema(fields=(Field(name="discharge_disposition_id", kind="category"),))
    vectoriser = Vectoriser.fit(last, schema)
    leaks = check_leakage(vectoriser.transform(last), vectoriser.layout, data.sequences.labels)
    assert [leak.field for leak in leaks] == ["discharge_disposition_id"]


def test_values_have_names(data):
    assert data.schema.field("diagnoses").names["428"].lower() == "heart failure"
    assert data.schema.field("admission_type_id").names["1"] == "Emergency"


def test_a_drug_not_given_and_a_test_not_made_are_absent(data, vectoriser, slots):
    for column, word in (("insulin", "No"), ("A1Cresult", "None")):
        slot = int(vectoriser.layout.of_field(column)[0])
        assert np.array_equal(slots[:, slot] == 0, (data.frame[column] == word).to_numpy())
