"""PostgreSQL and DuckDB: the rows of one SELECT, streamed in batches. A database is never written to.

Neither name nor password is shown or stored: what messages and bundles hold is the address without them. libpq's
environment variables (PGUSER, PGPASSWORD, PGPASSFILE) work. A query of a DuckDB file can reach no other file and no
network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl
import pyarrow as pa

from tefm.base.errors import InputError, extra, failing_as, listed
from tefm.base.progress import log
from tefm.tables.readers.arrow import from_arrow, readable_names
from tefm.tables.readers.source import Table

SCHEMES = ("postgresql://", "postgres://")
#: Bytes of a batch that the driver aims at.
BATCH_BYTES = 4 << 20
#: Parameters of an address that are not for everyone's eyes.
PRIVATE = ("user", "password", "sslpassword", "passfile")
#: user:password@…; a port is not a password.
_USER = re.compile(r"^(?P<user>[^:@/?]*)(?::(?!\d+/)(?P<password>.*))?@(?P<rest>[^@]*)$", re.DOTALL)
#: A table's name, with or without its schema and quotes, in place of a query.
_TABLE = re.compile(r'^\s*(?:"[^"]+"|[^\W\d][\w$]*)(?:\.(?:"[^"]+"|[^\W\d][\w$]*))?\s*$')
#: Text, quoted names, comments and plain names of SQL, as the server splits them; `a$b$` begins no text.
_LETTER = "[A-Za-z_\x80-\U0010ffff]"
_SQL_TOKENS = re.compile(
    rf"""\$((?:{_LETTER}(?:{_LETTER}|\d)*)?)\$.*?\$\1\$ | '[^']*' | "(?:[^"]|"")*" | --[^\n\r]* | /\*.*?\*/
    | {_LETTER}(?:{_LETTER}|[\d$])*""",
    re.DOTALL | re.VERBOSE,
)
#: What the server may split in another way: a quote after a backslash, and a comment in a comment.
_AMBIGUOUS = re.compile(r"\\'|/\*(?:(?!\*/).)*/\*", re.DOTALL)
#: Functions that a query of rows does not need: large objects, files of the server, other databases, SQL in a text.
_REACHES_OUT = re.compile(
    r"""(?:\b|")((?:lo_|lowrite|loread|pg_read_|pg_ls_|pg_stat_file|pg_file_|dblink|query_to_xml|ts_stat|ts_rewrite"""
    r"""|crosstab|connectby|u&")\w*)""",
    re.IGNORECASE,
)


def is_postgresql(source: object) -> bool:
    """
    >>> is_postgresql("postgresql://localhost/hospital"), is_postgresql("stays.csv")
    (True, False)
    """
    return isinstance(source, str) and source.startswith(SCHEMES)


@dataclass(frozen=True)
class Address:
    """The address of a database.

    >>> address = Address.of("postgresql://ann:p@ss/w%rd@db:5432/hospital?sslmode=require&password=x")
    >>> address.shown
    'postgresql://db:5432/hospital?sslmode=require'
    >>> address.uri
    'postgresql://ann:p%40ss%2Fw%25rd@db:5432/hospital?sslmode=require&password=x'
    """

    #: what libpq is given: characters of the password that an address cannot hold are encoded
    uri: str
    #: without name and password
    shown: str
    #: never to be shown
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Address:
        scheme, _, rest = text.partition("://")
        user, password = "", None
        if match := _USER.match(rest):
            user, password, rest = match["user"], match["password"], match["rest"]
        place, _, parameters = rest.partition("?")
        pairs = [pair for pair in parameters.split("&") if pair]
        public = [pair for pair in pairs if pair.partition("=")[0].lower() not in PRIVATE]
        private = [pair.partition("=")[2] for pair in pairs if pair not in public]
        secrets = {form for secret in (password, *private) if secret for form in (secret, unquote(secret))}
        who = quote(unquote(user), safe="") + ("" if password is None else ":" + quote(unquote(password), safe=""))
        return cls(
            f"{scheme}://{who}{'@' if who else ''}{rest}",
            f"{scheme}://{place}{'?' if public else ''}{'&'.join(public)}",
            tuple(sorted(secrets, key=len, reverse=True)),
        )

    def without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def shown_location(source: str) -> str:
    """Where a table is, as it may be shown and stored: an absolute path, or an address without name and password."""
    return Address.of(source).shown if is_postgresql(source) else str(Path(source).absolute())


