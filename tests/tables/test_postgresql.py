"""PostgreSQL as a source: the same values as a file, in a defined order, streamed, and no password anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from commands import refused, tefm
from conftest import STAYS, Explained, stays
from support.postgres_server import PASSWORD, execute, server, with_password

from tefm.base.errors import InputError
from tefm.codes.tokenizer import RecordTokenizer, encode_to_parquet
from tefm.tables.readers import databases
from tefm.tables.readers.databases import Address, is_ordered, shown_location
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema

ROWS = 300_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server() as running:
        values = """SELECT i AS id, i::numeric / 4 AS share,
                    CASE WHEN i % 7 > 0 THEN 'ward ' || i % 3 END AS "the ward",
                    timestamp '2024-01-01' + i * interval '1 hour' AS at, ARRAY['a', 'b' || i % 2] AS drugs
                    FROM generate_series(1, {}) AS i"""
        execute(
            running,
            f"CREATE TABLE stays AS {values.format(1000)}",
            "ALTER TABLE stays ADD PRIMARY KEY (id)",
            "CLUSTER stays USING stays_pkey",
            "UPDATE stays SET share = share WHERE id < 500",  # moves these rows to the end of the table's file
            "CREATE SCHEMA other",
            "CREATE SEQUENCE numbers",
            'CREATE TABLE other."Odd name" AS SELECT 1 AS x',
            f"CREATE TABLE long AS SELECT i AS id, i % 10 AS size FROM generate_series(1, {ROWS}) AS i",
            "ALTER TABLE long ADD PRIMARY KEY (id)",
            "CREATE TABLE odd AS SELECT 1 AS x, inet '10.0.0.1' AS place",
        )
        yield running


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def test_a_table_is_read_in_the_order_of_its_key(address: str, caplog: pytest.LogCaptureFixture) -> None:
    table = open_table(address, query="stays")
    frame = table.frame()
    assert table.columns == ("id", "share", "the ward", "at", "drugs")
    assert frame["id"].to_list() == list(range(1, 1001))
    assert frame["share"].to_list() == [i / 4 for i in range(1, 1001)]
    assert frame["the ward"].to_list()[5:8] == ["ward 0", None, "ward 2"]
    assert frame["drugs"].to_list()[0] == ["a", "b1"]
    assert frame["at"].dtype == pl.Datetime("us")
    assert table.head(0).schema == frame.schema
    assert table.frame(["at", "id"]).columns == ["at", "id"]
    assert not caplog.records
    assert open_table(address, query='other."Odd name"').frame().rows() == [(1,)]


def test_a_query_may_have_an_order_comments_and_a_semicolon(address: str, caplog: pytest.LogCaptureFixture) -> None:
    query = "SELECT id, at FROM stays WHERE id < 9 ORDER BY id DESC -- the last first\n;"
    assert open_table(address, query=query).frame(["id"])["id"].to_list() == list(range(8, 0, -1))
    assert not caplog.records


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("SELECT 1 AS x; SELECT 2 AS x", "one SELECT"),
        ("CREATE TABLE new AS SELECT 1 AS x", "one SELECT"),
        ("COPY stays TO '/tmp/stays.csv'", "one SELECT"),
        ("SELECT lo_from_bytea(0, 'x') AS x", "lo_from_bytea"),
        ("SELECT \"lo_export\" (1, '/tmp/x') AS x", "lo_export"),
        ("SELECT E'''' AS a, lo_import/**/('/etc/passwd') AS x", "lo_import"),
        ("SELECT 1 AS a$b$, lo_export(1, '/tmp/x') AS c$b$", "lo_export"),
        ("SELECT $€$ ' $€$ AS a, lo_export(1, '/tmp/x') AS x --'", "lo_export"),
        ("SELECT 1 AS a -- \r, lo_export(1, '/tmp/x') AS x", "lo_export"),
        ("SELECT * FROM ts_stat('SELECT lo_export(1, ''/tmp/x'')')", "ts_stat"),
        ("SELECT $$ ' $$ AS a, pg_read_file('/etc/passwd') AS b, $$ ' $$ AS c", "pg_read_file"),
        ("SELECT * FROM dblink('host=elsewhere', 'SELECT 1') AS t (x int)", "dblink"),
    ],
)
def test_a_query_is_one_select_over_tables(address: str, query: str, word: str, explained: Explained) -> None:
    explained(InputError, lambda: open_table(address, query=query), word, "SELECT" if "one" in word else "leave it out")


@pytest.mark.parametrize(
    "query",
    [
        r"SELECT date'2020-01-01\' AS d, lo_export(1, '/tmp/x') AS x --'",
        "SELECT E'a'\n'b\\' AS a, lo_export(1, '/tmp/x') AS x --'",
        "SELECT /* /* */ ' */ lo_export(1, '/tmp/x') AS x --'",
    ],
)
def test_a_query_that_can_be_read_in_two_ways_is_refused(address: str, query: str, explained: Explained) -> None:
    explained(InputError, lambda: open_table(address, query=query), "two ways", "''")


def test_words_in_texts_and_comments_are_no_functions(address: str) -> None:
    query = (
        "SELECT 'lo_export(1); x' AS t, $$pg_read_file('a');$$ AS u /* dblink(; */ FROM stays ORDER BY id -- ;lo_get("
    )
    assert open_table(address, query=query).frame().row(0) == ("lo_export(1); x", "pg_read_file('a');")


@pytest.mark.parametrize("query", ["SELECT * FROM stays", 'other."Odd name"'])
def test_rows_without_an_order_are_warned_of(address: str, query: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tefm"):
        open_table(address, query=query)
    assert "ORDER BY" in caplog.text


def test_an_order_is_found_only_where_it_counts() -> None:
    assert is_ordered("WITH x AS (SELECT 1) SELECT * FROM x\norder\n by (1)")
    assert not is_ordered("SELECT 'order by' AS \"order by\", rank() OVER (PARTITION BY (1) ORDER BY 2) -- order by")


def test_rows_are_streamed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "BATCH_BYTES", 100_000)
    heights = [frame.height for frame in open_table(address, query="long").batches()]
    assert sum(heights) == ROWS and max(heights) < 20_000


def test_nothing_is_written(address: str, explained: Explained) -> None:
    query = "SELECT nextval('numbers') AS x"
    explained(InputError, lambda: open_table(address, query=query).frame(), "read-only")


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_errors_name_what_is_wrong(address: str, explained: Explained) -> None:
    shown = address.replace("tefm@", "")
    explained(InputError, lambda: open_table(address), "needs a query", "'stays'", "other.Odd name", shown)
    explained(InputError, lambda: open_table(address, query="nothing"), "nothing", "does not exist", shown)
    explained(InputError, lambda: open_table(address, query="SELECT 1/0 AS x").frame(), "division by zero")
    explained(InputError, lambda: open_table(address, query="odd"), "inet", "'place'", "place::text")
    explained(InputError, lambda: open_table(address.replace("/postgres", "/x"), query="t"), "cannot connect", '"x"')


def test_a_broken_connection_leaves_nothing_half_written(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setattr(databases, "BATCH_BYTES", 100_000)
    schema = Schema.from_yaml("fields: {id: number}")
    rows = pl.DataFrame({"id": range(100)})
    tokenizer = RecordTokenizer(levels=1, entries=4, latent=4, hidden=8, steps=2).fit(rows, schema)
    batches, killed = tokenizer.batches, []

    def batches_of_a_dying_server(*arguments: object) -> Iterator[object]:
        for number, batch in enumerate(batches(*arguments)):  # type: ignore[arg-type]
            if not number:
                copying = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%long%'"
                killed.extend(execute(address, f"{copying} AND pid <> pg_backend_pid()"))
            yield batch

    monkeypatch.setattr(tokenizer, "batches", batches_of_a_dying_server)
    target = tmp_path / "codes.parquet"
    query = "SELECT long.id FROM generate_series(1, 100), long"
    explained(InputError, lambda: encode_to_parquet(tokenizer, address, target, query=query), "the connection broke")
    assert killed == [(True,)]
    assert list(tmp_path.iterdir()) == []


# ---- the password ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("postgresql://ann@db/x", "postgresql://db/x"),
        ("postgresql://ann:secret@db:1/x", "postgresql://db:1/x"),
        ("postgres://ann:sec:ret@[::1]:1/x", "postgres://[::1]:1/x"),
        ("postgresql://ann:s/e?c@ret@db/x", "postgresql://db/x"),
        ("postgresql:///x?host=/tmp&user=ann&password=secret", "postgresql:///x?host=/tmp"),
        ("postgresql://db:5432/x?user=a@b", "postgresql://db:5432/x"),
    ],
)
def test_an_address_is_shown_without_name_and_password(written: str, shown: str) -> None:
    assert Address.of(written).shown == shown == shown_location(written)


def test_the_password_is_in_no_message(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD")
    for wrong in (with_password(address).replace("/@", "/-@"), address.replace("tefm@", "tefm:two words@")):
        message = refused("inspect", wrong, "--query", "stays")
        assert "cannot connect" in message and "authentication" in message
        assert "s3cret" not in message and "two words" not in message
    failing = tefm("inspect", with_password(address), "--query", "SELECT * FROM stays", "--json")
    assert "s3cret" not in failing.stdout + failing.stderr


@pytest.mark.slow
def test_commands_read_from_the_database_and_keep_no_password(
    address: str, backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD")
    frame = stays(60).with_row_index("row")
    frame.write_csv(tmp_path / "stays.csv")
    columns = ", ".join(f'"{name}" text' for name in frame.columns)
    values = ", ".join(
        "(" + ", ".join("NULL" if value is None else f"'{value}'" for value in row) + ")" for row in frame.rows()
    )
    execute(address, f"CREATE TABLE visits ({columns})", f"INSERT INTO visits VALUES {values}")
    (tmp_path / "schema.yaml").write_text(STAYS.to_yaml().replace("ignore:\n", "ignore:\n- row\n"))
    query = "SELECT * FROM visits ORDER BY row::int"
    (tmp_path / "task.yaml").write_text(
        f"{{table: '{with_password(address)}', query: '{query}', schema: schema.yaml, backbone: '{backbones['llama']}',"
        " codes: {levels: 1, entries: 4, latent: 4, hidden: 8, steps: 5}, tune: {steps: 2}, explanations: none}"
    )
    said = tefm("fit", tmp_path / "task.yaml", "--out", tmp_path / "model", "--no-compare", "--device", "cpu")
    outputs = said.stdout + said.stderr
    there = tefm("predict", tmp_path / "model", with_password(address), "--query", query, "--json", "--device", "cpu")
    here = tefm("predict", tmp_path / "model", tmp_path / "stays.csv", "--json", "--device", "cpu")
    assert there.json == here.json
    monkeypatch.setenv("PGUSER", "tefm")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    asked = refused("report", tmp_path / "model", "--out", tmp_path / "report.html")
    assert query in asked and "--table" in asked, "the bundle shows address and query, and opens neither"
    words = ("--table", address.replace("tefm@", ""), "--query", query)
    outputs += tefm("report", tmp_path / "model", *words, "--out", tmp_path / "report.html").stderr
    outputs += tefm("evaluate", tmp_path / "model", with_password(address), "--query", query).stderr
    assert "fitted on this table" in outputs
    (tmp_path / "task.yaml").unlink()
    written = "".join(p.read_bytes().decode("latin1") for p in tmp_path.rglob("*") if p.is_file())
    assert "s3cret" not in outputs + written
    assert address.replace("tefm@", "") in written
