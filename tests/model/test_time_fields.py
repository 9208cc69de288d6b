"""A model of a table with a time: gaps between records are fields that nobody has to give."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, quick
from support.kept import Kept

from tefm.model.estimator import TEFM
from tefm.serve.describe import columns_of, example_rows
from tefm.tables.schema import Schema

SCHEMA = Schema.from_yaml("{record: call, entity: who, time: at, label: urgent, fields: {line: category}}")


def calls(people: int, seed: int = 0) -> pl.DataFrame:
    """Who calls again within two hours is urgent; the line says nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for who in range(people):
        at, urgent = datetime(2024, 1, 1) + timedelta(hours=float(rng.random() * 1_000)), bool(rng.integers(2))
        waits = [0.0, *rng.uniform(5, 90, rng.integers(1, 4)), rng.uniform(0.2, 2) if urgent else rng.uniform(5, 90)]
        for wait in waits:
            at += timedelta(hours=float(wait))
            rows.append((f"p{who}", at, str(rng.choice(["a", "b", "c"])), "yes" if urgent else "no"))
    return pl.DataFrame(rows, schema=["who", "at", "line", "urgent"], orient="row")


@pytest.fixture(scope="module")
def model(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    settings = {**ONLY_PREDICTS, "tune": {"learning_rate": 3e-3, "steps": 120}}
    return kept.made("calls", lambda: quick(backbones["llama"], SCHEMA, **settings).fit(calls(300)))


def test_the_time_between_records_decides(model: TEFM) -> None:
    test = calls(100, seed=1)
    assert (model.evaluate(test).scores.auroc.value or 0) > 0.95
    without = SCHEMA.model_copy(update={"time_fields": "none"})
    known = {field.name for field in model.preparation.schema.fields} - {field.name for field in without.fields}
    assert {"since_previous", "since_first"} <= known
    assert model.schema == SCHEMA, "what the user gave stays"


def test_a_saved_model_and_its_tokenizer_read_the_same_codes(model: TEFM, tmp_path: Path) -> None:
    test = calls(30, seed=2)
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))
    records = again.preparation.to_predict(test)
    read = again.fitted.codes(again.preparation.slots(records)).values
    np.testing.assert_array_equal(again.tokenizer_.encode(test)[records.sequences.rows], read)
    assert model.n_features_in_ == 4, "those that the user gave"


def test_a_request_has_no_column_for_them(model: TEFM) -> None:
    names = {column.name for column in columns_of(model.preparation)}
    assert names == {"who", "at", "line"} == set(example_rows(model.preparation)[0])
