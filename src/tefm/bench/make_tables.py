"""`tefm bench`: from the names of tables to their JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tefm.base.errors import InputError, SettingsError, TefmError, did_you_mean
from tefm.base.files import write_text
from tefm.bench.data import FLOWS, Sources
from tefm.bench.experiments import FIRST_SPLIT, Plan
from tefm.bench.measurement import Bench, Measurement
from tefm.bench.predictions import Prediction
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables import TABLES
from tefm.bench.tokenizers import Codes
from tefm.language.smollm2 import NAME as SMOLLM2

#: What can be given as data, and the data sets that come of it.
GIVEN = {"diabetes130": ("diabetes130",), "mimic3": ("mimic3",), "cicids2017": FLOWS}


@dataclass(frozen=True)
class Asked:
    """What was asked for on the command line."""

    tables: tuple[str, ...]
    plan: Plan
    places: dict[str, Path]

    @classmethod
    def of(
        cls, tables: Sequence[str], data: Sequence[str], backbones: Sequence[str], *, seeds: str, quick: bool
    ) -> Asked:
        for name in tables:
            if name not in TABLES:
                raise SettingsError("there is no such table", value=name, remedy=did_you_mean(name, TABLES))
        names, places = [], {}
        for given in data or ["diabetes130"]:
            name, _, place = given.partition("=")
            if name not in GIVEN:
                raise SettingsError("there is no such data set", value=name, remedy=did_you_mean(name, GIVEN))
            if place:
                places[name] = Path(place).expanduser()
                if not places[name].exists():
                    raise InputError("there is no such file or folder", file=place, remedy=f"--data {name}=PATH")
            names += [one for one in GIVEN[name] if one not in names]
        plan = Plan(tuple(names), _splits(seeds), tuple(backbones) or (SMOLLM2,), quick)
        return cls(tuple(tables) or tuple(TABLES), plan, places)

    def made(self, table: str) -> dict[str, str]:
        """How a table came about, for its readers: no paths of this machine."""
        given = [f"{name}={self.places[name].name}" if name in self.places else name for name in self.given]
        others = [f" --backbone {name}" for name in self.plan.backbones] if len(self.plan.backbones) > 1 else []
        quick = " --quick" if self.plan.quick else ""
        splits = self.plan.splits
        seeds = str(len(splits)) if splits[0] == FIRST_SPLIT else f"{splits[0]}-{splits[-1]}"
        command = f"tefm bench {table} --data {' --data '.join(given)} --seeds {seeds}{''.join(others)}{quick}"
        return {"Command": f"`{command}`", "Splits": ", ".join(map(str, splits))}

    @property
    def given(self) -> list[str]:
        return [name for name, sets in GIVEN.items() if set(sets) <= set(self.plan.data)]


def _splits(seeds: str) -> tuple[int, ...]:
    """3 is the first three splits, 20-25 those.

    >>> _splits("2"), _splits("20-22")
    ((10, 11), (20, 21, 22))
    """
    first, _, last = seeds.partition("-")
    if not first.isdigit() or not (last.isdigit() or not last) or int(first) < 1:
        raise SettingsError("seeds are a number of splits, or the first and the last", value=seeds, remedy="--seeds 3")
    found = range(int(first), int(last) + 1) if last else range(FIRST_SPLIT, FIRST_SPLIT + int(first))
    if not found:
        raise SettingsError("the last split comes before the first", value=seeds, remedy="--seeds 20-25")
    return tuple(found)


@dataclass(frozen=True)
class Outcome:
    """The tables, and what could not be measured."""

    tables: tuple[Table, ...]
    failed: tuple[tuple[Measurement, TefmError], ...]
    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tables": {table.name: str(file) for table, file in zip(self.tables, self.files, strict=True)},
            "failed": [{"measurement": asked.said, "error": str(error)} for asked, error in self.failed],
        }

    def shown(self) -> Iterator[Any]:
        """The tables for a terminal, and one line per reason that something is missing."""
        from rich.markup import escape
        from rich.table import Table as Shown

        for table in self.tables:
            # a row of figures is wider than a terminal: its figures stand below each other, one line per row's name
            shown = Shown("", "figures", title=table.title, caption=table.published_on or None, show_lines=True)
            for row in table.rows:
                name = "\n".join(row.keys.get(key, "") for key in table.keys)
                figures = [_said(row, column) for column in table.shown]
                shown.add_row(escape(name), escape(" · ".join(filter(None, figures))))
            yield shown
        for reason in dict.fromkeys(str(error) for _, error in self.failed):
            count = sum(str(error) == reason for _, error in self.failed)
            yield f"[yellow]![/] {count} not measured: {escape(reason)}"
        for file in self.files:
            yield f"written to {file}"


def _said(row: Row, column: Column) -> str:
    """A figure with its name, and the paper's behind it."""
    figure, paper = row.figures.get(column.name), row.published.get(column.name)
    if figure is None and paper is None:
        return ""
    ours = figure.said(column.digits) if figure else "–"
    return f"{column.title} {ours}" + (f" (paper {paper:,.{column.digits}f})" if paper is not None else "")


