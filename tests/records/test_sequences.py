"""Sequences: every record once and in order, splits that keep entities apart, and errors that say what to do."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tefm.base.errors import InputError, SettingsError
from tefm.records.grouping import by_entity, by_window
from tefm.records.schema import Field, Schema
from tefm.records.splitting import PARTS, balance, check_label, rows_of, split

busy = settings(deadline=None)  # a shared machine may pause in the middle of an example

X = (Field(name="x", kind="number"),)
PATIENTS = Schema(fields=X, entity="who", time="when", label="ill")
FLOWS = Schema(fields=X, time="when", label="ill")


def table(who, when=None, ill=None):
    n = len(who)
    columns = {"x": list(range(n)), "who": who, "when": when if when is not None else list(range(n))}
    columns["ill"] = ill if ill is not None else ["no"] * n
    return pl.DataFrame(columns, strict=False)


def labelled(labels):
    """One sequence per label."""
    return by_entity(table(list(range(len(labels))), ill=labels), PATIENTS)


records = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.sampled_from(["no", "yes", None])), max_size=40)
labels = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=3, max_size=80)
shares = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20)).map(
    lambda parts: tuple(part / sum(parts) for part in parts)
)


class TestByEntity:
    @busy
    @given(records)
    def test_every_row_once_in_order_with_its_own_entity(self, rows):
        who, when, ill = ([row[i] for row in rows] for i in range(3))
        frame = table(who, when, ill).with_columns(pl.col("who").cast(pl.Int64), pl.col("ill").cast(pl.String))
        sequences = by_entity(frame, PATIENTS)

        assert sorted(sequences.rows) == list(range(len(rows)))
        assert list(sequences.ids) == [str(w) for w in dict.fromkeys(who)]  # by first appearance
        for i in range(len(sequences)):
            own = sequences[i].tolist()
            assert {str(who[row]) for row in own} == {sequences.ids[i]}
            assert own == sorted(own, key=lambda row: (when[row], row))  # ties keep the file's order
            assert sequences.last[i] == own[-1]
            assert sequences.labels[i] == ill[own[-1]]
            assert sequences.labelled[i] == (ill[own[-1]] is not None)

    @busy
    @given(records.filter(len), st.data())
    def test_select_gives_the_same_sequences(self, rows, data):
        sequences = by_entity(table([row[0] for row in rows], [row[1] for row in rows]), PATIENTS)
        chosen = data.draw(st.lists(st.integers(0, len(sequences) - 1)))
        selected = sequences.select(np.array(chosen, dtype=int))
        assert [selected[i].tolist() for i in range(len(selected))] == [sequences[i].tolist() for i in chosen]
        assert selected.ids.tolist() == sequences.ids[chosen].tolist()
        mask = np.isin(np.arange(len(sequences)), chosen)
        assert sequences.select(mask).ids.tolist() == sequences.ids[mask].tolist()

    def test_without_time_the_file_order_stays(self):
        schema = PATIENTS.model_copy(update={"time": None})
        assert by_entity(table(["b", "a", "b"], [3, 2, 1]), schema)[0].tolist() == [0, 2]

    def test_without_entity_every_record_is_a_sequence(self):
        sequences = by_entity(table(["b", "a", "b"], [3, 2, 1]), FLOWS)
        assert sequences.rows.tolist() == [0, 1, 2]
        assert sequences.ids.tolist() == ["0", "1", "2"]

    def test_without_label(self):
        sequences = by_entity(table(["a", "b"]), PATIENTS.model_copy(update={"label": None}))
        assert sequences.labels is None
        assert not sequences.labelled.any()

    def test_whole_floats_are_names_without_a_point(self):
        sequences = by_entity(table([7.0, 8.0], ill=[1.0, None]), PATIENTS)
        assert (sequences.ids.tolist(), sequences.labels.tolist()) == (["7", "8"], ["1", None])

    def test_missing_words_are_no_label(self):
        assert by_entity(table(["a", "b"], ill=["?", "yes"]), PATIENTS).labels.tolist() == [None, "yes"]

    @pytest.mark.parametrize("nobody", [None, "", " ? "])
    def test_null_entity(self, nobody):
        with pytest.raises(InputError) as caught:
            by_entity(table(["a", nobody, "b", nobody]), PATIENTS, file="visits.csv")
        message = str(caught.value)
        assert "2 of 4 rows have no entity, the first is row 2" in message
        assert "file visits.csv, column 'who'" in message
        assert "drop these rows" in message

    def test_absent_column_names_the_nearest(self):
        with pytest.raises(InputError, match=r"entity column is not in the table(.|\n)*did you mean 'who'"):
            by_entity(table(["a"]), PATIENTS.model_copy(update={"entity": "whom"}))

    def test_list_column_is_refused(self):
        with pytest.raises(InputError, match="one value per row"):
            by_entity(table([["a"], ["b"]]), PATIENTS)


class TestTime:
    @pytest.mark.parametrize(
        "times",
        [
            ["10", "9", "100"],
            ["1.5", "-2", "1e3"],
            ["2024-02-01", "2023-12-31", "2024-10-01"],
            ["2024-01-01 10:00", "2024-01-01T09:59:59.5", "2024-01-02"],
            ["2024-01-01T10:00:00Z", "2024-01-01T10:30:00+01:00", "2024-01-01T10:00:01Z"],
            [date(2024, 2, 1), date(2023, 12, 31), date(2024, 10, 1)],
            [datetime(2024, 2, 1), datetime(2023, 12, 31), datetime(2024, 10, 1)],
            [2.0, float("-inf"), 3.5],
            [2**63 + 1, 2**63, 2**63 + 2],
            [False, False, True],
        ],
    )
    def test_is_understood(self, times):
        expected = [1, 0, 2] if len(set(times)) == 3 else [0, 1, 2]
        assert by_entity(table(["a"] * 3, times), PATIENTS)[0].tolist() == expected

    def test_large_numbers_in_text_keep_their_order(self):
        times = [str(2**60 + 1), str(2**60)]  # equal as floats
        assert by_entity(table(["a"] * 2, times), PATIENTS)[0].tolist() == [1, 0]

    def test_no_time_at_all(self):
        with pytest.raises(InputError) as caught:
            by_entity(table(["a"] * 3, ["2024-01-01", "7/7/2017 3:30", "2024-01-02"]), PATIENTS)
        message = str(caught.value)
        assert "1 of 3 rows" in message
        assert "column 'when', value '7/7/2017 3:30'" in message
        assert "2024-01-31" in message

    @pytest.mark.parametrize("times", [[1.0, None, 2.0], [1.0, float("nan"), 2.0], ["1", "n/a", "2"]])
    def test_null_time(self, times):
        with pytest.raises(InputError, match="1 of 3 rows have no time, the first is row 2"):
            by_entity(table(["a"] * 3, times), PATIENTS)


class TestByWindow:
    @busy
    @given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 12))
    def test_consecutive_in_time_and_side_by_side(self, times, size):
        frame = table(["a"] * len(times), times).with_columns(pl.col("when").cast(pl.Int64))
        windows = by_window(frame, FLOWS, size, drop_last=False)
        assert windows.rows.tolist() == sorted(range(len(times)), key=lambda row: times[row])
        assert set(windows.lengths[:-1]) <= {size}
        if len(times) >= size:
            whole = by_window(frame, FLOWS, size)
            assert set(whole.lengths) == {size}
            assert len(whole) == len(times) // size
            assert whole.ids[0] == "0"

    def test_label_is_that_of_the_last_record_or_the_first_unusual_one(self):
        frame = table(["a"] * 8, ill=["ok", "ddos", "ok", "scan", "ok", "ok", None, None])
        assert by_window(frame, FLOWS, 2).labels.tolist() == ["ddos", "scan", "ok", None]
        assert by_window(frame, FLOWS, 4).labels.tolist() == ["scan", None]
        assert by_window(frame, FLOWS, 4, background="ok").labels.tolist() == ["ddos", "ok"]
        assert by_window(frame, FLOWS, 2, background="ok").labels.tolist() == ["ddos", "scan", "ok", None]

    def test_unknown_background(self):
        with pytest.raises(InputError, match="did you mean 'BENIGN'"):
            by_window(table(["a"] * 2, ill=["BENIGN", "DDoS"]), FLOWS, 1, background="BENIGNE")

    def test_too_few_records(self):
        with pytest.raises(InputError, match=r"3 records do not fill one window of 10(.|\n)*drop_last=False"):
            by_window(table(["a"] * 3), FLOWS, 10)

    def test_size_zero(self):
        with pytest.raises(SettingsError, match="at least one record"):
            by_window(table(["a"]), FLOWS, 0)


class TestSplit:
    @busy
    @given(records, st.sampled_from(["random", "time"]), st.integers(0, 3))
    def test_no_entity_in_two_parts_and_no_row_lost(self, rows, by, seed):
        sequences = by_entity(table([row[0] for row in rows], [row[1] for row in rows]), PATIENTS)
        if len(sequences) < 3:
            return
        parts = split(sequences, by=by, seed=seed)
        rows_by_part = {part: rows_of(sequences, parts, part) for part in PARTS}
        assert sorted(np.concatenate(list(rows_by_part.values()))) == list(range(len(rows)))
        people = [{rows[row][0] for row in rows_by_part[part]} for part in PARTS]
        assert all(people)
        assert sum(map(len, people)) == len(sequences)

    @busy
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

    @busy
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

    @busy
    @given(st.lists(st.integers(0, 20), min_size=3, max_size=40))
    def test_by_time_trains_on_the_past(self, times):
        sequences = by_entity(table(list(range(len(times))), times), PATIENTS)
        parts = split(sequences, by="time")
        when = {part: np.array(times)[rows_of(sequences, parts, part)] for part in PARTS}
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

    @busy
    @given(labels.filter(lambda drawn: len(set(drawn) - {None}) > 1), st.integers(0, 3))
    def test_balance_is_one_to_one(self, labels, seed):
        sequences = labelled(labels)
        kept = balance(sequences, seed=seed)
        names, counts = np.unique(sequences.labels[kept].astype(str), return_counts=True)
        assert set(counts) == {min(labels.count(name) for name in names)}
        assert set(names) == set(labels) - {None}
        assert (np.diff(kept) > 0).all()
        assert (kept == balance(sequences, seed=seed)).all()

    def test_balance_needs_two_classes(self):
        with pytest.raises(InputError, match="nothing to tell apart"):
            balance(labelled(["a", "a"]))


def test_a_class_of_one_is_learned_from() -> None:
    """In the test it would be a class that nobody has learned."""
    labels = ["common"] * 40 + [f"rare {i}" for i in range(12)]
    frame = pl.DataFrame({"x": range(52), "label": labels})
    sequences = by_entity(frame, Schema.from_yaml("{label: label, fields: {x: number}}"))
    for seed in range(5):
        parts = split(sequences, seed=seed)
        assert set(parts[40:]) == {"train"}
        assert {"validation", "test"} <= set(parts[:40])
