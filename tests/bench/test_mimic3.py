"""MIMIC-III: the paper's 458 slots, death at the last admission, and either spelling of files and columns."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tefm_bench.datasets.mimic3 import mimic3

from tefm.base.errors import InputError
from tefm.tables.leakage import check_leakage, label_copies
from tefm.tables.phrases import describe
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser

DEMO = Path(__file__).parents[1] / "data" / "mimic3"


@pytest.fixture(scope="module")
def demo():
    return mimic3(DEMO, balanced=False)


@pytest.fixture(scope="module")
def vectoriser(demo):
    return Vectoriser.fit(demo.frame, demo.schema)


@pytest.fixture
def folder(tmp_path):
    """A copy of the demo that a test may change."""
    return Path(shutil.copytree(DEMO, tmp_path / "mimic"))


def raw(table):
    return pl.read_csv(DEMO / f"{table}.csv.gz", infer_schema=False)


def rewritten(folder, table, change):
    """Replace one table of the folder by what `change` makes of it."""
    frame = change(raw(table))
    (folder / f"{table}.csv.gz").unlink()
    frame.write_csv(folder / f"{table}.csv")


def test_an_admission_has_the_458_slots_of_the_paper(vectoriser):
    layout = vectoriser.layout
    blocks = {name: len(layout.of_field(name)) for name in layout.fields}
    sets = {name: blocks.pop(name) for name in ("diagnoses", "procedures", "drugs")}
    assert layout.width == 458
    assert sets == {"diagnoses": 200, "procedures": 100, "drugs": 1 + 150}
    assert len(blocks) + 1 == 8  # with the number of drugs
    assert set(blocks) == {
        "admission_type", "insurance", "ethnicity", "first_careunit", "icu_stays", "hospital_days", "icu_days",
    }  # fmt: skip


def test_groups_have_human_names(demo):
    assert [field.group for field in demo.schema.fields] == ["Admission"] * 7 + ["Diagnoses", "Procedures", "Drugs"]


def test_fewer_codes_give_fewer_slots(folder):
    rewritten(folder, "PRESCRIPTIONS", lambda frame: frame.filter(pl.col("drug").is_in(["Heparin", "Insulin"])))
    data = mimic3(folder)
    layout = Vectoriser.fit(data.frame, data.schema).layout
    assert [layout.slots[i].member for i in layout.of_field("drugs")] == [None, "insulin", "heparin"]


def test_a_sequence_is_a_patient_and_its_label_the_death_at_the_last_admission(demo):
    admissions = raw("ADMISSIONS").sort("admittime")
    died = dict(
        admissions.group_by("subject_id", maintain_order=True).agg(pl.col("hospital_expire_flag").last()).rows()
    )
    assert dict(zip(demo.sequences.ids, demo.sequences.labels, strict=True)) == {
        patient: "died" if flag == "1" else "survived" for patient, flag in died.items()
    }
    assert len(demo.sequences) == 100 and len(demo.sequences.rows) == demo.frame.height == 129
    for i in range(len(demo.sequences)):
        assert demo.frame["admittime"][demo.sequences[i].tolist()].is_sorted()


def test_balanced_has_as_many_survivors_as_deaths_and_follows_the_seed(demo):
    counts = Counter(demo.sequences.labels)
    balanced = [mimic3(DEMO, seed=seed).sequences for seed in (0, 0, 1)]
    assert Counter(balanced[0].labels) == dict.fromkeys(("died", "survived"), min(counts.values()))
    assert balanced[0].ids.tolist() == balanced[1].ids.tolist() != balanced[2].ids.tolist()


def test_stays_are_added_up_per_admission(demo):
    stays = raw("ICUSTAYS").with_columns(pl.col("los").cast(pl.Float64))
    busy = stays.group_by("hadm_id").len().filter(pl.col("len") == 3)["hadm_id"][0]
    own = stays.filter(pl.col("hadm_id") == busy).sort("intime")
    row = demo.frame.row(by_predicate=pl.col("hadm_id") == busy, named=True)
    assert row["icu_stays"] == 3
    assert row["icu_days"] == pytest.approx(own["los"].sum(), abs=0.05)
    assert row["first_careunit"] == own["first_careunit"][0]
    # 2164-10-23 21:09 to 2164-11-01 17:15
    assert demo.frame.filter(pl.col("hadm_id") == "142345")["hospital_days"].item() == 8.8


def test_an_admission_without_icu_stay_procedure_or_drug_is_absent_there(folder):
    def without(frame):
        return frame.filter(pl.col("hadm_id") != "142345")

    for table in ("ICUSTAYS", "PROCEDURES_ICD", "PRESCRIPTIONS"):
        rewritten(folder, table, without)
    data = mimic3(folder, balanced=False)
    vectoriser = Vectoriser.fit(data.frame, data.schema)
    slots = vectoriser.transform(data.frame.filter(pl.col("hadm_id") == "142345"))[0]
    for name in ("first_careunit", "icu_stays", "icu_days", "procedures", "drugs"):
        assert not slots[vectoriser.layout.of_field(name)].any()
    assert slots[vectoriser.layout.of_field("diagnoses")].any()


def test_an_open_icu_stay_has_no_length(folder):
    rewritten(folder, "ICUSTAYS", lambda frame: frame.with_columns(los=pl.lit("")))
    frame = mimic3(folder).frame
    assert frame["icu_days"].null_count() == frame.height and frame["icu_stays"].null_count() == 0


def test_codes_are_text_with_their_titles(demo, vectoriser):
    names = demo.schema.field("diagnoses").names
    assert names["4280"] == "Congestive heart failure, unspecified"
    assert names["0389"] == "Unspecified septicemia"  # the leading zero is part of the code
    assert demo.schema.field("procedures").names["9671"].startswith("Continuous invasive mechanical ventilation")
    record = int(demo.frame["hadm_id"].index_of("142345"))
    words = describe(vectoriser, vectoriser.transform(demo.frame)[record])
    assert "Diagnoses: " in words and "Sepsis (99591)" in words and "medical ICU (MICU)" in words


def test_the_spelling_of_a_drug_does_not_matter(folder):
    def spelt(frame):
        odd = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit(" LORazepam ")).otherwise(pl.lit("Lorazepam"))
        return frame.with_columns(drug=pl.when(pl.col("drug") == "Lorazepam").then(odd).otherwise("drug"))

    rewritten(folder, "PRESCRIPTIONS", spelt)
    assert mimic3(folder).frame["drugs"].to_list() == mimic3(DEMO).frame["drugs"].to_list()


def test_unknown_ethnicity_is_absent(demo, vectoriser):
    slot = int(vectoriser.layout.of_field("ethnicity")[0])
    absent = vectoriser.transform(demo.frame)[:, slot] == 0
    assert set(demo.frame["ethnicity"].filter(absent)) == {"UNKNOWN/NOT SPECIFIED", "UNABLE TO OBTAIN"}


def test_upper_case_columns_and_lower_case_files_read_the_same(demo, tmp_path):
    for path in DEMO.glob("*.gz"):
        table = path.name.removesuffix(".csv.gz")
        raw(table).rename(str.upper).write_csv(tmp_path / f"{table.lower()}.csv", quote_style="non_numeric")
    data = mimic3(tmp_path, balanced=False)
    assert data.frame.equals(demo.frame)
    assert data.schema == demo.schema


def test_the_schema_survives_yaml(demo):
    assert Schema.from_yaml(demo.schema.to_yaml()) == demo.schema


def test_no_field_gives_the_label_away(demo, vectoriser):
    assert not {"hospital_expire_flag", "outcome", "dischtime", "deathtime"} & set(demo.schema.columns)
    assert check_leakage(vectoriser.transform(demo.frame), vectoriser.layout, demo.frame["outcome"].to_numpy()) == []
    assert label_copies(demo.frame, demo.schema) == []


def test_slots_do_not_depend_on_the_rows_read_with_them(demo, vectoriser):
    slots = vectoriser.transform(demo.frame)
    assert np.array_equal(vectoriser.transform(demo.frame[40:60]), slots[40:60])


# ---- what can be wrong with the folder ----------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="no such folder") as caught:
        mimic3(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(caught.value)


def test_a_missing_table_is_named_and_the_folder_listed(folder):
    (folder / "PRESCRIPTIONS.csv.gz").unlink()
    with pytest.raises(InputError, match=r"neither PRESCRIPTIONS\.csv nor PRESCRIPTIONS\.csv\.gz") as caught:
        mimic3(folder)
    assert "ADMISSIONS.csv.gz" in caught.value.remedy


def test_a_missing_column_is_named_with_its_file(folder):
    rewritten(folder, "ICUSTAYS", lambda frame: frame.drop("first_careunit"))
    with pytest.raises(InputError, match="ICUSTAYS has no column 'first_careunit'") as caught:
        mimic3(folder)
    assert caught.value.file.endswith("ICUSTAYS.csv") and caught.value.column == "first_careunit"


def test_a_time_in_another_format_is_refused(folder):
    rewritten(folder, "ADMISSIONS", lambda frame: frame.with_columns(dischtime=pl.lit("1/2/2164")))
    with pytest.raises(InputError, match="a time that cannot be parsed") as caught:
        mimic3(folder)
    assert caught.value.column == "dischtime" and caught.value.value == "1/2/2164"
