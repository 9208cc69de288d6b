"""The leakage check: planted leaks are reported by name, clean and tiny data give no report."""

from __future__ import annotations

import time

import numpy as np
import polars as pl
import pytest

from tefm.tables.layout import Layout, Slot
from tefm.tables.leakage import check_leakage, label_copies
from tefm.tables.schema import Schema

N = 2000
LAYOUT = Layout(
    (
        Slot("age", "number", 10),
        Slot("ward", "category", 40),
        Slot("diagnoses", "number", 4),
        Slot("diagnoses", "flag", 1, "250"),
        Slot("diagnoses", "flag", 1, "428"),
        Slot("discharge_to", "category", 5),
    )
)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def clean(rng, n=N, layout=LAYOUT):
    return np.stack([rng.integers(0, size + 1, n) for size in layout.sizes_D], axis=1).astype(np.uint8)


def classes(rng, n=N, names=("lived", "died")):
    return rng.choice(np.array(names, dtype=object), n)


@pytest.mark.parametrize("names", [("lived", "died"), ("a", "b", "c", "d")])
@pytest.mark.parametrize("n", [0, 1, 5, 40, 200, N])
def test_silent_on_random_labels(names, n):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert check_leakage(clean(rng, n), LAYOUT, classes(rng, n, names)) == []


def test_silent_on_tiny_data_even_if_the_label_is_in_it(rng):
    slots, labels = clean(rng, 30), np.array(["lived"] * 15 + ["died"] * 15)
    slots[:, 0] = 1 + (labels == "died")
    assert check_leakage(slots, LAYOUT, labels) == []


def test_silent_on_one_class_and_on_many_rare_ones(rng):
    assert check_leakage(clean(rng), LAYOUT, ["lived"] * N) == []
    assert check_leakage(clean(rng), LAYOUT, [str(i // 10) for i in range(N)]) == []


def test_a_good_field_is_no_leak(rng):
    slots, labels = clean(rng), classes(rng)
    slots[:, 0] = np.clip(5 + 2 * (labels == "died") + rng.normal(0, 2, N), 0, 10)
    assert check_leakage(slots, LAYOUT, labels) == []


def test_a_field_that_gives_the_label_away_out_of_order(rng):
    slots, labels = clean(rng), classes(rng)
    of_died = np.array([2, 3, 17, 30])
    slots[:, 1] = np.where(labels == "died", rng.choice(of_died, N), rng.choice(np.arange(4, 17), N))
    (leak,) = check_leakage(slots, LAYOUT, labels)
    assert (leak.field, leak.score) == ("ward", 1.0)
    assert str(leak).startswith("field 'ward' alone separates the label 'lived' from the others with AUC 1.000\n  → ")
    assert "`ignore`" in leak.remedy


def test_one_class_of_several_is_enough(rng):
    slots, labels = clean(rng), classes(rng, names=("a", "b", "c", "d"))
    slots[:, 0] = np.where(labels == "c", 10, rng.integers(0, 10, N))
    (leak,) = check_leakage(slots, LAYOUT, labels)
    assert leak.field == "age"
    assert "'c'" in leak.reason


def test_a_set_leaks_by_its_best_member(rng):
    slots, labels = clean(rng), classes(rng)
    slots[:, 4] = labels == "died"
    slots[:, 2] = 1  # the set itself is present in every record
    (leak,) = check_leakage(slots, LAYOUT, labels)
    assert leak.field == "diagnoses"
    assert "'diagnoses=428'" in leak.reason


def test_a_field_that_is_present_only_after_the_outcome(rng):
    slots, labels = clean(rng), classes(rng)
    late = np.where(labels == "died", rng.random(N) < 0.95, rng.random(N) < 0.04)
    slots[:, 0] = np.where(late, rng.integers(1, 11, N), 0)
    (leak,) = check_leakage(slots, LAYOUT, labels)
    assert leak.field == "age"
    assert leak.score == pytest.approx(0.955, abs=0.02)
    assert "is present in 9" in leak.reason
    assert "labelled 'died'" in leak.reason


def test_a_suspicious_name_counts_only_with_a_predictive_field(rng):
    labels = classes(rng)
    for noise, expected in ((0.2, ["discharge_to"]), (0.5, [])):
        slots = clean(rng)
        slots[:, 5] = 1 + ((labels == "died") ^ (rng.random(N) < noise))
        leaks = check_leakage(slots, LAYOUT, labels)
        assert [leak.field for leak in leaks] == expected
    slots[:, 0] = 1 + ((labels == "died") ^ (rng.random(N) < 0.2))
    assert check_leakage(slots, LAYOUT, labels) == []  # the same in a field with an ordinary name


def test_most_telling_first_and_missing_labels_are_passed_over(rng):
    slots, labels = clean(rng), classes(rng)
    died = labels == "died"
    slots[:, 5] = 1 + (died ^ (rng.random(N) < 0.15))
    slots[:, 0] = 1 + died
    labels[::3] = None
    slots[::3, 0] = 5
    assert [leak.field for leak in check_leakage(slots, LAYOUT, labels)] == ["age", "discharge_to"]


@pytest.mark.parametrize("encode", [lambda died: died.astype(float), lambda died: died, lambda died: died.tolist()])
def test_labels_of_any_type(rng, encode):
    slots, died = clean(rng), rng.random(N) < 0.5
    slots[:, 0] = 1 + died
    assert [leak.field for leak in check_leakage(slots, LAYOUT, encode(died))] == ["age"]


def test_is_quick_on_many_records(rng):
    wide = Layout(tuple(Slot(f"field {i}", "number", 10) for i in range(100)))
    slots, labels = clean(rng, 50_000, wide), classes(rng, 50_000)
    start = time.perf_counter()
    assert check_leakage(slots, wide, labels) == []
    assert time.perf_counter() - start < 3  # about 0.1 s; the slack is for a busy machine


class TestLabelCopies:
    schema = Schema.from_yaml("{label: died, text: [note], ignore: [unused], fields: {a: category, b: category}}")

    def copies(self, **columns):
        died = np.arange(100) % 2
        return [leak.field for leak in label_copies(pl.DataFrame({"died": died, **columns}), self.schema)]

    def test_copies_and_renamings(self):
        died = np.arange(100) % 2
        assert self.copies(a=died, b=np.where(died, "yes", "no"), unused=died) == ["a", "b"]
        assert self.copies(note=np.where(died, "He died.", "He lives.")) == ["note"]

    def test_a_gap_is_a_value_too(self):
        assert self.copies(a=["x", None] * 50) == ["a"]

    def test_others_are_not(self):
        almost = np.arange(100) % 2
        almost[0] = 1
        assert self.copies(a=almost, b=np.arange(100)) == []
        assert self.copies(a=np.arange(100) % 4, b=[["x"], ["y"]] * 50) == []

    def test_unlabelled_rows_do_not_count(self):
        frame = pl.DataFrame({"died": [0, 1, None] * 40, "a": ["n", "y", "n"] * 40, "b": ["n"] * 120})
        (leak,) = label_copies(frame, self.schema)
        assert str(leak).startswith("field 'a' has one value for each value of the label 'died'")

    def test_silent_without_label_or_on_little_data(self):
        frame = pl.DataFrame({"died": [0, 1], "a": [0, 1], "b": [1, 1]})
        assert label_copies(frame, self.schema) == []
        assert label_copies(frame, self.schema.model_copy(update={"label": None})) == []
        assert label_copies(frame.clear(), self.schema) == []