def open_postgresql(location: str, query: str | None) -> Table:
    """The rows that a query selects, or those of a table, if `query` is the name of one."""
    address = Address.of(location)
    with _cursor(address) as cursor:
        if query is None:
            tables = _column(cursor, _TABLES)
            raise InputError(
                "a database needs a query or the name of a table",
                file=address.shown,
                remedy=f"give query={tables[0] if tables else '…'!r}; the database has the tables {listed(tables)}",
            )
        rows, order = _rows_and_order(cursor, query, address)
        with _explaining(address, query):
            schema = cursor.adbc_execute_schema(f"SELECT * FROM {rows}")
    _refuse_unknown(schema, address.shown)
    readable_names(schema, address.shown)
    numeric = [field.name for field in schema if (field.metadata or {}).get(b"POSTGRESQL:type") == b"numeric"]
    empty = _with_numbers(from_arrow(schema.empty_table(), address.shown), numeric)

    def read(columns: list[str], _: int) -> Iterator[pl.DataFrame]:
        with _cursor(address) as cursor, _explaining(address, query):
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            cursor.execute(f"SELECT {_quoted(columns)} FROM {rows}{order}")
            for batch in cursor.fetch_record_batch():
                yield _with_numbers(from_arrow(batch, address.shown), numeric)

    return Table(address.shown, empty, read)


# ---- the connection -------------------------------------------------------------------------------------------------


@contextmanager
def _cursor(address: Address) -> Iterator[Any]:
    with extra("postgresql", "reading from PostgreSQL needs the package adbc-driver-postgresql", file=address.shown):
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    try:
        connection = dbapi.connect(address.uri, autocommit=True)
    except Error as error:
        raise InputError(
            f"cannot connect to the database: {_message(error, address)}",
            file=address.shown,
            remedy="check host, port and database; the password may come from PGPASSWORD or ~/.pgpass",
        ) from None  # the driver's own error could repeat the address
    with connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        yield cursor


@contextmanager
def _explaining(address: Address, query: str) -> Iterator[None]:
    """Errors of the server as an `InputError`; a broken connection is told from a wrong query."""
    from adbc_driver_manager import Error

    try:
        yield
    except (Error, pa.ArrowException, OSError) as error:
        problem = _message(error, address)
        if re.search(r"terminating connection|server closed|connection (to server )?was lost|not open", problem):
            raise InputError(
                f"the connection broke while rows were read: {problem}",
                file=address.shown,
                remedy="run the same command again when the server is back",
            ) from None
        remedy = "try it with psql; `query` is one SELECT, or the name of a table"
        raise InputError(f"the query fails: {problem}", file=address.shown, value=query, remedy=remedy) from None


def _message(error: BaseException, address: Address) -> str:
    """The server's message in one line, without what the driver adds."""
    text = re.split(r"\n\s*Query was:|\. SQLSTATE|\. Detail:", str(error))[0]
    driver = r"^[A-Z_]+: |\[libpq\] |Failed to (connect|prepare query|execute query): |\nLINE \d+:.*"
    text = re.sub(driver, "", text, flags=re.DOTALL)
    return address.without_secrets(" ".join(text.split()))


# ---- what is read ---------------------------------------------------------------------------------------------------


def _rows_and_order(cursor: Any, query: str, address: Address) -> tuple[str, str]:
    """What stands behind FROM, and the ORDER BY: a table is read in the order of its primary key."""
    if not _TABLE.match(query):
        _refuse_unless_select(query, address)
        if not is_ordered(query):
            _warn_of_order("the query has no ORDER BY", address)
        return f"(\n{query.rstrip().rstrip(';')}\n) AS records", ""
    name = query.strip()
    key = _column(cursor, _PRIMARY_KEY.format(name=name.replace("'", "''")))
    if not key:
        _warn_of_order(f"the table {name} has no primary key", address)
    return name, f" ORDER BY {_quoted(key)}" if key else ""