def run(
    asked: Asked,
    folder: Path,
    results: Path,
    *,
    html: Path | None = None,
    markdown: Path | None = None,
    workers: int = 1,
    prepare: bool = False,
    measure: bool = True,
) -> Outcome:
    """Measure what is missing (unless told not to), then lay out the tables and write them."""
    # figures of a quick run mean nothing: they are kept apart
    folder, results = (path / "quick" if asked.plan.quick else path for path in (folder, results))
    bench = Bench(folder, Sources(folder / "data", asked.places, asked.plan.quick))
    wanted = [one for name in asked.tables for one in needed(name, asked.plan)]
    if prepare:
        _prepare(bench, wanted)
        return Outcome((), (), ())
    failed = bench.run(wanted, workers=workers) if measure else []
    tables, files = [], []
    for name in asked.tables:
        table = TABLES[name](asked.plan, bench.found)
        there = [one for one in needed(name, asked.plan) if bench.path(one).exists()]
        settings = tuple({"kind": one.KIND, **one.model_dump(mode="json", exclude_defaults=True)} for one in there)
        table = replace(table, made={**asked.made(name), **_machines(bench, there), **table.made}, measured=settings)
        files.append(results / f"{name}.json")
        table.save(files[-1])
        if markdown is not None:
            write_text(markdown / f"{name}.md", table.page())
        tables.append(table)
    if html is not None:
        from tefm.bench.page import bench_page

        write_text(html, bench_page(tables))
    return Outcome(tuple(tables), tuple(failed), tuple(files))


def needed(name: str, plan: Plan) -> list[Measurement]:
    """What a table needs is what it asks for: it is laid out once with nothing in it."""
    asked: dict[str, Measurement] = {}

    def record(measurement: Measurement) -> None:
        asked.setdefault(measurement.key, measurement)

    TABLES[name](plan, record)
    return list(asked.values())


def _machines(bench: Bench, measured: Sequence[Measurement]) -> dict[str, Any]:
    """What the measurements of a table were made with: versions and devices, each once."""
    found = [json.loads(bench.path(one).read_text(encoding="utf-8"))["made"] for one in measured]
    devices = sorted({one["device"] for one in found})
    versions: dict[str, set[str]] = {}
    for one in found:
        for package, version in one["versions"].items():
            versions.setdefault(package, set()).add(version)
    said = "; ".join(f"{package} {', '.join(sorted(known))}" for package, known in sorted(versions.items()))
    return {"Machines": ", ".join(devices), "Versions": said}


def _prepare(bench: Bench, wanted: Sequence[Measurement]) -> None:
    """The arrays that the measurements read; after that they need none of the libraries for tables."""
    for asked in bench.missing(wanted):
        if isinstance(asked, Codes):
            asked.split_data(bench)
        if isinstance(asked, Prediction) and asked.codes is None:
            bench.sources.split(*asked.place)
            bench.sources.texts(*asked.place)
