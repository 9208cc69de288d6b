"""Tables about words: questions that the model answers, and free text beside the codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tefm.language.smollm2 import NAME as SMOLLM2
from tefm_bench.backbones import title_of
from tefm_bench.baselines.embeddings import LIMIT
from tefm_bench.experiments import QUICK_CODES, QUICK_STEPS, WHOLE_RATE, Setup
from tefm_bench.measurement import Figures
from tefm_bench.question_tables import QUESTION_TABLES
from tefm_bench.questions import ASKED, QuestionRun, QuestionTrees
from tefm_bench.table import Column, Figure, Row
from tefm_bench.tables.spec import Line, Lookup, TableSpec
from tefm_bench.text_runs import LANGUAGE, TextRun
from tefm_bench.text_runs import Line as TextLine
from tefm_bench.text_tables import TEXT_TABLES

#: What is kept of SmolLM2, the default and all of it, and whether it learns the questions.
LINES: dict[str, tuple[int | None, bool]] = {
    "first 6 blocks": (6, True),
    "first 6 blocks, not fine-tuned": (6, False),
    "all 30 blocks": (30, True),
    "all 30 blocks, not fine-tuned": (30, False),
}
#: The same of another language model.
WHOLE_LINES: dict[str, tuple[int | None, bool]] = {"whole": (None, True), "whole, not fine-tuned": (None, False)}
QUICK_ASKED = {"pairs": 60, "scored": 60, "least": 2, "hold_out": 0.3}
NOTES = "\n".join(
    f"- **{table.title}:** {table.note}{'' if table.note.endswith('?') else '.'}" for table in TEXT_TABLES.values()
)
#: The lines of a table with text.
TITLES: dict[TextLine, str] = {
    "codes and text": "TEFM, codes and text",
    "trees beside": "TEFM, codes and text, trees beside",
    "random body": "TEFM, codes and text, random body",
    "text": "TEFM, text alone",
    "codes": "TEFM, codes alone",
    "lightgbm and text": "LightGBM on fields and TF-IDF",
    "lightgbm and embeddings": "LightGBM on fields and sentence embeddings",
    "logistic and text": "logistic regression on fields and TF-IDF",
    "tfidf": "TF-IDF + logistic regression",
    "lightgbm": "LightGBM on fields",
}


# ---- questions in words -----------------------------------------------------------------------------------------


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


def _questions(setup: Setup, lookup: Lookup) -> Iterator[Row]:
    for name, of_table in QUESTION_TABLES.items():
        trees = [lookup(run) for run in trees_of(setup, name)]
        for backbone in setup.backbones:
            lines = LINES if backbone == SMOLLM2 else WHOLE_LINES
            for title, (layers, tuned) in list(lines.items())[: 1 if setup.quick else None]:
                random = [lookup(run) for run in runs_of(setup, name, backbone, layers, "random", tuned=tuned)]
                for body in ("pretrained", "random"):
                    found = [lookup(run) for run in runs_of(setup, name, backbone, layers, body, tuned=tuned)]
                    keys = {"data": of_table.title, "language model": f"{title_of(backbone)}, {title}", "weights": body}
                    yield Row(keys, _figures(found, trees, random if body == "pretrained" else []))


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


QUESTIONS = TableSpec(
    name="questions",
    title="Questions in words",
    keys=("data", "language model", "weights"),
    columns=(
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
    ),
    lines=_questions,
    of_users=True,
    on_request=True,
    about="""\
One model answers yes or no to “Next admission: {diagnosis}?” or “Next event: activity {activity}?”, asked
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
is one model per trained question, on all its training labels.""",
)


# ---- text beside codes ------------------------------------------------------------------------------------------


def run_of(setup: Setup, table: str, line: TextLine, seed: int) -> TextRun:
    settings: dict[str, Any] = {}
    if line in LANGUAGE or line == "lightgbm and embeddings":
        backbone = setup.backbones[0]
        settings = {} if backbone == SMOLLM2 else {"backbone": backbone}
        settings |= {"layers": 1, "codes": QUICK_CODES, "tune": QUICK_STEPS} if setup.quick else {}
    return TextRun(table=table, seed=seed, line=line, settings=settings)


def _scores(figures: Figures) -> dict[str, float | None]:
    scores = figures["scores"]
    values: dict[str, float | None] = {name: scores[name]["value"] for name in ("auroc", "accuracy", "macro_f1")}
    return {**values, **{name: figures[name] for name in ("tokens", "share") if name in figures}}


def _text(setup: Setup, _: Lookup) -> Iterator[Line]:
    for name, of_table in TEXT_TABLES.items():
        for line, title in TITLES.items():
            runs = [run_of(setup, name, line, seed) for seed in setup.splits]
            yield Line((of_table.title, title), ((runs, _scores),))


TEXT = TableSpec(
    name="text",
    title="Text beside codes",
    keys=("table", "method"),
    columns=(
        Column("auroc", "AUROC", 3, "up"),
        Column("accuracy", "accuracy", 3, "up"),
        Column("macro_f1", "macro F1", 3, "up"),
        Column("tokens", "tokens", 1, "down"),
        Column("share", "language model's share", 2),
    ),
    lines=_text,
    of_users=True,
    on_request=True,
    about=f"""\
Free text beside the codes of its record, each column within its budget of tokens, fitted with the defaults
of `tefm fit`. All lines have the same rows in the same parts, 80% of them for training and 10% each for validation and
test. *Random body* reads the same with random weights in the language model: the difference is what pretraining adds.
*Trees beside* is `beside: trees`: boosted trees on the fields answer beside the language model, with the share that
validation gives it. *Text alone* is the same language model without fields, *codes alone* without text. LightGBM reads
the words as 200 components of TF-IDF or as the 1,000 words that say most about the label, logistic regression all words
and pairs of words; both also the fields, and validation chooses. *Sentence embeddings* are the mean hidden states of
the whole language model, before any fine-tuning, over the first {LIMIT} tokens. *TF-IDF + logistic regression* reads
the text alone. Other tabular models read the whole text, without budgets.

{NOTES}""",
)
