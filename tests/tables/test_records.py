"""`Records`: grouped once, vectorised once, and its parts are what the same rows are as tables of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tefm.base.errors import InputError
from tefm.tables.grouping import by_entity
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser

SCHEMA = Schema.from_yaml(
    "{entity: who, time: day, label: ill, text: [note], fields: {x: {kind: number, buckets: 4}, ward: category}}"
)
RNG = np.random.default_rng(7)
ROWS = 60
FRAME = pl.DataFrame(
    {
        "who": RNG.integers(0, 14, ROWS).astype(str),
        "day": RNG.choice(np.arange("2024-01", "2024-03", dtype="datetime64[D]"), ROWS),
        "ill": RNG.choice(["yes", "no"], ROWS),
        "note": RNG.choice(["well", "pale", "hot"], ROWS),
        "x": RNG.normal(size=ROWS),
        "ward": RNG.choice(["a", "b", "c"], ROWS),
    }
)
WINDOWED = SCHEMA.model_copy(update={"entity": None})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The heights of all frames that are vectorised."""
    heights: list[int] = []
    transform = Vectoriser.transform

    def counting(self: Vectoriser, source: Any, **how: Any) -> Any:
        heights.append(source.height)
        return transform(self, source, **how)

    monkeypatch.setattr(Vectoriser, "transform", counting)
    return heights


def records(**how: Any) -> Records:
    return Records.of_frame(FRAME, SCHEMA, file="stays.csv", **how)


def equal(one: Sequences, other: Sequences) -> None:
    assert one.values.tolist() == other.values.tolist()
    assert one.starts.tolist() == other.starts.tolist()
    assert one.names.tolist() == other.names.tolist()
    assert (one.labels is None) == (other.labels is None)
    assert one.labels is None or one.labels.tolist() == np.asarray(other.labels).tolist()
    assert one.texts == other.texts


def test_a_table_is_grouped_and_vectorised_once(counted: list[int]) -> None:
    everything = records()
    vectoriser = everything.vectoriser()
    everything.as_slots(vectoriser)
    everything.select([3, 1]).as_slots(vectoriser)
    everything.up_to(np.arange(ROWS)).as_slots(vectoriser)
    everything.part(np.arange(5)).slots(vectoriser)
    everything.slots(vectoriser)
    assert counted == [ROWS]


def test_slots_are_those_of_the_rows_in_the_order_of_the_sequences() -> None:
    everything = records()
    vectoriser = everything.vectoriser()
    assert vectoriser == Vectoriser.fit(FRAME, SCHEMA)
    slots = everything.as_slots(vectoriser)
    assert slots.x_ND.tolist() == vectoriser.transform(FRAME[everything.sequences.rows]).tolist()
    last = everything.sequences.last
    assert slots.texts == FRAME["note"].gather(last).to_list()


def test_a_few_rows_of_a_long_table_are_vectorised_alone(counted: list[int]) -> None:
    everything = records()
    vectoriser = everything.vectoriser()
    few = everything.select([2])
    alone = few.as_slots(vectoriser)
    assert counted == [len(few.sequences.rows)]
    equal(alone, everything.as_slots(vectoriser).select([2]))
    equal(alone, few.as_slots(vectoriser))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("window", [None, 4])
def test_a_part_is_a_table_of_its_own(window: int | None, known: bool) -> None:
    schema = WINDOWED if window else SCHEMA
    everything = Records.of_frame(FRAME, schema, window=window, file="stays.csv")
    vectoriser = everything.vectoriser()
    if known:
        everything.slots(vectoriser)
    chosen = np.arange(len(everything)) % 3 == 1
    part = everything.part(chosen)
    rows = np.sort(everything.sequences.select(chosen).rows)
    again = Records.of_frame(FRAME[rows], schema, window=window, file="stays.csv")
    equal(part.sequences, again.sequences)
    equal(part.as_slots(vectoriser), again.as_slots(vectoriser))
    assert part.frame.equals(again.frame)
    assert part.file == "stays.csv"
    assert part.slots(vectoriser).tolist() == again.slots(vectoriser).tolist()


def test_rows_outside_of_sequences_are_left_out() -> None:
    everything = Records.of_frame(FRAME, WINDOWED, window=7)
    assert len(everything) == ROWS // 7
    assert len(everything.rows) == ROWS // 7 * 7
    order = np.argsort(FRAME["day"].to_numpy(), kind="stable")
    assert everything.rows.tolist() == np.sort(order[: len(everything.rows)]).tolist()
    assert everything.vectoriser() == Vectoriser.fit(FRAME[everything.rows], WINDOWED)
    assert len(Records.of_frame(FRAME, WINDOWED, window=7, whole=False)) == ROWS // 7 + 1


def test_labels_are_not_read_where_they_are_not_needed() -> None:
    unlabelled = Records.of_frame(FRAME.drop("ill"), SCHEMA, labelled=False)
    assert unlabelled.sequences.labels is None
    assert unlabelled.up_to(np.array([0, 1])).sequences.labels is None


def test_the_role_of_every_row() -> None:
    everything = records()
    assert everything.labels_N is not None and everything.labels_N.tolist() == FRAME["ill"].to_list()
    assert everything.entities_N is not None and everything.entities_N.tolist() == FRAME["who"].to_list()
    assert Records.of_frame(FRAME, WINDOWED).entities_N is None


def test_prefixes_have_the_label_of_their_last_record() -> None:
    everything = records()
    grown = everything.up_to(np.arange(ROWS))
    rows = everything.sequences.rows
    assert grown.sequences.labels is not None
    assert grown.sequences.labels.tolist() == FRAME["ill"].gather(rows).to_list()


def test_an_error_names_the_file() -> None:
    bad = FRAME.with_columns(x=pl.lit("low"))
    with pytest.raises(InputError) as error:
        Records.of_frame(bad, SCHEMA, file="stays.csv").as_slots(records().vectoriser())
    assert "stays.csv" in str(error.value)


def test_sequences_are_those_of_the_table() -> None:
    equal(records().sequences, by_entity(FRAME, SCHEMA, file="stays.csv"))
