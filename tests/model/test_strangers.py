"""A bundle from a stranger opens nothing: what it says about tables is text, and queries of users are one SELECT."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import refused, tefm
from conftest import Explained, quick, stays

from tefm.base.errors import InputError
from tefm.base.files import write_manifest
from tefm.codes.tokenizer import KIND as TOKENIZER
from tefm.codes.tokenizer import VECTORISER, RecordTokenizer
from tefm.model.bundle import KIND
from tefm.model.estimator import TEFM
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Field, Lookup, Schema, Side

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def saved(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def forge(folder: Path, **changes: Any) -> None:
    """Change what `model.json` says, with a manifest that is right."""
    body = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**body, **changes}))
    (folder / "manifest.json").unlink()
    write_manifest(folder, KIND, codes=body["codes"])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "hospital.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE stays AS SELECT 1 AS x")
    return path


def test_a_forged_source_is_shown_and_not_opened(
    copy: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"COPY stays TO '{tmp_path}/written.csv'; SELECT * FROM stays"
    monkeypatch.setattr(duckdb, "connect", lambda *_, **__: pytest.fail("a bundle opened a database"))
    for table in (str(database), str(tmp_path / "*.duckdb"), "postgresql://elsewhere/db"):
        forge(copy, source={"table": table, "query": query, "split": {}})
        message = refused("report", copy, "--out", tmp_path / "report.html", "--device", "cpu")
        assert "COPY" in message and "--table" in message
    assert not (tmp_path / "written.csv").exists()


@pytest.mark.parametrize(
    "query",
    [
        "COPY stays TO '{folder}/written.csv'; SELECT * FROM stays",
        "COPY stays TO '{folder}/written.csv'",
        "SELECT 1 AS x; SELECT 2 AS x",
        "ATTACH '{folder}/other.duckdb'; SELECT 1 AS x",
        "SET enable_external_access = true; SELECT * FROM stays",
        "PRAGMA database_list",
        "SELECT * FROM read_text('{folder}/secret.txt')",
        "SELECT * FROM '{folder}/secret.csv'",
    ],
)
def test_a_query_stays_inside_its_file(query: str, database: Path, tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secret.csv").write_text("a\nsecret\n")
    explained(InputError, lambda: open_table(database, query=query.format(folder=tmp_path)).frame(), "hospital.duckdb")
    assert not (tmp_path / "written.csv").exists()
    assert open_table(database, query="SELECT * FROM stays -- ; COPY").frame().rows() == [(1,)]


# ---- side tables and lookup tables -----------------------------------------------------------------------------------


def with_side(folder: Path) -> tuple[Schema, pl.DataFrame]:
    """Stays whose drugs are in a side table, with names in a lookup table."""
    frame = stays(60).with_row_index("stay")
    long = pl.DataFrame({"stay": range(frame.height), "drug": ["a" if row % 2 else "b" for row in range(frame.height)]})
    long.write_csv(folder / "drugs.csv")
    (folder / "names.csv").write_text("code,title\na,aspirin\nb,bisoprolol\n")
    field = Field(
        name="orders",
        kind="set",
        side=Side(table=str(folder / "drugs.csv"), key="stay", value="drug"),
        lookup=Lookup(table=str(folder / "names.csv"), key="code", name="title"),
    )
    fields = (Field(name="age", kind="number"), field)
    return Schema(fields=fields, entity="patient", time="day", label="died"), frame.select(
        "stay", "age", "patient", "day", "died"
    )


def test_a_saved_model_takes_side_tables_from_the_user(
    backbones: dict[str, Path], tmp_path: Path, explained: Explained
) -> None:
    schema, frame = with_side(tmp_path)
    model = quick(backbones["llama"], schema, explanations="none").fit(frame)
    expected = model.predict_table(frame)
    model.save(tmp_path / "model")
    frame.write_csv(tmp_path / "stays.csv")
    (tmp_path / "names.csv").unlink()  # its names are in the bundle
    loaded = TEFM.load(tmp_path / "model", device="cpu")
    orders = loaded.preparation.schema.field("orders")
    assert orders.lookup is None and orders.names == {"a": "aspirin", "b": "bisoprolol"}
    explained(InputError, lambda: loaded.predict_table(frame), "'orders'", "drugs.csv", "--side orders=TABLE")
    message = refused("predict", tmp_path / "model", tmp_path / "stays.csv", "--device", "cpu")
    assert "--side orders=TABLE" in message
    Path(tmp_path / "drugs.csv").rename(tmp_path / "mine.csv")
    side = ("--side", f"orders={tmp_path / 'mine.csv'}")
    done = tefm("predict", tmp_path / "model", tmp_path / "stays.csv", *side, "--json", "--device", "cpu")
    assert [row["predicted"] for row in done.json] == expected["predicted"].to_list()
    joined = frame.with_columns(orders=pl.Series([["a"] if row % 2 else ["b"] for row in range(frame.height)]))
    assert loaded.predict_table(joined).equals(expected)
    for wrong, words in {
        "orders": ("--side", "orders"),
        "age=x.csv": ("age", "side table"),
        "no=x.csv": ("no",),
    }.items():
        message = refused("predict", tmp_path / "model", tmp_path / "stays.csv", "--side", wrong, "--device", "cpu")
        assert all(word in message for word in words)


def test_a_saved_tokenizer_opens_no_table(tmp_path: Path, explained: Explained) -> None:
    schema, frame = with_side(tmp_path)
    RecordTokenizer(levels=1, entries=4, latent=4, hidden=8, steps=5, device="cpu").fit(frame, schema).save(
        tmp_path / "tokenizer"
    )
    body = json.loads((tmp_path / "tokenizer" / VECTORISER).read_text())
    body["table_schema"]["fields"][1]["side"]["opened"] = True  # a forger's word
    (tmp_path / "tokenizer" / VECTORISER).write_text(json.dumps(body))
    manifest = json.loads((tmp_path / "tokenizer" / "manifest.json").read_text())
    (tmp_path / "tokenizer" / "manifest.json").unlink()
    write_manifest(tmp_path / "tokenizer", TOKENIZER, version="0", identity=manifest["identity"])
    loaded = RecordTokenizer.load(tmp_path / "tokenizer", device="cpu")
    explained(InputError, lambda: loaded.encode(frame), "'orders'", "drugs.csv")
    frame.write_csv(tmp_path / "stays.csv")
    words = ("encode", tmp_path / "tokenizer", tmp_path / "stays.csv", "--out", tmp_path / "codes.parquet")
    assert "--side orders=TABLE" in refused(*words)
    assert tefm(*words, "--side", f"orders={tmp_path / 'drugs.csv'}", "--json").json["records"] == frame.height
    assert "list per record" in refused(*words, "--side", "orders=x.csv", "--engine", "ray")
