"""LightGBM on sentence embeddings: what it is given, and that it takes them where they say something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tefm_bench.baselines.embeddings import EMBEDDINGS, LIMIT, embeddings_of, lightgbm_with

from tefm.language.backbone import open_backbone
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences
from tefm.tabular.baselines import BaselineData, fit_baselines

pytest.importorskip("lightgbm")


def test_a_text_is_the_mean_of_its_states_up_to_the_limit(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(str(backbones["llama"]))
    long = "fever and cough " * LIMIT
    first, again, cut, empty = embeddings_of(backbone, ["fever", "fever", long, ""])
    assert np.allclose(first, again, atol=1e-5) and np.isfinite(empty).all()
    assert np.allclose(cut, embeddings_of(backbone, [long + "well"])[0], atol=1e-5), "the end is not read"
    assert not np.allclose(first, embeddings_of(backbone, ["cough"])[0], atol=1e-3)


@pytest.mark.parametrize("telling", [True, False])
def test_validation_decides_whether_embeddings_are_read(telling: bool) -> None:
    rng = np.random.default_rng(0)
    slots_ND = rng.integers(1, 5, (600, 2)).astype(np.uint8)
    embeddings_Nh = rng.normal(size=(600, 4)).astype(np.float32)
    yes_N = (embeddings_Nh[:, 0] if telling else slots_ND[:, 0] - 2.5) > 0
    data = BaselineData(
        slots_ND,
        Layout((Slot("a", "number", 4), Slot("b", "number", 4))),
        Sequences(np.arange(600), np.arange(601)),
        np.where(yes_N, "yes", "no"),
        np.repeat(["train", "validation", "test"], 200),
        notes=["words"] * 600,
    )
    available = {EMBEDDINGS: lightgbm_with(embeddings_Nh)}
    result = fit_baselines(data, available, kinds=("last",), resamples=0)[EMBEDDINGS]
    assert (EMBEDDINGS in result.figures["kind"]) == telling
    assert result.figures["test"]["auroc"]["value"] > 0.99
