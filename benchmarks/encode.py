"""How fast and how small encoding is, on KDD99: every figure beside a yardstick of the same run.

    python benchmarks/encode.py --kdd kddcup99.parquet [--rows 1000000 10000000] [--json FILE]

1. From Parquet to codes: rows per second of `encode_to_parquet` on the whole file.
2. Vectorising against scikit-learn's ColumnTransformer (KBinsDiscretizer + OrdinalEncoder) on the same rows in memory.
3. Encoder and quantiser against the bare matrix products of the same shapes, in the same chunks and threads.
4. Peak memory of a process of its own that encodes a folder of Parquet files, few rows and many.

All on the CPU. Times are the best of `--repeats` rounds in which the contestants take turns; run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from tefm import Field, RecordTokenizer, Schema, Vectoriser
from tefm.codes.tokenizer import encode_to_parquet
from tefm.codes.trainer import CHUNK

RESULTS = Path("benchmarks/results/encode.json")
LABEL = "label"
#: The bars: vectorising at least, products at most so many times; memory in MiB and against the smaller table.
FASTER, PRODUCTS, PEAK_MIB, GROWTH = 5.0, 1.5, 2048, 1.2

Times = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kdd", type=Path, help="kddcup99.parquet; any table with a column `label` works")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes for the memory")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200, help="training steps: speed does not depend on them")
    parser.add_argument("--chunks", type=int, default=8, help=f"chunks of {CHUNK:,} records for the products")
    parser.add_argument("--child", nargs=3, metavar=("TOKENIZER", "SOURCE", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*map(Path, arguments.child))
    elif arguments.kdd is None:
        parser.error("--kdd is needed")
    else:
        benchmark(arguments)


def benchmark(arguments: argparse.Namespace) -> None:
    frame = pl.read_parquet(arguments.kdd)
    schema = schema_of(frame)
    sample = frame.sample(min(50_000, frame.height), seed=0)
    tokenizer = RecordTokenizer(steps=arguments.steps, device="cpu").fit(sample, schema, task_aware=False)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        result: dict[str, Any] = {
            "machine": machine(),
            "settings": settings(arguments, tokenizer),
            "end_to_end": end_to_end(tokenizer, arguments.kdd, folder / "codes.parquet", arguments.repeats),
            "vectorise": vectorising(frame, schema, arguments.repeats),
            "neural": neural(tokenizer, frame, arguments.chunks, arguments.repeats),
            "memory": memory(tokenizer, arguments.kdd, arguments.rows, folder),
        }
    result["figures"] = figures(result)
    show(result)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def schema_of(frame: pl.DataFrame) -> Schema:
    """All columns but the label: text as categories, the rest as numbers, as scikit-learn gets them below."""
    kinds = {name: "category" if kind == pl.String else "number" for name, kind in frame.schema.items()}
    fields = (Field(name=name, kind=kind) for name, kind in kinds.items() if name != LABEL)  # type: ignore[arg-type]
    return Schema(fields=tuple(fields), label=LABEL)


def best_of(repeats: int, contestants: dict[str, Callable[[], Any]]) -> Times:
    """The best time of each, after a round that does not count; they take turns, so that all see the same machine."""
    best = dict.fromkeys(contestants, math.inf)
    for round_ in range(repeats + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            if round_:
                best[name] = min(best[name], time.perf_counter() - started)
    return best


# ---- 1. from Parquet to codes -----------------------------------------------------------------------------------


def end_to_end(tokenizer: RecordTokenizer, source: Path, out: Path, repeats: int) -> dict[str, Any]:
    seconds = math.inf
    for _ in range(max(1, repeats // 2)):
        started = time.perf_counter()
        rows = encode_to_parquet(tokenizer, source, out)
        seconds = min(seconds, time.perf_counter() - started)
    return {"rows": rows, "seconds": seconds, "rows_per_second": rows / seconds}


# ---- 2. vectorising ---------------------------------------------------------------------------------------------


def vectorising(frame: pl.DataFrame, schema: Schema, repeats: int) -> dict[str, Any]:
    """Ours from a polars frame, theirs from a pandas frame, with text as pandas reads it and as Python objects."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import KBinsDiscretizer, OrdinalEncoder

    words = [f.name for f in schema.fields if f.kind == "category"]
    numbers = [f.name for f in schema.fields if f.kind == "number"]
    theirs = ColumnTransformer(
        [
            ("numbers", KBinsDiscretizer(n_bins=10, encode="ordinal", strategy="quantile"), numbers),
            ("words", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), words),
        ]
    )
    read = frame.to_pandas()
    objects = read.astype(dict.fromkeys(words, object))
    fits = {"tefm": lambda: Vectoriser.fit(frame, schema), "scikit-learn": lambda: theirs.fit(read)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # KBinsDiscretizer has much to say about columns that are mostly 0
        fit = best_of(1, fits)
        ours = Vectoriser.fit(frame, schema)
        transform = best_of(
            repeats,
            {
                "tefm": lambda: ours.transform(frame),
                "scikit-learn": lambda: theirs.transform(read),
                "scikit-learn, objects": lambda: theirs.transform(objects),
            },
        )
    fastest = min(transform["scikit-learn"], transform["scikit-learn, objects"])
    return {
        "rows": frame.height,
        "fit_seconds": fit,
        "transform_seconds": transform,
        "rows_per_second": frame.height / transform["tefm"],
        "fit_ratio": fit["scikit-learn"] / fit["tefm"],
        "ratio": fastest / transform["tefm"],
        "ratio_as_read": transform["scikit-learn"] / transform["tefm"],
    }


# ---- 3. encoder and quantiser -----------------------------------------------------------------------------------


def neural(tokenizer: RecordTokenizer, frame: pl.DataFrame, chunks: int, repeats: int) -> dict[str, Any]:
    """Codes out of slots, against `torch.mm` alone.

    Textbook: the layers of the encoder, one product with a level's codebook for every candidate at that level.
    Ours: the products that our own search makes, which multiplies each record once with all codebooks together.
    """
    coder, config = tokenizer.coder, tokenizer.config
    rows = frame.head(chunks * CHUNK)
    slots_ND = np.resize(tokenizer.vectoriser.transform(rows), (chunks * CHUNK, coder.layout.width))
    layers = [layer for layer in coder.network.encoder.modules() if isinstance(layer, nn.Linear)]
    encoder = [(CHUNK, layer.in_features, layer.out_features) for layer in layers]
    later = (CHUNK * (config.made.beam + 1), config.latent, config.entries)
    level = (CHUNK, config.latent, config.entries)
    products = {
        "textbook products": [*encoder, level, *[later] * (config.levels - 1)],
        "own products": [*encoder, (CHUNK, config.latent, config.levels * config.entries)],
        "greedy products": [*encoder, *[level] * config.levels],
        "encoder products": encoder,
    }
    seconds = best_of(
        repeats,
        {
            "beam": lambda: coder.encode(slots_ND),
            "greedy": lambda: coder.encode(slots_ND, beam=1),
            "encoder": lambda: coder.latent(slots_ND),
            **{name: multiply(shapes, chunks) for name, shapes in products.items()},
        },
    )
    return {
        "rows": len(slots_ND),
        "shapes": products,
        "seconds": seconds,
        "rows_per_second": len(slots_ND) / seconds["beam"],
        "ratio": seconds["beam"] / seconds["textbook products"],
        "ratio_own": seconds["beam"] / seconds["own products"],
        "ratio_greedy": seconds["greedy"] / seconds["greedy products"],
        "ratio_encoder": seconds["encoder"] / seconds["encoder products"],
    }


def multiply(shapes: list[tuple[int, int, int]], times: int) -> Callable[[], None]:
    pairs = [(torch.randn(n, inner), torch.randn(inner, m)) for n, inner, m in shapes]

    def run() -> None:
        with torch.inference_mode():
            for _ in range(times):
                for left, right in pairs:
                    torch.mm(left, right)

    return run


# ---- 4. memory --------------------------------------------------------------------------------------------------


def memory(tokenizer: RecordTokenizer, source: Path, sizes: list[int], folder: Path) -> list[dict[str, Any]]:
    """For each size: the peak of a child process that encodes that many rows, the file repeated in a folder."""
    saved = tokenizer.save(folder / "tokenizer")
    found = []
    for rows in sizes:
        table = repeated(source, rows, folder / f"{rows}")
        command = [sys.executable, __file__, "--child", str(saved), str(table), str(folder / f"{rows}-codes")]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(told))
        assert found[-1]["rows"] == rows
    return found


