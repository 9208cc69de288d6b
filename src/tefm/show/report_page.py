"""The report of a model as an HTML page, from its `Figures`."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict
from hashlib import sha256

from markupsafe import Markup

from tefm.base import __version__
from tefm.codes.fidelity import Fidelity
from tefm.show import plots
from tefm.show.figures import Figures
from tefm.show.html import HtmlTable, Page, decimal, render
from tefm.show.performance import PerformanceView

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
    "tokens": "Tokens",
    "fidelity": "What the codes lose, field by field",
}
#: Those of models that explain.
OF_EXPLANATIONS = {"explanations", "cases"}


def report_page(figures: Figures) -> Page:
    """One HTML file with everything in it."""
    explained, thresholds = figures.explained, figures.thresholds
    absent = set() if explained else OF_EXPLANATIONS
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
            fidelity_table=fidelity_table(figures.codes.fidelity),
            summary_tables=[
                HtmlTable(header, rows, title, words=2)
                for title, header, rows in (explained.summary.tables if explained else [])
            ],
        )
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
