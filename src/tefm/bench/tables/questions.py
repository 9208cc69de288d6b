"""Questions in words: trained and held-out ones, with pretrained and with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tefm.bench.experiments import QUICK_CODES, QUICK_STEPS, Lookup, Setup
from tefm.bench.measurement import Figures
from tefm.bench.predictions import title_of
from tefm.bench.question_tables import QUESTION_TABLES
from tefm.bench.questions import ASKED, QuestionRun, QuestionTrees
from tefm.bench.table import Column, Figure, Row, Table
from tefm.bench.tables.common import table_of
from tefm.language.smollm2 import NAME as SMOLLM2

ABOUT = """One model answers yes or no to “Next admission: {diagnosis}?” or “Next event: activity {activity}?”, asked
only where the value has not been recorded before. Codes are learned without labels. A teacher on the fields that never
saw the patient or application (a regression, or trees for frequent questions where they are better) says how probable
yes is; the language model learns that: 16 questions about each history, three passes (*not fine-tuned*: it does not,
which is what a machine without a GPU does by default). The answer is a mean of the
log-odds of the language model and of the fields. Trained questions have the teacher's own models on the fields; a new
one has a sum of the regressions of trained questions, weighted by how much its words mean the same to the language
model. The shares are chosen on validation. A part of the questions is *held out*: no training has seen them, and the
share in each is the one that is best for the others. AUROC is the mean over questions, on test entities; *95%* is the
half width of an interval over questions. *In its place*: each held-out question is answered by the trained question
that ranks its validation histories best. *Ahead of random* is the mean difference in the AUROC of held-out questions
from the same language model with random weights, which reads the same codes and learns from the same pairs. *LightGBM*
is one model per trained question, on all its training labels."""
COLUMNS = (
    Column("questions", "held out", 0),
    Column("trained", "AUROC, trained", 3, "up"),
    Column("trained_by_model", "language model alone, trained", 3, "up"),
    Column("trained_by_fields", "fields alone, trained", 3, "up"),
    Column("lightgbm", "LightGBM, trained", 3, "up"),
    Column("ahead_of_trees", "ahead of LightGBM", 3, "up"),
    Column("ahead_of_trees_half_width", "95% (LightGBM)", 3, "down"),
    Column("held_out", "AUROC, held out", 3, "up"),
    Column("half_width", "95%", 3, "down"),
    Column("held_out_by_model", "language model alone, held out", 3, "up"),
    Column("held_out_by_fields", "fields alone, held out", 3, "up"),
    Column("in_place", "in its place", 3, "up"),
    Column("ahead", "ahead of random", 3, "up"),
    Column("ahead_half_width", "95% (random)", 3, "down"),
)
#: What is kept of SmolLM2, the default and all of it, and whether it learns the questions.
LINES: dict[str, tuple[int | None, bool]] = {
    "first 6 blocks": (6, True),
    "first 6 blocks, not fine-tuned": (6, False),
    "all 30 blocks": (30, True),
    "all 30 blocks, not fine-tuned": (30, False),
}
#: The same of another language model.
WHOLE_LINES: dict[str, tuple[int | None, bool]] = {"whole": (None, True), "whole, not fine-tuned": (None, False)}
#: The learning rate of the whole SmolLM2, as in the other tables.
WHOLE_RATE = 2e-4
QUICK_ASKED = {"pairs": 60, "scored": 60, "scored_yes": 10, "stand_ins": 2, "least": 2, "hold_out": 0.3}


def runs_of(
    setup: Setup, table: str, backbone: str, layers: int | None, body: Any, *, tuned: bool = True
) -> list[QuestionRun]:
    """One run per split."""
    settings: dict[str, Any] = {"tune": {"learning_rate": WHOLE_RATE}} if tuned and layers != 6 else {}
    if setup.quick:
        settings, layers = {"tune": QUICK_STEPS, "codes": QUICK_CODES}, 1
    runs = [
        QuestionRun(**_asking(setup, table, seed), backbone=backbone, layers=layers, body=body, settings=settings)
        for seed in setup.splits
    ]
    return runs if tuned else [run.model_copy(update={"asked": {**run.asked, "pairs": 0}}) for run in runs]


def trees_of(setup: Setup, table: str) -> list[QuestionTrees]:
    """One LightGBM per question, for each split."""
    return [QuestionTrees(**_asking(setup, table, seed)) for seed in setup.splits]


def _asking(setup: Setup, table: str, seed: int) -> dict[str, Any]:
    if not setup.quick:
        return {"table": table, "seed": seed}
    # few histories: a question is asked in all of them, also where its value was recorded before
    (entry,) = ASKED[table]["asked"]
    return {"table": table, "seed": seed, "most": 200, "asked": {**QUICK_ASKED, "asked": [{**entry, "again": True}]}}


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for name, of_table in QUESTION_TABLES.items():
        trees = [lookup(run) for run in trees_of(setup, name)]
        for backbone in setup.backbones:
            lines = LINES if backbone == SMOLLM2 else WHOLE_LINES
            for title, (layers, tuned) in list(lines.items())[: 1 if setup.quick else None]:
                random = [lookup(run) for run in runs_of(setup, name, backbone, layers, "random", tuned=tuned)]
                for body in ("pretrained", "random"):
                    found = [lookup(run) for run in runs_of(setup, name, backbone, layers, body, tuned=tuned)]
                    keys = {"data": of_table.title, "language model": f"{title_of(backbone)}, {title}", "weights": body}
                    rows.append(Row(keys, _figures(found, trees, random if body == "pretrained" else [])))
    return table_of(
        setup, "questions", "Questions in words", ABOUT, ("data", "language model", "weights"), COLUMNS, rows
    )


def _figures(
    found: Sequence[Figures | None], trees: Sequence[Figures | None], random: Sequence[Figures | None]
) -> dict[str, Figure]:
    """The figures of a row, one value per split that was measured."""
    values: dict[str, list[float]] = {}
    others = [*random, *[None] * len(found)]
    for figures, of_trees, other in zip(found, trees, others, strict=False):
        if figures is None:
            continue
        for name, value in summary(figures, of_trees, other).items():
            values.setdefault(name, []).append(value)
    return {name: Figure(tuple(of_splits)) for name, of_splits in values.items()}


def summary(figures: Figures, trees: Figures | None = None, random: Figures | None = None) -> dict[str, float]:
    """Means over questions with their intervals; with `random`, the mean difference from it too.

    With `trees`, how far the model is ahead of one LightGBM per trained question, on the questions that have one.
    """
    aurocs = {question["text"]: question["auroc"] for question in figures["questions"] if question["auroc"] is not None}
    trained = [question for question in figures["questions"] if question["trained"]]
    held_out = [question["text"] for question in figures["questions"] if not question["trained"]]
    values_of = {
        "trained": [aurocs[question["text"]] for question in trained if question["text"] in aurocs],
        "held_out": [aurocs[text] for text in held_out if text in aurocs],
    }
    values = {name: float(np.mean(of)) for name, of in values_of.items() if of}
    for name, of_kind in (("trained", True), ("held_out", False)):
        for by in ("by_model", "by_fields"):  # earlier measurements have neither
            own = [question.get(by) for question in figures["questions"] if question["trained"] == of_kind]
            if known := [value for value in own if value is not None]:
                values[f"{name}_{by}"] = float(np.mean(known))
    values["questions"] = float(len(values_of["held_out"]))
    if len(values_of["held_out"]) > 1:
        values["half_width"] = half_width(values_of["held_out"])
    of_trees = {} if trees is None else {text: auroc for text, auroc in trees["lightgbm"].items() if text in aurocs}
    if of_trees:
        ahead = [aurocs[text] - auroc for text, auroc in of_trees.items()]
        values["lightgbm"], values["ahead_of_trees"] = float(np.mean([*of_trees.values()])), float(np.mean(ahead))
        if len(ahead) > 1:
            values["ahead_of_trees_half_width"] = half_width(ahead)
    if figures["in_place"]["auroc"] is not None:
        values["in_place"] = figures["in_place"]["auroc"]
    if random is not None:
        by_text = {question["text"]: question["auroc"] for question in random["questions"]}
        ahead = [aurocs[text] - by_text[text] for text in held_out if text in aurocs and by_text.get(text) is not None]
        if len(ahead) > 1:
            values |= {"ahead": float(np.mean(ahead)), "ahead_half_width": half_width(ahead)}
    return values


def half_width(values: Sequence[float]) -> float:
    """Half of the 95% bootstrap interval of a mean over questions."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), (2_000, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(high - low) / 2
