"""MEDS folders as tables: visits and windows, static events, labels up to a time, and what is not valid MEDS."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from commands import refused, tefm
from conftest import Explained
from support.meds_folder import Event, patients, write_labels, write_meds

from tefm.base.errors import InputError, SettingsError
from tefm.tables.infer import infer_schema
from tefm.tables.readers import meds
from tefm.tables.readers.table import open_table
from tefm.tables.schema import MedsRecords, Schema


def at(day: float) -> dt.datetime:
    return dt.datetime(2020, 1, 1) + dt.timedelta(days=day)


EVENTS: list[Event] = [
    (7, None, "GENDER//F", None),
    (7, dt.datetime(1980, 1, 1), "MEDS_BIRTH", None),
    (7, at(-3), "LAB//sodium", 120.0),  # before the first visit
    (7, at(0), "DIAGNOSIS//I10", None),  # at the very time of the admission, but before it in the file
    (7, at(0), "HOSPITAL_ADMISSION//ELECTIVE", None),
    (7, at(0.5), "LAB//sodium", 130.0),
    (7, at(1), "LAB//sodium", 140.0),
    (7, at(1), "LAB//culture", None),
    (7, at(2), "HOSPITAL_DISCHARGE", None),
    (7, at(10), "HOSPITAL_ADMISSION//EMERGENCY", None),
    (7, at(10), "DIAGNOSIS//I10", None),
    (7, at(11), "DIAGNOSIS//E11", None),
    (7, at(11), "DIAGNOSIS//E11", None),
    (3, at(5), "HOSPITAL_ADMISSION//ELECTIVE", None),
    (3, at(5), "LAB//sodium", None),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_meds(tmp_path / "meds", {"0": EVENTS})


def test_a_visit_is_a_record(folder: Path) -> None:
    table = open_table(folder)
    assert table.columns == (
        "subject_id", "time", "events", "days", "days_since", "age",
        "DIAGNOSIS", "GENDER", "HOSPITAL_ADMISSION", "HOSPITAL_DISCHARGE", "LAB", "LAB//sodium",
    )  # fmt: skip
    first, second, other = table.frame().to_dicts()
    assert (first["subject_id"], first["time"], first["events"], first["days"]) == (7, at(0), 6, pytest.approx(2.0))
    assert first["age"] == pytest.approx(40, abs=0.01)
    assert first["days_since"] is None and second["days_since"] == pytest.approx(8.0)
    assert (first["DIAGNOSIS"], second["DIAGNOSIS"]) == (["DIAGNOSIS//I10"], ["DIAGNOSIS//E11", "DIAGNOSIS//I10"])
    assert first["GENDER"] == second["GENDER"] == ["GENDER//F"] and other["GENDER"] == []
    assert first["LAB"] == ["LAB//culture"]  # codes that are numbers are in no set
    assert (first["LAB//sodium"], second["LAB//sodium"], other["LAB//sodium"]) == (140.0, None, None)
    assert (other["subject_id"], other["age"]) == (3, None)
    assert table.frame(["LAB", "time"]).to_dicts()[0] == {"LAB": ["LAB//culture"], "time": at(0)}


@pytest.mark.parametrize(("value", "expected"), [("first", 130.0), ("mean", 135.0), ("min", 130.0), ("max", 140.0)])
def test_one_of_several_values_counts(folder: Path, value: str, expected: float) -> None:
    table = open_table(folder, meds=MedsRecords.checked({"value": value}))
    assert table.frame()["LAB//sodium"][0] == expected


def test_a_window_is_a_record(folder: Path) -> None:
    frame = open_table(folder, meds=MedsRecords(records="window", window="1d")).frame()
    sodium = frame.filter(pl.col("subject_id") == 7)["LAB//sodium"].to_list()
    assert sodium == [120.0, 130.0, 140.0, None, None, None]
    assert open_table(folder, meds=MedsRecords(records="window", window="500w")).frame().height == 2


def test_a_column_may_name_the_visit(tmp_path: Path) -> None:
    events = [(1, at(day), f"A//{day}", None) for day in (0, 1, 2, 3)]
    write_meds(tmp_path / "meds", {"0": events}, visits={"0": [5, 6, 5, None]})
    frame = open_table(tmp_path / "meds").frame()
    # visits may overlap; what has no visit is in the one that began last
    assert frame["A"].to_list() == [["A//0", "A//2"], ["A//1", "A//3"]]
    assert frame["days_since"].to_list() == [None, 0.0]


def test_labels_say_whom_to_ask_about_and_when(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = write_labels(tmp_path / "labels.parquet", [(7, at(1), True), (7, at(0.2), False), (99, at(1), True)])
    frame = open_table(folder, query=str(labels)).frame()
    assert frame.select("subject_id", "events", "LAB//sodium", "label").rows() == [(7, 5, 140.0, True)]
    assert "1 of 3 label rows are left out" in caplog.text


def test_subjects_that_cross_batches_and_files_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards, _ = patients(40)
    folder = write_meds(tmp_path / "meds", shards)
    whole = open_table(folder).frame()
    monkeypatch.setattr(meds, "EVENTS", 7)
    assert open_table(folder).frame().equals(whole)
    assert [batch.height for batch in open_table(folder).batches()] != [whole.height]


def test_the_schema_knows_roles_names_and_how_records_are_made(folder: Path, tmp_path: Path) -> None:
    folder = write_meds(tmp_path / "more", patients(60)[0])
    table = open_table(folder)
    schema = infer_schema(table)
    assert (schema.record, schema.entity, schema.time, schema.label) == ("visit", "subject_id", "time", None)
    assert schema.field("LAB//lactate//mmol/L").display_name == "what LAB//lactate//mmol/L means"
    assert schema.field("DIAGNOSIS").kind == "set"
    assert schema.meds == table.meds is not None
    assert schema.meds.starts == ("HOSPITAL_ADMISSION",) and schema.meds.age
    assert Schema.from_yaml(schema.to_yaml()) == schema
    # another folder gets the same columns, whatever its own codes are
    other = write_meds(tmp_path / "other", {"0": EVENTS})
    assert open_table(other, meds=schema.meds).columns == table.columns


# ---- what is not valid ----------------------------------------------------------------------------------------------


def test_errors_name_what_is_wrong(folder: Path, tmp_path: Path, explained: Explained) -> None:
    odd = write_meds(tmp_path / "odd", {"0": [(1, at(0), "X//1", None)]})
    explained(InputError, lambda: open_table(odd), "where a visit begins", "'X'", "records: window")
    wrong = MedsRecords(visit="hadm")
    explained(InputError, lambda: open_table(folder, meds=wrong), "'hadm'", "0.parquet")
    explained(InputError, lambda: open_table(folder, query="nothing.parquet"), "no label file", "nothing.parquet")
    explained(InputError, lambda: open_table(folder, query=str(folder / meds.CODES)), "'subject_id'", "codes.parquet")
    torn = write_meds(tmp_path / "torn", {"0": EVENTS, "1": EVENTS[:5]})
    explained(InputError, lambda: open_table(torn).frame(), "not together", "1.parquet", "value 7")
    mixed = write_meds(tmp_path / "mixed", {"0": [EVENTS[4], EVENTS[-2], EVENTS[5]]})
    explained(InputError, lambda: open_table(mixed).frame(), "not together", "value 7")
    table = pq.read_table(folder / "data" / "0.parquet")
    pq.write_table(table.drop_columns(["code"]), folder / "data" / "0.parquet")
    explained(InputError, lambda: open_table(folder), "'code' is missing", "0.parquet")
    with pytest.raises(SettingsError, match="12h"):
        MedsRecords.checked({"window": "a week"})


def test_inspect_writes_a_schema_of_windows(tmp_path: Path) -> None:
    folder = write_meds(tmp_path / "meds", patients(40)[0])
    target = tmp_path / "schema.yaml"
    said = tefm("inspect", folder, "--meds", "records=window", "--meds", "window=30d", "--out", target)
    assert "LAB//lactate" in said.stdout
    schema = Schema.load(target)
    assert schema.meds is not None and (schema.meds.records, schema.meds.window) == ("window", "30d")
    assert "--meds window=7d" in refused("inspect", folder, "--meds", "30d")
