"""Task files: paths beside them, schemas inline or by file, roles, and what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from conftest import STAYS, Explained, stays

from tefm.base.errors import InputError, SchemaError, SettingsError
from tefm.model.task import Task
from tefm.pipeline.config import ModelConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table and its schema."""
    stays(30).write_csv(tmp_path / "stays.csv")
    STAYS.save(tmp_path / "schema.yaml")
    return tmp_path


def task(folder: Path, text: str) -> Task:
    (folder / "task.yaml").write_text(text)
    return Task.load(folder / "task.yaml")


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    loaded = task(folder, "{table: stays.csv, schema: schema.yaml}")
    assert loaded.table == str(folder / "stays.csv")
    assert loaded.schema_for(loaded.table) == STAYS


def test_a_path_that_is_absolute_stays(folder: Path) -> None:
    assert task(folder, f"table: {folder}/stays.csv").table == f"{folder}/stays.csv"


def test_an_inline_schema_with_a_table_beside_the_file(folder: Path) -> None:
    loaded = task(
        folder,
        """
        table: stays.csv
        schema:
          entity: patient
          label: died
          fields:
            age: number
            alive: {kind: flag, on: [no, off]}
            scans: {kind: set, side: {table: scans.csv, key: patient, value: scan}}
        """,
    )
    schema = loaded.schema_for(loaded.table)
    side = schema.field("scans").side
    assert (schema.entity, schema.label) == ("patient", "died")
    assert schema.field("alive").on == ("no", "off")
    assert side is not None
    assert side.table == str(folder / "scans.csv")


def test_without_a_schema_it_is_inferred_with_the_roles(folder: Path) -> None:
    loaded = task(folder, "{table: stays.csv, entity: patient, time: day, label: died}")
    schema = loaded.schema_for(loaded.table)
    assert (schema.entity, schema.time, schema.label) == ("patient", "day", "died")
    assert "died" not in schema.columns


def test_roles_of_the_task_stand_above_those_of_the_schema(folder: Path) -> None:
    loaded = task(folder, "{table: stays.csv, schema: schema.yaml, time: note2, label: late}")
    schema = loaded.schema_for(loaded.table)
    assert (schema.entity, schema.time, schema.label) == ("patient", "note2", "late")
    assert schema.fields == STAYS.fields


@pytest.mark.parametrize("schema", ["", "schema: schema.yaml, "])
def test_columns_that_the_task_ignores_are_no_fields(folder: Path, schema: str, explained: Explained) -> None:
    whole = task(folder, f"{{table: stays.csv, {schema}entity: patient, label: died}}")
    fields = {field.name for field in whole.schema_for(whole.table).fields}
    loaded = task(folder, f"{{table: stays.csv, {schema}entity: patient, label: died, ignore: [age]}}")
    found = loaded.schema_for(loaded.table)
    assert {field.name for field in found.fields} == fields - {"age"} != fields
    assert "age" in found.ignore

    misspelled = task(folder, f"{{table: stays.csv, {schema}entity: patient, label: died, ignore: [agee]}}")
    explained(InputError, lambda: misspelled.schema_for(misspelled.table), "stays.csv", "agee", "'age'")
    label = task(folder, f"{{table: stays.csv, {schema}entity: patient, label: died, ignore: [died]}}")
    explained(SchemaError, lambda: label.schema_for(label.table), "'died' is used twice", "label", "ignore")


@pytest.mark.parametrize("given", ["schema.yaml", "{fields: {age: number, ward: category}}"])
def test_a_label_among_the_fields_is_refused(folder: Path, given: str, explained: Explained) -> None:
    loaded = task(folder, f"{{table: stays.csv, schema: {given}, label: ward}}")
    explained(SchemaError, lambda: loaded.schema_for(loaded.table), "'ward' is used twice", "label")


