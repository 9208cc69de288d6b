"""What `questions:` of a task file may say, and what is said about what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Explained

from tefm.base.errors import SettingsError
from tefm.model.task import Task
from tefm.pipeline.config import ModelConfig
from tefm.questions.config import QuestionsConfig, seconds_of


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ({}, ("one of `column`, `next` and `within`",)),
        ({"next": "ward", "column": "tired"}, ("one of `column`, `next` and `within`",)),
        ({"next": "ward", "event": "signs"}, ("`event` needs a time", "within: 30 days")),
        ({"next": "weight", "below": 2}, ("the setting 'below' was removed", "`above`")),
        ({"next": "*", "above": 1}, ("every field", "leave `above`")),
        ({"next": "*", "values": ["heart"]}, ("every field", "a list of values")),
        ({"column": "tired", "above": 1}, ("for a number of the next record",)),
        ({"next": "ward", "values": 0}, ("at least one value",)),
        ({"within": "soon"}, ("'soon' is not a time", "30 days")),
        ({"next": "ward", "ask": "{ward}?"}, ("unknown placeholder", "{value}")),
        ({"next": "ward", "template": "B?"}, ("the setting 'template' was removed", "`ask`")),
    ],
)
def test_an_entry_that_cannot_be_asked(entry: dict[str, Any], parts: tuple[str, ...], explained: Explained) -> None:
    with pytest.raises(SettingsError) as caught:
        ModelConfig.checked({"questions": [entry]})
    for part in parts:
        assert part in str(caught.value)


def test_a_list_is_short_for_its_entries() -> None:
    assert QuestionsConfig.of([{"next": "ward"}]) == QuestionsConfig.of({"asked": [{"next": "ward"}]})
    assert ModelConfig().questions_config is None


def test_what_earlier_versions_stored_can_be_read() -> None:
    entries = [{"next": "signs", "template": "{value}?", "below": None}, {"next": "weight", "below": 3, "ask": None}]
    stored = ModelConfig.stored({"questions": {"asked": entries, "stand_ins": 3}}).questions_config
    assert stored == QuestionsConfig.of([{"next": "signs", "ask": "{value}?"}, {"next": "weight"}])
    assert ModelConfig.stored({"questions": entries}).questions_config == stored
    assert QuestionsConfig.of({"asked": [{"next": "ward", "below": None}], "stand_ins": 10}).asked[0].next == "ward"


def test_a_misspelled_setting_is_named(explained: Explained) -> None:
    explained(SettingsError, lambda: QuestionsConfig.of({"asked": [{"next": "ward"}], "holdout": 0.1}), "hold_out")


def test_yaml_values_are_text_and_become_what_they_should_be() -> None:
    text = """
table: stays.csv
entity: patient
questions:
  hold_out: 0.3
  asked:
    - {next: signs, values: 20, again: true}
    - {next: weight, above: 7}
    - {next: ward, values: [heart, lung]}
"""
    config = Task.from_yaml(text).model.questions_config
    assert config is not None
    assert [asked.values for asked in config.asked] == [20, None, ("heart", "lung")]
    assert (config.hold_out, config.asked[0].again, config.asked[1].above) == (0.3, True, 7.0)


def test_a_quick_fit_asks_less_unless_it_is_told_how_much() -> None:
    config = ModelConfig(quick=True, questions={"asked": [{"next": "ward"}], "pairs": 77}).questions_config
    assert config is not None
    assert (config.pairs, config.scored) == (77, 100)


@pytest.mark.parametrize(("text", "seconds"), [("1 hour", 3_600), ("30 days", 2_592_000), ("0.5 minutes", 30)])
def test_times(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
