"""A small MEDS folder for tests, checked with the schemas of the official package."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Event = tuple[int, dt.datetime | None, str, float | None]


def write_meds(
    folder: Path, shards: dict[str, list[Event]], *, visits: dict[int, list[int | None]] | None = None
) -> Path:
    """Events by shard, with the metadata that the standard asks for; `visits` adds a column `hadm_id`."""
    meds = pytest.importorskip("meds")
    codes = sorted({code for events in shards.values() for _, _, code, _ in events})
    for name, events in shards.items():
        subject, time, code, value = zip(*events, strict=True)
        table = pa.Table.from_pydict(
            {
                "subject_id": subject,
                "time": time,
                "code": code,
                "numeric_value": value,
                "text_value": [None] * len(code),
            },
            schema=meds.DataSchema.schema(),
        )
        if visits is not None:
            table = table.append_column("hadm_id", pa.array(visits[name], pa.int64()))  # type: ignore[index]
        meds.DataSchema.validate(table)
        path = folder / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    (folder / "metadata").mkdir()
    described = [f"what {code} means" for code in codes]
    table = pa.Table.from_pydict(
        {"code": codes, "description": described, "parent_codes": [None] * len(codes)},
        schema=meds.CodeMetadataSchema.schema(),
    )
    meds.CodeMetadataSchema.validate(table)
    pq.write_table(table, folder / "metadata" / "codes.parquet")
    dataset = {"dataset_name": "a test", "meds_version": meds.__version__}
    meds.DatasetMetadataSchema.validate(dataset)
    (folder / "metadata" / "dataset.json").write_text(json.dumps(dataset))
    subjects = sorted({subject for events in shards.values() for subject, *_ in events})
    splits = pa.Table.from_pydict(
        {"subject_id": subjects, "split": ["train"] * len(subjects)}, schema=meds.SubjectSplitSchema.schema()
    )
    meds.SubjectSplitSchema.validate(splits)
    pq.write_table(splits, folder / "metadata" / "subject_splits.parquet")
    return folder


def write_labels(path: Path, rows: list[tuple[int, dt.datetime, bool]]) -> Path:
    meds = pytest.importorskip("meds")
    subject, time, value = zip(*rows, strict=True)
    table = pa.Table.from_pydict({"subject_id": subject, "prediction_time": time, "boolean_value": value})
    table = meds.LabelSchema.align(table)
    meds.LabelSchema.validate(table)
    pq.write_table(table, path)
    return path


def patients(count: int, seed: int = 0) -> tuple[dict[str, list[Event]], list[tuple[int, dt.datetime, bool]]]:
    """Admissions, diagnoses, drugs and labs in two shards, and labels: who got morphine in the last stay dies."""
    rng = np.random.default_rng(seed)
    shards: dict[str, list[Event]] = {"train/0": [], "held_out/0": []}
    labels = []
    for subject in range(1, count + 1):
        born = dt.datetime(int(rng.integers(1930, 1990)), 5, 1)
        events: list[Event] = [(subject, None, f"GENDER//{'FM'[int(rng.integers(2))]}", None)]
        events.append((subject, born, "MEDS_BIRTH", None))
        time, dies = dt.datetime(2020, 1, 1) + dt.timedelta(days=int(rng.integers(300))), False
        for _ in range(rng.integers(1, 4)):
            time += dt.timedelta(days=int(rng.integers(5, 60)))
            dies = bool(rng.random() < 0.4)
            events.append((subject, time, f"HOSPITAL_ADMISSION//{rng.choice(['EMERGENCY', 'ELECTIVE'])}", None))
            later = time + dt.timedelta(hours=6)
            events.append((subject, later, "LAB//lactate//mmol/L", float(np.float32(rng.normal(2, 1)))))
            if rng.random() < 0.7:
                events.append((subject, later, "LAB//sodium//mmol/L", float(rng.integers(130, 150))))
            for code in rng.choice(["I10", "E11", "J18", "N17"], size=int(rng.integers(0, 4)), replace=False):
                events.append((subject, later + dt.timedelta(days=1), f"DIAGNOSIS//ICD10CM//{code}", None))
            if dies:
                events.append((subject, later + dt.timedelta(days=2), "MEDICATION//morphine", None))
            time += dt.timedelta(days=4)
            events.append((subject, time, "HOSPITAL_DISCHARGE//HOME", None))
        labels.append((subject, time, dies))
        shards["train/0" if subject % 4 else "held_out/0"] += events
    return shards, labels
