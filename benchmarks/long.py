"""Long histories: time and memory of a training step and of predictions for 10 to 1,000 records per sequence.

    python benchmarks/long.py [--records 10 100 1000] [--sequences 4] [--json FILE]

SmolLM2's first six blocks read random codes of three levels with the compact prompt. *Told in few tokens* is the
default, `code_tokens: 1024`: beyond it the oldest records share tokens. *Told whole* is the named alternative, every
record by its three codes. Each measurement is a process of its own, so that its peak memory is its own; what the
process needs without any sequence (`idle`) is measured too. Read the ratios: seconds are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tefm_bench.measurement import add_result

from tefm.language.backbone import open_backbone
from tefm.language.config import TuneConfig
from tefm.language.prediction import answer_logits
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.shortening import CODE_TOKENS
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.tuning import Questions, ToLearn, tune
from tefm.language.vocabulary import CodeVocabulary, extend
from tefm.pipeline.config import KEPT_LAYERS
from tefm.tables.sequences import Sequences

RESULTS = Path("benchmarks/results/long.json")
LEVELS, ENTRIES, STEPS = 3, 128, 2


def measured(records: int, whole: bool, sequences: int) -> dict[str, Any]:
    """One training step and one prediction of so many sequences, each per sequence."""
    backbone = open_backbone(SMOLLM2, layers=KEPT_LAYERS[SMOLLM2], device="cpu")
    ids = extend(backbone, CodeVocabulary.of("record", levels=LEVELS, entries=ENTRIES))
    prompt = Prompt.preset("generic", "compact", code_tokens=None if whole else CODE_TOKENS)
    writer = PromptWriter(backbone.tokenizer, prompt, ("no", "yes"), ids)
    rng = np.random.default_rng(0)
    starts = np.arange(0, sequences * records + 1, records)
    prompts = writer.of_codes(Sequences(rng.integers(0, ENTRIES, (sequences * records, LEVELS)), starts))
    idle = peak_mib()
    began = time.perf_counter()
    answer_logits(backbone, prompts, writer.first_tokens)
    predicted = time.perf_counter() - began
    after_predicting = peak_mib()
    learned = ToLearn([Questions(prompts, rng.integers(0, 2, len(prompts)), writer.answers)], [])
    history = tune(backbone, ids.all, learned, TuneConfig(steps=STEPS, batch=sequences))
    return {
        "tokens": float(np.mean([len(prompt) for prompt in prompts])),
        "prediction": {"seconds": predicted / sequences, "peak_mib": after_predicting - idle},
        "step": {"seconds": history.seconds / STEPS / sequences, "peak_mib": peak_mib() - idle},
    }


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--sequences", type=int, default=4, help="of a batch")
    parser.add_argument("--json", type=Path, default=RESULTS, help="results are added to this file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(measured(int(arguments.one[0]), arguments.one[1] == "told whole", arguments.sequences)))
        return
    for records in arguments.records:
        for told in ("told in few tokens", "told whole"):
            command = [sys.executable, __file__, "--one", str(records), told, "--sequences", str(arguments.sequences)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found = {"told": told, "records": records, **found}
            print("RESULT", json.dumps(found), flush=True)
            add_result(arguments.json, found, ("told", "records"))


if __name__ == "__main__":
    main()
