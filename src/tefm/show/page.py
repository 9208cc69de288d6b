"""The report of a model as an HTML page, from its `Figures`."""

from __future__ import annotations

from tefm.base.version import __version__
from tefm.show import plots
from tefm.show.codes import CodesView
from tefm.show.data import DataView
from tefm.show.decisions import DecisionsView
from tefm.show.explanations import ExplanationsView
from tefm.show.figures import Figures
from tefm.show.html import Page, render
from tefm.show.predictions import PredictionsView

#: The sections of a report, what matters most to a user first: the name of the template, and the heading.
PREDICTIONS = {
    "confusion": "Right and wrong predictions",
    "scores": "How well it predicts",
    "curves": "Ranking and thresholds",
    "calibration": "Calibration",
    "groups": "Results by group",
    "data": "The data",
}
EXPLANATIONS = {
    "explanations": "What settles the answers",
    "cases": "Example explanations",
}
TOKENS = {"tokens": "Accuracy and tokens"}
CODES = {
    "use": "Codebook use",
    "hierarchy": "Hierarchy of the codes",
    "fidelity": "What the codes lose, field by field",
}
COST = {"cost": "Cost"}


def report_page(figures: Figures) -> Page:
    """One HTML file with everything in it."""
    codes, explained = figures.codes, figures.explained
    return Page(
        render(
            "report.html",
            title=figures.title,
            version=__version__,
            plots_available=plots.available(),
            sections={
                **PREDICTIONS,
                **(EXPLANATIONS if explained else {}),
                **TOKENS,
                **(CODES if codes else {}),
                **COST,
            },
            model=figures,
            decisions=DecisionsView(figures),
            data=DataView(figures),
            predictions=PredictionsView(figures),
            codes=codes and CodesView(codes),
            explanations=explained and ExplanationsView(explained),
        )
    )
