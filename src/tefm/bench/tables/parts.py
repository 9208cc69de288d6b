"""Parts: what each part of the extractor adds, and each part of the model that it explains."""

from __future__ import annotations

import math
from typing import Any

from tefm.bench.experiments import Lookup, Setup
from tefm.bench.measurement import Figures
from tefm.bench.rationales import OF_PRESENT, OURS, Rationales
from tefm.bench.table import Column, Figure, Row, Table
from tefm.bench.tables.common import TITLES, table_of
from tefm.bench.tables.rationalization import PAPERS, ScoredRankings, measurements

ABOUT = """Our extractor with one part changed or removed, scored as in the table of rationales. *Agreement with the
model* is how often the surrogate gives the language model's answer on records with a random part kept. In the last
two lines, the encoder or the language model never saw masked records in training: that is another model, so its
accuracy on everything differs too. *Comprehensiveness* is how far the probability of the answer falls when the kept
features (20% of the present slots) are removed."""
SHARES = {f"{share:.0%}": share for share in OF_PRESENT}
COLUMNS = (
    Column("everything", "accuracy on everything", 3),
    *(Column(f"accuracy {share}", f"accuracy at {share}", 3, "up") for share in SHARES),
    *(Column(f"agreement {share}", f"agreement at {share}", 3, "up") for share in SHARES),
    Column("comprehensiveness", "comprehensiveness", 3, "up"),
    Column("surrogate", "agreement with the model", 3, "up"),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {"compare": True},
    **PAPERS,
    "surrogate learns labels, not probabilities": {"targets": "labels"},
    "surrogate sees whole records only": {"versions": 0, "rounds": 0},
    "straight-through top-k instead of the search": {"selection": "topk"},
    "soft mask instead of the search": {"selection": "soft", "code_weight": 1.0, "sparsity": 0.1},
    "search for the same code as well (dual)": {"code_weight": 0.05},
}


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in setup.clinical:
        for extractor, rationales in _variants(setup, data).items():
            splits = [figures for figures in map(lookup, rationales) if figures is not None]
            rows += [Row({"data": TITLES[data], "extractor": extractor}, _figures(splits))] if splits else []
    return table_of(setup, "parts", "Parts of the extractor", ABOUT, ("data", "extractor"), COLUMNS, rows)


def _variants(setup: Setup, data: str) -> dict[str, list[Rationales]]:
    """The measurements of every line."""
    variants = {name: measurements(setup, data, **changes) for name, changes in VARIANTS.items()}
    codes = [setup.codes(data, split, "task-aware") for split in setup.splits]
    unmasked_codes = [setup.codes(data, split, "task-aware", mask_share=0.0) for split in setup.splits]
    unmasked_tune = setup.tune(data, masked_copies=0)
    variants["the encoder saw whole records only"] = [
        setup.rationales(setup.prediction(code, keep=True)) for code in unmasked_codes
    ]
    variants["the language model saw whole records only"] = [
        setup.rationales(setup.prediction(code, unmasked_tune, keep=True)) for code in codes
    ]
    return variants


def _figures(splits: list[Figures]) -> dict[str, Figure]:
    rankings = ScoredRankings(splits)
    figures = {"everything": rankings.figures("everything", "present", 1.0)["accuracy"]}
    for title, share in SHARES.items():
        at_share = rankings.figures(OURS, "present", share)
        figures |= {f"{name} {title}": at_share[name] for name in ("accuracy", "agreement")}
    removed = [row["comprehensiveness"] for row in rankings.of(OURS, "present", 0.2)]
    figures["comprehensiveness"] = Figure(tuple(removed))
    agreement = tuple(split["agreement"]["version_same"] for split in splits)
    if not any(map(math.isnan, agreement)):  # a surrogate of whole records only was not tested on masked ones
        figures["surrogate"] = Figure(agreement)
    return figures