def repeated(source: Path, rows: int, folder: Path) -> Path:
    """A folder of Parquet files with exactly so many rows: links to one copy of the file, and a part of it."""
    folder.mkdir()
    copy = shutil.copy(source, folder.with_suffix(".parquet"))  # on the same disk, so that it can be linked
    whole, rest = divmod(rows, pq.read_metadata(source).num_rows)
    for number in range(whole):
        (folder / f"{number:04}.parquet").hardlink_to(copy)
    if rest:
        pl.read_parquet(source, n_rows=rest).write_parquet(folder / "rest.parquet")
    return folder


def child(tokenizer: Path, source: Path, out: Path) -> None:
    loaded = RecordTokenizer.load(tokenizer, device="cpu")
    before, started = peak_mib(), time.perf_counter()
    rows = encode_to_parquet(loaded, source, out)
    seconds = time.perf_counter() - started
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_mib": peak_mib(), "peak_mib_before": before}))


def peak_mib() -> float:
    """The largest resident size of this process so far."""
    try:  # `ru_maxrss` of a child begins with the peak of its parent; this does not
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# ---- what is shown ----------------------------------------------------------------------------------------------


def figures(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Each figure with its bar (none where it is only told)."""
    end, vectorise, products, peaks = (result[part] for part in ("end_to_end", "vectorise", "neural", "memory"))
    smallest, largest = peaks[0], peaks[-1]
    growth = largest["peak_mib"] / smallest["peak_mib"]
    rows = [
        (f"Parquet to codes, {end['rows']:,} rows, rows/s", end["rows_per_second"], None, None),
        ("vectorising, rows/s", vectorise["rows_per_second"], None, None),
        ("  times as fast as scikit-learn (the faster of its two inputs)", vectorise["ratio"], ">=", FASTER),
        ("  … text as pandas reads it", vectorise["ratio_as_read"], None, None),
        ("  … fit", vectorise["fit_ratio"], None, None),
        ("encoder + quantiser, rows/s", products["rows_per_second"], None, None),
        ("  time / bare products, textbook beam search", products["ratio"], "<=", PRODUCTS),
        ("  … only the products our search makes", products["ratio_own"], None, None),
        ("  … greedy codes / their products", products["ratio_greedy"], None, None),
        ("  … encoder alone / its products", products["ratio_encoder"], None, None),
        *((f"peak memory, {peak['rows']:,} rows, MiB", peak["peak_mib"], None, None) for peak in peaks[:-1]),
        (f"peak memory, {largest['rows']:,} rows, MiB", largest["peak_mib"], "<", PEAK_MIB),
        (f"  … against {smallest['rows']:,} rows", growth, "<=", GROWTH),
    ]
    return [
        {"what": what, "value": value, "bar": f"{sign} {bar:g}" if sign else None, "passed": passed(value, sign, bar)}
        for what, value, sign, bar in rows
    ]


def passed(value: float, sign: str | None, bar: float | None) -> bool | None:
    if sign is None or bar is None:
        return None
    return value >= bar if sign == ">=" else value <= bar if sign == "<=" else value < bar


def show(result: dict[str, Any]) -> None:
    table = Table("figure", "value", "bar", "")
    table.columns[1].justify = "right"
    for figure in result["figures"]:
        value = figure["value"]
        mark = {None: "", True: "[green]pass[/]", False: "[red]missed[/]"}[figure["passed"]]
        table.add_row(figure["what"], f"{value:,.0f}" if value >= 100 else f"{value:.2f}", figure["bar"], mark)
    Console().print(table)


def machine() -> dict[str, Any]:
    packages = ("tefm", "torch", "numpy", "polars", "pyarrow", "pandas", "scikit-learn")
    return {
        "arch": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def settings(arguments: argparse.Namespace, tokenizer: RecordTokenizer) -> dict[str, Any]:
    layout, config = tokenizer.coder.layout, tokenizer.config
    return {
        "repeats": arguments.repeats,
        "chunk": CHUNK,
        "fields": len(layout.fields),
        "slots": layout.width,
        "input_columns": tokenizer.coder.network.input.columns,
        **{name: getattr(config, name) for name in ("levels", "entries", "latent", "hidden")},
        **{name: getattr(config.made, name) for name in ("blocks", "beam")},
    }


if __name__ == "__main__":
    main()
