"""The schema: YAML there and back, what a person may write, and what is said about a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Explained
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tefm.base.errors import SchemaError, did_you_mean
from tefm.tables.schema import MISSING_WORDS, Field, Lookup, Schema, Side

# ---- there and back -------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)
#: words that YAML would like to read as something else
AWKWARD = st.sampled_from(
    ["on", "No", "yes", "null", "~", "010", "1e3", "0x1F", "3:25", "2024-01-31", "-", "#", "a: b"]
)
WORD = TEXT | AWKWARD
TITLES = {"title": st.none() | WORD, "group": st.none() | WORD}


def fields_named(name: str, columns: list[str]) -> st.SearchStrategy[Field]:
    """Any valid field of that name; `columns` are its own if it is a set over several."""
    fixed = {"name": st.just(name), **TITLES, "absent": st.lists(WORD, max_size=3).map(tuple)}
    values = {
        "top": st.none() | st.integers(1, 60_000),
        "names": st.dictionaries(WORD, WORD, max_size=3),
        "lookup": st.none() | st.builds(Lookup, table=WORD, key=WORD, name=WORD),
    }
    buckets = {"buckets": st.integers(1, 250)}
    one_set = {**fixed, **values, **buckets, "kind": st.just("set")}
    return st.one_of(
        st.builds(Field, kind=st.just("number"), unit=st.none() | WORD, **fixed, **buckets),
        st.builds(Field, kind=st.just("flag"), on=st.none() | st.lists(WORD, min_size=1).map(tuple), **fixed),
        st.builds(Field, kind=st.just("category"), **fixed, **values),
        st.builds(Field, delimiter=st.none() | WORD, **one_set),
        st.builds(Field, columns=st.just(tuple(columns)), **one_set),
        st.builds(Field, side=st.builds(Side, table=WORD, key=WORD, value=WORD), **one_set),
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(WORD, min_size=8, max_size=16, unique=True))
    roles = {role: names.pop() if draw(st.booleans()) else None for role in ("entity", "time", "label")}
    lists = {role: (names.pop(),) if draw(st.booleans()) else () for role in ("text", "ignore")}
    fields = []
    while names:
        own = [names.pop() for _ in range(min(len(names), 3))]
        fields.append(draw(fields_named(own[0], own)))
    # a side table may not be looked up by the label
    assume(all(roles["label"] not in field.source for field in fields))
    missing = draw(st.just(MISSING_WORDS) | st.lists(WORD, max_size=3).map(tuple))
    return Schema(fields=tuple(fields), record=draw(WORD), missing=missing, **roles, **lists)


@settings(max_examples=50)
@given(schemas())
def test_yaml_there_and_back(schema: Schema) -> None:
    assert Schema.from_yaml(schema.to_yaml()) == schema


def test_a_file_there_and_back(tmp_path: Path) -> None:
    schema = Schema(fields=(Field(name="größe", kind="number", unit="cm"),), label="died")
    assert Schema.load(schema.save(tmp_path / "new" / "schema.yaml")) == schema


def test_yaml_shows_what_is_not_default_and_nothing_else() -> None:
    schema = Schema(fields=(Field(name="age", kind="number", buckets=5), Field(name="sex", kind="category")))
    assert schema.to_yaml() == "fields:\n  age:\n    kind: number\n    buckets: 5\n  sex:\n    kind: category\n"


# ---- what a person may write ----------------------------------------------------------------------------------------


def test_the_short_form_is_the_kind() -> None:
    assert Schema.from_yaml("fields: {age: number, sex: {kind: category}}").fields == (
        Field(name="age", kind="number"),
        Field(name="sex", kind="category"),
    )


def test_words_mean_themselves() -> None:
    """YAML alone reads `on` as true, No as false, 010 as eight and 1 as a number that names no value."""
    schema = Schema.from_yaml(
        """
        fields:
          changed: {kind: flag, on: [Yes, 1], absent: [No, null]}
          type: {kind: category, names: {1: Emergency, 010: Newborn}}
          2024: {kind: number, buckets: 5}
        missing: [NA, -9, ""]
        """
    )
    changed, type_, year = schema.fields
    assert (changed.on, changed.absent) == (("Yes", "1"), ("No", "null"))
    assert type_.names == {"1": "Emergency", "010": "Newborn"}
    assert (year.name, year.buckets) == ("2024", 5)
    assert schema.missing == ("NA", "-9", "")


def test_a_setting_left_empty_is_not_given() -> None:
    schema = Schema.from_yaml("entity:\nignore:\nfields: {age: {kind: number, unit: , title: ~}}")
    assert schema == Schema(fields=(Field(name="age", kind="number"),))


def test_a_column_that_becomes_text_leaves_its_set_and_nothing_else() -> None:
    drugs = Field(name="drugs", kind="set", columns=("drug_1", "drug_2"))
    side = Field(name="orders", kind="set", side=Side(table="orders.csv", key="drug_1", value="code"))
    schema = Schema(fields=(drugs, side, Field(name="note", kind="category")))
    changed = schema.with_text(["drug_1", "note"])
    assert changed.fields == (drugs.model_copy(update={"columns": ("drug_2",)}), side)
    assert changed.text == ("drug_1", "note")


def test_lookups_and_side_tables_are_relative_to_the_schema(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(
        """
        fields:
          dx:
            kind: set
            side: {table: tables/diagnoses.csv, key: hadm_id, value: icd9}
            lookup: {table: /data/icd.csv, key: code, name: title}
        """
    )
    field = Schema.load(tmp_path / "schema.yaml").field("dx")
    assert field.side == Side(table=str(tmp_path / "tables" / "diagnoses.csv"), key="hadm_id", value="icd9")
    assert field.lookup == Lookup(table="/data/icd.csv", key="code", name="title")
    assert field.source == ("hadm_id",)


def test_fields_know_their_columns_names_and_limits() -> None:
    schema = Schema.from_yaml(
        "fields: {lab_tests: number, dx: {kind: set, columns: [d1, d2]}, ward: {kind: category, title: Ward, top: 3}}"
    )
    assert schema.columns == ("lab_tests", "d1", "d2", "ward")
    assert [field.display_name for field in schema.fields] == ["lab tests", "dx", "Ward"]
    assert [field.limit for field in schema.fields] == [40, 200, 3]


def test_buckets_can_be_set_for_all_numbers(explained: Explained) -> None:
    schema = Schema.from_yaml("fields: {age: {kind: number, unit: years}, dx: {kind: set, buckets: 3}}")
    changed = schema.with_buckets(5)
    assert changed.field("age") == Field(name="age", kind="number", unit="years", buckets=5)
    assert changed.field("dx").buckets == 3
    explained(SchemaError, lambda: schema.with_buckets(0), "buckets", "'age'", "0")


# ---- what is said about a mistake -----------------------------------------------------------------------------------

MISTAKES = {
    "unknown kind": ("fields: {age: {kind: numbr}}", ["'age'", "'numbr'", "kind", "'number'"]),
    "unknown kind, short": ("fields: {age: numbr}", ["'age'", "'numbr'", "kind", "'number'"]),
    "unknown setting": (
        "fields: {age: {kind: number, bukets: 3}}",
        ["'age'", "'bukets'", "'3'", "did you mean 'buckets'"],
    ),
    "unknown role": ("entiti: patient\nfields: {age: number}", ["'entiti'", "'patient'", "did you mean 'entity'"]),
    "unknown part of a lookup": (
        "fields: {dx: {kind: category, lookup: {tabel: icd.csv, key: k, name: n}}}",
        ["'dx'", "lookup.tabel", "did you mean 'table'"],
    ),
    "a lookup that is a path": ("fields: {dx: {kind: category, lookup: icd.csv}}", ["'dx'", "lookup", "'icd.csv'"]),
    "no buckets": (
        "fields: {age: {kind: number, buckets: 0}}",
        ["'age'", "buckets", "'0'", "greater than or equal to 1"],
    ),
    "a bucket too many": ("fields: {age: {kind: number, buckets: 251}}", ["'age'", "'251'", "250"]),
    "buckets in words": ("fields: {age: {kind: number, buckets: ten}}", ["'age'", "buckets", "'ten'", "integer"]),
    "an empty delimiter": ('fields: {dx: {kind: set, delimiter: ""}}', ["'dx'", "delimiter", "at least 1"]),
    "nothing that means yes": ("fields: {icu: {kind: flag, on: []}}", ["'icu'", "on", "at least 1"]),
    "no kind": ("fields: {age: {unit: years}}", ["'age'", "kind", "missing"]),
    "nothing": ("fields: {age: }", ["'age'", "kind"]),
    "a list": ("fields: {age: [number]}", ["'age'", "kind"]),
    "no fields": ("fields: {}", ["at least one field"]),
    "fields left out": ("entity: patient", ["fields"]),
    "fields as a list": ("fields: [age, sex]", ["fields"]),
    "text": ("just some text", ["fields"]),
    "an empty file": ("", ["fields"]),
    "bad YAML": ("fields:\n  age: {kind: number\n  sex: category", ["not valid YAML", "line 3"]),
    "a tab": ("fields:\n\tage: number", ["not valid YAML", "line 2"]),
    "a field twice": ("fields:\n  age: number\n  age: category", ["'age' is given twice", "line 3"]),
    "a column of two fields": (
        "fields: {a: {kind: set, columns: [x, y]}, b: {kind: number, columns: [y]}}",
        ["column 'y' is used twice", "field 'a'", "field 'b'"],
    ),
    "a field that is the label": ("label: died\nfields: {died: flag}", ["column 'died' is used twice", "label"]),
    "a set whose key is the label": (
        "label: died\nfields: {labs: {kind: set, side: {table: t.csv, key: died, value: v}}}",
        ["field 'labs'", "label column 'died'"],
    ),
    "a set with the name of the label": (
        "label: died\nfields: {died: {kind: set, columns: [a, b]}}",
        ["field 'died'", "label column 'died'"],
    ),
    "a field that is ignored": ("ignore: [dod]\nfields: {dod: flag}", ["column 'dod' is used twice", "ignore"]),
    "two roles": ("entity: id\ntime: id\nfields: {age: number}", ["column 'id' is used twice", "entity", "time"]),
    "a role of two columns": ("entity: [a, b]\nfields: {age: number}", ["entity", "string"]),
    "several columns of a number": (
        "fields: {age: {kind: number, columns: [a, b]}}",
        ["'age'", "several columns", "'set'"],
    ),
    "a side table of a number": (
        "fields: {n: {kind: number, side: {table: t.csv, key: k, value: v}}}",
        ["'n'", "'side' is for kind 'set'"],
    ),
    "`on` of a number": ("fields: {n: {kind: number, on: [1]}}", ["'n'", "'on' is for kind 'flag'"]),
}


@pytest.mark.parametrize(("text", "parts"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_with_its_place_and_a_remedy(
    text: str, parts: list[str], tmp_path: Path, explained: Explained
) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(text)
    explained(SchemaError, lambda: Schema.load(path), path, *parts)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path, explained: Explained) -> None:
    explained(SchemaError, lambda: Schema.load(tmp_path / "no.yaml"), tmp_path / "no.yaml", "tefm inspect")
    explained(SchemaError, lambda: Schema.load(tmp_path), tmp_path)
    (tmp_path / "latin1.yaml").write_bytes("fields: {Größe: number}".encode("latin-1"))
    explained(SchemaError, lambda: Schema.load(tmp_path / "latin1.yaml"), "latin1.yaml", "UTF-8")


def test_a_field_that_does_not_exist_has_a_near_name(explained: Explained) -> None:
    schema = Schema.from_yaml("fields: {age: number, ward: category}")
    assert schema.field("age").kind == "number"
    explained(SchemaError, lambda: schema.field("wards"), "'wards'", "did you mean 'ward'")


def test_two_fields_of_one_name_are_refused() -> None:
    fields = (Field(name="x", kind="set", columns=("a", "b")), Field(name="x", kind="set", columns=("c", "d")))
    with pytest.raises(ValueError, match="'x' is used twice"):
        Schema(fields=fields)


def test_did_you_mean_names_the_nearest_or_all() -> None:
    assert did_you_mean("agee", ["age", "sex"]) == "did you mean 'age'?"
    assert did_you_mean("zzz", ["age", "sex"]) == "known: 'age', 'sex'"
    assert did_you_mean("zzz", [f"c{i}" for i in range(20)]).endswith("'c11' … (20 in all)")
