"""Figures of a report, made by hand: what the pages are tested with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from support.explanations import explanation, share

from tefm.codes.doctor import CodeFinding, Examination
from tefm.codes.fidelity import Collisions, Fidelity, FieldFidelity, LevelUse
from tefm.explain.summary import FieldEffect, Rule, Summary
from tefm.language.shortening import TokenCount
from tefm.scoring.breakdown import Bin, Confusion, Curve, GroupScores, Operating, threshold_counts
from tefm.scoring.weighted import Interval
from tefm.show.figures import Case, ExplainedExamples, FieldGroups, Figures, Method, Overview

FORMS = {"prose": 412.0, "csv": 199.0, "json": 405.0, "toon": 201.0, "codes, with the question": 8.7}
HOSTILE = '<script>alert("x")</script> & "quoted" \'too\''


def scores(accuracy: float, classes: tuple[str, ...] = ("no", "yes")) -> dict[str, Any]:
    def around(value: float) -> dict[str, float | None]:
        return {"value": value, "low": value - 0.03, "high": value + 0.02}

    undefined: dict[str, float | None] = {"value": None, "low": None, "high": None}
    return {
        "n": 328,
        "classes": list(classes),
        "auroc": around(accuracy + 0.08),
        "auprc": undefined,
        "accuracy": around(accuracy),
        "macro_f1": around(accuracy - 0.011),
        "brier": around(0.123),
        "ece": around(0.045),
    }


def codes(levels: int = 3, fields: int = 4, name: str = "field") -> Examination:
    of_fields = tuple(
        FieldFidelity(f"{name} {n}", "category", 1, 0.5 + n / (2 * fields), 0.4 + n / (2 * fields), 0.95, 0.1)
        for n in range(fields)
    )
    return Examination(
        task_aware=True,
        use=[LevelUse(level, 4, 3, 1, 0.75, 2.75 + level, 0.455) for level in range(1, levels + 1)],
        fidelity=Fidelity(
            1_234, 9, 0.9123, 0.8123, 0.9234, 0.8234, 0.0456, 0.0567, 0.7, 0.6, None, None, None, of_fields
        ),
        collisions=Collisions(1_234, 1_111, 987, 0.2, 0.234, 289, 100, 189, None),
        ceiling=None,
        findings=[CodeFinding("warning", "level 1 has `collapsed`", "use fewer entries")],
    )


LAST = " (last stay)"


def explained(**changes: Any) -> ExplainedExamples:
    """40 explained sequences with two rules and three fields, and one of them as an example."""
    summary = Summary(
        40,
        {"settled": 33, "unsettled": 4, "default": 3},
        2.0,
        (
            Rule("yes", (f"Drugs: morphine{LAST}", f"Age: 80–89 years{LAST}"), share(97), share(4), share(95), 12),
            Rule("no", ("Ward: heart (1 stay before the last)",), share(94), share(20.5), share(92), 9),
        ),
        (FieldEffect("drugs", "yes", 0.25, -0.125), FieldEffect("age", "yes", 0.1, 0.0)),
    )
    return replace(ExplainedExamples(summary, (Case(explanation(), "yes"),), 65), **changes)


def curve(name: str) -> Curve:
    recall, precision = (0.0, 0.7, 1.0), (1.0, 0.875, 0.5)
    operating = Operating(24 / 164, 0.75, 123 / 147)
    return Curve(name, 164, (0.0, 0.1, 1.0), recall, recall, precision, 0.883, 0.871, operating)


def groups(field: str) -> FieldGroups:
    interval = Interval(0.75, 0.7, 0.8)
    return FieldGroups(
        field,
        (
            GroupScores("low", 160, interval, 0.25, Interval(0.81, 0.76, 0.86)),
            GroupScores("high", 150, interval, 1.0, None),
            GroupScores("missing", 18),
        ),
    )


def figures(**changes: Any) -> Figures:
    values: dict[str, Any] = {
        "title": "died from the stays of one patient",
        "label": "died",
        "facts": {"Task": "died: no, yes", "Sequences": "328 with 602 stays"},
        "positive": "yes",
        "methods": (
            Method("TEFM (codes)", scores(0.803), 8.7),
            Method("lightgbm", scores(0.81), 0.0),
            Method("logistic", scores(0.809), 0.0),
        ),
        "confusion": Confusion(("no", "yes"), ((140, 24), (41, 123))),
        "overview": Overview(
            {"train": {"no": 1_311, "yes": 1_311}, "test": {"yes": 164, "no": 164}},
            602,
            {"weight": 0.969, "ward": 0.1},
            9,
            (1.0, 2.0, 1.83, 12.0),
            14,
        ),
        "groups": tuple(groups(f"field {n}") for n in range(9)),
        "more_groups": 3,
        "verdict": "No difference between TEFM and LightGBM can be told on these sequences.",
        "curves": (curve("yes"),),
        "thresholds": threshold_counts(np.linspace(0.005, 0.995, 328), np.arange(328) % 5 > 1, 0.437),
        "tokens": tuple(
            TokenCount(form, "smollm2-135m", mean, mean - 1, int(mean * 3), mean / 412) for form, mean in FORMS.items()
        ),
        "calibration": (
            Bin(0.12, Interval(0.1, 0.05, 0.2), 80),
            Bin(0.57, Interval(0.6, 0.4, 0.75), 33),
            Bin(0.93, Interval(0.95, 0.9, 0.98), 215),
        ),
        "tokens_counted": 200,
        "few": 20,
        "codes": codes(),
        "explained": explained(),
        "warnings": ("These may have been learned from.",),
    }
    return Figures(**{**values, **changes})
