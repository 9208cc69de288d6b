"""Questions are written from titles and value names, and every mistake in them is explained."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from conftest import Explained
from support.circling import SCHEMA, circling

from tefm.base.errors import InputError, SettingsError
from tefm.questions.catalogue import catalogue, held_out_of
from tefm.questions.config import QuestionsConfig
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser

FRAME = circling(40)
VECTORISER = Vectoriser.fit(FRAME, SCHEMA)


def written(*entries: dict[str, Any], frame: pl.DataFrame = FRAME, schema: Schema = SCHEMA) -> list[str]:
    config = QuestionsConfig.of(list(entries))
    return [question.text for question in catalogue(config, VECTORISER, schema, frame, file="stays.csv")]


def test_the_words_of_each_kind() -> None:
    assert written({"next": "signs", "values": ["f", "c"]}) == ["Next stay: fever?", "Next stay: cough?"]
    assert written({"next": "ward", "values": ["eye"]}) == ["Next stay: Ward eye?"]
    assert written({"next": "weight", "above": 60.5}) == ["Next stay: weight above 60.5?"]
    assert written({"within": "2 weeks"}) == ["Within 2 weeks: another stay?"]
    assert written({"within": "1 year", "event": "signs", "values": ["f"]}) == ["Within 1 year: fever?"]
    assert written({"column": "tired"}) == ["tired?"]


def test_every_field_of_the_next_record() -> None:
    wards = [text for text in written({"next": "*"}) if "Ward" in text]
    assert len(wards) == 5
    others = [text for text in written({"next": "*"}) if "Ward" not in text]
    assert sorted(others[:2]) == ["Next stay: cough?", "Next stay: fever?"]
    assert len(others) == 3 and others[2].startswith("Next stay: weight above ")
    assert len([text for text in written({"next": "*", "values": 2}) if "Ward" in text]) == 2
    config = QuestionsConfig.of([{"next": "*"}])
    again = {question.source: question.again for question in catalogue(config, VECTORISER, SCHEMA, FRAME)}
    assert again == {"ward": True, "signs": False, "weight": False}
    stays = SCHEMA.model_copy(update={"static": ("ward",)})  # what never changes is no question
    assert {question.source for question in catalogue(config, VECTORISER, stays, FRAME)} == {"signs", "weight"}


def test_of_two_values_one_is_asked_about_and_two_sets_name_themselves() -> None:
    frame = pl.DataFrame(
        {"p": [1, 1, 2], "side": ["left", "right", "left"], "a": ["x", "y", "x"], "b": ["x", "x", "y"]}
    )
    fields = "{side: category, a: {kind: set, count: false}, b: {kind: set, count: false}}"
    schema = Schema.from_yaml(f"{{entity: p, record: visit, fields: {fields}}}")
    config = QuestionsConfig.of([{"next": "*"}])
    texts = [question.text for question in catalogue(config, Vectoriser.fit(frame, schema), schema, frame)]
    assert texts[0] == "Next visit: side right?"
    assert sorted(texts[1:]) == ["Next visit: a x?", "Next visit: a y?", "Next visit: b x?", "Next visit: b y?"]


def test_the_words_are_the_users() -> None:
    words = "Will {value} be recorded at the next {record} ({title})?"
    assert written({"next": "signs", "values": ["f"], "ask": words}) == [
        "Will fever be recorded at the next stay (Signs)?"
    ]
    assert written({"column": "tired", "ask": "Is the patient {{tired}}?"}) == ["Is the patient {tired}?"]


def test_a_column_has_a_question_per_class_and_of_two_one() -> None:
    three = pl.when(pl.col("weight") < 60).then(pl.lit("low")).when(pl.col("weight") < 75).then(pl.lit("middle"))
    frame = FRAME.with_columns(three.otherwise(pl.lit("high")).alias("class"))
    schema = SCHEMA.model_copy(update={"ignore": ("tired", "class")})
    texts = written({"column": "class"}, frame=frame, schema=schema)
    assert sorted(texts) == ["class: high?", "class: low?", "class: middle?"]
    two = frame.with_columns(
        pl.when(pl.col("weight") > 85).then(pl.lit("heavy")).otherwise(pl.lit("not")).alias("class")
    )
    assert written({"column": "class"}, frame=two, schema=schema) == ["class: heavy?"]
    assert written({"column": "class", "values": ["not"]}, frame=two, schema=schema) == ["class: not?"]


@pytest.mark.parametrize(
    ("entry", "kind", "parts"),
    [
        ({"next": "sign"}, SettingsError, ("sign", "did you mean 'signs'?")),
        ({"next": "weight"}, SettingsError, ("above a threshold", "above:")),
        ({"next": "ward", "above": 3}, SettingsError, ("for numbers", "values")),
        ({"next": "ward", "values": ["hart"]}, SettingsError, ("'hart'", "did you mean 'heart'?")),
        ({"next": "ward", "ask": "Which one?"}, SettingsError, ("`ask` is one question", "7 values", "write {value}")),
        ({"column": "tierd"}, InputError, ("stays.csv", "did you mean 'tired'?")),
        ({"column": "ward"}, SettingsError, ("would give it away", "ignore:")),
        ({"column": "tired", "values": ["maybe"]}, InputError, ("'maybe'", "tired")),
    ],
)
def test_mistakes(entry: dict[str, Any], kind: type[Any], parts: tuple[str, ...], explained: Explained) -> None:
    explained(kind, lambda: written(entry), *parts)


def test_an_answer_that_is_also_text_is_refused(explained: Explained) -> None:
    """The prompt would hold the answer."""
    schema = SCHEMA.model_copy(update={"ignore": (), "text": ("tired",)})
    explained(SettingsError, lambda: written({"column": "tired"}, schema=schema), "also text", "tired", "ignore:")


def test_a_column_with_many_values_or_one(explained: Explained) -> None:
    many = FRAME.with_row_index("number").with_columns(pl.lit("a").alias("one"))
    explained(InputError, lambda: written({"column": "number"}, frame=many), "each would be a question", "values: 10")
    explained(InputError, lambda: written({"column": "one"}, frame=many), "fewer than two values")


def test_the_same_words_twice(explained: Explained) -> None:
    twice = [{"next": "signs", "values": ["f"]}, {"next": "ward", "values": ["eye"], "ask": "next stay:  FEVER"}]
    explained(SettingsError, lambda: written(*twice), "the same words", "`ask`")


def test_a_time_ahead_needs_a_time(explained: Explained) -> None:
    timeless = SCHEMA.model_copy(update={"time": None})
    explained(SettingsError, lambda: written({"within": "1 day"}, schema=timeless), "time column", "time: COLUMN")


def test_values_with_the_same_name_keep_their_code() -> None:
    schema = Schema.from_yaml("{fields: {dx: {kind: set, delimiter: ;, names: {'1': flu, '2': flu, '3': gout}}}}")
    frame = pl.DataFrame({"dx": ["1;2", "3", "1"]})
    config = QuestionsConfig.of([{"next": "dx"}])
    texts = [one.text for one in catalogue(config, Vectoriser.fit(frame, schema), schema, frame)]
    assert sorted(texts) == ["Next record: flu (1)?", "Next record: flu (2)?", "Next record: gout?"]


def test_only_entries_with_several_questions_have_some_held_out() -> None:
    held = held_out_of([0] * 8 + [1, 2, 2], 0.25, seed=3)
    assert held[:8].sum() == 2 and not held[8:].any()
    assert (held_out_of([0] * 8, 0.25, seed=3) == held[:8]).all()
    assert not held_out_of([0] * 8, 0.0, seed=3).any()
