"""The same answer alone and among others, and the same model on any number of threads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from conftest import ONLY_PREDICTS, quick, stays

from tefm.base.files import MANIFEST
from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.model.estimator import TEFM
from tefm.tables.layout import Layout, Slot


@pytest.mark.parametrize(("slots", "size", "distinct", "entries"), [(6, 8, 60, 128), (12, 3, 40, 64), (3, 2, 27, 16)])
def test_a_record_gets_the_same_code_alone_as_among_others(slots: int, size: int, distinct: int, entries: int) -> None:
    # fewer records than codebook entries: many entries are all but equal, and rounding decides between them
    rng = np.random.default_rng(0)
    layout = Layout(tuple(Slot(f"n{i}", "number", size) for i in range(slots)))
    x_ND = rng.integers(0, size + 1, (distinct, slots)).astype(np.uint8)[rng.integers(0, distinct, 300)]
    config = TokenizerConfig(levels=3, entries=entries, latent=32, steps=60)
    coder = SlotCoder(config, device="cpu").fit(x_ND, layout)
    x_ND = np.unique(x_ND, axis=0)
    together = coder.encode(x_ND)
    for count in (1, 7, 13):
        apart = [coder.encode(x_ND[start : start + count]) for start in range(0, len(x_ND), count)]
        assert np.array_equal(np.concatenate(apart), together), count


@pytest.mark.slow
def test_another_number_of_threads_gives_the_same_model(backbones: dict[str, Path], tmp_path: Path) -> None:
    table, threads = stays(120), torch.get_num_threads()
    models = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            models.append(quick(backbones["llama"], deterministic=True, **ONLY_PREDICTS).fit(table))
            assert torch.get_num_threads() == count  # as it was
    finally:
        torch.set_num_threads(threads)
    first, second = (model.fitted.classifier.backbone.model.state_dict() for model in models)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert models[0].fitted.coder.identity == models[1].fitted.coder.identity  # type: ignore[union-attr]
    saved = models[1].save(tmp_path / "model")
    assert json.loads((saved / MANIFEST).read_text())["threads"] == 1
    assert TEFM.load(saved, device="cpu").deterministic


def test_scattered_records_are_predicted_as_grouped_ones(
    fitted: TEFM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = stays(60, seed=3)
    scattered = frame[np.random.default_rng(0).permutation(frame.height)]
    whole = fitted.predict_table(scattered)
    monkeypatch.setattr("tefm.tables.chunks.whole_sequences.__kwdefaults__", {"window": None, "rows": 16})
    scattered.write_csv(tmp_path / "t.csv")
    batches = list(fitted.predict_batches(tmp_path / "t.csv"))
    assert len(batches) > 3
    assert pl.concat(batches)["patient"].to_list() == whole["patient"].to_list()
    assert np.allclose(pl.concat(batches)["p(yes)"], whole["p(yes)"], atol=1e-5)
