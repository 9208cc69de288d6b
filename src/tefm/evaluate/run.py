"""`tefm bench`: from the names of tables to their JSON files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tefm.errors import InputError, SettingsError, TefmError, did_you_mean
from tefm.evaluate.bench import Bench, Measurement, made
from tefm.evaluate.codes import Codes
from tefm.evaluate.data import FLOWS, Sources
from tefm.evaluate.plan import FIRST_SPLIT, Plan
from tefm.evaluate.reading import Reading
from tefm.evaluate.table import Table
from tefm.evaluate.tables import TABLES
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
        cls, tables: Sequence[str], data: Sequence[str], backbones: Sequence[str], *, seeds: int, quick: bool
    ) -> Asked:
        for name in tables:
            if name not in TABLES:
                raise SettingsError("there is no such table", value=name, remedy=did_you_mean(name, TABLES))
        if seeds < 1:
            raise SettingsError("a table needs a split", value=seeds, remedy="--seeds 3")
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
        splits = tuple(range(FIRST_SPLIT, FIRST_SPLIT + seeds))
        plan = Plan(tuple(names), splits, tuple(backbones) or (SMOLLM2,), quick)
        return cls(tuple(tables) or tuple(TABLES), plan, places)


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
            header, lines = table.cells()
            shown = Shown(*map(escape, header), title=table.title, caption=table.published_on or None)
            for line in lines:
                shown.add_row(*map(escape, line))
            yield shown
        for reason in dict.fromkeys(str(error) for _, error in self.failed):
            count = sum(str(error) == reason for _, error in self.failed)
            yield f"[yellow]![/] {count} not measured: {escape(reason)}"
        for file in self.files:
            yield f"written to {file}"


def run(
    asked: Asked,
    folder: Path,
    results: Path,
    *,
    html: Path | None = None,
    workers: int = 1,
    prepare: bool = False,
) -> Outcome:
    """Measure what is missing, then lay out the tables and write them."""
    # figures of a quick run mean nothing: they are kept apart
    folder, results = (path / "quick" if asked.plan.quick else path for path in (folder, results))
    bench = Bench(folder, Sources(folder / "data", asked.places, asked.plan.quick))
    wanted = [one for name in asked.tables for one in needed(name, asked.plan)]
    if prepare:
        _prepare(bench, wanted)
        return Outcome((), (), ())
    failed = bench.run(wanted, workers=workers)
    tables, files = [], []
    for name in asked.tables:
        table = TABLES[name](asked.plan, bench.found)
        table = replace(table, made={**table.made, **made(), "command": "tefm " + " ".join(sys.argv[1:])})
        files.append(results / f"{name}.json")
        table.save(files[-1])
        tables.append(table)
    if html is not None:
        from tefm.files import write_text
        from tefm.report import bench_page

        write_text(html, bench_page(tables))
    return Outcome(tuple(tables), tuple(failed), tuple(files))


def needed(name: str, plan: Plan) -> list[Measurement]:
    """What a table needs is what it asks for: it is laid out once with nothing in it."""
    asked: dict[str, Measurement] = {}

    def record(measurement: Measurement) -> None:
        asked.setdefault(measurement.key, measurement)

    TABLES[name](plan, record)
    return list(asked.values())


def _prepare(bench: Bench, wanted: Sequence[Measurement]) -> None:
    """The arrays that the measurements read; after that they need none of the libraries for tables."""
    for asked in bench.missing(wanted):
        if isinstance(asked, Codes):
            asked.split_data(bench)
        if isinstance(asked, Reading) and asked.codes is None:
            bench.sources.split(*asked.place)
            bench.sources.texts(*asked.place)
