"""Tables as users bring them: how each is read, and the task file that a user would write for it.

`tefm_bench tables` fits them with the code of `tefm fit`. The files lie in one folder, as README and each `read` say;
`write_synthetic` writes a miniature of that folder, for a quick run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tefm.datasets.diabetes130 import Dataset, diabetes130
from tefm.tables.schema import Schema
from tefm_bench.datasets.cicids2017 import FIELDS, cicids2017
from tefm_bench.datasets.mimic3 import mimic3
from tefm_bench.datasets.set_aside import Patients, diabetes130_of
from tefm_bench.sequence_tables import SEQUENCE_TABLES, loan_events, write_synthetic_stays
from tefm_bench.user_table import DRAWN, UserTable, file_of

#: Events of a loan application that are read, and the three outcomes that are predicted.
EVENTS, OUTCOMES = 10, ("A_APPROVED", "A_DECLINED", "A_CANCELLED")
#: Diagnoses of made-up patients: heart failure, fluid disorders, diabetes, pneumonia.
DIAGNOSES = ("428", "276", "250", "486")

# ---- how each table is read ------------------------------------------------------------------------------------


def diabetes_of(folder: Path, patients: Patients = "open") -> Dataset:
    """The embedded data; a quick run has its own in the folder."""
    path = folder / "diabetes130" / "diabetic_data.parquet"
    return diabetes130_of(patients, path if path.is_file() else None, balanced=False)


def with_last_label(frame: pl.DataFrame, entity: str, label: str) -> pl.DataFrame:
    """One label per entity, in its last record, so that our teacher sees as many labels as tabular models."""
    is_last = pl.int_range(pl.len()).over(entity) == pl.len().over(entity) - 1
    frame = frame.with_columns(pl.when(is_last).then(label))
    assert frame[label].count() == frame[entity].n_unique(), "everyone has one label"
    return frame


def _mortality(folder: Path) -> pl.DataFrame:
    return with_last_label(diabetes_of(folder).frame, "patient_nbr", "outcome")


def _mortality_schema(folder: Path) -> Schema:
    return diabetes_of(folder).schema


def _set_aside(folder: Path) -> pl.DataFrame:
    return with_last_label(diabetes_of(folder, "set aside").frame, "patient_nbr", "outcome")


def _readmission(folder: Path) -> pl.DataFrame:
    """One admission of each patient, drawn at random, with those before it; without patients who died there."""
    frame = diabetes_of(folder).frame  # in the order of admissions
    number = pl.int_range(pl.len()).over("patient_nbr")
    counts = frame.group_by("patient_nbr", maintain_order=True).len()
    drawn = np.random.default_rng(DRAWN).integers(0, counts["len"].to_numpy())
    last = counts.select("patient_nbr", pl.Series("drawn", drawn))
    frame = frame.join(last, on="patient_nbr", maintain_order="left").filter(number <= pl.col("drawn"))
    soon = pl.when(pl.col("readmitted") == "<30").then(pl.lit("yes")).otherwise(pl.lit("no"))
    survived = (pl.col("outcome") == "survived").last().over("patient_nbr")
    asked = frame.filter(survived).drop("drawn").with_columns(soon.alias("readmission"))
    return with_last_label(asked, "patient_nbr", "readmission")


def _readmission_schema(folder: Path) -> Schema:
    schema = diabetes_of(folder).schema
    return schema.model_copy(update={"label": "readmission", "ignore": (*schema.ignore, "outcome")})


def _unsw(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(file_of(folder, "unsw_nb15/UNSW_NB15_training-set.parquet")).drop("id", "label")


def _nsl_kdd(folder: Path, file: str = "KDDTrain+") -> pl.DataFrame:
    normal = pl.when(pl.col("label") == "normal").then(pl.lit("normal")).otherwise(pl.lit("attack"))
    frame = pl.read_parquet(file_of(folder, f"nsl_kdd/{file}.parquet"))
    return frame.with_columns(normal.alias("label")).drop("difficulty")


def _nsl_kdd_test(folder: Path) -> pl.DataFrame:
    return _nsl_kdd(folder, "KDDTest+")


def _adult(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(file_of(folder, "adult/adult.parquet"))


def _flows(folder: Path) -> pl.DataFrame:
    """Single flows in the order of time, without addresses and times."""
    return cicids2017(file_of(folder, "cicids2017/corrected_sample.parquet"), task="attack", window=1).frame


def _attacks(folder: Path) -> pl.DataFrame:
    benign = pl.when(pl.col("label") == "BENIGN").then(pl.lit("benign")).otherwise(pl.lit("attack"))
    return _flows(folder).with_columns(benign.alias("label"))


def _ddos(folder: Path) -> pl.DataFrame:
    return cicids2017(file_of(folder, "cicids2017/corrected_sample.parquet"), task="ddos").frame


def _portscan(folder: Path) -> pl.DataFrame:
    return cicids2017(file_of(folder, "cicids2017/corrected_sample.parquet"), task="portscan").frame


def _flow_schema(folder: Path) -> Schema:
    return Schema(fields=FIELDS, record="flow", label="label")


def _loans(folder: Path) -> pl.DataFrame:
    """The first events of every application that is decided later, each with the minutes since the one before."""
    events = loan_events(folder)
    decisions = (
        events.filter(pl.col("event").is_in(OUTCOMES))
        .group_by("application")
        .agg(decided=pl.col("number").first(), outcome=pl.col("event").first())
        .filter(pl.col("decided") >= EVENTS)
    )
    waited = pl.col("time").diff().over("application").dt.total_milliseconds() / 60_000
    return (
        events.with_columns(waited.alias("minutes since the event before"))
        .filter(pl.col("number") < EVENTS)
        .join(decisions, on="application", maintain_order="left")
        .rename({"resource": "resource_id"})
        .drop("number", "decided")
    )


def _reviews(folder: Path) -> pl.DataFrame:
    frame = pl.read_parquet(file_of(folder, "clothing_reviews/clothing_reviews.parquet"))
    return frame.drop("Rating", "Title", "Review Text", "__index_level_0__", strict=False)


def _demo(folder: Path) -> pl.DataFrame:
    frame = mimic3(folder / "mimic3_demo", balanced=False).frame.sort("admittime", maintain_order=True)
    return with_last_label(frame, "subject_id", "outcome")


def _demo_schema(folder: Path) -> Schema:
    return mimic3(folder / "mimic3_demo", balanced=False).schema


# ---- the tables ------------------------------------------------------------------------------------------------

USER_TABLES: dict[str, UserTable] = {
    "diabetes130_mortality": UserTable(
        "Diabetes130, death",
        _mortality,
        {"balance": "train", "prompt": "mortality"},
        "does a patient's last admission end in death? Our language model is trained on as many survivors as deaths"
        " (`balance: train`), all else is at natural shares",
        schema=_mortality_schema,
    ),
    "diabetes130_readmission": UserTable(
        "Diabetes130, readmission",
        _readmission,
        {},
        "is the patient readmitted within 30 days of an admission, drawn at random?",
        schema=_readmission_schema,
    ),
    "unsw_nb15": UserTable("UNSW-NB15", _unsw, {"label": "attack_cat"}, "which of ten classes is a flow?"),
    "nsl_kdd": UserTable(
        "NSL-KDD",
        _nsl_kdd,
        {"label": "label"},
        "is a connection an attack? A random split of `KDDTrain+`; the same models are also scored on `KDDTest+`, which"
        " has attacks that training lacks",
        other=_nsl_kdd_test,
        other_title="NSL-KDD, KDDTest+",
    ),
    "adult": UserTable("Adult", _adult, {"label": "income"}, "does a person earn more than 50,000 dollars?"),
    "cicids2017": UserTable(
        "CIC-IDS2017",
        _flows,
        {"label": "label"},
        "which of 15 labels has a single flow of the corrected sample?",
    ),
    "cicids2017_time": UserTable(
        "CIC-IDS2017, by time",
        _attacks,
        {"label": "label", "split": {"by": "time"}},
        "is a single flow an attack? The last tenth of the flows is tested. It is almost all DDoS, a label that"
        " training lacks, so there are two classes here and not 15",
    ),
    "bpic2012": UserTable(
        "BPIC 2012",
        _loans,
        {"entity": "application", "time": "time", "label": "outcome"},
        "is a loan application approved, declined or cancelled? From its first ten events; applications that are"
        " decided by then are left out",
    ),
    "clothing_reviews": UserTable(
        "Clothing reviews",
        _reviews,
        {"label": "Recommended IND"},
        "does a customer recommend the item? Without rating, title and text",
    ),
}
#: Fitted on four fifths of the patients and scored on those set aside, for the table `heldout` alone.
HELD_OUT = "diabetes130_heldout"
#: The hundred patients of MIMIC-III that are open, for the table `sequences` alone.
DEMO = "mimic3_demo"
#: One language model reads all of these, for the table `domains` alone.
DOMAINS = ("diabetes130_mortality", "ddos", "portscan", "unsw_nb15")
SEGMENTS = {"window": 10, "label": "label", "prompt": "intrusion"}
ALL_TABLES = (
    USER_TABLES
    | SEQUENCE_TABLES
    | {
        "ddos": UserTable(
            "DDoS",
            _ddos,
            SEGMENTS,
            "are ten consecutive flows of the corrected sample a DDoS attack?",
            schema=_flow_schema,
        ),
        "portscan": UserTable(
            "PortScan",
            _portscan,
            SEGMENTS,
            "are ten consecutive flows of the corrected sample a port scan?",
            schema=_flow_schema,
        ),
        DEMO: UserTable(
            "MIMIC-III demo, death",
            _demo,
            {"prompt": "mortality", "split": {"shares": (0.6, 0.1, 0.3)}},
            "does a patient's last admission end in death? A hundred patients with 129 admissions, 30 of the patients"
            " tested: too few to tell methods apart",
            schema=_demo_schema,
        ),
        HELD_OUT: replace(
            USER_TABLES["diabetes130_mortality"], other=_set_aside, other_title="Diabetes130, patients set aside"
        ),
    }
)


# ---- a miniature of the folder ---------------------------------------------------------------------------------


def write_synthetic(folder: Path, rows: int = 100) -> None:
    """Write small tables with the columns of the real ones; what they hold is made up, and predicts the label."""
    rng = np.random.default_rng(0)
    yes_no = rng.permutation(np.arange(rows) % 2)

    def numbers(names: Mapping[str, Any] | list[str], labels: Any = yes_no) -> dict[str, Any]:
        return {name: rng.normal(np.asarray(labels), 1).round(2) for name in names}

    def write(name: str, columns: Mapping[str, Any]) -> None:
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame(columns).write_parquet(path)

    def words(*values: str) -> list[str]:
        return [str(value) for value in rng.choice(values, rows)]

    ten = rng.permutation(np.arange(rows) % 10)
    attacks = [f"class {number}" for number in ten]
    flow = {"id": np.arange(rows), "proto": words("tcp", "udp"), **numbers(["dur", "sbytes"], ten)}
    write("unsw_nb15/UNSW_NB15_training-set", {**flow, "attack_cat": attacks, "label": np.sign(ten)})
    for file, attack in (("KDDTrain+", "neptune"), ("KDDTest+", "mailbomb")):
        labels = np.where(yes_no, attack, "normal")
        write(
            f"nsl_kdd/{file}",
            {"service": words("http", "smtp"), **numbers(["duration"]), "label": labels, "difficulty": np.arange(rows)},
        )
    write(
        "adult/adult",
        {"age": rng.integers(17, 90, rows), **numbers(["hours"]), "income": np.where(yes_no, ">50K", "<=50K")},
    )
    # segments of ten flows
    kind = np.repeat(rng.permutation(np.arange(6 * rows // 10) % 3), 10)
    flows = numbers([field.name for field in FIELDS], np.sign(kind))
    write("cicids2017/corrected_sample", {**flows, "Label": np.array(["BENIGN", "DDoS", "PortScan"])[kind]})
    reviews = {"Clothing ID": rng.integers(0, 9, rows), "Title": words("nice", "bad"), "Rating": 1 + 4 * yes_no}
    write("clothing_reviews/clothing_reviews", {**reviews, **numbers(["Age"]), **_reviewed(yes_no)})
    write("kev/kev", _synthetic_vulnerabilities(yes_no))
    _write_synthetic_loans(write, rng, rows)
    _write_synthetic_patients(write, rng, 3 * rows)
    _write_synthetic_icu(folder / "mimic3_demo", rng, rows)
    write_synthetic_stays(folder)


def _reviewed(yes_no: Any) -> dict[str, Any]:
    """What further columns of a review hold; the text tells the label."""
    names = {f"{name} Name": [f"{name} {i % 3}" for i in range(len(yes_no))] for name in ("Division", "Class")}
    return {
        **names,
        "Department Name": names["Division Name"],
        "Positive Feedback Count": np.arange(len(yes_no)) % 5,
        "Review Text": ["love it, fits well" if yes else "returned it, too large" for yes in yes_no],
        "Recommended IND": yes_no,
    }


def _synthetic_vulnerabilities(yes_no: Any) -> dict[str, Any]:
    rows = len(yes_no)
    return {
        "cveID": [f"CVE-{2015 + i % 9}-{i}" for i in range(rows)],
        "vendorProject": [f"vendor {i % 17}" for i in range(rows)],
        "product": [f"product {i % 29}" for i in range(rows)],
        "vulnerabilityName": ["Path Traversal" if yes else "Use After Free" for yes in yes_no],
        "shortDescription": [f"Product {i % 29} contains a vulnerability." for i in range(rows)],
        "dateAdded": [f"202{1 + 4 * i // rows}-0{1 + i % 9}-01" for i in range(rows)],
        "dueDate": [f"2026-0{1 + i % 9}-15" for i in range(rows)],
        "cwes": ["CWE-22, CWE-79" if i % 2 else "CWE-416" for i in range(rows)],
        "knownRansomwareCampaignUse": np.where(yes_no, "Known", "Unknown"),
    }


def _write_synthetic_loans(write: Callable[..., None], rng: np.random.Generator, cases: int) -> None:
    """Twelve events per application on one of ten days, the last its outcome; every fourth is decided early."""
    events = []
    for case in range(cases):
        outcome = int(rng.integers(3))
        amount = str(1_000 * (1 + outcome) + int(rng.integers(500)))
        decided = 5 if case % 4 == 0 else 11
        for number in range(12):
            name = OUTCOMES[outcome] if number == decided else f"W_{rng.choice(['call', 'check'])}"
            when = f"2011-10-{1 + case * 10 // cases:02}T{8 + number:02}:{int(rng.integers(60)):02}:00.000+02:00"
            events.append((str(int(rng.integers(9))), "COMPLETE", name, when, when, str(case), amount))
    of_event = ("org:resource", "lifecycle:transition", "concept:name", "time:timestamp")
    columns = (*of_event, "case:REG_DATE", "case:concept:name", "case:AMOUNT_REQ")
    write("bpic2012/events", dict(zip(columns, np.array(events).T, strict=True)))


def _write_synthetic_patients(write: Callable[..., None], rng: np.random.Generator, admissions: int) -> None:
    """One or more admissions per patient, every column as text; who died stayed longer."""
    schema = diabetes130().schema
    died = rng.random(admissions) < 0.3
    soon = rng.random(admissions) < 0.3
    columns: dict[str, Any] = {
        "encounter_id": np.arange(admissions).astype(str),
        "patient_nbr": rng.integers(0, admissions // 2, admissions).astype(str),
        "discharge_disposition_id": np.where(died, "11", "1"),
        "readmitted": np.where(soon, "<30", "NO"),
    }
    for field_ in schema.fields:
        for name in field_.source:
            number = field_.kind == "number"
            values = rng.poisson(3 + 3 * died + 2 * soon) if number else rng.integers(0, 4, admissions)
            texts = np.array(DIAGNOSES)[values] if name.startswith("diag_") else values.astype(str)
            columns[name] = np.where(values > 1, "Yes", "No") if field_.kind == "flag" else texts
    write("diabetes130/diabetic_data", {**columns, "weight": ["?"] * admissions, "payer_code": ["?"] * admissions})


def _write_synthetic_icu(folder: Path, rng: np.random.Generator, admissions: int) -> None:
    """MIMIC-III's files: one or more admissions per patient, every third of which ends in death."""
    folder.mkdir(parents=True)
    number, died = np.arange(admissions), rng.permutation(np.arange(admissions) % 3 == 0)
    codes, in_time = (
        np.array(DIAGNOSES)[rng.integers(0, 4, admissions)],
        [f"2150-01-{1 + n % 28:02} 07:00:00" for n in number],
    )
    written: dict[str, dict[str, Any]] = {
        "ADMISSIONS": {
            "subject_id": number * 2 // 3,
            "hadm_id": number,
            "admittime": in_time,
            "dischtime": [time.replace("2150-01", "2150-02") for time in in_time],
            "admission_type": np.where(died, "EMERGENCY", "ELECTIVE"),
            "insurance": rng.choice(["Medicare", "Private"], admissions),
            "ethnicity": "WHITE",
            "hospital_expire_flag": died.astype(int),
        },
        "ICUSTAYS": {"hadm_id": number, "intime": in_time, "los": 1 + 3 * died, "first_careunit": "MICU"},
        "DIAGNOSES_ICD": {"hadm_id": number, "icd9_code": codes},
        "PROCEDURES_ICD": {"hadm_id": number, "icd9_code": codes},
        "PRESCRIPTIONS": {"hadm_id": number, "drug": rng.choice(["Insulin", "Heparin"], admissions)},
        "D_ICD_DIAGNOSES": {"icd9_code": DIAGNOSES, "long_title": DIAGNOSES},
        "D_ICD_PROCEDURES": {"icd9_code": DIAGNOSES, "long_title": DIAGNOSES},
    }
    for name, columns in written.items():
        pl.DataFrame(columns).write_csv(folder / f"{name}.csv")
