"""A quick fit: shorter, and labelled as such."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from conftest import QUICK, STAYS, stays

from tefm.model.estimator import TEFM
from tefm.pipeline.config import QUICK_SEQUENCES, ModelConfig
from tefm.pipeline.prepare import chosen
from tefm.tables.grouping import by_entity
from tefm.tables.schema import Schema


def test_quick_shortens_what_is_not_set() -> None:
    whole, quick = ModelConfig(), ModelConfig(quick=True)
    assert quick.tokenizer_config.steps < whole.tokenizer_config.steps
    assert quick.tune_config.total_steps(5_000) < whole.tune_config.total_steps(5_000)
    assert whole.explanations_config is not None and quick.explanations_config is None
    own = ModelConfig(quick=True, codes={"steps": 7}, tune={"steps": 8}, explanations={"donors": 90})
    assert own.explanations_config is not None
    assert (own.tokenizer_config.steps, own.tune_config.total_steps(5_000), own.explanations_config.donors) == (
        7,
        8,
        90,
    )


def test_quick_trains_on_a_sample_and_scores_everything() -> None:
    frame = pl.DataFrame({"x": range(3_000), "label": ["a", "b"] * 1_500})
    sequences = by_entity(frame, Schema.from_yaml("{label: label, fields: {x: number}}"))
    config = ModelConfig(quick=True)
    sample = chosen(sequences, config, most=QUICK_SEQUENCES)
    assert len(np.unique(sample)) == len(sample) == QUICK_SEQUENCES
    assert np.array_equal(sample, chosen(sequences, config, most=QUICK_SEQUENCES))
    assert len(chosen(sequences, config, evaluated=True)) == 3_000
    assert len(chosen(sequences, ModelConfig(), most=QUICK_SEQUENCES)) == 3_000


def test_a_quick_model_says_so(backbones: dict[str, Path], tmp_path: Path) -> None:
    settings = {**QUICK, "explanations": "default", "rationale": "none"}
    model = TEFM(STAYS, backbone=str(backbones["llama"]), device="cpu", quick=True, **settings).fit(stays(60))
    assert model.fitted.look_alikes is None
    assert "quick fit" in model._repr_html_()
    model.save(tmp_path / "model")
    assert "**Quick fit**" in (tmp_path / "model" / "README.md").read_text()
    assert TEFM.load(tmp_path / "model").quick
