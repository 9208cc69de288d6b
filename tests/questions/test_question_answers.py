"""What the answers are, record by record, on a table that can be checked by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from conftest import Explained

from tefm.base.errors import InputError
from tefm.questions.catalogue import catalogue
from tefm.questions.config import QuestionsConfig
from tefm.questions.question_data import Asking, Histories, histories_in, recorded
from tefm.tables.grouping import by_entity
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser

SCHEMA = Schema.from_yaml("""
entity: who
time: day
ignore: [ill]
fields: {dx: {kind: set, delimiter: ;}, ward: category, x: number}
""")
#: a has three records, b two, c one; the table ends on 2024-03-01
FRAME = pl.DataFrame(
    {
        "who": ["a", "a", "a", "b", "b", "c"],
        "day": ["2024-01-01", "2024-01-05", "2024-02-20", "2024-01-01", "2024-03-01", "2024-02-28"],
        "dx": ["g", "f;g", "f", "f", None, "g"],
        "ward": ["s", "h", None, "h", "h", "s"],
        "x": [1.0, 5.0, None, 2.0, 9.0, 3.0],
        "ill": ["no", "no", "yes", "no", None, "no"],
    }
)


def histories(entry: dict[str, Any], frame: pl.DataFrame = FRAME, most: int = 100) -> Histories:
    vectoriser, config = Vectoriser.fit(frame, SCHEMA), QuestionsConfig.of({"asked": [entry], "histories": most})
    questions = catalogue(config, vectoriser, SCHEMA, frame)
    return histories_in(Asking(config, vectoriser), questions, Records.of_frame(frame, SCHEMA))


def answers(entry: dict[str, Any], frame: pl.DataFrame = FRAME) -> dict[str, int]:
    """The answer after each history: its entity and how many records it has."""
    found = histories(entry, frame)
    names = [f"{who}{count}" for who, count in zip(found.histories.names, found.histories.lengths, strict=True)]
    return {name: int(answer) for name, (answer,) in zip(names, found.answers_HQ, strict=True) if answer >= 0}


def test_a_value_at_the_next_record_is_asked_where_it_is_new() -> None:
    assert answers({"next": "dx", "values": ["f"]}) == {"a1": 1}  # b has it from the start, a from its second record
    assert answers({"next": "dx", "values": ["f"], "again": True}) == {"a1": 1, "a2": 1, "b1": 0}


def test_a_category_that_is_missing_is_not_known() -> None:
    assert answers({"next": "ward", "values": ["h"], "again": False}) == {"a1": 1}
    assert answers({"next": "ward", "values": ["h"]}) == {"a1": 1, "b1": 1}  # exactly one ward is next


def test_a_number_at_the_next_record() -> None:
    assert answers({"next": "x", "above": 5}) == {"a1": 0, "b1": 1}
    assert answers({"next": "x", "above": 6}) == {"a1": 0, "b1": 1}


def test_an_event_within_a_time() -> None:
    """No needs as long a time without the event as was asked about: the table ends before that for some."""
    assert answers({"within": "10 days"}) == {"a1": 1, "a2": 0, "a3": 0, "b1": 0}
    assert answers({"within": "50 days", "event": "dx", "values": ["g"]}) == {"b1": 0}
    assert answers({"within": "50 days", "event": "dx", "values": ["f"]}) == {"a1": 1}


def test_plain_numbers_are_no_times(explained: Explained) -> None:
    frame = FRAME.with_columns(pl.int_range(pl.len()).alias("day"))
    explained(InputError, lambda: answers({"within": "10 days"}, frame), "plain numbers", "day", "next")


def test_a_column_answers_about_whole_sequences() -> None:
    assert answers({"column": "ill"}) == {"a3": 1, "c1": 0}


def test_histories_are_drawn_where_there_are_many() -> None:
    found = histories({"next": "ward", "again": True}, most=1)
    assert len(found) == 1
    assert found.histories.rows[0] in (0, 3)  # where a and b begin


def test_what_is_recorded_already_is_known_when_it_is_asked() -> None:
    vectoriser, sequences = Vectoriser.fit(FRAME, SCHEMA), by_entity(FRAME, SCHEMA)
    slots = sequences.with_values(vectoriser.transform(FRAME[sequences.rows]))
    entries: list[dict[str, Any]] = [{"next": "dx", "values": ["f"]}, {"next": "x", "above": 5}, {"within": "1 day"}]
    f, x, within = catalogue(QuestionsConfig.of(entries), vectoriser, SCHEMA, FRAME)
    assert recorded(f, vectoriser, slots).tolist() == [True, True, False]
    assert not recorded(x, vectoriser, slots).any() and not recorded(within, vectoriser, slots).any()
    assert not recorded(f.model_copy(update={"again": True}), vectoriser, slots).any()


@pytest.mark.parametrize("shuffle", [0, 1])
def test_the_order_of_the_rows_does_not_matter(shuffle: int) -> None:
    frame = FRAME.sample(fraction=1.0, shuffle=True, seed=shuffle)
    assert answers({"next": "dx", "values": ["f"], "again": True}, frame) == {"a1": 1, "a2": 1, "b1": 0}
