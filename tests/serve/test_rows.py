"""Rows of requests: what a client sends in any form is what the library would read."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import DRUGS, Explained
from hypothesis import given, settings
from hypothesis import strategies as st
from support.serving import rows_of

from tefm.base.errors import InputError, TefmError
from tefm.model.estimator import TEFM
from tefm.serve.rows import RowReader
from tefm.serve.served import Served

ages = st.one_of(
    st.none(), st.integers(-5, 200), st.floats(allow_nan=True), st.booleans(), st.sampled_from(["63", " 7.5", "NA"])
)
wards = st.one_of(
    st.none(), st.sampled_from(["surgery", "heart", "Lung ", "?", "attic"]), st.integers(0, 3), st.floats(0, 2)
)
drugs = st.one_of(
    st.none(),
    st.lists(st.sampled_from([*DRUGS, "tea"]), max_size=4),
    st.sampled_from(["insulin;aspirin", "", "morphine"]),
)
row = st.fixed_dictionaries(
    {
        "patient": st.sampled_from(["a", "b", 7, 8.0]),
        "day": st.integers(0, 9),
        "age": ages,
        "ward": wards,
        "drugs": drugs,
    }
)


@pytest.fixture(scope="module")
def served(fitted: TEFM) -> Served:
    return Served("stays", fitted)


def expected(model: TEFM, rows: list[dict[str, Any]]) -> list[tuple[str, str, list[float]]]:
    """What the library answers, where every column has one type as in a file."""
    text = pl.DataFrame(
        {name: [None if r[name] is None else _csv(r[name], name) for r in rows] for name in rows[0]}, strict=False
    )
    table = model.predict_table(text)
    p = table.select(f"p({name})" for name in model.fitted.classes).rows()
    return [(str(i), c, list(q)) for i, c, q in zip(table["patient"], table["predicted"], p, strict=True)]


def _csv(value: Any, name: str) -> str | None:
    if isinstance(value, list):
        return ";".join(value)
    if isinstance(value, bool):
        return str(int(value)) if name == "age" else str(value)
    if isinstance(value, float):
        return None if value != value else str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def check(answered: Any, right: list[tuple[str, str, list[float]]]) -> None:
    assert [one.predicted for one in answered] == [label for _, label, _ in right]
    np.testing.assert_allclose(
        [list(one.probabilities.values()) for one in answered], [p for _, _, p in right], atol=1e-5
    )


@settings(max_examples=25)
@given(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=4))
def test_requests_in_one_batch_are_answered_as_if_alone(served: Served, requests: list[list[dict[str, Any]]]) -> None:
    outcomes = served.predict([served.reader.of_records(rows) for rows in requests])
    for rows, outcome in zip(requests, outcomes, strict=True):
        right = expected(served.model, rows)
        assert not isinstance(outcome, TefmError)
        check(outcome, right)
        assert sorted(row for one in outcome for row in one.rows) == list(range(len(rows)))
        for one in outcome:
            assert one.id == rows[one.rows[-1]]["patient"]


def test_a_wrong_request_does_not_disturb_the_others(served: Served) -> None:
    good, bad = rows_of(3), [{**rows_of(1)[0], "age": "old"}]
    outcomes = served.predict([served.reader.of_records(rows) for rows in (good, bad, good)])
    assert isinstance(outcomes[1], InputError) and outcomes[1].value == "old" and outcomes[1].column == "age"
    for outcome in (outcomes[0], outcomes[2]):
        check(outcome, expected(served.model, good))


def test_the_same_entity_in_two_requests_is_two_sequences(served: Served) -> None:
    rows = [r for r in rows_of(20) if r["patient"] == "p2"]
    assert len(rows) > 1
    outcomes = served.predict([served.reader.of_records([r]) for r in rows])
    assert [len(outcome) for outcome in outcomes if isinstance(outcome, list)] == [1] * len(rows)
    alone = [served.model.predict_proba([r])[0] for r in rows]
    answered = [list(o[0].probabilities.values()) for o in outcomes if isinstance(o, list)]
    np.testing.assert_allclose(answered, alone, atol=1e-5)


def test_json_and_csv_are_the_same_rows(served: Served) -> None:
    rows = rows_of(6)
    reader = served.reader
    csv = pl.DataFrame(rows).write_csv().encode()
    forms = [
        reader.of_records(rows),
        reader.of_csv(csv),
        reader.of_csv(csv.replace(b",", b"\t").replace(b"\n", b"\r\n")),
    ]
    first, *others = served.predict(forms)
    assert isinstance(first, list) and len(first) == 6
    for other in others:
        assert [(one.id, one.predicted) for one in other] == [(one.id, one.predicted) for one in first]  # type: ignore[union-attr]


def test_codes_are_those_of_the_tokenizer(served: Served) -> None:
    rows = rows_of(4)
    (outcome,) = served.predict([served.reader.of_records(rows)])
    codes_NK = served.model.tokenizer_.encode(pl.DataFrame(rows))
    assert isinstance(outcome, list)
    for one in outcome:
        assert one.codes is not None
        for r, code in zip(one.rows, one.codes, strict=True):
            assert code == [f"<stay_{level}_{entry}>" for level, entry in zip("ab", codes_NK[r], strict=True)]


def test_windows_do_not_reach_across_requests(fitted: TEFM) -> None:
    model = TEFM(fitted.preparation.schema)
    model.adopt(fitted.bundle)
    config = fitted.preparation.config.model_copy(update={"window": 2})
    model.preparation_ = type(fitted.preparation)(fitted.preparation.schema, config, fitted.preparation.vectoriser)
    served = Served("windows", model)
    rows = sorted(rows_of(3), key=lambda r: str(r["day"]))
    outcomes = served.predict([served.reader.of_records(part) for part in (rows[:3], rows[:3])])
    assert [[one.rows for one in o] for o in outcomes if isinstance(o, list)] == [[[0, 1], [2]]] * 2
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"patient,day,age,ward,drugs\n", "no rows"),
        (b"patient,day,age,ward,drugs\n1,2,3\n", "3 cells"),
        (b"patient,day,age,ward,drugs\np,1,\xff\xfe,x,y\n", "not UTF-8"),
        (b"patient,patient,age\n1,2,3\n", "more than once"),
        (b"\x1f\x8b\x08\x00junk", "not UTF-8"),
    ],
)
def test_a_bad_csv_is_explained(served: Served, explained: Explained, body: bytes, words: str) -> None:
    error = explained(InputError, lambda: served.reader.of_csv(body), words, "the request")
    assert "/proc" not in str(error)


def test_two_columns_of_the_same_name_are_refused(served: Served, explained: Explained) -> None:
    """Blanks around a name do not count; neither value would be the right one to drop."""
    first, second = rows_of(2)[:2]
    for records in ([{**first, " age ": 3}], [first, {**second, " age ": 3}]):
        explained(InputError, lambda records=records: served.reader.of_records(records), "'age'", "' age '")


def test_missing_columns_are_listed_or_absent(served: Served, explained: Explained) -> None:
    rows = [{name: value for name, value in r.items() if name not in ("age", "ward")} for r in rows_of(2)]
    explained(InputError, lambda: served.reader.of_records(rows), "− age", "− ward")
    outcome = served.predict([served.reader.of_records(rows, absent=True)])[0]
    check(outcome, expected(served.model, [{**r, "age": None, "ward": None} for r in rows]))
    explained(InputError, lambda: served.reader.of_records([{"age": 3}], absent=True), "patient")


def test_a_row_reader_needs_no_more_than_the_model(fitted: TEFM) -> None:
    assert RowReader(fitted.preparation).needed == ["patient", "day", "age", "ward", "drugs"]
