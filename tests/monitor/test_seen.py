"""Words of the training table: a rare one is not new, and a field without end has no new ones."""

from __future__ import annotations

import polars as pl
import pytest

from tefm.monitor import tally
from tefm.monitor.tally import Seen, hashed, known_words
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser

SCHEMA = Schema.from_yaml(
    "{fields: {ward: {kind: category, top: 2}, drugs: {kind: set, delimiter: ;, top: 1}, age: number}}"
)
TABLE = pl.DataFrame(
    {"ward": ["a", "a", "b", "b", "c", None], "drugs": ["x;y", "x", None, "x;z", "x", "x"], "age": [1, 2, 3, 4, 5, 6]}
)
VECTORISER = Vectoriser.fit(TABLE, SCHEMA)


def test_rare_words_are_known_by_their_hash() -> None:
    seen, known = Seen.of(TABLE, VECTORISER), known_words(VECTORISER)
    assert known == {"ward": frozenset("ab"), "drugs": frozenset("x")}
    assert {name: len(hashes) for name, hashes in seen.hashes.items()} == {"ward": 1, "drugs": 2}
    assert seen.is_new("ward", ["a", "c", "d", None], known["ward"]).tolist() == [False, False, True, False]
    assert seen.is_new("drugs", ["x", "y", "z", "w"], known["drugs"]).tolist() == [False, False, False, True]


def test_a_field_with_too_many_words_has_no_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST", 1)
    seen = Seen.of(TABLE, VECTORISER)
    assert set(seen.hashes) == {"ward"}
    assert not seen.is_new("drugs", ["w"], frozenset()).any()


def test_hashes_are_the_same_everywhere() -> None:
    assert hashed(["never seen before"]).tolist() == [hashed(["never seen before"])[0]]
    assert len(set(hashed([str(i) for i in range(1_000)]).tolist())) == 1_000
    assert hashed([]).tolist() == []
