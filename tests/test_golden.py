"""Golden predictions: a change of structure must not move them.

The stored predictions were made by a fit on one machine. Sums of floats differ between processors, so there is one file
per kind of processor; on a kind without one the test is skipped and says so. To store those of this machine:

    TEFM_WRITE_GOLDEN=1 pytest tests/test_golden.py
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ONLY_PREDICTS, STAYS, quick, stays

GOLDEN = Path(__file__).parent / "golden"
MODELS: dict[str, dict[str, Any]] = {
    "codes": {},
    "unsupervised and aligned": {
        "task_aware": False,
        "align": {"steps": 12},
        "masked_copies": 0,
        "explanations": "none",
        "rationale": "none",
    },
    "windows": {"window": 2, "background": "no", "balance": "train", **ONLY_PREDICTS},
    "text": {"inputs": "text"},
}


def this_machine() -> Path:
    """The file of this kind of processor."""
    return GOLDEN / f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability().lower()}.json".replace(" ", "-")


def predictions(backbone: Path, settings: dict[str, Any]) -> dict[str, Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # another number of threads adds up in another order
    try:
        model = quick(backbone, STAYS, **settings).fit(stays(120))
        kept: dict[str, Any] = {"probabilities": model.predict_proba(stays(40, seed=1)).tolist()}
        if settings.get("explanations") != "none" and settings.get("inputs") != "text":
            explanations = model.explain(stays(12, seed=2))
            kept["explanations"] = [
                [e.answer.p, e.settling.precision.value, e.flips.value, len(e.settling.findings)] for e in explanations
            ]
            rationales = model.explain_masked(stays(12, seed=2))
            kept["rationales"] = [[r.full.p, r.alone.p, r.without.p, r.retention.kept] for r in rationales]
        return kept
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_the_golden_file(name: str, backbones: dict[str, Path]) -> None:
    path = this_machine()
    if not path.exists() and not os.environ.get("TEFM_WRITE_GOLDEN"):
        pytest.skip(f"no golden predictions for {path.stem}")
    now = predictions(backbones["llama"], MODELS[name])
    if os.environ.get("TEFM_WRITE_GOLDEN"):
        stored = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**stored, name: now}, indent=1, sort_keys=True) + "\n")
        return
    golden = json.loads(path.read_text())[name]
    assert now.keys() == golden.keys()
    for what, values in golden.items():
        np.testing.assert_allclose(now[what], values, atol=1e-6, rtol=0, err_msg=what)