def test_settings_of_the_model_stand_beside_those_of_the_task(folder: Path) -> None:
    loaded = task(
        folder,
        """
        table: stays.csv
        split: {by: time, shares: [0.6, 0.2, 0.2]}
        positive: yes
        window: 5
        task_aware: false
        tune: {learning_rate: 3e-3}
        prompt: {message: "{records}?", answers: {yes: Yes, no: No}}
        """,
    )
    assert (loaded.split.by, loaded.split.shares) == ("time", (0.6, 0.2, 0.2))
    assert (loaded.model.positive, loaded.model.window, loaded.model.task_aware) == ("yes", 5, False)
    assert loaded.model.tune_config.learning_rate == 0.003
    prompt = loaded.model.prompt_for(("no", "yes"), 1, STAYS)
    assert prompt.answers == {"yes": "Yes", "no": "No"}


def test_settings_that_an_earlier_version_stored_are_read() -> None:
    """How its stages were trained no longer matters; what they learned is stored with them."""
    stored = ModelConfig.stored(
        {
            "codes": {"preset": "paper", "beam": 1, "checks": 5},
            "align": {"whole": 0.75, "steps": 9},
            "explanations": {"mixtures": 2},
            "rationale": {"selection": "soft", "context": False, "epochs": 5},
            "masked_copies": 2,
        }
    )
    masks = {"recipe": "paper", "epochs": 5}
    settings = {"codes": {"preset": "paper"}, "align": {"steps": 9}, "explanations": {}, "rationale": masks}
    assert stored == ModelConfig(**settings, beside="none"), "it had no trees"


def test_numbers_in_a_file_are_those_in_a_call(folder: Path) -> None:
    loaded = task(folder, "{table: stays.csv, codes: {levels: 2, latent: 8}, align: {steps: 3, least: 2}, layers: 1}")
    called = ModelConfig(codes={"levels": 2, "latent": 8}, align={"steps": 3, "least": 2}, layers=1)
    assert loaded.model.align_config(10, "cpu") == called.align_config(10, "cpu")
    assert loaded.model.kept_layers == called.kept_layers == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{tabel: stays.csv}", ["'tabel'", "'table'"]),
        ("{table: stays.csv, entiti: patient}", ["'entiti'", "'entity'"]),
        ("{table: stays.csv, backbon: x}", ["'backbon'", "'backbone'"]),
        ("{table: stays.csv, tune: {learning_rat: 1}}", ["'learning_rat'", "'learning_rate'"]),
        ("{table: stays.csv, codes: {level: 3}}", ["'level'", "'levels'"]),
        ("{entity: patient}", ["does not name a table"]),
        ("", ["table"]),
        ("[stays.csv]", ["table"]),
        ("{table: [", ["YAML"]),
    ],
)
def test_what_is_wrong_in_a_file(folder: Path, text: str, parts: list[str], explained: Explained) -> None:
    explained(SettingsError, lambda: task(folder, text), folder / "task.yaml", *parts)


def test_values_that_cannot_be(folder: Path) -> None:
    decisions = ("decision: luck", "decision: {cost: {a: 0, b: 1}}", "decision: {costs: {a: 1, b: 1}}")
    for text in ("split: {by: luck}", "window: 0", "balance: some", "codes: {levels: 0}", "align: some", *decisions):
        name = text.partition(":")[0]
        with pytest.raises(SettingsError, match=r"task\.yaml") as caught:
            task(folder, f"table: stays.csv\n{text}")
        assert name in str(caught.value) or "levels" in str(caught.value)


def test_no_file(tmp_path: Path, explained: Explained) -> None:
    explained(SettingsError, lambda: Task.load(tmp_path / "task.yaml"), tmp_path / "task.yaml", "no such task file")


def test_no_schema_file(folder: Path, explained: Explained) -> None:
    loaded = task(folder, "{table: stays.csv, schema: other.yaml}")
    explained(SchemaError, lambda: loaded.schema_for(pl.DataFrame({"a": [1]})), folder / "other.yaml")
