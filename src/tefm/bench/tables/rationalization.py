"""Rationalization: what is kept alone gives the same answer, by every way to choose it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tefm.bench.experiments import Ask, Plan
from tefm.bench.measurement import Found
from tefm.bench.rationales import OF_ALL, OF_PRESENT, OURS, Rationales
from tefm.bench.table import Column, Figure, Row, Table
from tefm.bench.tables.common import TITLES, made_of
from tefm.bench.tables.published import RATIONALES, STANDS_FOR
from tefm.rationale.verify import paired_gain

ABOUT = """Every method ranks the slots of each record and keeps the same number of them per record. The kept slots are
coded again, and the frozen language model answers. This measures sufficiency under masks, nothing more. *Agreement*
is with the model's answer to the whole record, *accuracy* with the truth. Shares are *of all* slots, as in the paper
(an admission has about 20 of 242, so that 10% and more keep everything), or *of present* ones, which is our addition
and stricter. *Ours ahead by* is ours minus this method on the same test sequences, with a 95% interval from a paired
bootstrap. Task-aware K3-C128 codes, first blocks of the backbone. SHAP, saliency and integrated gradients explain our
surrogate of the language model, LRP and attention explain small networks distilled from it, TreeSHAP explains a
LightGBM model fitted to the labels. SHAP samples 512 subsets per sequence; for flows 128, which is few for 770
slots."""
COLUMNS = (
    Column("accuracy", "accuracy", 3, "up"),
    Column("agreement", "agreement", 3, "up"),
    Column("macro_f1", "macro F1", 3, "up"),
    Column("f1_positive", "F1 of the first class", 3),
    Column("f1_negative", "F1 of the second", 3),
    Column("gain", "ours ahead by (accuracy)", 3),
    Column("gain_low", "from", 3),
    Column("gain_high", "to", 3),
    Column("gain_agreement", "ours ahead by (agreement)", 3),
    Column("agreement_low", "from", 3),
    Column("agreement_high", "to", 3),
)
#: What the extractor is learned with beside our settings.
PAPERS: dict[str, dict[str, Any]] = {
    "dual fidelity (the paper's)": {"preset": "paper"},
    "prediction fidelity only (the paper's)": {"preset": "paper", "code_weight": 0.0},
}


def asked(plan: Plan, data: str, **settings: Any) -> list[Rationales]:
    """One measurement per split."""
    codes = [plan.codes(data, split, "task-aware") for split in plan.some_splits(data)]
    return [plan.rationales(plan.reading(code), **settings) for code in codes]


class Judged:
    """The judged rankings of several splits: rows by way, count and share."""

    def __init__(self, found: Iterable[Found]) -> None:
        self.rows = [row for split in found for row in split["rows"]]

    def of(self, way: str, of: str, share: float) -> list[Mapping[str, Any]]:
        return [r for r in self.rows if (r["strategy"], r["of"], r["retention"]) == (way, of, share)]

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(row["strategy"] for row in self.rows))

    def line(self, way: str, of: str, share: float) -> dict[str, Figure]:
        rows = self.of(way, of, share)
        names = ("accuracy", "agreement", "macro_f1")
        figures = {name: Figure(tuple(row[name] for row in rows)) for name in names} if rows else {}
        for number, name in enumerate(("f1_positive", "f1_negative")):
            each = [row["f1"] for row in rows]
            if each and all(len(one) == 2 for one in each):
                figures[name] = Figure(tuple(one[number] for one in each))
        return figures

    def right(self, way: str, of: str, share: float) -> tuple[Any, Any]:
        """Sequence by sequence: is it the label, is it what the model says of everything?"""
        rows, whole = self.of(way, of, share), self.of("everything", of, 1.0)
        labels = [np.array(r["predicted"]) == np.array(r["labels"]) for r in rows]
        agrees = [np.array(r["predicted"]) == np.array(w["predicted"]) for r, w in zip(rows, whole, strict=True)]
        return np.concatenate(labels), np.concatenate(agrees)


def _ahead(ours: Judged, other: Judged, way: str, of: str, share: float) -> dict[str, Figure]:
    """Ours minus another way on the same sequences."""
    if len(ours.of(OURS, of, share)) != len(other.of(way, of, share)):
        return {}
    figures: dict[str, Figure] = {}
    names = (("gain", "gain_low", "gain_high"), ("gain_agreement", "agreement_low", "agreement_high"))
    for three, mine, others in zip(names, ours.right(OURS, of, share), other.right(way, of, share), strict=True):
        gain = paired_gain(mine, others)
        figures |= {n: Figure((v,)) for n, v in zip(three, (gain.value, gain.low, gain.high), strict=True)}
    return figures


def table(plan: Plan, ask: Ask) -> Table:
    rows: list[Row] = []
    for data in (*plan.clinical, *plan.flows):
        main = Judged(filter(None, map(ask, asked(plan, data, others=True))))
        variants = PAPERS if data in plan.clinical else {}
        judged = {
            name: Judged(filter(None, map(ask, asked(plan, data, **changes)))) for name, changes in variants.items()
        }
        paper = RATIONALES if STANDS_FOR[data] == "clinical" else {}
        for of, shares in (("all", OF_ALL), ("present", OF_PRESENT)):
            for share in shares:
                lines = [(way, main, way) for way in main.ways if way not in ("everything", "nothing")]
                lines[1:1] = [(name, judged[name], OURS) for name in judged]
                for name, source, way in lines:
                    figures = source.line(way, of, share)
                    if not figures:
                        continue
                    if name != OURS:
                        figures |= _ahead(main, source, way, of, share)
                    keys = {"data": TITLES[data], "of": of, "kept": f"{share:.0%}", "way": name}
                    said = paper.get(name, ()) if of == "all" else ()
                    published = {"accuracy": said[OF_ALL.index(share)]} if said else {}
                    rows.append(Row(keys, figures, published))
            for name, share in (("everything", 1.0), ("nothing", 0.0)):
                keys = {"data": TITLES[data], "of": of, "kept": f"{share:.0%}", "way": name}
                published = {"accuracy": paper[name][0]} if paper and of == "all" else {}
                rows.append(Row(keys, main.line(name, of, share), published))
    rows = [one for one in rows if one.figures]
    return made_of(plan, "rationalization", "Rationales", ABOUT, ("data", "of", "kept", "way"), COLUMNS, rows)
