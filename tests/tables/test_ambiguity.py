"""Equal times and different labels within an entity: counted, and told as the sequences are really made."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tefm.tables.grouping import by_entity
from tefm.tables.overview import ambiguities
from tefm.tables.schema import Schema

SCHEMA = Schema.from_yaml("{entity: who, time: day, label: ill, fields: {x: number}}")


def table(*rows: tuple[str, int, str | None]) -> pl.DataFrame:
    who, day, ill = zip(*rows, strict=True)
    return pl.DataFrame({"who": who, "day": day, "ill": pl.Series(ill, dtype=pl.String), "x": range(len(rows))})


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1, "yes"), ("a", 2, "yes"), ("b", 1, "no")],
        [("a", 1, "yes"), ("a", 2, None), ("b", 2, "no")],  # a label that is missing contradicts nothing
    ],
)
def test_a_clear_table_gets_no_remark(rows: list[tuple[str, int, str | None]]) -> None:
    assert ambiguities(table(*rows), SCHEMA) == []


def test_without_an_entity_every_record_is_a_sequence_and_nothing_is_open() -> None:
    rows = table(("a", 1, "yes"), ("a", 1, "no"))
    assert ambiguities(rows, SCHEMA.model_copy(update={"entity": None})) == []


@pytest.mark.parametrize("entity", ["who", None])
def test_labels_in_several_spellings_are_listed(entity: str | None) -> None:
    rows = table(("a", 1, "Ja"), ("b", 1, "ja "), ("c", 1, "Nein"))
    (remark,) = ambiguities(rows, SCHEMA.model_copy(update={"entity": entity}))
    assert remark.startswith("labels ('ill') that differ only in case or blanks are different classes: 'Ja', 'ja'")


def test_without_a_time_column_the_order_is_the_files_and_there_are_no_ties() -> None:
    rows = table(("a", 1, "yes"), ("a", 1, "no"), ("b", 1, "no"))
    (remark,) = ambiguities(rows, SCHEMA.model_copy(update={"time": None}))
    assert (
        remark
        == "1 of 2 entities ('who') have records with different labels ('ill'): the label of the last record is used"
    )


def test_with_a_background_another_label_is_used() -> None:
    rows = table(("a", 1, "no"), ("a", 2, "flu"), ("a", 3, "no"), ("b", 1, "no"))
    (remark,) = ambiguities(rows, SCHEMA, background="no")
    assert remark.endswith("the first label other than 'no' is used")
    assert by_entity(rows, SCHEMA, background="no").labels.tolist() == ["flu", "no"]  # type: ignore[union-attr]


RECORDS = st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.sampled_from(["yes", "no"]))


@given(st.lists(RECORDS, min_size=1, max_size=12), st.randoms())
def test_entities_are_counted_and_only_the_counted_ones_depend_on_the_file(
    rows: list[tuple[str, int, str]], random: Any
) -> None:
    of = {who: [(day, ill) for name, day, ill in rows if name == who] for who, _, _ in rows}
    last = {who: {ill for day, ill in records if day == max(records)[0]} for who, records in of.items()}
    tied = sum(len({day for day, _ in records}) < len(records) for records in of.values())
    differ = sum(len({ill for _, ill in records}) > 1 for records in of.values())
    undecided = {who for who, labels in last.items() if len(labels) > 1}
    text = "\n".join(ambiguities(table(*rows), SCHEMA))
    entities = f"of {len(of)} entities ('who') have records"
    assert (f"{tied} {entities} at the same time" in text) == (tied > 0)
    assert (f"{differ} {entities} with different labels" in text) == (differ > 0)
    assert (f"for {len(undecided)} the last records" in text) == (len(undecided) > 0)
    for shuffled in (rows, random.sample(rows, len(rows))):
        sequences = by_entity(table(*shuffled), SCHEMA)
        for who, label in zip(sequences.ids, sequences.labels, strict=True):  # type: ignore[arg-type]
            assert label in last[who]  # of which there is one, unless the entity is among the undecided
