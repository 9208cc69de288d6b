"""The demo: one screen about the embedded hospital data, from the question to one explained prediction."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from tefm.base.files import check_replaceable, write_text
from tefm.base.progress import duration, job, stage
from tefm.datasets import diabetes130
from tefm.datasets.diabetes130 import Dataset
from tefm.explain.explanation import Explanation
from tefm.explain.render import explanation_card
from tefm.model.bundle import is_saved
from tefm.model.estimator import TEFM
from tefm.model.report import figures_of_fit
from tefm.model.run import fit_frame, split_parts, task_shares, used_records
from tefm.model.task import Split
from tefm.show.figures import Figures, Outcome
from tefm.show.report_page import report_page
from tefm.show.terminal import codes_tables, comparison_table, outcome_tables

#: The test patient whose prediction is explained is drawn with this seed.
DRAWN_WITH = 0
#: Further predictions that the report explains: fewer than usual, which saves a minute.
EXPLAINED = 4


@dataclass(frozen=True)
class Demo:
    """What the demo shows, and where the details are."""

    data: Dataset
    patients: int
    outcome: Outcome
    explanation: Explanation
    figures: Figures
    report: Path
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1),
            "task": self.outcome.to_dict(),
            "explanation": self.explanation.to_json(),
            "report": str(self.report),
        }

    def shown(self, *, verbose: bool = False) -> Iterator[RenderableType]:
        """The story on one screen; with `verbose`, the details of every stage."""
        outcome = self.outcome
        tokens = {count.format: count.mean for count in outcome.tokens}
        codes, text = tokens["codes, with the question"], tokens["compact"]
        facts = {
            "Data": f"{self.data.frame.height:,} admissions of {self.patients:,} patients in 130 US hospitals "
            "(UCI Diabetes 130, CC BY 4.0)",
            "Question": f"does the last admission end in death? {outcome.sequences['train']:,} patients to train on, "
            f"{outcome.sequences['test']:,} to test on, classes balanced",
            "Tokens": f"{codes:.1f} per patient as codes, with the question; {text:.0f} as compact text "
            f"({codes / text:.1%})",
        }
        for name, fact in facts.items():
            yield Text.assemble((f"{name:<10}", "bold"), fact)
        yield comparison_table(outcome)
        if outcome.verdict is not None:
            yield Text(outcome.verdict.sentence)
        yield Text(f"\nOne random test patient (seed {DRAWN_WITH}), and why the model gave this answer:")
        yield explanation_card(self.explanation, bibliography=verbose)
        if verbose:
            yield from codes_tables(self.figures.codes)
            yield from outcome_tables(outcome)
        yield Text(f"Took {duration(self.seconds)}. Details, plots and more cases: {self.report}")
        yield Text("Your own table: tefm inspect TABLE --label COLUMN --out schema.yaml")


def run_demo(*, steps: int, layers: int, tune_steps: int, report: Path, save: Path | None) -> Demo:
    """Fit the demo's model, explain one test patient, write the report; with `save`, keep the model in that folder."""
    if save is not None:
        check_replaceable(save, is_saved)  # before minutes of work
    started = time.perf_counter()
    data, shares = diabetes130(), Split()
    model = TEFM(
        data.schema,
        balance="all",
        prompt="mortality",
        layers=layers,
        codes={"steps": steps},
        tune={"steps": tune_steps},
        align="none",
        explanations={"questions": 4_000, "surrogate_steps": 600},
    )
    with job({**task_shares(model.config), "report": 0.1}):
        outcome = fit_frame(model, data.frame, shares, file="diabetes130")
        everyone = model.preparation.records(data.frame, file="diabetes130")
        used, parts = used_records(model.config, everyone, split_parts(model.config, everyone.sequences, shares)[0])
        test = used.select(parts == "test").sequences
        with stage("report", "writing the report", loops=4):
            drawn = test.select([int(np.random.default_rng(DRAWN_WITH).integers(len(test)))])
            (explanation,) = model.explain(data.frame[np.sort(drawn.rows)])
            figures = figures_of_fit(model, used, parts, outcome, explained=EXPLAINED)
            write_text(report, report_page(figures))
            if save is not None:
                model.save(save)
    seconds = time.perf_counter() - started
    return Demo(data, len(everyone), outcome, explanation, figures, report, seconds)
