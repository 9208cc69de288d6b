"""What a model predicted after each record: a row does not know later records, the last one is the prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from conftest import Explained, stays

from tefm.base.errors import InputError
from tefm.model.estimator import TEFM
from tefm.tables.records import Records


def test_one_row_per_record_and_the_last_is_the_prediction(fitted: TEFM) -> None:
    table = stays(40, seed=3)
    followed, whole = fitted.predict_table(table, each_record=True), fitted.predict_table(table)
    assert followed.height == table.height and followed.columns == [*whole.columns, "day"]
    last = followed.group_by("patient", maintain_order=True).last()
    assert last.drop("p(no)", "p(yes)", "day").equals(whole.drop("p(no)", "p(yes)"))
    assert np.allclose(last["p(yes)"], whole["p(yes)"], atol=1e-5)
    times = table.sort("patient", "day", maintain_order=True)
    assert followed.sort("patient", "day", maintain_order=True)["day"].equals(times["day"])


def test_a_prediction_knows_nothing_of_later_records(fitted: TEFM) -> None:
    table = stays(40, seed=3)
    first = table.sort("day", maintain_order=True).group_by("patient", maintain_order=True).first()
    followed = fitted.predict_table(table, each_record=True).filter(pl.col("records") == 1)
    alone = dict(fitted.predict_table(first).select("patient", "p(yes)").iter_rows())
    assert np.allclose(followed["p(yes)"], [alone[name] for name in followed["patient"]], atol=1e-5)


def test_long_tables_are_followed_in_parts(fitted: TEFM) -> None:
    records: Records = fitted.preparation.records(stays(30))
    (whole,) = records.after_each()
    parts = list(records.after_each(rows=7))
    assert len(parts) > 3 and sum(map(len, parts)) == len(whole) == len(records.sequences.rows)
    assert np.array_equal(np.concatenate([part.sequences.rows for part in parts]), whole.sequences.rows)


def test_windows_have_no_history_to_follow(fitted: TEFM, explained: Explained) -> None:
    windows = replace(fitted.preparation, config=fitted.config.model_copy(update={"window": 5}))
    explained(
        InputError,
        lambda: next(windows.batches(stays(5), each_record=True)),
        "5 consecutive stays",
        "records of an entity",
    )
