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
        ({"next": "weight", "above": 1, "below": 2}, ("two questions",)),
        ({"next": "*", "above": 1}, ("every field", "leave `above`")),
        ({"next": "*", "values": ["heart"]}, ("every field", "a list of values")),
        ({"column": "tired", "above": 1}, ("for a number of the next record",)),
        ({"next": "ward", "values": 0}, ("at least one value",)),
        ({"within": "soon"}, ("'soon' is not a time", "30 days")),
        ({"next": "ward", "template": "{ward}?"}, ("unknown placeholder", "{value}")),
        ({"next": "ward", "ask": "A?", "template": "B?"}, ("keep one of them",)),
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
