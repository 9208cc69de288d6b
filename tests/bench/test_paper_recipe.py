"""What is called the paper's: its settings in the whole recipe, and its figures as it prints them."""

from __future__ import annotations

import pytest
from tefm_bench.experiments import Setup
from tefm_bench.tables.published import RATIONALES, SHAPES_ALIGNED

from tefm.codes.config import TokenizerConfig
from tefm.language.config import AlignConfig, TuneConfig


@pytest.mark.parametrize("data", ["diabetes130-open", "ddos"])
def test_the_whole_recipe_has_the_papers_settings_in_every_stage(data: str) -> None:
    prediction = Setup().papers(data, 10)
    assert prediction.codes is not None
    assert prediction.codes.config().tokenizer_config == TokenizerConfig.preset("paper", seed=10)
    assert prediction.codes.config().task_aware is False
    (tune,) = prediction.tunes
    config = prediction.config(tune)
    assert config.tune_config == TuneConfig.preset("paper", seed=10)
    assert config.align_config(10, "cpu") == AlignConfig.preset("paper", seed=10)
    assert (tune.style, config.masked_copies, prediction.layers, prediction.start) == ("full", 0, None, "mean")


def test_published_figures_agree_with_themselves() -> None:
    wrong = {
        (method, number)
        for method, shares in RATIONALES.items()
        for number, (_, macro, positive, negative) in enumerate(shares)
        if abs((positive + negative) / 2 - macro) > 2e-4
    }
    assert wrong == {("random", 1), ("SHAP", 2)}, "the paper's own slips"
    assert all(exact < close for shapes in SHAPES_ALIGNED.values() for exact, close in shapes.values())
