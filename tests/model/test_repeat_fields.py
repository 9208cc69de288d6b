"""A model of a table in which repeats tell the label: the fields that say so are added by the fit, and only then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, quick
from support.kept import Kept

from tefm.model.estimator import TEFM
from tefm.model.run import TaskTable, start
from tefm.model.task import Split
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.telling import with_repeats
from tefm.serve.describe import columns_of
from tefm.tables.records import Records
from tefm.tables.schema import Schema

SCHEMA = Schema.from_yaml(
    "{record: visit, entity: who, time: day, time_fields: none, label: moved,"
    " fields: {ward: category, nurse: category}}"
)


def visits(people: int, seed: int = 0, *, repeats: bool = True) -> pl.DataFrame:
    """Who was never in the same ward twice in a row has moved; nurses say nothing, and neither does one ward alone."""
    rng = np.random.default_rng(seed)
    rows = []
    for who in range(people):
        moved, wards = bool(rng.integers(2)), [int(rng.integers(4))]
        for _ in range(int(rng.integers(4, 7))):
            wards.append((wards[-1] + int(rng.integers(1, 4))) % 4)
        if not moved and repeats:
            place = int(rng.integers(1, len(wards)))
            wards[place] = wards[place - 1]
        rows += [
            (f"p{who}", day, "abcd"[ward], str(rng.choice(["x", "y", "z"])), "yes" if moved else "no")
            for day, ward in enumerate(wards)
        ]
    return pl.DataFrame(rows, schema=["who", "day", "ward", "nurse", "moved"], orient="row")


def added(frame: pl.DataFrame, schema: Schema = SCHEMA) -> list[str | None]:
    records = Records.of_frame(frame, schema)
    extended = with_repeats(records, records.vectoriser(), ModelConfig())
    return [field.repeats for field in extended.fields if field.repeats]


@pytest.fixture(scope="module")
def model(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    settings = {**ONLY_PREDICTS, "tune": {"learning_rate": 3e-3, "steps": 60}}
    return kept.made("wards", lambda: quick(backbones["llama"], SCHEMA, **settings).fit(visits(300)))


def test_only_the_fields_that_tell_the_label_apart_are_added(model: TEFM) -> None:
    assert [field.repeats for field in model.preparation.schema.fields if field.repeats] == ["ward"]
    assert not added(visits(300, repeats=False)), "repeats say nothing"
    assert not added(visits(150)), "too few to know"
    assert not added(visits(300), SCHEMA.model_copy(update={"repeat_fields": "none"})), "switched off"


def test_all_parts_of_a_table_have_the_field(backbones: dict[str, Path]) -> None:
    table = TaskTable.of_frame(quick(backbones["llama"], SCHEMA), visits(400), Split(seed=1))
    started = start(table)
    records = started.table.records
    assert records.schema == started.prepared.preparation.schema != SCHEMA
    assert records.frame["ward_last_seen"].null_count() == 0
    tested = started.prepared.preparation.slots(started.tested)
    assert tested.x_ND.shape[1] == started.prepared.preparation.vectoriser.layout.width


def test_repeats_decide(model: TEFM) -> None:
    assert (model.evaluate(visits(100, seed=1)).scores.auroc.value or 0) > 0.95


def test_a_table_to_predict_has_no_column_for_them(model: TEFM, tmp_path: Path) -> None:
    test = visits(30, seed=2)
    assert {column.name for column in columns_of(model.preparation)} == {"who", "day", "ward", "nurse"}
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))
    assert model.n_features_in_ == 5, "those that the user gave"
    assert model.schema == SCHEMA, "what the user gave stays"
