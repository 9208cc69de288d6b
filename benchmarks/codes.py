"""How much codes keep: the tables of docs/results.md on Diabetes130 and the CIC-IDS2017 corrected sample.

    python benchmarks/codes.py prepare [--cicids corrected_sample.parquet]   # tables become slots, splits by seed
    python benchmarks/codes.py run [--share 0/4]                             # one fit per job, resumable; CPU or GPU
    python benchmarks/codes.py report                                        # ceilings, tables, the plot

`run` works from arrays alone (torch, numpy, scikit-learn, pydantic, rich), so that it can be sent to another machine.
Settings were chosen on the validation parts; the tables show the test parts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

RUNS = Path("runs/codes")
RESULTS = Path("benchmarks/results/codes.json")
PARTS = ("train", "validation", "test")
RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper"},
    "unsupervised": {},
    "task-aware": {"aware": True},
}


def jobs() -> list[dict[str, Any]]:
    """All fits, the most wanted first."""
    clinical = [{"data": "diabetes130", "seed": s, "recipe": r} for s in range(3) for r in RECIPES]
    flows = [{"data": f"{t}-B5", "seed": s, "recipe": "unsupervised"} for s in range(3) for t in ("ddos", "portscan")]
    grid = [
        {"data": f"{task}-B{buckets}", "seed": 0, "recipe": "unsupervised", "entries": entries}
        for buckets in (5, 10)
        for task in ("ddos", "portscan")
        for entries in (64, 128, 256, 512)
        if (buckets, entries) != (5, 128)
    ]
    plain = [{"data": f"{t}-B{b}", "seed": 0, "recipe": "paper"} for b in (5, 10) for t in ("ddos", "portscan")]
    shapes = ((2, 128), (3, 64), (3, 256), (3, 512), (4, 128), (8, 256))
    front = [
        {"data": "diabetes130", "seed": s, "recipe": r, "levels": k, "entries": c}
        for k, c in shapes
        for r in ("unsupervised", "task-aware")
        for s in (0, 1)
    ]
    front += [
        {"data": "diabetes130", "seed": s, "recipe": recipe, name: weight}
        for recipe, name, weight in (("unsupervised", "member_weight", 4.0), ("task-aware", "label_weight", 3.0))
        for s in (0, 1)
    ]
    return clinical + flows + plain + grid + front


def key(job: dict[str, Any]) -> str:
    return "_".join(f"{name}={value}" for name, value in job.items()).replace("/", "-")


# ---- prepare ----------------------------------------------------------------------------------------------------


def prepare(cicids: Path | None) -> None:
    from tefm.datasets import cicids2017, diabetes130
    from tefm.records.sequences import by_entity

    for seed in range(3):
        data = diabetes130(seed=seed)
        groups = np.unique(data.frame["patient_nbr"].to_numpy(), return_inverse=True)[1]
        _write(
            f"diabetes130_{seed}",
            data.frame,
            data.schema,
            by_entity(data.frame, data.schema),
            groups,
            data.sequences.last,
            seed,
        )
    if cicids is None:
        return
    for task in ("ddos", "portscan"):
        data = cicids2017(cicids, task=task)
        frame = data.frame[np.sort(data.sequences.rows)]
        groups = np.arange(frame.height) // 10
        for buckets in (5, 10):
            for seed in range(3):
                _write(
                    f"{task}-B{buckets}_{seed}",
                    frame,
                    data.schema.with_buckets(buckets),
                    data.sequences,
                    groups,
                    np.zeros(0, int),
                    seed,
                )


def _write(name: str, frame: Any, schema: Any, sequences: Any, groups: Any, task_rows: Any, seed: int) -> None:
    """Slots learned on the training part of a split by sequence, with everything a fit needs."""
    from tefm import Vectoriser
    from tefm.records.sequences import rows_of, split

    parts = split(sequences, seed=seed)
    part_N = np.zeros(frame.height, dtype=np.int8)
    for number, part in enumerate(PARTS):
        part_N[rows_of(sequences, parts, part)] = number
    vectoriser = Vectoriser.fit(frame[np.flatnonzero(part_N == 0)], schema)
    slots = [(s.field, s.kind, s.size, s.member) for s in vectoriser.layout.slots]
    RUNS.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        RUNS / f"{name}.npz",
        x=vectoriser.transform(frame),
        part=part_N,
        group=groups.astype(np.int32),
        label=frame[schema.label].to_numpy().astype(str),
        task=np.asarray(task_rows, dtype=np.int64),
        slots=json.dumps(slots),
    )
    print(name, frame.shape, flush=True)


def load(job: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    from tefm.records.layout import Layout, Slot

    with np.load(RUNS / f"{job['data']}_{job['seed']}.npz") as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, Layout(tuple(Slot(*slot) for slot in json.loads(str(arrays.pop("slots")))))


# ---- run --------------------------------------------------------------------------------------------------------


def run(share: str, limit: float) -> None:
    mine, of = (int(number) for number in share.split("/"))
    started = time.perf_counter()
    for job in jobs()[mine::of]:
        target = RUNS / "done" / f"{key(job)}.json"
        if target.exists() or not (RUNS / f"{job['data']}_{job['seed']}.npz").exists():
            continue
        if time.perf_counter() - started > limit:
            break
        result, arrays = fit(job)
        target.parent.mkdir(exist_ok=True)
        np.savez_compressed(target.with_suffix(".npz"), **arrays)
        target.write_text(json.dumps(result))
        print(
            "RESULT",
            key(job),
            f"{result['seconds']:.0f} s",
            f"slot accuracy {result['test']['slot_accuracy']:.4f}",
            flush=True,
        )


def fit(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One tokenizer: everything measured on the test part, and what the ceiling needs."""
    from tefm.codes.coder import SlotCoder
    from tefm.codes.config import TokenizerConfig
    from tefm.codes.fidelity import codebook_use, collisions, measure
    from tefm.codes.hierarchy import hierarchy

    arrays, layout = load(job)
    x_ND, part_N, labels_N = arrays["x"], arrays["part"], arrays["label"].astype(object)
    recipe = dict(RECIPES[job["recipe"]])
    aware, preset = recipe.pop("aware", False), recipe.pop("preset", "default")
    changes = {name: value for name, value in job.items() if name not in ("data", "recipe")}
    config = TokenizerConfig.preset(preset, **recipe, **changes)
    started = time.perf_counter()
    train_N = part_N == 0
    coder = SlotCoder(config).fit(
        x_ND[train_N],
        layout,
        groups_N=arrays["group"][train_N],
        labels_N=labels_N[train_N] if aware else None,
        validation_ND=None if aware else x_ND[part_N == 1],
    )
    seconds = time.perf_counter() - started
    codes_NK = coder.encode(x_ND)
    result: dict[str, Any] = {
        "job": job,
        "seconds": seconds,
        "device": str(coder.device),
        "config": coder.config.model_dump(),
    }
    for number, part in ((1, "validation"), (2, "test")):
        here = part_N == number
        result[part] = measure(x_ND[here], coder.decode(codes_NK[here]), layout, coder.mode_D_).to_dict()
    test_N = part_N == 2
    result["use"] = [level.to_dict() for level in codebook_use(codes_NK, coder.config.entries)]
    result["hierarchy"] = [prefix.to_dict() for prefix in hierarchy(x_ND[test_N], codes_NK[test_N], layout)]
    result["collisions"] = collisions(x_ND[test_N], codes_NK[test_N], labels_N[test_N]).to_dict()
    task = arrays["task"]
    codebooks = coder.network.quantiser.codebooks_KCd.detach().cpu().numpy().astype(np.float16)
    return result, {"codes": codes_NK[task], "codebooks": codebooks}


