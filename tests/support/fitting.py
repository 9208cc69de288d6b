"""One fit in a process of its own: from the files of a folder, with its results left in the folder.

`python fitting.py FOLDER CHECKPOINT` is what torchrun starts; tests that kill a fit call `fit` in a new process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from tefm import TEFM, Schema
from tefm.base.files import write_json
from tefm.language import training_loop


def fit(folder: Path, checkpoint: str, threads: int | None = None) -> None:
    """Fit `stays.csv` with `schema.yaml` and `settings.json`; everything is named after the checkpoint folder."""
    if threads is not None:
        torch.set_num_threads(threads)
    training_loop.SAVE_EVERY = 0
    rank = os.environ.get("RANK", "0")
    settings = json.loads((folder / "settings.json").read_text())
    model = TEFM(Schema.load(folder / "schema.yaml"), device="cpu", **settings)
    model.fit(folder / "stays.csv", checkpoint=folder / checkpoint)
    model.save(folder / f"{checkpoint}.model")
    torch.save(model.fitted_.classifier.backbone.model.state_dict(), folder / f"{checkpoint}.{rank}.weights")
    result = {
        "tune_resumed_from": model.fitted_.history["tune"].resumed_from,
        "coder_resumed_from": model.tokenizer_.coder.history_.resumed_from,
        "codes": model.tokenizer_.coder.identity,
        "p": model.predict_proba(folder / "stays.csv").tolist(),
    }
    write_json(folder / f"{checkpoint}.{rank}.json", result)


if __name__ == "__main__":
    fit(Path(sys.argv[1]), sys.argv[2])
