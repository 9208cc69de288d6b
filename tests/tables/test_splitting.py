"""Splits that keep entities apart and shares exact, balanced classes, and errors with a remedy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.visits import PATIENTS, labelled, records, table

from tefm.base.errors import InputError, SettingsError
from tefm.tables.grouping import by_entity
from tefm.tables.schema import Schema
from tefm.tables.sequences import PARTS, balance, check_label, split

labels = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=3, max_size=80)
shares = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20)).map(
    lambda parts: tuple(part / sum(parts) for part in parts)
)


class TestSplit:
    @given(records, st.sampled_from(["random", "time"]), st.integers(0, 3))
    def test_no_entity_in_two_parts_and_no_row_lost(self, rows, by, seed):
        sequences = by_entity(table([row[0] for row in rows], [row[1] for row in rows]), PATIENTS)
        if len(sequences) < 3:
            return
        parts = split(sequences, by=by, seed=seed)
        rows_by_part = {part: np.sort(sequences.select(parts == part).rows) for part in PARTS}
        assert sorted(np.concatenate(list(rows_by_part.values()))) == list(range(len(rows)))
        people = [{rows[row][0] for row in rows_by_part[part]} for part in PARTS]
        assert all(people)
        assert sum(map(len, people)) == len(sequences)

    @given(labels, shares, st.integers(0, 3))
    def test_shares_are_kept_within_each_class(self, labels, shares, seed):
        sequences = labelled(labels)
        parts = split(sequences, shares=shares, seed=seed)
        assert set(parts) == set(PARTS)
        if min(shares) * len(labels) < 2:
            return  # so few that a part may have been given its only sequence beyond its share
        for name in set(labels):
            of_class = np.array([label == name for label in labels])
            for part, share in zip(PARTS, shares, strict=True):
                assert abs((parts[of_class] == part).sum() - share * of_class.sum()) <= 1 + 1e-6

    @given(st.integers(3, 60), shares)
    def test_shares_without_classes(self, n, shares):
        parts = split(labelled(["a"] * n), shares=shares, stratify=False)
        slack = 1 if min(shares) * n >= 1 else 2
        for part, share in zip(PARTS, shares, strict=True):
            assert abs((parts == part).sum() - share * n) <= slack + 1e-6

    def test_many_small_classes_still_fill_all_parts(self):
        parts = split(labelled([f"class {i // 2}" for i in range(100)]))
        assert [(parts == part).sum() for part in PARTS] == [80, 10, 10]

    def test_is_decided_by_the_seed(self):
        sequences = labelled(["a", "b"] * 50)
        assert (split(sequences, seed=1) == split(sequences, seed=1)).all()
        assert (split(sequences, seed=1) != split(sequences, seed=2)).any()

    @given(st.lists(st.integers(0, 20), min_size=3, max_size=40))
    def test_by_time_trains_on_the_past(self, times):
        sequences = by_entity(table(list(range(len(times))), times), PATIENTS)
        parts = split(sequences, by="time")
        when = {part: np.array(times)[sequences.select(parts == part).rows] for part in PARTS}
        assert when["train"].max() <= when["validation"].min()
        assert when["validation"].max() <= when["test"].min()

    def test_a_share_of_nothing(self):
        parts = split(labelled(["a", "b"] * 10), shares=(0.9, 0.0, 0.1))
        assert [(parts == part).sum() for part in PARTS] == [18, 0, 2]

    def test_too_few_sequences(self):
        with pytest.raises(InputError, match=r"2 sequences cannot be split into 3 parts(.|\n)*at least 3"):
            split(labelled(["a", "b"]))
        assert set(split(labelled(["a", "b"]), shares=(0.5, 0.0, 0.5))) == {"train", "test"}

    @pytest.mark.parametrize("shares", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (float("nan"), 0.5, 0.5)])
    def test_shares_must_add_up(self, shares):
        with pytest.raises(SettingsError, match="add up to 1"):
            split(labelled(["a"] * 10), shares=shares)


class TestLabels:
    def test_classes(self):
        assert check_label(labelled(["b", None, "a", "b"]).labels) == ("a", "b")

    def test_no_label(self):
        with pytest.raises(InputError, match=r"there is no label(.|\n)*`label: COLUMN`"):
            check_label(None)

    def test_only_missing_labels(self):
        with pytest.raises(InputError, match=r"the label is empty: none of 2 has one \[column 'ill'\](.|\n)*'missing'"):
            check_label(labelled(["none", "None"]).labels, column="ill")

    def test_one_class(self):
        with pytest.raises(InputError, match=r"all 3 labels are the same.*\[file t.csv, column 'ill', value 'no'\]"):
            check_label(labelled(["no", "no", None, "no"]).labels, column="ill", file="t.csv")

    def test_labels_that_hardly_repeat(self):
        once = [f"{number},5" for number in range(60)]
        with pytest.raises(InputError, match=r"60 classes among 60 sequences(.|\n)*12\.5, not 12,5"):
            check_label(labelled(once).labels, column="days")
        assert len(check_label(labelled(2 * once).labels)) == 60

    @given(labels.filter(lambda names: len(set(names) - {None}) > 1), st.integers(0, 3))
    def test_balance_is_one_to_one(self, labels, seed):
        sequences = labelled(labels)
        chosen = balance(sequences, seed=seed)
        names, counts = np.unique(sequences.labels[chosen].astype(str), return_counts=True)
        assert set(counts) == {min(labels.count(name) for name in names)}
        assert set(names) == set(labels) - {None}
        assert (np.diff(chosen) > 0).all()
        assert (chosen == balance(sequences, seed=seed)).all()

    def test_balance_needs_two_classes(self):
        with pytest.raises(InputError, match="one class is not enough"):
            balance(labelled(["a", "a"]))


def test_a_class_of_one_goes_to_train() -> None:
    """In the test part it would be a class that the model has never seen."""
    labels = ["common"] * 40 + [f"rare {i}" for i in range(12)]
    frame = pl.DataFrame({"x": range(52), "label": labels})
    sequences = by_entity(frame, Schema.from_yaml("{label: label, fields: {x: number}}"))
    for seed in range(5):
        parts = split(sequences, seed=seed)
        assert set(parts[40:]) == {"train"}
        assert {"validation", "test"} <= set(parts[:40])
