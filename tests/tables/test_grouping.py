"""Grouping: every record once and in order, labels, and errors with a remedy."""

from __future__ import annotations

from datetime import date, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.visits import FLOWS, PATIENTS, records, table

from tefm.base.errors import InputError, SettingsError
from tefm.tables.grouping import by_entity, by_window


class TestByEntity:
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
