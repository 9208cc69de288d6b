"""Questions in words: what many questions about one history cost, and a reduced run of `tefm_bench questions`.

    python benchmarks/questions.py cost [--json FILE]
    python benchmarks/questions.py reduced --data FOLDER --table diabetes130 --steps 300 [--json FILE]

`cost`: 50 questions about one patient after one reading of the history, against 50 separate prompts, one after another
and in one batch. `reduced`: pretrained and random weights on the same codes and pairs, with fewer steps and histories
than `tefm_bench questions`, which needs a GPU. A part of the results is replaced by one of the same name; others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tefm_bench.data import Sources
from tefm_bench.measurement import Bench, environment
from tefm_bench.questions import QuestionRun, QuestionTrees
from tefm_bench.tables.words import summary

from tefm.datasets.diabetes130 import diabetes130
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.prediction import answer_logits, common_prefix, pair_logits
from tefm.language.prompts import Prompt, QuestionWriter
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.vocabulary import CodeVocabulary, extend
from tefm.tables.sequences import Sequences

RESULTS = Path("benchmarks/results/questions.json")
#: Records of the history: a patient of Diabetes130 has two on average, and some have forty.
RECORDS = (2, 10, 40)


def cost(questions: int, repeats: int, layers: int | None) -> list[dict[str, Any]]:
    """The time of many questions about one history, each of them written from a diagnosis."""
    names = list(diabetes130().schema.field("diagnoses").names.values())[:questions]
    texts = [f"Next admission: {name}?" for name in names]
    backbone = open_backbone(SMOLLM2, layers=layers)
    ids = extend(backbone, CodeVocabulary.of("admission", levels=3, entries=128))
    writer = QuestionWriter(backbone.tokenizer, Prompt.preset("generic", "compact"), ids)
    tails = [writer.tail(text) for text in texts]
    first, same = writer.first_tokens, common_prefix(tails)
    rows = []
    for records in RECORDS:
        codes_NK = np.random.default_rng(0).integers(0, 128, (records, 3))
        (prefix,) = writer.prefixes(Sequences(codes_NK, np.array([0, records])))
        prompts = [np.concatenate([prefix, tail]) for tail in tails]
        everyone, numbers = np.zeros(len(tails), dtype=np.int64), np.arange(len(tails))
        forms: dict[str, Callable[[], Any]] = {
            "shared": partial(pair_logits, backbone, [prefix], tails, everyone, numbers, first),
            "separate": partial(_one_by_one, backbone, prompts, first),
            "batched": partial(answer_logits, backbone, prompts, first, share_prefix=False),
        }
        seconds = {}
        answers = {name: answer() for name, answer in forms.items()}  # the first call warms up
        for name, answer in forms.items():
            times = []
            for _ in range(repeats):
                started = time.perf_counter()
                answer()
                times.append(time.perf_counter() - started)
            seconds[name] = min(times)
        rows.append(
            {
                "records": records,
                "questions": len(tails),
                "layers": layers,
                "seconds": seconds,
                "times_separate": seconds["separate"] / seconds["shared"],
                "times_batched": seconds["batched"] / seconds["shared"],
                "tokens_per_answer": (len(prefix) + same + sum(len(tail) - same for tail in tails)) / len(tails),
                "tokens_per_prompt": float(np.mean([len(prompt) for prompt in prompts])),
                "largest_difference": float(np.abs(answers["shared"] - answers["separate"]).max()),
            }
        )
    return rows


def _one_by_one(backbone: Backbone, prompts: list[Any], first: list[int]) -> Any:
    return np.concatenate([answer_logits(backbone, [prompt], first) for prompt in prompts])


def reduced(arguments: argparse.Namespace) -> dict[str, Any]:
    """Pretrained and random weights with few steps; figures are means over questions, on test entities."""
    paths = {"tables": arguments.data} if arguments.data else {}
    bench = Bench(arguments.folder, Sources(arguments.folder / "data", paths, False))
    asked = {"pairs": arguments.pairs, "scored": arguments.scored}
    settings = {"tune": {"steps": arguments.steps, "checks": 4}}
    figures = {}
    for body in ("pretrained", "random"):
        run = QuestionRun(
            table=arguments.table,
            seed=arguments.seed,
            body=body,  # type: ignore[arg-type]
            most=arguments.most,
            asked=asked,
            settings=settings,
        )
        figures[body] = bench.figures(run) or bench.measure(run)
        print(body, summary(figures[body]), flush=True)
    trees = None
    if arguments.compare:
        of_trees = QuestionTrees(table=arguments.table, seed=arguments.seed, most=arguments.most, asked=asked)
        trees = bench.figures(of_trees) or bench.measure(of_trees)
    both = {
        body: summary(figures[body], trees, figures["random"] if body == "pretrained" else None) for body in figures
    }
    return {"steps": arguments.steps, "most": arguments.most, "seed": arguments.seed, **asked, **both}


def write(part: str, results: Any, path: Path) -> None:
    body = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    command = f"python {shlex.join(sys.argv)}"
    run = {"command": command, "load": os.getloadavg()[0], "environment": environment()}
    body[part] = {"run": run, "results": results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("cost", "reduced"))
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="the folder of all user tables; Diabetes130 is embedded")
    parser.add_argument("--folder", type=Path, default=Path("runs/questions"), help="for measurements and codes")
    parser.add_argument("--table", default="diabetes130")
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--most", type=int, default=None)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=12_000)
    parser.add_argument("--scored", type=int, default=150)
    parser.add_argument("--compare", action="store_true", help="also fit one LightGBM per question")
    arguments = parser.parse_args()
    if arguments.part == "cost":
        results: Any = cost(arguments.questions, arguments.repeats, arguments.layers)
        part = "cost"
    else:
        results, part = reduced(arguments), arguments.table
    write(part, results, arguments.json)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
