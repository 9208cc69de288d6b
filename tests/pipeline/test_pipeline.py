"""One pipeline: what the benchmarks measure is what users run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ONLY_PREDICTS, STAYS, quick, stays
from tefm_bench.data import BUCKETS, Sources, SplitData
from tefm_bench.measurement import Bench
from tefm_bench.predictions import Prediction, Tune
from tefm_bench.tokenizers import Codes

from tefm.base import progress
from tefm.codes.coder import SlotCoder
from tefm.model.estimator import TEFM
from tefm.tables.sequences import split
from tefm.tables.vectorise import Vectoriser

CODES = {"steps": 30, "hidden": 32, "latent": 16}
TUNE = {"steps": 6, "checks": 1, "batch": 8}


@pytest.mark.parametrize("recipe", ["task-aware", "unsupervised"])
@pytest.mark.all
def test_a_line_of_the_bench_and_a_fit_of_the_same_split_agree(
    recipe: Any, backbones: dict[str, Path], tmp_path: Path
) -> None:
    """The same probabilities for the test patients of split 10, from the bench's arrays and from a table."""
    sources = Sources(tmp_path / "data", quick=True)
    bench = Bench(tmp_path, sources)
    codes = Codes(data="diabetes130", split=10, recipe=recipe, settings=CODES)
    tunes = (Tune(masked_copies=0, settings=TUNE),)
    line = Prediction(codes=codes, backbone=str(backbones["llama"]), tunes=tunes, keep=True)
    bench.measure(line)
    data = codes.split_data(bench)
    test, _ = data.sequences("mortality", "test")
    measured = line.fitted(bench).probabilities(test)

    dataset = sources.dataset("diabetes130", 10)
    parts = split(dataset.sequences, seed=10)
    train, validation, tested = (
        dataset.frame[np.sort(dataset.sequences.select(parts == part).rows)] for part in ("train", "validation", "test")
    )
    model = TEFM(
        dataset.schema.with_buckets(BUCKETS["diabetes130"]),
        backbone=str(backbones["llama"]),
        prompt="mortality",
        codes=CODES,
        tune=TUNE,
        task_aware=recipe == "task-aware",
        explanations="none",
        rationale="none",
        seed=10,
    ).fit(train, validation=validation)
    np.testing.assert_array_equal(model.predict_proba(tested), measured)


def test_records_are_vectorised_and_encoded_once_per_fit(
    backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the masked copies, which are other records, no stage sees a record before the one that needs it anew."""
    counts = {"vectorised": 0, "encoded": 0}
    transform, encode = Vectoriser.transform, SlotCoder.encode

    def counted_transform(self: Vectoriser, source: Any, **settings: Any) -> Any:
        slots_ND = transform(self, source, **settings)
        counts["vectorised"] += len(slots_ND)
        return slots_ND

    def counted_encode(self: SlotCoder, slots_ND: Any, **settings: Any) -> Any:
        counts["encoded"] += len(slots_ND)
        return encode(self, slots_ND, **settings)

    monkeypatch.setattr(Vectoriser, "transform", counted_transform)
    monkeypatch.setattr(SlotCoder, "encode", counted_encode)
    # after the stages, what `monitor` compares with is counted on held-out records, read as new ones are
    monkeypatch.setattr("tefm.model.bundle.reference_at_fit", lambda *_: None)
    table = stays(60)
    quick(backbones["llama"], **ONLY_PREDICTS).fit(table)
    assert counts == {"vectorised": table.height, "encoded": table.height}


def test_the_share_done_is_that_of_the_whole_job(backbones: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    """Off a terminal every stage is logged, and at short intervals how much of everything is done."""
    with pytest.MonkeyPatch.context() as patch, caplog.at_level("INFO", logger="tefm"):
        patch.setattr(progress, "LOG_EVERY", 0.0)
        quick(backbones["llama"], STAYS).fit(stays(60))
    stages = [line for line in caplog.messages if line.startswith("stage ")]
    assert [line[:12] for line in stages] == [f"stage {number} of 4" for number in (1, 2, 3, 4)]
    shares = [int(line.partition("%")[0]) for line in caplog.messages if "% done" in line]
    assert shares == sorted(shares)
    assert shares[0] < 20 and shares[-1] > 90
    assert any("left: " in line for line in caplog.messages)


def test_arrays_of_a_split_come_back(tmp_path: Path) -> None:
    data = Sources(tmp_path, quick=True).split("diabetes130", 10)
    data.save(tmp_path / "again.npz")
    again = SplitData.load(tmp_path / "again.npz")
    assert np.array_equal(again.x_ND, data.x_ND)
    assert again.layout == data.layout and again.phrases == data.phrases