# ---- report -----------------------------------------------------------------------------------------------------


def report() -> None:
    results = [json.loads(path.read_text()) for path in sorted((RUNS / "done").glob("*.json"))]
    raw: dict[int, Any] = {}
    for result in results:
        if result["job"]["data"] == "diabetes130":
            result["ceiling"] = ceiling_of(result["job"], raw)
        for part in ("validation", "test"):
            result[part].pop("fields")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
    print(f"{len(results)} results → {RESULTS}")
    plot(results, Path("docs/front.png"))
    Path("docs/results.md").write_text(tables(results), encoding="utf-8")


def ceiling_of(job: dict[str, Any], raw: dict[int, Any]) -> dict[str, Any]:
    """LightGBM on ê against LightGBM on raw slots: learned on training patients, scored on test patients."""
    from tefm.codes.ceiling import ceiling

    arrays, _ = load(job)
    task = arrays["task"]
    labels, part = arrays["label"][task], arrays["part"][task]
    with np.load(RUNS / "done" / f"{key(job)}.npz") as file:
        codes_NK, codebooks_KCd = file["codes"], file["codebooks"].astype(np.float32)
    quantised = sum(codebooks_KCd[k][codes_NK[:, k]] for k in range(codes_NK.shape[1]))
    scores = ceiling({"codes": np.asarray(quantised)}, labels, part == 0, part == 2)
    if job["seed"] not in raw:
        raw[job["seed"]] = ceiling({"raw": arrays["x"][task]}, labels, part == 0, part == 2)["raw"].to_dict()
    return {"codes": scores["codes"].to_dict(), "raw": raw[job["seed"]]}


