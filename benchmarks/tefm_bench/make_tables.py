"""`python -m tefm_bench`: from the names of tables to their JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tefm.base.errors import InputError, SettingsError, TefmError, did_you_mean
from tefm.base.files import write_text
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm_bench.data import FLOWS, Sources
from tefm_bench.experiments import FIRST_SPLIT, Setup
from tefm_bench.measurement import Bench, Measurement
from tefm_bench.table import Column, Row, Table
from tefm_bench.tables import TABLES
from tefm_bench.tables.spec import TableSpec
from tefm_bench.user_tables import ALL_TABLES

#: The names that `--data` takes, and the data sets of each.
SOURCES = {
    "diabetes130": ("diabetes130-open",),
    "diabetes130-all": ("diabetes130",),
    "mimic3": ("mimic3",),
    "cicids2017": FLOWS,
    "tables": (),
}


@dataclass(frozen=True)
class Request:
    """The tables to make, and what they are made on, as given on the command line."""

    tables: tuple[str, ...]
    setup: Setup
    #: where the files of a source are
    paths: dict[str, Path]

    @classmethod
    def of(
        cls,
        tables: Sequence[str],
        data: Sequence[str],
        backbones: Sequence[str],
        *,
        seeds: str,
        quick: bool,
        only: Sequence[str] = (),
    ) -> Request:
        """A request from the arguments of the command; names and paths that do not exist are refused."""
        for table in tables:
            if table not in TABLES:
                raise SettingsError("no such table", value=table, remedy=did_you_mean(table, TABLES))
        for name in only:
            if name not in ALL_TABLES:
                raise SettingsError("no such user table", value=name, remedy=did_you_mean(name, ALL_TABLES))
        datasets: dict[str, None] = {}
        paths = {}
        for argument in data:
            source, _, path = argument.partition("=")
            if source not in SOURCES and not path and Path(source).expanduser().is_dir():
                source, path = "tables", source
            if source not in SOURCES:
                raise SettingsError("no such data set", value=source, remedy=did_you_mean(source, SOURCES))
            if path:
                paths[source] = Path(path).expanduser()
                if not paths[source].exists():
                    raise InputError("no such file or folder", file=path, remedy=f"give --data {source}=PATH")
            datasets |= dict.fromkeys(SOURCES[source])
        datasets = datasets or dict.fromkeys(SOURCES["diabetes130"])
        setup = Setup(tuple(datasets), _splits(seeds), tuple(backbones) or (SMOLLM2,), quick, tuple(only))
        # what is scored once is scored on request; a quick run has made-up data
        return cls(
            tuple(tables) or tuple(name for name, spec in TABLES.items() if quick or not spec.on_request), setup, paths
        )

    def command(self, table: str) -> str:
        """The command that makes a table, for its readers: without the paths of this machine."""
        setup = self.setup
        quick = " --quick" if setup.quick else ""
        several = len(setup.backbones) > 1
        backbones = "".join(f" --backbone {name}" for name in setup.backbones) if several else ""
        if TABLES[table].of_users:
            options = "".join(f" --only {name}" for name in setup.only)
            folder = " --data FOLDER" if "tables" in self.paths else ""
            return f"python -m tefm_bench {table}{folder}{options} --seeds {self._seeds}{backbones}{quick}"
        sources = [source for source, datasets in SOURCES.items() if datasets and set(datasets) <= set(setup.data)]
        data = "".join(
            f" --data {source}" + (f"={self.paths[source].name}" if source in self.paths else "") for source in sources
        )
        return f"python -m tefm_bench {table}{data} --seeds {self._seeds}{backbones}{quick}"

    @property
    def _seeds(self) -> str:
        first, last = self.setup.splits[0], self.setup.splits[-1]
        return str(len(self.setup.splits)) if first == FIRST_SPLIT else f"{first}-{last}"


def _splits(seeds: str) -> tuple[int, ...]:
    """`3` means the first three splits, `20-25` names them.

    >>> _splits("2"), _splits("20-22")
    ((10, 11), (20, 21, 22))
    """
    first, _, last = seeds.partition("-")
    if not first.isdigit() or not (last.isdigit() or not last) or int(first) < 1:
        raise SettingsError(
            "not a number of splits, nor the first and the last split", value=seeds, remedy="give --seeds 3, or 20-25"
        )
    splits = range(int(first), int(last) + 1) if last else range(FIRST_SPLIT, FIRST_SPLIT + int(first))
    if not splits:
        raise SettingsError("the last split is lower than the first", value=seeds, remedy="give --seeds 20-25")
    return tuple(splits)


@dataclass(frozen=True)
class Outcome:
    """The tables with their files, and the measurements that failed."""

    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    failed: tuple[tuple[Measurement, TefmError], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tables": {table.name: str(file) for table, file in zip(self.tables, self.files, strict=True)},
            "failed": [
                {"measurement": measurement.description, "error": str(error)} for measurement, error in self.failed
            ],
        }

    def renderables(self) -> Iterator[Any]:
        """The tables for a terminal, and one line per reason why something was not measured."""
        from rich.markup import escape
        from rich.table import Table as RichTable

        for table in self.tables:
            # all figures of a row are wider than a terminal, so they share a cell and wrap
            rich_table = RichTable(
                "", "figures", title=table.title, caption=table.published_on or None, show_lines=True
            )
            for row in table.rows:
                name = "\n".join(row.keys.get(key, "") for key in table.keys)
                figures = [_figure_text(row, column) for column in table.shown]
                rich_table.add_row(escape(name), escape(" · ".join(filter(None, figures))))
            yield rich_table
        reasons = [str(error) for _, error in self.failed]
        for reason in dict.fromkeys(reasons):
            yield f"[yellow]![/] {reasons.count(reason)} not measured: {escape(reason)}"
        for file in self.files:
            yield f"written to {file}"


def _figure_text(row: Row, column: Column) -> str:
    """A figure with its title, and the paper's after it."""
    figure, paper = row.figures.get(column.name), row.published.get(column.name)
    if figure is None and paper is None:
        return ""
    ours = figure.text(column.digits, splits=column.better == "up") if figure else "–"
    return f"{column.title} {ours}" + (f" (paper {paper:,.{column.digits}f})" if paper is not None else "")


