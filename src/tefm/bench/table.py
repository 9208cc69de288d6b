"""A table of results: rows with mean, spread and single values, the published figure beside ours, as JSON and Markdown.

Everything a page or a plot shows of a benchmark is in here; nothing is computed twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tefm.base.errors import InputError
from tefm.base.files import write_text


@dataclass(frozen=True)
class Column:
    """One figure of every row."""

    name: str
    title: str
    digits: int = 3
    #: what is better: `up`, `down`, or neither
    better: str = ""


@dataclass(frozen=True)
class Figure:
    """What was measured, split by split."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def sd(self) -> float:
        """The sample standard deviation over the splits (n - 1 in the denominator); 0 for a single split.

        >>> Figure((0.5, 1.0, 1.5)).mean, Figure((0.5, 1.0, 1.5)).sd
        (1.0, 0.5)
        >>> Figure((0.5,)).sd
        0.0
        """
        if len(self.values) == 1:
            return 0.0
        return math.sqrt(math.fsum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1))

    def said(self, digits: int) -> str:
        """
        >>> Figure((0.8, 0.84)).said(2), Figure((1234.5,)).said(0)
        ('0.82 ± 0.03', '1,234')
        """
        spread = f" ± {self.sd:,.{digits}f}" if len(self.values) > 1 else ""
        return f"{self.mean:,.{digits}f}{spread}"


@dataclass(frozen=True)
class Row:
    """One line: what it is (`keys`: data set first, then what was varied), and its figures by column name."""

    keys: Mapping[str, str]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    #: the paper's figures for the line that comes nearest, by column name
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A finished table."""

    name: str
    title: str
    #: Markdown: what was measured on what, how to read it
    about: str
    #: titles of the keys of the rows, in the order they are shown
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    #: what the published figures were measured on; empty when the paper has no such table
    published_on: str = ""
    #: how it came about: command, seeds, versions, machine
    made: Mapping[str, Any] = field(default_factory=dict)
    #: the settings of every measurement in it, as far as they differ from the defaults
    measured: tuple[Mapping[str, Any], ...] = ()

    def save(self, path: Path) -> None:
        body = asdict(self)
        for row, line in zip(self.rows, body["rows"], strict=True):
            line["figures"] = {
                name: {"mean": figure.mean, "sd": figure.sd, "values": list(figure.values)}
                for name, figure in row.figures.items()
            }
        write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Table:
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            rows = tuple(
                Row(
                    line["keys"],
                    {name: Figure(tuple(found["values"])) for name, found in line["figures"].items()},
                    line["published"],
                )
                for line in body.pop("rows")
            )
            columns = tuple(Column(**column) for column in body.pop("columns"))
            several = {name: tuple(body[name]) for name in ("keys", "measured")}
            return cls(**{**body, **several}, columns=columns, rows=rows)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError("this is no table of `tefm bench`", file=path, remedy="write it again") from error

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that have a figure, measured or published."""
        return tuple(c for c in self.columns if any(c.name in r.figures or c.name in r.published for r in self.rows))

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines as text, a published column behind each of ours that has one."""
        header, lines = [*self.keys, "splits"], [[*(row.keys.get(key, "") for key in self.keys)] for row in self.rows]
        for line, row in zip(lines, self.rows, strict=True):
            counts = {len(figure.values) for figure in row.figures.values()}
            line.append(str(max(counts)) if counts else "–")
        for column in self.shown:
            header.append(column.title)
            paper = any(column.name in row.published for row in self.rows)
            header += [f"{column.title}, paper"] if paper else []
            for line, row in zip(lines, self.rows, strict=True):
                figure = row.figures.get(column.name)
                line.append(figure.said(column.digits) if figure else "–")
                if paper:
                    said = row.published.get(column.name)
                    line.append("–" if said is None else f"{said:,.{column.digits}f}")
        return header, lines

    def markdown(self) -> str:
        """The table alone.

        >>> row = Row({"data": "demo"}, {"accuracy": Figure((0.8, 0.84))}, {"accuracy": 0.82})
        >>> print(Table("t", "T", "", ("data",), (Column("accuracy", "accuracy", 2),), (row,)).markdown())
        | data | splits | accuracy | accuracy, paper |
        | --- | --- | --- | --- |
        | demo | 2 | 0.82 ± 0.03 | 0.82 |
        """
        header, lines = self.cells()
        return "\n".join(_line(cells) for cells in (header, ["---"] * len(header), *lines))

    def page(self) -> str:
        """The table as a Markdown page: what was measured, on what, and with which command."""
        notes = [f"- {name}: {value}" for name, value in self.made.items() if isinstance(value, str)]
        if self.published_on:
            notes.insert(0, f"- Columns called *paper*: {self.published_on}")
        return "\n\n".join([f"# {self.title}", self.about, self.markdown(), "\n".join(notes)]).rstrip() + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