CLINICAL = (
    "slot accuracy", "±1", "NMSE", "field accuracy", "recall", "precision", "utilisation", "perplexity a",
    "unique codes", "ratio a", "ratio a+b", "ratio, whole code", "ceiling", "raw slots",
)  # fmt: skip
FLOWS = (
    "slot accuracy",
    "all-mode",
    "±1",
    "NMSE",
    "utilisation",
    "perplexity a",
    "collisions",
    "ratio a",
    "ratio, whole code",
)
HEADER = """# What codes keep

Written by `python benchmarks/codes.py report`; the figures are in `benchmarks/results/codes.json`. Mean ± standard
deviation over splits, on the test part of each split. Settings were chosen on validation parts.

*Slot accuracy* is the share of slots that come back exactly, *all-mode* the same for always guessing the most common
value, *±1* forgives one bucket, *NMSE* is the squared error of slots scaled to [0, 1] (a wrong category counts 1).
*Field accuracy* leaves the flags of sets out. *Recall* and *precision* are of present diagnoses. *Utilisation* is that
of the worst level, *unique codes* the distinct codes per test record. *Ratio* is the distance of two records that share
a prefix of the code over that of two that do not (5,000 pairs each). *Ceiling* is the AUROC of LightGBM on the
quantised latent for in-hospital death at the last admission, *raw slots* the same on the uncompressed record.
"""


def tables(results: list[dict[str, Any]]) -> str:
    """The page docs/results.md."""
    clinical = [r for r in results if r["job"]["data"] == "diabetes130"]
    usual = [r for r in clinical if set(r["job"]) == {"data", "seed", "recipe"}]
    mode, fields = (_spread([r["test"][f"mode_{n}_accuracy"] for r in usual]) for n in ("slot", "field"))
    parts = [
        HEADER,
        "## Diabetes130 (101,766 admissions, split by patient 80/10/10), K3-C128, B = 10\n",
        f"All-mode: slot accuracy {mode}, field accuracy {fields}.\n",
        markdown(usual, CLINICAL),
        "\nTask-aware codes saw the labels of the training patients through a cross-fitted teacher (decisions.md), so",
        "they carry part of the answer. The unsupervised ones saw none.\n",
        "## The front: recipes and shapes\n",
        "![field accuracy against the ceiling](front.png)\n",
        markdown([r for r in clinical if r["job"]["recipe"] != "paper"], CLINICAL),
    ]
    for buckets in (5, 10):
        flows = [r for r in results if r["job"]["data"].endswith(f"-B{buckets}")]
        parts += [f"\n## CIC-IDS2017, corrected sample (10,000 flows each), B = {buckets}\n", markdown(flows, FLOWS)]
    parts.append(
        "\nThe paper reports, on the full Friday files (about 20 times as many flows), for K3-C128: slot accuracy"
        "\n0.9728 and 0.9859, ±1 0.9994 and 0.9995, utilisation 87.5% and 72.9% (DDoS, PortScan), for a B"
        "\nit does not name.\n"
    )
    return "\n".join(parts)


