"""Sequences per second from token ids to scores: codes against the same records as text, in the same run.

    python benchmarks/throughput.py [--cicids corrected_sample.parquet] [--layers 6] [--json FILE]

For each form the best of several batch sizes. CPU or GPU; the codes are random, since their values cost nothing.
A row of the results is replaced by one of the same device, data and layers; the others stay.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tefm_bench.data import DATA, Sources
from tefm_bench.experiments import FIRST_SPLIT
from tefm_bench.measurement import environment
from tefm_bench.text_model import TextWriter

from tefm.language.backbone import Backbone, open_backbone
from tefm.language.prediction import answer_logits
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.vocabulary import CodeVocabulary, extend
from tefm.tables.sequences import Sequences

RESULTS = Path("benchmarks/results/throughput.json")
#: The length of texts hardly differs; these are tokenised.
TEXTS = 100
#: SmolLM2 knows 8,192 positions.
LONGEST = 8_000
BATCHES = {"cpu": (1_024, 4_096, 16_384), "cuda": (1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)}


def per_second(backbone: Backbone, prompts: list[Any], first_tokens: Any, seconds: float) -> float:
    """The best rate over batch sizes; a size that does not fit into memory ends the search."""
    device = backbone.device.type
    tokens = float(np.mean([len(prompt) for prompt in prompts]))
    best, rounds = 0.0, 4 if device == "cuda" else 1
    for size, batch_tokens in {max(1, int(many / tokens)): many for many in BATCHES[device]}.items():
        many = (prompts * (1 + rounds * size // len(prompts)))[: max(2, rounds * size)]
        try:
            warm = many[:size] if device == "cuda" else [prompt[-64:] for prompt in many[:2]]
            answer_logits(backbone, warm, first_tokens, batch_tokens=batch_tokens)
            done, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                answer_logits(backbone, many, first_tokens, batch_tokens=batch_tokens)
                done += len(many)
            best = max(best, done / (time.perf_counter() - started))
        except torch.OutOfMemoryError:
            break
    return best


def measure(sources: Sources, name: str, layers: int | None, seconds: float) -> dict[str, Any]:
    """Codes and text of one data set, and their ratio."""
    data = sources.split(name, FIRST_SPLIT)
    task = data.tasks[DATA[name]]
    backbone = open_backbone(SMOLLM2, layers=layers)
    ids = extend(backbone, CodeVocabulary.of("record", levels=3, entries=128))
    writer = TextWriter(backbone.tokenizer, data.prompt(DATA[name]), task.classes, ids)
    codes_NK = np.random.default_rng(0).integers(0, 128, size=(len(task.sequences.rows), 3))
    texts = sources.texts(name, FIRST_SPLIT)[:TEXTS]
    prompts = {
        "codes": writer.of_codes(Sequences(codes_NK, task.sequences.starts)),
        "text": [prompt[-LONGEST:] for prompt in writer.around(texts, task.sequences.lengths[:TEXTS].tolist())],
    }
    figures: dict[str, Any] = {"data": name, "layers": layers or 30}
    for form, written in prompts.items():
        rate = per_second(backbone, written, writer.first_tokens, seconds)
        figures[form] = {"tokens": float(np.mean([len(prompt) for prompt in written])), "per_second": rate}
    figures["ratio"] = figures["codes"]["per_second"] / figures["text"]["per_second"]
    print(json.dumps(figures), flush=True)
    return figures


def add(measured: list[dict[str, Any]], path: Path) -> None:
    """Put rows into the results, each in the place of one of the same device, data and layers."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("device", "data", "layers"))

    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    new = {key(row): row for row in measured}
    rows = [new.pop(key(row), row) for row in rows] + list(new.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cicids", type=Path, help="the corrected release of CIC-IDS2017: a Parquet file or a folder")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench"), help="where the arrays of the data are kept")
    parser.add_argument("--layers", type=int, help="first blocks of the backbone")
    parser.add_argument("--seconds", type=float, default=3.0, help="per batch size")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the results, which this run is added to")
    given = parser.parse_args()
    sources = Sources(given.runs / "data", {"cicids2017": given.cicids} if given.cicids else {})
    names = ["diabetes130", *(["ddos"] if given.cicids else [])]
    machine = {**environment(), "command": shlex.join(["python", *sys.argv])}
    measured = [
        {"device": machine["device"], **measure(sources, name, given.layers, given.seconds), "machine": machine}
        for name in names
    ]
    add(measured, given.json)
