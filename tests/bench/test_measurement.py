"""The bench: measurements are made once, in the order they stand on each other, and go on after a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from tefm.base.errors import InputError
from tefm.bench.data import Sources
from tefm.bench.measurement import Bench, Found, Measurement


class Brick(Measurement):
    """Leaves a file, and says how often it was made."""

    KIND: ClassVar[str] = "brick"
    name: str = "a"
    weight: int = 1

    def measure(self, bench: Bench) -> Found:
        if self.name == "broken":
            raise InputError("no clay", remedy="dig")
        path = bench.kept(self)
        path.parent.mkdir(parents=True, exist_ok=True)
        times = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(times))
        return {"times": times}

    def left(self, bench: Bench) -> bool:
        return bench.kept(self).exists()


class House(Measurement):
    """Stands on bricks."""

    KIND: ClassVar[str] = "house"
    bricks: tuple[Brick, ...] = ()

    def needs(self) -> tuple[Measurement, ...]:
        return self.bricks

    def measure(self, bench: Bench) -> Found:
        return {"weight": sum(int(bench.kept(brick).read_text()) * brick.weight for brick in self.bricks)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, Sources(tmp_path / "data"))


@pytest.mark.parametrize("workers", [1, 2])
def test_each_is_made_once_behind_what_it_stands_on(bench: Bench, workers: int) -> None:
    houses = [House(bricks=(Brick(), Brick(name="b", weight=2))), House(bricks=(Brick(name="b", weight=2),))]
    assert bench.run(houses, workers=workers) == []
    assert [bench.found(house) for house in houses] == [{"weight": 3}, {"weight": 2}]
    assert bench.found(Brick(name="b", weight=2)) == {"times": 1}
    assert bench.run([*houses, *houses], workers=workers) == []
    assert bench.found(Brick(name="b", weight=2)) == {"times": 1}, "what is done is not done again"


def test_a_measurement_is_named_by_what_differs_from_the_defaults() -> None:
    assert Brick().key == Brick(name="a", weight=1).key
    assert len({Brick().key, Brick(name="b").key, House().key, House(bricks=(Brick(),)).key}) == 4


def test_one_that_fails_does_not_keep_the_others(bench: Bench) -> None:
    broken = House(bricks=(Brick(name="broken"),))
    failed = bench.run([broken, House(bricks=(Brick(),))])
    assert {type(asked).__name__ for asked, _ in failed} == {"Brick", "House"}
    assert all("no clay" in str(error) for _, error in failed)
    assert bench.found(House(bricks=(Brick(),))) == {"weight": 1}
    assert bench.found(broken) is None


def test_what_was_cleared_is_made_again_for_those_who_stand_on_it(bench: Bench) -> None:
    bench.run([Brick()])
    bench.kept(Brick()).unlink()
    assert bench.missing([Brick()]) == [], "its figures are there"
    house = House(bricks=(Brick(),))
    assert bench.missing([house]) == [Brick(), house]
    bench.run([house])
    assert bench.found(house) == {"weight": 1}


def test_a_measurement_says_how_it_was_made(bench: Bench) -> None:
    bench.run([Brick(weight=3)])
    body = json.loads(bench.path(Brick(weight=3)).read_text())
    assert body["asked"] == {"name": "a", "weight": 3}
    assert body["made"]["versions"]["torch"] and body["made"]["device"] and body["seconds"] >= 0
