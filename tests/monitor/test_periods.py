"""Batches by time: every record is counted once, and an entity is seen as it was."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from conftest import STAYS, Explained, stays

from tefm.base.errors import InputError, SettingsError
from tefm.monitor.observe import batches_of
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.prepare import Preparation
from tefm.tables.schema import Schema

TABLE = stays(60, seed=1)


def preparation(schema: Schema = STAYS, **settings: object) -> Preparation:
    return Preparation(schema, ModelConfig.checked(settings), None)


@pytest.mark.parametrize("by", ["day", "week", "month"])
def test_every_record_is_in_one_period(by: str) -> None:
    of = preparation()
    periods = batches_of(of.records(TABLE), by)
    arrivals = periods.arrivals
    days = TABLE["day"].str.to_date().dt.truncate({"day": "1d", "week": "1w", "month": "1mo"}[by])
    expected = days.dt.strftime("%Y-%m" if by == "month" else "%Y-%m-%d").to_list()
    assert sorted(arrivals.own.rows.tolist()) == list(range(TABLE.height))
    period_N = np.repeat(periods.batch_S, arrivals.own.lengths)
    assert [periods.names[number] for number in period_N] == [expected[row] for row in arrivals.own.rows]
    assert list(periods.names) == sorted(set(expected))


def test_an_entity_has_its_records_up_to_the_end_of_the_period() -> None:
    of = preparation()
    records = of.records(TABLE)
    sequences = records.sequences
    periods = batches_of(records, "month")
    months = TABLE["day"].str.slice(0, 7).to_numpy()
    grown = periods.arrivals.records.sequences
    assert len(grown) == TABLE.with_columns(month=pl.Series(months)).select("patient", "month").n_unique()
    for number in range(len(grown)):
        month, patient = periods.names[periods.batch_S[number]], grown.names[number]
        until = np.flatnonzero((TABLE["patient"].to_numpy() == patient) & (months <= month))
        assert sorted(grown[number].tolist()) == until.tolist()
        assert months[grown[number][-1]] == month
        assert np.asarray(grown.labels)[number] == TABLE["died"][int(grown[number][-1])]
        assert sequences.names[periods.arrivals.unit_S[number]] == patient


def test_a_window_belongs_to_the_period_of_its_last_record() -> None:
    of = preparation(window=4)
    records = of.records(TABLE, whole=False)
    sequences = records.sequences
    periods = batches_of(records, "month")
    assert len(periods.arrivals) == len(sequences)
    months = TABLE["day"].str.slice(0, 7).to_numpy()
    assert [periods.names[number] for number in periods.batch_S] == months[sequences.last].tolist()


def test_what_cannot_be_cut(explained: Explained) -> None:
    of = preparation()
    explained(SettingsError, lambda: batches_of(of.records(TABLE), "year"), "year", "week")
    timeless = preparation(STAYS.model_copy(update={"time": None}))
    explained(InputError, lambda: batches_of(timeless.records(TABLE), "week"), "need a time")
    numbered = TABLE.with_columns(day=pl.int_range(pl.len()))
    explained(InputError, lambda: batches_of(of.records(numbered), "week"), "day", "dates")
