"""A table that lacks columns: refused before any weights are loaded, all at once, or read as absent where allowed."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refused, tefm
from conftest import ONLY_PREDICTS, STAYS, Explained, quick, stays

from tefm.base.errors import InputError
from tefm.codes.tokenizer import RecordTokenizer, read_codes
from tefm.model.bundle import load_preparation
from tefm.model.estimator import TEFM
from tefm.tables.readers.table import open_table

TABLE = stays(12, seed=1)
#: what the columns hold when nothing is known
NOTHING = TABLE.with_columns(ward=pl.lit(None, pl.String), drugs=pl.lit(None, pl.String))


@pytest.fixture(scope="module")
def folder(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model`, `tok`, and tables with and without two columns."""
    folder = tmp_path_factory.mktemp("absent")
    fitted.save(folder / "model")
    fitted.tokenizer_.save(folder / "tok")
    TABLE.drop("ward", "drugs").write_csv(folder / "narrow.csv")
    TABLE.drop("ward", "patient", "day").write_csv(folder / "nobody.csv")
    NOTHING.write_csv(folder / "nothing.csv")
    return folder


@pytest.mark.parametrize("command", ["predict", "explain", "evaluate", "report", "tokens"])
def test_missing_columns_are_refused_before_the_weights_are_loaded(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("tefm.model.bundle.open_backbone", load)
    monkeypatch.setattr("tefm.codes.tokenizer.load_coder", load)
    message = refused(command, folder / "model", folder / "narrow.csv")
    assert "− ward " in message and "− drugs " in message and "--absent" in message and "narrow.csv" in message
    message = refused(command, folder / "model", folder / "nobody.csv", "--absent")
    assert "− patient " in message and "− day " in message and "− ward " in message


@pytest.mark.parametrize("command", ["predict", "explain", "evaluate"])
def test_with_absent_missing_columns_are_absent_and_named(command: str, folder: Path) -> None:
    narrow = tefm(command, folder / "model", folder / "narrow.csv", "--absent", "--json", "--device", "cpu")
    whole = tefm(command, folder / "model", folder / "nothing.csv", "--json", "--device", "cpu")
    assert narrow.json == whole.json
    line = next(line for line in narrow.stderr.splitlines() if "count as absent" in line)
    assert line.endswith("narrow.csv and count as absent: 'ward', 'drugs'")
    assert "count as absent" not in whole.stderr


@pytest.mark.all
def test_a_report_on_a_table_without_columns(folder: Path, tmp_path: Path) -> None:
    finished = tefm("report", folder / "model", folder / "narrow.csv", "--absent", "--out", tmp_path / "r.html")
    assert "count as absent: 'ward', 'drugs'" in finished.stderr and (tmp_path / "r.html").is_file()


def test_encode(folder: Path, tmp_path: Path) -> None:
    message = refused("encode", folder / "tok", folder / "narrow.csv", "--out", tmp_path / "codes.parquet")
    assert "− ward " in message and "− drugs " in message and "--absent" in message
    assert not (tmp_path / "codes.parquet").exists()
    for name, options in (("narrow", ["--absent"]), ("nothing", [])):
        tefm("encode", folder / "tok", folder / f"{name}.csv", "--out", tmp_path / f"{name}.parquet", *options)
    coder = RecordTokenizer.load(folder / "tok").coder
    codes = [read_codes(tmp_path / f"{name}.parquet", coder) for name in ("narrow", "nothing")]
    assert np.array_equal(*codes) and len(codes[0]) == TABLE.height


def test_in_python(fitted: TEFM, explained: Explained, caplog: pytest.LogCaptureFixture) -> None:
    narrow = TABLE.drop("ward", "drugs")
    for call in (fitted.predict, fitted.predict_proba, fitted.predict_table, fitted.evaluate, fitted.explain):
        explained(InputError, lambda call=call: call(narrow), "2 of 5 columns" if call != fitted.evaluate else "2 of 6")
    explained(InputError, lambda: fitted.tokenizer_.encode(narrow), "2 of 3 columns", "absent=True")
    with caplog.at_level(logging.WARNING, "tefm"):
        assert np.array_equal(fitted.predict_proba(narrow, absent=True), fitted.predict_proba(NOTHING))
    assert [line for line in caplog.messages if "'ward', 'drugs'" in line]
    assert fitted.predict(narrow, absent=True).tolist() == fitted.predict(NOTHING).tolist()
    assert fitted.predict_table(narrow.to_pandas(), absent=True).shape == (12, 5)
    assert np.array_equal(fitted.tokenizer_.encode(narrow, absent=True), fitted.tokenizer_.encode(NOTHING))
    assert fitted.evaluate(narrow, absent=True) == fitted.evaluate(NOTHING)


def test_a_table_without_any_field_is_another_table(fitted: TEFM, explained: Explained) -> None:
    roles = TABLE.select("patient", "day", "died")
    explained(InputError, lambda: fitted.predict(roles, absent=True), "3 of 5 columns", "− age ", "− ward ", "− drugs ")


def test_a_text_column_may_be_absent(fitted: TEFM, explained: Explained) -> None:
    schema = STAYS.model_copy(update={"text": ("note",), "ignore": ()})
    settings = {"tokenizer": fitted.tokenizer_, "tune": {"steps": 1}, **ONLY_PREDICTS}
    model = quick(Path(fitted.config.backbone), schema, **settings).fit(stays(40))
    explained(InputError, lambda: model.predict(TABLE.drop("note", "ward")), "− note ", "− ward ")
    empty = TABLE.with_columns(note=pl.lit(None, pl.String))
    assert np.array_equal(model.predict_proba(TABLE.drop("note"), absent=True), model.predict_proba(empty))


def test_windows_need_no_entity(fitted: TEFM, folder: Path) -> None:
    preparation = load_preparation(folder / "model")
    assert (preparation.schema, preparation.vectoriser) == (STAYS, fitted.preparation.vectoriser)
    assert preparation.config == fitted.preparation.config
    window = fitted.preparation.config.model_copy(update={"window": 5})
    windows = type(preparation)(STAYS, window, preparation.vectoriser)
    assert windows.readable(TABLE.drop("patient")).columns == tuple(TABLE.drop("patient").columns)


def test_absent_columns_are_read_in_batches() -> None:
    table = open_table(pl.DataFrame({"a": [1, 2, 3]})).with_absent(["b", "c"])
    assert table.columns == ("a", "b", "c")
    assert [batch.rows() for batch in table.batches(["b"], rows=2)] == [[(None,), (None,)], [(None,)]]
    assert table.frame(["c", "a"]).rows() == [(None, 1), (None, 2), (None, 3)]
