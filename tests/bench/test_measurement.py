"""The bench: measurements are made once, each after those it depends on, and a failure does not stop the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from tefm_bench.data import Sources
from tefm_bench.measurement import Bench, Figures, Measurement, add_results

from tefm.base.errors import InputError


class Brick(Measurement):
    """Leaves a file with how often it was made."""

    KIND: ClassVar[str] = "brick"
    name: str = "a"
    weight: int = 1

    def measure(self, bench: Bench) -> Figures:
        if self.name == "broken":
            raise InputError("no clay", remedy="dig")
        if self.name == "odd":
            raise ZeroDivisionError("no reason")
        path = bench.artefacts(self)
        path.parent.mkdir(parents=True, exist_ok=True)
        times = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(times))
        return {"times": times}

    def has_artefacts(self, bench: Bench) -> bool:
        return bench.artefacts(self).exists()


class House(Measurement):
    """Depends on bricks."""

    KIND: ClassVar[str] = "house"
    bricks: tuple[Brick, ...] = ()

    def needs(self) -> tuple[Measurement, ...]:
        return self.bricks

    def measure(self, bench: Bench) -> Figures:
        return {"weight": sum(int(bench.artefacts(brick).read_text()) * brick.weight for brick in self.bricks)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, Sources(tmp_path / "data"))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.all)])
def test_each_is_made_once_after_those_it_depends_on(bench: Bench, workers: int) -> None:
    houses = [House(bricks=(Brick(), Brick(name="b", weight=2))), House(bricks=(Brick(name="b", weight=2),))]
    assert bench.run(houses, workers=workers) == []
    assert [bench.figures(house) for house in houses] == [{"weight": 3}, {"weight": 2}]
    assert bench.figures(Brick(name="b", weight=2)) == {"times": 1}
    assert bench.run([*houses, *houses], workers=workers) == []
    assert bench.figures(Brick(name="b", weight=2)) == {"times": 1}, "a finished measurement is not made again"


def test_only_the_kinds_that_are_named_are_made(bench: Bench) -> None:
    house = House(bricks=(Brick(),))
    assert bench.run([Brick(name="b"), house], kinds=["brick"]) == []
    assert bench.figures(Brick(name="b")) == {"times": 1} and bench.figures(house) is None


@pytest.mark.all
def test_an_unexpected_failure_stops_no_other_process(bench: Bench) -> None:
    failed = bench.run([Brick(name="odd"), Brick()], workers=2)
    assert [(measurement.description, str(error)) for measurement, error in failed] == [
        ('brick {"name": "odd"}', "it failed with ZeroDivisionError('no reason')")
    ]
    assert bench.figures(Brick()) == {"times": 1}


def halved(name: str, number: int) -> Figures:
    return {"name": name, "number": number, "half": 6 / number}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.all)])
def test_results_of_a_script_are_added_as_they_come(tmp_path: Path, workers: int) -> None:
    path, keys = tmp_path / "out.json", ("name", "number")
    jobs = [("a", 2), ("a", 4), *([("a", 0)] if workers > 1 else []), ("b", 3)]
    add_results(path, halved, jobs, keys, workers=workers)
    body = json.loads(path.read_text())
    assert [(of["name"], of["half"]) for of in body["results"]] == [("a", 3.0), ("a", 1.5), ("b", 2.0)]
    assert body["means"] == {"a": {"results": 2, "half": 2.25}, "b": {"results": 1, "half": 2.0}}


def test_the_key_depends_on_what_differs_from_the_defaults() -> None:
    assert Brick().key == Brick(name="a", weight=1).key
    assert len({Brick().key, Brick(name="b").key, House().key, House(bricks=(Brick(),)).key}) == 4


def test_a_failure_does_not_stop_the_others(bench: Bench) -> None:
    broken = House(bricks=(Brick(name="broken"),))
    failed = bench.run([broken, House(bricks=(Brick(),))])
    assert {type(measurement).__name__ for measurement, _ in failed} == {"Brick", "House"}
    assert all("no clay" in str(error) for _, error in failed)
    assert bench.figures(House(bricks=(Brick(),))) == {"weight": 1}
    assert bench.figures(broken) is None


def test_deleted_artefacts_are_made_again_for_those_that_need_them(bench: Bench) -> None:
    bench.run([Brick()])
    bench.artefacts(Brick()).unlink()
    assert bench.missing([Brick()]) == [], "its figures still exist"
    house = House(bricks=(Brick(),))
    assert bench.missing([house]) == [Brick(), house]
    bench.run([house])
    assert bench.figures(house) == {"weight": 1}


def test_the_file_says_how_the_measurement_was_made(bench: Bench) -> None:
    bench.run([Brick(weight=3)])
    body = json.loads(bench.path(Brick(weight=3)).read_text())
    assert body["settings"] == {"name": "a", "weight": 3}
    assert body["environment"]["versions"]["torch"] and body["environment"]["device"] and body["seconds"] >= 0
