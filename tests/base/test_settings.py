"""Presets: one mechanism for the configs of all stages."""

from __future__ import annotations

import pytest
from conftest import Explained

from tefm.base.errors import SettingsError
from tefm.base.settings import StageSettings
from tefm.codes.config import TokenizerConfig
from tefm.language.config import AlignConfig, TrainConfig, TuneConfig
from tefm.rationale.config import RationaleConfig

STAGES: list[type[StageSettings]] = [TokenizerConfig, AlignConfig, TuneConfig, RationaleConfig]


@pytest.mark.parametrize("config", STAGES)
def test_a_preset_is_the_defaults_with_its_own_and_then_the_given_changes(config: type[StageSettings]) -> None:
    assert config.preset("default") == config()
    paper = config.preset("paper")
    assert type(paper) is config
    assert paper != config()
    changed = {name for name, value in paper.model_dump().items() if value != config().model_dump()[name]}
    assert changed <= set(config.PRESETS["paper"]) <= set(config.model_fields)
    assert config.preset("paper", seed=7) == paper.model_copy(update={"seed": 7})


@pytest.mark.parametrize("config", STAGES)
def test_an_invalid_preset_is_explained(config: type[StageSettings], explained: Explained) -> None:
    wrong = "papers"
    explained(SettingsError, lambda: config.preset(wrong), "not a valid preset", wrong, "one of: default, paper")  # type: ignore[arg-type]
    explained(SettingsError, lambda: config.preset("paper", sed=1), "sed", "seed")
    with pytest.raises(SettingsError, match=r"'seed'[\s\S]*first"):
        config.preset("paper", seed="first")


def test_each_config_has_presets_of_its_own(explained: Explained) -> None:
    assert AlignConfig.preset("paper").trains == "rows"
    assert TuneConfig.preset("paper").trains == "full"
    explained(SettingsError, lambda: TrainConfig.preset("paper"), "one of: default")
