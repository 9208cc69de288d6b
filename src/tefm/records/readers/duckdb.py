"""DuckDB files: the rows of a SQL query, read in batches. The file is never written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from tefm.base.errors import InputError, MissingExtraError, listed
from tefm.records.readers.arrow import empty_frame, from_arrow
from tefm.records.readers.source import Source, first_line

ENDINGS = (".duckdb", ".db")


def open_duckdb(path: Path, query: str | None) -> Source:
    """The rows that a query selects."""

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        with _relation(path, query) as relation:
            quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
            for batch in relation.project(quoted).to_arrow_reader(rows):
                yield from_arrow(batch, path)

    with _relation(path, query) as relation:
        empty = empty_frame(relation.limit(0).to_arrow_table().schema, path)
    return Source(str(path), empty, read)


@contextmanager
def _relation(path: Path, query: str | None) -> Iterator[Any]:
    """The query's result, while the file is open."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            "reading a DuckDB file needs the package duckdb", file=path, remedy="pip install 'tefm[duckdb]'"
        ) from error
    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        raise InputError(
            f"this DuckDB file cannot be opened: {first_line(error)}",
            file=path,
            remedy="check that it is a DuckDB file and that no other program has it open for writing",
        ) from error
    with connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        contents = f"the file has the tables: {listed(tables) or 'none'}"
        if query is None:
            example = f'"SELECT * FROM {tables[0] if tables else "…"}"'
            raise InputError("a DuckDB file needs a query", file=path, remedy=f"give query={example}; {contents}")
        try:
            relation = connection.sql(query)
            if relation is None:
                raise InputError("the query returns no table", file=path, value=query, remedy="give a SELECT")
            yield relation
        # errors while rows are fetched come through Arrow
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            problem = " ".join(str(error).split())
            raise InputError(f"the query fails: {problem}", file=path, value=query, remedy=contents) from error
