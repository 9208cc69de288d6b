"""The report of a model as an HTML page, from its `Figures`."""

from __future__ import annotations

from tefm.base.version import __version__
from tefm.show import plots
from tefm.show.codes import CodesView
from tefm.show.figures import Figures
from tefm.show.html import Page, render
from tefm.show.predictions import PredictionsView
from tefm.show.rationales import RationalesView

#: The sections of a report: the name of the template, and the heading.
PREDICTIONS = {
    "scores": "How well it predicts",
    "tokens": "Accuracy and tokens",
    "calibration": "Calibration",
}
CODES = {
    "use": "Codebook use",
    "fidelity": "What the codes preserve, field by field",
    "hierarchy": "Hierarchy of the codes",
}
RATIONALES = {
    "faithfulness": "How many features are enough",
    "cases": "Example explanations",
}
COST = {"cost": "Cost"}


def report_page(figures: Figures) -> Page:
    """One HTML file with everything in it."""
    codes, rationales = figures.codes, figures.rationales
    return Page(
        render(
            "report.html",
            title=figures.title,
            version=__version__,
            plots_available=plots.available(),
            sections={**PREDICTIONS, **(CODES if codes else {}), **(RATIONALES if rationales else {}), **COST},
            model=figures,
            predictions=PredictionsView(figures),
            codes=codes and CodesView(codes),
            explained=rationales,
            rationales=rationales and RationalesView(rationales),
        )
    )
