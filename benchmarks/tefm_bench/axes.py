"""Axes of the benchmarks' plots: logarithmic ones, and shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tefm.show.plots import Axis


@dataclass(frozen=True)
class LogAxis(Axis):
    """A logarithmic axis, with ticks that can be read however far the values reach."""

    def scale(self, axes: Any, axis: Any) -> None:
        from matplotlib import ticker

        axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        if high < 2 * low:
            low, high = low / 1.5, high * 1.5
        axes.set(**{f"{axis.axis_name}lim": (low, high)})
        axis.set_minor_locator(ticker.NullLocator())
        if high > 10 * low:
            subs = (1,) if high > 1_000 * low else (1, 3) if high > 30 * low else (1, 2, 5)
            axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=8))
        else:
            axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.6g}"))


@dataclass(frozen=True)
class ShareAxis(Axis):
    """An axis that ends at 0 and 1, whatever margin the data leave."""

    def scale(self, axes: Any, axis: Any) -> None:
        super().scale(axes, axis)
        low, high = axis.get_view_interval()
        axes.set(**{f"{axis.axis_name}lim": (max(0.0, low), min(1.0, high))})
