"""Diabetes 130-US hospitals 1999–2008 (UCI, CC BY 4.0): 101,766 encounters of 71,518 patients, embedded.

Task `mortality`: a patient's encounters in order; did the patient die in the last one?
"""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

import polars as pl

from tefm.datasets.base import Dataset
from tefm.tables.grouping import by_entity
from tefm.tables.schema import Field, Schema
from tefm.tables.splitting import balance

SOURCE = (
    "Clore, Cios, DeShazo, Strack: Diabetes 130-US hospitals for years 1999-2008, UCI Machine Learning Repository, "
    "2014 (CC BY 4.0); Strack et al., BioMed Research International 2014, 781670"
)

#: All patients, those to develop on, or those set aside for a last test.
Patients = Literal["all", "open", "set aside"]
#: Discharge dispositions of patients who died.
DIED = ("11", "19", "20", "21")
#: Known only after the outcome, or nearly always missing.
NOT_INPUTS = ("discharge_disposition_id", "readmitted", "weight", "payer_code")

NUMBERS = {
    "time_in_hospital": ("Length of stay", "days"),
    "num_lab_procedures": ("Lab procedures", None),
    "num_procedures": ("Other procedures", None),
    "num_medications": ("Medications given", None),
    "number_outpatient": ("Outpatient visits in the year before", None),
    "number_emergency": ("Emergency visits in the year before", None),
    "number_inpatient": ("Inpatient stays in the year before", None),
    "number_diagnoses": ("Diagnoses entered", None),
}
PATIENT = {"race": "Race", "gender": "Gender", "age": "Age"}
ADMISSION = {
    "admission_type_id": "Admission type",
    "admission_source_id": "Admission source",
    "medical_specialty": "Admitting specialty",
}
TESTS = {"max_glu_serum": "Glucose serum test", "A1Cresult": "HbA1c test"}
CHANGES = {"change": "Diabetes medication changed", "diabetesMed": "Diabetes medication prescribed"}
DRUGS = (
    "metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "acetohexamide", "glipizide",
    "glyburide", "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "troglitazone", "tolazamide",
    "examide", "citoglipton", "insulin", "glyburide-metformin", "glipizide-metformin", "glimepiride-pioglitazone",
    "metformin-rosiglitazone", "metformin-pioglitazone",
)  # fmt: skip
DIAGNOSES = ("diag_1", "diag_2", "diag_3")


def diabetes130(
    source: str | Path | None = None, *, patients: Patients = "all", balanced: bool = True, seed: int = 0
) -> Dataset:
    """The embedded data with the mortality task; classes are balanced 1:1 unless `balanced=False`.

    `source` is another table with the columns of UCI's, as text. A fifth of the patients is set aside for a last test
    (`is_set_aside`): `open` leaves them out, `set aside` has only them.

    >>> data = diabetes130()
    >>> data.frame.height, len(data.sequences), len(data.schema.fields)
    (101766, 3278, 42)
    """
    frame = _read("diabetes130.parquet") if source is None else pl.read_parquet(source)
    if patients != "all":
        frame = frame.filter(is_set_aside(frame["patient_nbr"]) == (patients == "set aside"))
    frame = frame.with_columns(
        pl.col("encounter_id").cast(pl.Int64),
        pl.when(pl.col("discharge_disposition_id").is_in(DIED))
        .then(pl.lit("died"))
        .otherwise(pl.lit("survived"))
        .alias("outcome"),
    ).sort("encounter_id")
    schema = _schema()
    sequences = by_entity(frame, schema)
    if balanced:
        sequences = sequences.select(balance(sequences, seed=seed))
    return Dataset("diabetes130", frame, schema, sequences, SOURCE)


def is_set_aside(patients: pl.Series) -> pl.Series:
    """Which patients belong to the fifth that is set aside: a hash of the number decides, so it never changes.

    >>> is_set_aside(pl.Series(["8222157", "55629189", "86047875", "82442376", "42519267"])).to_list()
    [False, False, True, False, False]
    """
    numbers = patients.unique()
    hashed = [int.from_bytes(blake2b(number.encode(), digest_size=8).digest()) for number in numbers]
    return patients.is_in(numbers.filter(pl.Series(hashed, dtype=pl.UInt64) % 5 == 0).implode())


def _schema() -> Schema:
    ids = _id_names()

    def field(name: str, title: str, group: str, *absent: str) -> Field:
        return Field(name=name, kind="category", title=title, group=group, absent=absent, names=ids.get(name, {}))

    fields = [field(name, title, "Patient") for name, title in PATIENT.items()]
    fields += [field(name, title, "Admission") for name, title in ADMISSION.items()]
    fields += [Field(name=n, kind="number", title=t, unit=unit, group="Stay") for n, (t, unit) in NUMBERS.items()]
    # in this table, "None" means that a test was not made, and "No" that a drug was not given
    fields += [field(name, title, "Tests", "None") for name, title in TESTS.items()]
    fields += [field(name, name.capitalize(), "Drugs", "No") for name in DRUGS]
    fields += [Field(name=n, kind="flag", title=t, group="Drugs", on=("Ch", "Yes")) for n, t in CHANGES.items()]
    fields.append(
        Field(
            name="diagnoses",
            kind="set",
            columns=DIAGNOSES,
            title="Diagnoses",
            group="Diagnoses",
            top=200,
            names=_icd9_names(),
        )
    )
    return Schema(
        fields=tuple(fields),
        record="admission",
        entity="patient_nbr",
        time="encounter_id",
        label="outcome",
        ignore=NOT_INPUTS,
    )


def _read(name: str) -> pl.DataFrame:
    with as_file(files("tefm.datasets") / "data" / name) as path:
        return pl.read_parquet(path)


def _icd9_names() -> dict[str, str]:
    """Names of the frequent codes: three-digit categories of ICD-9-CM, which is in the public domain."""
    with as_file(files("tefm.datasets") / "data" / "icd9_names.csv") as path:
        return dict(pl.read_csv(path, infer_schema=False).rows())


def _id_names() -> dict[str, dict[str, str]]:
    """The names for the id columns; their file has one small table per column, one below the other."""
    text = (files("tefm.datasets") / "data" / "diabetes130_ids.csv").read_text(encoding="utf-8")
    names: dict[str, dict[str, str]] = {}
    column = ""
    for line in text.splitlines():
        key, _, name = line.partition(",")
        if name == "description":
            column = key
        elif key:
            names.setdefault(column, {})[key] = name.strip().strip('"').strip()
    return names
