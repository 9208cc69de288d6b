"""Parts: what each part of the extractor brings, and of those who are asked."""

from __future__ import annotations

import math
from typing import Any

from tefm.bench.experiments import Ask, Plan
from tefm.bench.rationales import OF_PRESENT, OURS
from tefm.bench.table import Column, Figure, Row, Table
from tefm.bench.tables.common import TITLES, made_of
from tefm.bench.tables.rationalization import PAPERS, Judged, asked

ABOUT = """Our extractor with one part changed or removed, scored as in the table of rationales. *Agreement with the
model* is how often the surrogate gives the language model's answer on records with a random part kept. In the last
two lines, the encoder or the language model never saw masked records in training: that is another model, so its
accuracy on everything differs too. *Comprehensiveness* is how far the probability of the answer falls when the kept
features (20% of the present slots) are removed."""
SHARES = tuple(f"{share:.0%}" for share in OF_PRESENT)
COLUMNS = (
    Column("everything", "accuracy on everything", 3),
    *(Column(f"accuracy {share}", f"accuracy at {share}", 3, "up") for share in SHARES),
    *(Column(f"agreement {share}", f"agreement at {share}", 3, "up") for share in SHARES),
    Column("comprehensiveness", "comprehensiveness", 3, "up"),
    Column("surrogate", "agreement with the model", 3, "up"),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {"others": True},
    **PAPERS,
    "surrogate learns labels, not probabilities": {"targets": "labels"},
    "surrogate sees whole records only": {"versions": 0, "rounds": 0},
    "straight-through top-k instead of the search": {"selection": "topk"},
    "soft mask instead of the search": {"selection": "soft", "code_weight": 1.0, "sparsity": 0.1},
    "search for the same code as well (dual)": {"code_weight": 0.05},
}


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in plan.clinical:
        measured = {name: asked(plan, data, **changes) for name, changes in VARIANTS.items()}
        whole = [plan.codes(data, split, "task-aware", mask_share=0.0) for split in plan.splits]
        measured["the encoder saw whole records only"] = [
            plan.rationales(plan.reading(code, keep=True)) for code in whole
        ]
        usual = [plan.codes(data, split, "task-aware") for split in plan.splits]
        unmasked = plan.tune(data, masked_copies=0)
        measured["the language model saw whole records only"] = [
            plan.rationales(plan.reading(code, unmasked, keep=True)) for code in usual
        ]
        for name, measurements in measured.items():
            found = [one for one in map(ask, measurements) if one is not None]
            if not found:
                continue
            judged, figures = Judged(found), {}
            figures["everything"] = judged.line("everything", "present", 1.0)["accuracy"]
            for share, said in zip(OF_PRESENT, SHARES, strict=True):
                line = judged.line(OURS, "present", share)
                figures |= {f"{figure} {said}": line[figure] for figure in ("accuracy", "agreement")}
            missed = [r["comprehensiveness"] for r in judged.of(OURS, "present", 0.2)]
            figures["comprehensiveness"] = Figure(tuple(missed))
            same = tuple(one["agreement"]["masked_same"] for one in found)
            if not any(map(math.isnan, same)):  # who learned from whole records was asked about nothing else
                figures["surrogate"] = Figure(same)
            rows.append(Row({"data": TITLES[data], "extractor": name}, figures))
    return made_of(plan, "parts", "Parts of the extractor", ABOUT, ("data", "extractor"), COLUMNS, rows)