def run(
    request: Request,
    folder: Path,
    results: Path,
    *,
    html: Path | None = None,
    markdown: Path | None = None,
    workers: int = 1,
    kinds: Sequence[str] = (),
    prepare: bool = False,
    measure: bool = True,
) -> Outcome:
    """Make the missing measurements (unless `measure` is off), then write the tables.

    With `kinds`, only measurements of these kinds are made, and no tables are written. With `prepare`, only write the
    arrays that the measurements read.
    """
    # the figures of a quick run mean nothing: they get their own folders
    folder, results = (path / "quick" if request.setup.quick else path for path in (folder, results))
    bench = Bench(folder, Sources(folder / "data", request.paths, request.setup.quick))
    needed = [measurement for name in request.tables for measurement in TABLES[name].needs(request.setup)]
    for kind in kinds:
        if kind not in (known := {name for measurement in needed for name in measurement.kinds}):
            raise SettingsError(
                "these tables have no such measurements", value=kind, remedy=did_you_mean(kind, sorted(known))
            )
    if prepare:
        for measurement in bench.missing(one for one in needed if not kinds or set(kinds) & set(one.kinds)):
            measurement.prepare(bench)
        return Outcome((), (), ())
    failed = bench.run(needed, workers=workers, kinds=kinds) if measure else []
    if kinds:
        return Outcome((), (), tuple(failed))
    tables, files = [], []
    for name in request.tables:
        table = laid_out(TABLES[name], request.setup, bench, request.command(name))
        tables.append(table)
        files.append(results / f"{name}.json")
        table.save(files[-1])
        if markdown is not None:
            write_text(markdown / f"{name}.md", table.page())
    if html is not None:
        from tefm_bench.page import bench_page

        write_text(html, bench_page(tables))
    return Outcome(tuple(tables), tuple(files), tuple(failed))


def laid_out(spec: TableSpec, setup: Setup, bench: Bench, command: str) -> Table:
    """A table of what was measured so far, with how it was made."""
    table = spec.table(setup, bench.figures)
    measured = [measurement for measurement in spec.needs(setup) if bench.path(measurement).exists()]
    made = {
        "Command": f"`{command}`",
        "Splits": ", ".join(map(str, setup.splits)),
        **_environments(bench, measured),
        **table.made,
    }
    settings = tuple({"kind": measurement.KIND, **measurement.changes} for measurement in measured)
    return replace(table, made=made, measured=settings)


def _environments(bench: Bench, measured: Sequence[Measurement]) -> dict[str, Any]:
    """The days, the code, the machines and the versions that the measurements were made with, each once."""
    bodies = [json.loads(bench.path(measurement).read_text(encoding="utf-8")) for measurement in measured]
    environments = [body["environment"] for body in bodies]
    marked = list({json.dumps(of["marks"]): of["marks"] for of in environments if "marks" in of}.values())
    versions: dict[str, set[str]] = {}
    for environment in environments:
        for package, version in environment["versions"].items():
            versions.setdefault(package, set()).add(version)
    # what was measured before there were marks is laid out as it was
    when = {
        "Dates": ", ".join(sorted({of["date"] for of in environments if "date" in of})),
        "minutes": round(sum(body["seconds"] for body in bodies) / 60, 1),
        "marks": marked if all("marks" in of for of in environments) else [],
    }
    return {
        **(when if marked else {}),
        "Machines": ", ".join(sorted({environment["device"] for environment in environments})),
        "Versions": "; ".join(f"{name} {', '.join(sorted(used))}" for name, used in sorted(versions.items())),
    }
