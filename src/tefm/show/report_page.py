"""The report of a model as an HTML page, from its `Figures`, and what it shows of codes and explanations."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from markupsafe import Markup

from tefm.base import __version__
from tefm.codes.fidelity import Fidelity, PrefixDistance
from tefm.show import plots
from tefm.show.figures import CodesFigures, Figures
from tefm.show.html import HtmlTable, Page, decimal, render, spread
from tefm.show.performance import PerformanceView
from tefm.show.plots import Axis, Bar, Plot, Series, bars, columns, curves

#: The sections of a report, what matters most to a user first: the name of the template, and the heading.
SECTIONS = {
    "confusion": "Right and wrong predictions",
    "scores": "How well it predicts",
    "curves": "Ranking and thresholds",
    "calibration": "Calibration",
    "groups": "Results by group",
    "data": "The data",
    "explanations": "What settles the answers",
    "cases": "Example explanations",
    "tokens": "Accuracy and tokens",
    "use": "Codebook use",
    "hierarchy": "Hierarchy of the codes",
    "fidelity": "What the codes lose, field by field",
    "cost": "Cost",
}
#: Those of models that explain, and of models with codes.
OF_EXPLANATIONS, OF_CODES = {"explanations", "cases"}, {"use", "hierarchy", "fidelity"}
#: First codes of the map that have a colour.
COLOURED = 8
#: More fields than this are split over two plots.
PLOTTED = 12


def report_page(figures: Figures) -> Page:
    """One HTML file with everything in it."""
    codes, explained, thresholds = figures.codes, figures.explained, figures.thresholds
    absent = (set() if explained else OF_EXPLANATIONS) | (set() if codes else OF_CODES)
    script = render("show/threshold.js")  # of the slider, the only one; the page allows no other
    return Page(
        render(
            "show/report.html",
            title=figures.title,
            version=__version__,
            plots_available=plots.available(),
            sections={name: heading for name, heading in SECTIONS.items() if name not in absent},
            model=figures,
            view=PerformanceView(figures),
            threshold_data=thresholds and asdict(thresholds),
            script=Markup(script),
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
            codes=codes and CodesView(codes),
            fidelity_table=fidelity_table,
            hierarchy_table=hierarchy_table,
            summary_tables=[
                HtmlTable(header, rows, title, words=2)
                for title, header, rows in (explained.summary.tables if explained else [])
            ],
        )
    )


# ---- codes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CodesView:
    """What the templates show of the codes."""

    codes: CodesFigures

    @property
    def use_plots(self) -> list[Plot]:
        codes = self.codes
        plots = []
        for level, counts in zip(codes.use, codes.counts, strict=True):
            used = f"{level.used} of {level.entries} entries used ({level.utilisation:.0%})"
            note = f"{used}, perplexity {level.perplexity:.1f}, most used {level.top_share:.1%}"
            shares = [count / codes.records for count in counts]
            y = Axis("share of the records", low=0, percent=True)
            title = f"Level {level.level}"
            plots.append(columns(f"plot-use-{level.level}", title, note, shares, y, 1 / level.entries, note=note))
        return plots

    @property
    def fidelity_plots(self) -> list[Plot]:
        """The fields by how much better they are than a guess."""
        fields = sorted(self.codes.fidelity.fields, key=lambda f: f.accuracy - f.mode_accuracy, reverse=True)
        rows = [Bar(f.name, f.accuracy, f.mode_accuracy, f"{f.accuracy:.3f}") for f in fields]
        half = (len(rows) + 1) // 2 if len(rows) > PLOTTED else len(rows)
        names = ("from the codes", "always the most common value")
        parts = (
            ("most", "Share of values reproduced, largest gain first", rows[:half]),
            ("least", "Smallest gain", rows[half:]),
        )
        return [
            bars(
                f"plot-fidelity-{anchor}",
                title,
                "; ".join(f"{row.name}: {row.words}, most common value {row.reference:.3f}" for row in part),
                part,
                names,
            )
            for anchor, title, part in parts
            if part
        ]

    @property
    def hierarchy_plots(self) -> list[Plot]:
        return [self._map(), *self._ratios()]

    def _ratios(self) -> list[Plot]:
        ratios = [(p.length, p.ratio) for p in self.codes.hierarchy if p.ratio is not None]
        if len(ratios) < 2:
            return []
        plot = curves(
            "plot-ratio",
            "Distance within groups over distance between them",
            "; ".join(f"{length} shared: {ratio:.3f}" for length, ratio in ratios),
            Axis("numbers that two records share", names=tuple(str(length) for length, _ in ratios)),
            Axis("mean distance, same prefix / other prefix", 0, max(1.0, *(ratio for _, ratio in ratios))),
            [Series("", range(len(ratios)), [ratio for _, ratio in ratios])],
            note="lower: records with the same prefix are more alike",
        )
        return [plot]

    def _map(self) -> Plot:
        points = self.codes.map
        common = [code for code, _ in Counter(points.code).most_common(COLOURED)]
        groups: dict[int | None, list[int]] = {code: [] for code in (None, *common)}
        for row, code in enumerate(points.code):
            groups[code if code in common else None].append(row)
        series = [
            Series(
                f"{'others' if code is None else code}: {len(rows):,} records",
                [points.x[row] for row in rows],
                [points.y[row] for row in rows],
                colour=0 if code is None else 1 + common.index(code),
                line=False,
                size=2.5 if code is None else 3.5,
            )
            for code, rows in groups.items()
            if rows
        ]
        return curves(
            "plot-map",
            "Map of records, by the first number of their code",
            "; ".join(f"first number {group.name}" for group in series),
            Axis("first principal component of the quantised latents"),
            Axis("second"),
            series,
            height=280,
            note=f"{len(points.x):,} records; both axes show {points.variance:.0%} of the variance",
        )


def fidelity_table(f: Fidelity) -> HtmlTable:
    """What the codes reproduce, and what the most common values would."""
    rows = [
        ["slot accuracy", decimal(f.slot_accuracy), decimal(f.mode_slot_accuracy)],
        ["slot accuracy, ±1 bucket", decimal(f.close_accuracy), decimal(f.mode_close_accuracy)],
        ["normalised squared error (lower is better)", decimal(f.nmse), decimal(f.mode_nmse)],
        ["field accuracy", decimal(f.field_accuracy), decimal(f.mode_field_accuracy)],
        ["recall of values in a set", decimal(f.recall), "–" if f.recall is None else decimal(0.0)],
        ["precision of values in a set", decimal(f.precision), "–"],
    ]
    return HtmlTable(["", "codes", "most common value"], rows, f"{f.records:,} records, {f.slots:,} slots")


def hierarchy_table(prefixes: Sequence[PrefixDistance]) -> HtmlTable:
    """Distances between records whose codes begin alike, compared with other records."""
    rows = [
        [
            p.prefix,
            f"{p.groups:,}",
            spread(p.intra_mean, p.intra_std),
            spread(p.inter_mean, p.inter_std),
            decimal(p.ratio),
            f"{p.partnered:.0%}",
        ]
        for p in prefixes
    ]
    header = ["prefix", "groups", "distance, same prefix", "other prefix", "ratio", "records that share it"]
    return HtmlTable(header, rows, "distances between records, mean ± standard deviation of up to 5,000 pairs")
