"""A table of results, as JSON and Markdown: mean, spread and the value of each split, and the paper's figures.

Pages and plots show what is in here and compute nothing themselves.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tefm.base.errors import InputError
from tefm.base.files import write_text

#: What a page says of a table from before results were dated.
UNDATED = "- Dates: before 19 November 2026, with older code"
#: The key of `made` with the day on which a table was frozen: it is of older code, and is not measured again.
FROZEN = "Frozen"
#: A split has failed if its value is below this share of the median of the splits.
FAILED = 0.8


@dataclass(frozen=True)
class Column:
    """A column: one figure of every row."""

    name: str
    title: str
    digits: int = 3
    #: `up` if higher is better, `down` if lower is, or empty
    better: str = ""


@dataclass(frozen=True)
class Figure:
    """A measured value per split."""

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

    @property
    def failed(self) -> bool:
        """Whether a split is far below the others, so that mean and spread describe none of them.

        >>> Figure((0.71, 0.44, 0.70)).failed, Figure((0.71, 0.68, 0.70)).failed
        (True, False)
        """
        usual = statistics.median(self.values)
        return len(self.values) > 2 and usual > 0 and min(self.values) < FAILED * usual

    def text(self, digits: int, *, splits: bool = False) -> str:
        """Mean and spread, for a cell; with `splits`, the value of each split if one of them failed.

        >>> Figure((0.8, 0.84)).text(2), Figure((1234.5,)).text(0)
        ('0.82 ± 0.03', '1,234')
        >>> Figure((0.71, 0.44, 0.70)).text(2, splits=True)
        '0.62 ± 0.15 (0.71, 0.44, 0.70)'
        """
        spread = f" ± {self.sd:,.{digits}f}" if len(self.values) > 1 else ""
        each = ", ".join(f"{value:,.{digits}f}" for value in self.values)
        return f"{self.mean:,.{digits}f}{spread}" + (f" ({each})" if splits and self.failed else "")


@dataclass(frozen=True)
class Row:
    """A row: what it is about (`keys`: the data set, then what was varied), and its figures by column name."""

    keys: Mapping[str, str]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    #: the paper's figures for the same or the nearest row, by column name
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A finished table."""

    name: str
    title: str
    #: Markdown: what was measured on what, how to read it
    about: str
    #: titles of the keys of the rows, in order
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    #: what the published figures were measured on; empty if there are none
    published_on: str = ""
    #: how it was made: command, splits, versions, machine
    made: Mapping[str, Any] = field(default_factory=dict)
    #: the settings of every measurement in it, where they differ from the defaults
    measured: tuple[Mapping[str, Any], ...] = ()

    def save(self, path: Path) -> None:
        body = asdict(self)
        for row, row_body in zip(self.rows, body["rows"], strict=True):
            row_body["figures"] = {
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
                    row["keys"],
                    {name: Figure(tuple(figure["values"])) for name, figure in row["figures"].items()},
                    row["published"],
                )
                for row in body.pop("rows")
            )
            columns = tuple(Column(**column) for column in body.pop("columns"))
            tuples = {name: tuple(body[name]) for name in ("keys", "measured")}
            return cls(**{**body, **tuples}, columns=columns, rows=rows)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "not a valid table of the benchmarks", file=path, remedy="write it again with `python -m tefm_bench`"
            ) from error

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns with a figure, measured or published."""
        return tuple(c for c in self.columns if any(c.name in r.figures or c.name in r.published for r in self.rows))

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows as text; a column with published figures is followed by one for them."""
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
                line.append(figure.text(column.digits, splits=column.better == "up") if figure else "–")
                if paper:
                    published = row.published.get(column.name)
                    line.append("–" if published is None else f"{published:,.{column.digits}f}")
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
        """The table as a Markdown page, with what was measured and the command."""
        notes = [f"- {name}: {value}" for name, value in self.made.items() if isinstance(value, str) and name != FROZEN]
        if "Dates" not in self.made:
            notes.append(UNDATED)
        if FROZEN in self.made:
            notes.append(f"- Frozen on {self.made[FROZEN]}: not measured again ([what changed since](earlier.md))")
        if self.published_on:
            notes.insert(0, f"- Columns called *paper*: {self.published_on}")
        return "\n\n".join([f"# {self.title}", self.about, self.markdown(), "\n".join(notes)]).rstrip() + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
