"""A table whose next record is known: wards follow one another in a circle, and a fever comes after a cough."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from conftest import quick

from tefm.model.estimator import TEFM
from tefm.tables.schema import Schema

WARDS = ("surgery", "heart", "lung", "skin", "eye", "bone", "child")
SCHEMA = Schema.from_yaml("""
record: stay
entity: patient
time: day
ignore: [tired]
fields:
  ward: {kind: category, title: Ward}
  signs: {kind: set, delimiter: ;, title: Signs, count: false, names: {c: cough, f: fever}}
  weight: {kind: number, buckets: 2}
""")
QUESTIONS: dict[str, Any] = {
    "asked": [
        {"next": "ward", "again": True},
        {"next": "signs", "values": ["f"]},
        {"next": "weight", "above": 70},
        {"within": "10 days"},
        {"column": "tired", "ask": "Is the patient tired?"},
    ],
    "hold_out": 0.2,
    "least": 10,
    "pairs": 20_000,
}
SETTINGS: dict[str, Any] = {
    "codes": {"levels": 3, "entries": 16, "latent": 16, "hidden": 32, "steps": 300, "learning_rate": 5e-3},
    "tune": {"learning_rate": 3e-3, "steps": 60},
    "rationale": "none",
}


def circling(patients: int, seed: int = 0) -> pl.DataFrame:
    """Two to four stays per patient."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        ward, day = int(rng.integers(len(WARDS))), date(2024, 1, 1) + timedelta(days=int(rng.integers(100)))
        cough = False
        for _ in range(rng.integers(2, 5)):
            fever, cough = cough, bool(rng.random() < 0.4)
            rows.append(
                {
                    "patient": f"p{patient}",
                    "day": day.isoformat(),
                    "ward": WARDS[ward],
                    "signs": ";".join([*"c" * cough, *"f" * fever]) or None,
                    "weight": int(rng.integers(50, 90)),
                    "tired": "yes" if ward == 0 else "no",
                }
            )
            ward, day = (ward + 1) % len(WARDS), day + timedelta(days=int(rng.choice([5, 20])))
    return pl.DataFrame(rows)


def asked_model(backbone: Path, **settings: Any) -> TEFM:
    """A model of these questions that is yet to be fitted."""
    return quick(backbone, SCHEMA, **{**SETTINGS, "questions": QUESTIONS, **settings})