def _refuse_unless_select(query: str, address: Address) -> None:
    """Refuse what is not one SELECT, and functions that read or write files, large objects or other databases."""
    if match := _AMBIGUOUS.search(query):
        remedy = "write '' for a quote in a text, and no comment inside a comment"
        raise InputError("the query can be read in two ways", file=address.shown, value=match[0][:80], remedy=remedy)
    text = _without_texts(query).strip().rstrip(";")
    if not re.match(r"(?:\(\s*)*(?:select|with|values|table)\b", text, re.IGNORECASE) or ";" in text:
        raise InputError(
            "the query is not one SELECT", file=address.shown, value=query, remedy="give one SELECT, or a table's name"
        )
    if match := _REACHES_OUT.search(text):
        problem = f"the query calls {match[1]}, which reaches beyond the tables of the database"
        raise InputError(problem, file=address.shown, value=query, remedy="leave it out of the query")


def _without_texts(query: str) -> str:
    """A query without its texts and comments; names stay, with and without quotes."""
    return _SQL_TOKENS.sub(lambda token: " " if token[0][0] in "$'-/" else token[0], query)


def is_ordered(query: str) -> bool:
    """Whether a query has an ORDER BY of its own, outside of its subqueries.

    >>> is_ordered("SELECT * FROM stays ORDER BY id"), is_ordered("SELECT * FROM (SELECT 1 ORDER BY 1) AS one")
    (True, False)
    """
    text, before = re.sub(r'"(?:[^"]|"")*"', " ", _without_texts(query)), None
    while text != before:
        text, before = re.sub(r"\([^()]*\)", " ", text), text
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None


def _warn_of_order(why: str, address: Address) -> None:
    log.warning(
        f"{why}: PostgreSQL returns the rows in any order, and the split of a fit and records with the same time "
        f"depend on it; end the query with ORDER BY [{address.shown}]"
    )


_PRIMARY_KEY = """
SELECT a.attname::text FROM pg_index AS i
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = to_regclass('{name}') AND i.indisprimary
ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
_TABLES = """
SELECT CASE table_schema WHEN 'public' THEN '' ELSE table_schema || '.' END || table_name
FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""


def _column(cursor: Any, query: str) -> list[str]:
    cursor.execute(query)
    return [row[0] for row in cursor.fetchall()]


def _quoted(columns: Sequence[str]) -> str:
    """The names of columns as SQL has them."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _refuse_unknown(schema: pa.Schema, file: str) -> None:
    """Refuse types that the driver hands over as bytes in the server's own format."""
    for field in schema:
        if isinstance(field.type, pa.BaseExtensionType) and pa.types.is_binary(field.type.storage_type):
            problem = f"columns of the type {field.type.type_name} cannot be read"
            remedy = f"leave it out of the query, or cast it: {field.name}::text"
            raise InputError(problem, file=file, column=field.name, remedy=remedy)


def _with_numbers(frame: pl.DataFrame, numeric: list[str]) -> pl.DataFrame:
    """NUMERIC arrives as text."""
    return frame.with_columns(pl.col([name for name in numeric if name in frame.columns]).cast(pl.Float64))


#: No file but its own, no extension, no network, and no statement that could change this.
CLOSED: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False, "lock_configuration": True}


def open_duckdb(path: Path, query: str | None) -> Table:
    """The rows that a query selects."""

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        with _relation(path, query) as relation:
            for batch in relation.project(_quoted(columns)).to_arrow_reader(rows):
                yield from_arrow(batch, path)

    with _relation(path, query) as relation:
        empty = relation.limit(0).to_arrow_table()
    readable_names(empty.schema, path)
    return Table(str(path), from_arrow(empty, path), read)


@contextmanager
def _relation(path: Path, query: str | None) -> Iterator[Any]:
    """The query's result, while the file is open."""
    with extra("duckdb", "reading a DuckDB file needs the package duckdb", file=path):
        import duckdb
    remedy = "check that it is a DuckDB file and that no other program has it open for writing"
    with failing_as(duckdb.Error, "this DuckDB file cannot be opened: {reason}", file=path, remedy=remedy):
        connection = duckdb.connect(str(path), read_only=True, config=CLOSED)
    with connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        contents = f"the file has the tables: {listed(tables) or 'none'}"
        if query is None:
            example = f'"SELECT * FROM {tables[0] if tables else "…"}"'
            raise InputError("a DuckDB file needs a query", file=path, remedy=f"give query={example}; {contents}")
        try:
            statements = duckdb.extract_statements(query)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise InputError("the query is not one SELECT", file=path, value=query, remedy="give one SELECT")
            yield connection.sql(query)
        # errors while rows are fetched come through Arrow
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            problem = " ".join(str(error).split())
            raise InputError(f"the query fails: {problem}", file=path, value=query, remedy=contents) from error
