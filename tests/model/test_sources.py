"""The same fit from a database, from a MEDS folder and from a Parquet file gives the same model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from commands import refused, tefm
from conftest import QUICK
from support.meds_folder import patients, write_labels, write_meds
from support.postgres_server import PASSWORD, execute, server

from tefm.model.estimator import TEFM
from tefm.model.run import fit_tasks
from tefm.model.task import Task
from tefm.tables.readers.table import open_table

SETTINGS = {
    "codes": QUICK["codes"],
    "tune": QUICK["tune"],
    "explanations": "none",
    "seed": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MEDS folder with labels, its records as Parquet, and the schema of both."""
    folder = tmp_path_factory.mktemp("sources")
    shards, labels = patients(120)
    write_meds(folder / "meds", shards)
    write_labels(folder / "labels.parquet", labels)
    tefm("inspect", folder / "meds", "--query", folder / "labels.parquet", "--out", folder / "schema.yaml")
    records = open_table(folder / "meds", query=str(folder / "labels.parquet")).frame()
    records.write_parquet(folder / "records.parquet")
    return folder


def fitted(folder: Path, backbone: Path, name: str, **source: str) -> tuple[TEFM, Path]:
    task = {"schema": "schema.yaml", "backbone": str(backbone), **SETTINGS, **source}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))
    domains, _ = fit_tasks({"": Task.load(folder / f"{name}.yaml")}, folder / name, device="cpu", compare=False)
    return domains[""], folder / name


@pytest.mark.slow
@pytest.mark.all
def test_every_source_gives_the_same_model(
    folder: Path, backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    records = open_table(folder / "records.parquet")
    from_file, saved = fitted(folder, backbones["llama"], "parquet", table="records.parquet")
    from_meds, meds = fitted(folder, backbones["llama"], "meds-model", table="meds", query="labels.parquet")
    with server() as address:
        fill(address, records.frame())
        query = "SELECT * FROM visits ORDER BY row"
        from_database, _ = fitted(folder, backbones["llama"], "database", table=address, query=query)
        assert from_database.source_ is not None and "tefm@" not in from_database.source_["table"]
    expected = from_file.predict_proba(folder / "records.parquet")
    for other in (from_meds, from_database):
        assert other.tokenizer_.coder.identity == from_file.tokenizer_.coder.identity
        assert np.array_equal(other.predict_proba(folder / "records.parquet"), expected)
    # the bundle knows how records are made: a folder is predicted as its records are
    labels = folder / "labels.parquet"
    there = tefm("predict", meds, folder / "meds", "--query", labels, "--json", "--device", "cpu")
    here = tefm("predict", saved, folder / "records.parquet", "--json", "--device", "cpu")
    assert there.json == here.json
    everybody = tefm("predict", meds, folder / "meds", "--json", "--device", "cpu").json
    assert len(everybody) == 120
    scored = tefm("evaluate", meds, folder / "meds", "--query", labels, "--json", "--device", "cpu").json
    assert scored["unlabelled"] == 0
    codes = [folder / f"{name}.codes.parquet" for name in ("here", "there")]
    tefm("encode", saved / "tokenizer", folder / "records.parquet", "--out", codes[0])
    tefm("encode", meds / "tokenizer", folder / "meds", "--query", labels, "--out", codes[1])
    assert pl.read_parquet(codes[0]).equals(pl.read_parquet(codes[1]))
    assert "label" in refused("evaluate", meds, folder / "meds", "--device", "cpu")


def fill(address: str, records: pl.DataFrame) -> None:
    """The records as a table of the database, with arrays for lists."""
    from adbc_driver_postgresql import dbapi

    from tefm.tables.readers.databases import Address

    execute(address)
    with dbapi.connect(Address.of(address.replace("tefm@", f"tefm:{PASSWORD}@")).uri) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(
                "visits", records.with_row_index("row").cast({"row": pl.Int64, "events": pl.Int64}).to_arrow()
            )
        connection.commit()
