"""A plot of the benchmarks: figures of two settings, the higher, the darker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tefm.show.plots import COLOURS, LABEL, Plot, drawn, fitting, shortened


def heat(
    anchor: str,
    title: str,
    description: str,
    rows: Sequence[str],
    across: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    note: str = "",
) -> Plot:
    """A grid of figures: the higher, the darker. Each cell holds its figure; a cell without one stays empty."""
    numbers = [value for row in values for value in row if value is not None]
    low, spread = min(numbers), (max(numbers) - min(numbers)) or 1.0

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for place, row in enumerate(values):
            for column, value in enumerate(row):
                if value is None:
                    continue
                shade = 0.08 + 0.5 * (value - low) / spread
                (cell,) = axes.bar(column, 0.94, bottom=place - 0.47, width=0.97, color=(COLOURS[1], shade))
                cell.set_gid("plot-cell")
                axes.text(column, place, f"{value:.3f}", ha="center", va="center", color=COLOURS[8])
        axes.set_xticks(range(len(across)), [shortened(name, fitting(len(across))) for name in across])
        axes.set_yticks(range(len(rows)), [shortened(name, LABEL) for name in rows])
        axes.set_xlim(-0.5, len(across) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)

    return drawn(anchor, title, description, note, len(rows) * 28 + 30, draw)