def markdown(results: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    """One row per recipe: mean ± standard deviation over seeds."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        job, config = result["job"], result["config"]
        data = "" if job["data"] == "diabetes130" else job["data"].split("-")[0] + " "
        weights = [f", {name} {job[name]:g}" for name in ("member_weight", "label_weight") if name in job]
        rows.setdefault(f"{data}{job['recipe']} K{config['levels']}-C{config['entries']}{''.join(weights)}", []).append(
            result
        )
    lines = ["| recipe | splits | " + " | ".join(names) + " |", "| --- | --- |" + " --- |" * len(names)]
    for name, found in sorted(
        rows.items(), key=lambda row: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", row[0])]
    ):
        figures = [columns(result) for result in found]
        cells = [_spread([figure[column] for figure in figures]) for column in names]
        lines.append(f"| {name} | {len(found)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def columns(result: dict[str, Any]) -> dict[str, float | None]:
    test, use, shared, levels = result["test"], result["use"], result["collisions"], result["hierarchy"]
    ceiling = result.get("ceiling")
    return {
        "slot accuracy": test["slot_accuracy"],
        "all-mode": test["mode_slot_accuracy"],
        "±1": test["close_accuracy"],
        "NMSE": test["nmse"],
        "field accuracy": test["field_accuracy"],
        "recall": test["recall"],
        "precision": test["precision"],
        "utilisation": min(level["utilisation"] for level in use),
        "perplexity a": use[0]["perplexity"],
        "unique codes": shared["distinct_codes"] / shared["records"],
        "collisions": shared["collision_rate"],
        "ratio a": levels[0]["ratio"],
        "ratio a+b": levels[1]["ratio"],
        "ratio, whole code": levels[-1]["ratio"],
        "ceiling": ceiling and ceiling["codes"]["auroc"],
        "raw slots": ceiling and ceiling["raw"]["auroc"],
    }


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    digits = 1 if max(known) > 2 else 4
    spread = f" ± {np.std(known):.{digits}f}" if len(known) > 1 else ""
    return f"{np.mean(known):.{digits}f}{spread}"


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """The front: field accuracy against the ceiling, recall as the size of the mark."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), dpi=130)
    colours = {"paper": "tab:gray", "unsupervised": "tab:blue", "task-aware": "tab:orange"}
    named: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        if "ceiling" in result:
            config, job = result["config"], result["job"]
            extra = [f"{n}={job[n]:g}" for n in ("member_weight", "label_weight") if n in job]
            label = f"K{config['levels']}-C{config['entries']} {' '.join(extra)}".strip()
            named.setdefault((job["recipe"], label), []).append(result)
    for (recipe, label), found in named.items():
        x = np.mean([r["test"]["field_accuracy"] for r in found])
        y = np.mean([r["ceiling"]["codes"]["auroc"] for r in found])
        recall = np.mean([r["test"]["recall"] for r in found])
        axes.scatter(x, y, s=20 + 200 * recall**2, color=colours[recipe], alpha=0.6)
        axes.annotate(label, (x, y), fontsize=6, xytext=(4, 4), textcoords="offset points")
    clinical = [r for r in results if "ceiling" in r]
    if clinical:
        axes.axhline(np.mean([r["ceiling"]["raw"]["auroc"] for r in clinical]), color="black", lw=0.8, ls="--")
        axes.axvline(np.mean([r["test"]["mode_field_accuracy"] for r in clinical]), color="black", lw=0.8, ls=":")
    for recipe, colour in colours.items():
        axes.scatter([], [], color=colour, label=recipe)
    axes.set(xlabel="field accuracy (dotted: all-mode)", ylabel="AUROC of LightGBM on ê (dashed: on raw slots)")
    axes.set_title("Diabetes130, held-out patients: fields, ceiling, recall of diagnoses (size)", fontsize=9)
    axes.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def machine() -> dict[str, Any]:
    import platform

    import torch

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("prepare", "run", "report"))
    parser.add_argument("--cicids", type=Path, help="the corrected release: a Parquet file or a folder of CSVs")
    parser.add_argument("--share", default="0/1", help="run only the i-th of n shares of the jobs")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no job after this many seconds")
    arguments = parser.parse_args()
    match arguments.verb:
        case "prepare":
            prepare(arguments.cicids)
        case "run":
            run(arguments.share, arguments.limit)
        case _:
            report()
