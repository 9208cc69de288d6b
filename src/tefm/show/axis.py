"""Axes: a range of numbers, round ones among them, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A range of numbers, what they are called, and how they are written."""

    label: str
    low: float
    high: float
    log: bool = False
    percent: bool = False
    #: words at 0, 1, 2, … instead of numbers
    names: tuple[str, ...] = ()

    @classmethod
    def of_names(cls, label: str, names: Sequence[str]) -> Axis:
        """An axis of things that have an order and no distance."""
        return cls(label, -0.4, len(names) - 0.6, names=tuple(names))

    @classmethod
    def share(cls, label: str, values: Iterable[float], *, room: float = 0.06) -> Axis:
        """An axis of shares: none is above 1 or below 0.

        >>> axis = Axis.share("accuracy", [0.5, 1.0])
        >>> round(axis.low, 2), axis.high
        (0.47, 1.0)
        """
        found = cls.around(label, values, room=room)
        return cls(label, max(0.0, found.low), min(1.0, found.high))

    @classmethod
    def around(cls, label: str, values: Iterable[float], *, log: bool = False, room: float = 0.06) -> Axis:
        """An axis on which all these values have room."""
        found = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(found), max(found)
        if log:
            spread = max(math.log10(high / low), 0.3) * room
            return cls(label, low / 10**spread, high * 10**spread, log)
        spread = (high - low or abs(high) or 1.0) * room
        return cls(label, low - spread, high + spread)

    def at(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round numbers in the range, with their words.

        >>> [words for _, words in Axis("p", 0, 1).ticks()]
        ['0.0', '0.2', '0.4', '0.6', '0.8', '1.0']
        >>> [words for _, words in Axis("tokens", 8, 2_000, log=True).ticks()]
        ['10', '30', '100', '300', '1,000']
        >>> [words for _, words in Axis("kept", 0, 0.5, percent=True).ticks(3)]
        ['0%', '20%', '40%']
        """
        if self.names:
            return [(float(n), name) for n, name in enumerate(self.names)]
        if self.log:
            found: list[float] = []
            for steps in ((1, 2, 5), (1, 3), (1,)):
                powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
                found = [s * 10.0**p for p in powers for s in steps if self.low <= s * 10.0**p <= self.high]
                if len(found) <= most:
                    break
            return [(value, self.words(value, value)) for value in found]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        sizes = [s * power for s in (1, 2, 5, 10)]
        fitting = next(n for n, size in enumerate(sizes) if size >= rough * (1 - 1e-9))
        for step in sizes[fitting::-1]:  # a step longer than the range may have no multiple in it
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            if first <= last:
                break
        return [(n * step, self.words(n * step, step)) for n in range(first, last + 1)]

    def words(self, value: float, step: float) -> str:
        """A number with as many digits as a step of this size needs."""
        scale = 100 if self.percent else 1
        digits = max(0, -math.floor(math.log10(step * scale) + 1e-9))
        return f"{value * scale:z,.{digits}f}" + ("%" if self.percent else "")
