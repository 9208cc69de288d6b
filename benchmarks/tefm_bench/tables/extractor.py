"""Tables about rationales: features that are kept, and how few suffice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tefm_bench.experiments import Setup
from tefm_bench.faithfulness import paired_gain
from tefm_bench.measurement import Figures
from tefm_bench.rationales import OF_ALL, OF_PRESENT, OURS, QUERYING, Rationales
from tefm_bench.table import Column, Figure, Row
from tefm_bench.tables.published import RATIONALE_FIGURES, RATIONALES, STANDS_FOR
from tefm_bench.tables.spec import TITLES, Line, Lookup, Pick, Place, TableSpec

#: The paper's extractor, as changes to our settings.
PAPERS: dict[str, dict[str, Any]] = {
    "dual fidelity (the paper's)": {"preset": "paper"},
    "prediction fidelity only (the paper's)": {"preset": "paper", "code_weight": 0.0},
}


def measurements(setup: Setup, data: str, **settings: Any) -> list[Rationales]:
    """One measurement per split."""
    codes = Place(setup, data, "task-aware").codes(some=True)
    return [setup.rationales(setup.prediction(code), **settings) for code in codes]


# ---- rationales of a size ---------------------------------------------------------------------------------------


class ScoredRankings:
    """The scored rankings of several splits: one row per split, method, kind of share and share."""

    def __init__(self, splits: Iterable[Figures]) -> None:
        self.rows = [row for figures in splits for row in figures["rows"]]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(row["strategy"] for row in self.rows))

    def of(self, method: str, of: str, share: float) -> list[Mapping[str, Any]]:
        """The rows of a method at a share, one per split."""
        return [row for row in self.rows if (row["strategy"], row["of"], row["retention"]) == (method, of, share)]

    def figures(self, method: str, of: str, share: float) -> dict[str, Figure]:
        """The figures of a method at a share, over the splits."""
        rows = self.of(method, of, share)
        if not rows:
            return {}
        figures = {name: Figure(tuple(row[name] for row in rows)) for name in ("accuracy", "agreement", "macro_f1")}
        if all(len(row["f1"]) == 2 for row in rows):
            for number, name in enumerate(("f1_positive", "f1_negative")):
                figures[name] = Figure(tuple(row["f1"][number] for row in rows))
        return figures

    def right(self, method: str, of: str, share: float) -> tuple[Any, Any]:
        """For each sequence: is the answer the label, and is it the model's answer to the whole record?"""
        rows, whole = self.of(method, of, share), self.of("everything", of, 1.0)
        correct = [np.array(r["predicted"]) == np.array(r["labels"]) for r in rows]
        agrees = [np.array(r["predicted"]) == np.array(w["predicted"]) for r, w in zip(rows, whole, strict=True)]
        return np.concatenate(correct), np.concatenate(agrees)


def _gain(ours: ScoredRankings, other: ScoredRankings, method: str, of: str, share: float) -> dict[str, Figure]:
    """Ours minus another method on the same sequences; nothing where a split is missing."""
    if len(ours.of(OURS, of, share)) != len(other.of(method, of, share)):
        return {}
    figures: dict[str, Figure] = {}
    names = (("gain", "gain_low", "gain_high"), ("gain_agreement", "agreement_low", "agreement_high"))
    pairs = zip(ours.right(OURS, of, share), other.right(method, of, share), strict=True)
    for columns, (our_right, other_right) in zip(names, pairs, strict=True):
        gain = paired_gain(our_right, other_right)
        values = (gain.value, gain.low, gain.high)
        figures |= {name: Figure((value,)) for name, value in zip(columns, values, strict=True)}
    return figures


def _rationalization(setup: Setup, lookup: Lookup) -> Iterator[Row]:
    # the paper's figures appear only next to ours
    yield from (row for data in (*setup.clinical, *setup.flows) for row in _rows(setup, lookup, data) if row.figures)


def _rows(setup: Setup, lookup: Lookup, data: str) -> Iterator[Row]:
    """Every method at every share, then all features and none."""

    def scored(**settings: Any) -> ScoredRankings:
        return ScoredRankings(filter(None, map(lookup, measurements(setup, data, **settings))))

    ours = scored(compare=True)
    methods = [(name, ours, name) for name in ours.methods if name not in ("everything", "nothing")]
    papers = PAPERS if data in setup.clinical else {}
    methods[1:1] = [(title, scored(**changes), OURS) for title, changes in papers.items()]
    paper = RATIONALES if STANDS_FOR[data] == "clinical" else {}
    for of, shares in (("all", OF_ALL), ("present", OF_PRESENT)):
        published = paper if of == "all" else {}
        for number, share in enumerate(shares):
            for title, rankings, method in methods:
                figures = rankings.figures(method, of, share)
                if figures and title != OURS:
                    figures |= _gain(ours, rankings, method, of, share)
                keys = {"data": TITLES[data], "of": of, "kept": f"{share:.0%}", "method": title}
                yield Row(keys, figures, _published(published, title, number))
        for title, share in (("everything", 1.0), ("nothing", 0.0)):
            keys = {"data": TITLES[data], "of": of, "kept": f"{share:.0%}", "method": title}
            figures = ours.figures(title, of, share)
            yield Row(keys, figures, _published(published, title, 0))


def _published(published: Mapping[str, tuple[tuple[float, ...], ...]], title: str, number: int) -> dict[str, float]:
    """The paper's figures of a method at one of its shares."""
    return dict(zip(RATIONALE_FIGURES, published[title][number], strict=True)) if title in published else {}


KEPT = TableSpec(
    name="rationalization",
    title="Rationales",
    keys=("data", "of", "kept", "method"),
    columns=(
        Column("accuracy", "accuracy", 3, "up"),
        Column("agreement", "agreement", 3, "up"),
        Column("macro_f1", "macro F1", 3, "up"),
        Column("f1_positive", "F1 of the first class", 3, "up"),
        Column("f1_negative", "F1 of the second", 3, "up"),
        Column("gain", "ours ahead by (accuracy)", 3),
        Column("gain_low", "from", 3),
        Column("gain_high", "to", 3),
        Column("gain_agreement", "ours ahead by (agreement)", 3),
        Column("agreement_low", "from", 3),
        Column("agreement_high", "to", 3),
    ),
    lines=_rationalization,
    about="""\
Every method ranks the slots of each record and keeps the same number of them per record. The kept slots are
coded again, and the frozen language model answers. This measures sufficiency under masks, nothing more. *Agreement* is
with the model's answer to the whole record, *accuracy* with the truth. Shares are *of all* slots, as in the paper (an
admission has about 20 of 242, so that 10% and more keep everything and all methods agree with the full answer: those
lines, and the paper's shares of 10% to 25%, compare nothing here), or *of present* ones, which is our addition and
stricter. The paper's retention is a share of all slots too. The first class is death (attack for flows), the second
survival (benign). *Ours ahead by* is ours minus this method on the same test sequences, with a 95% interval from a
paired bootstrap. Task-aware K3-C128 codes, first blocks of the backbone. SHAP, saliency and integrated gradients
explain our surrogate of the language model, LRP and attention explain small networks distilled from it, TreeSHAP
explains a LightGBM model fitted to the labels. SHAP samples 512 subsets per sequence; for flows 128, which is few for
770 slots.""",
)


# ---- the smallest rationale -------------------------------------------------------------------------------------


def _growth(method: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        shuffled = figures["shuffled"] if method == OURS else {}
        return {**figures["growth"].get(method, {}), **{n: shuffled[n] for n in ("shuffled", "commonest") if shuffled}}

    return pick


def _time(method: str) -> Pick:
    return lambda figures: {"milliseconds": figures.get(method)}


def _smallest(setup: Setup, lookup: Lookup) -> Iterator[Line]:
    for data in (*setup.clinical, *setup.flows):
        rationales = measurements(setup, data, compare=True)
        splits = [figures for figures in map(lookup, rationales) if figures is not None]
        methods = list(splits[0]["growth"]) if splits else [OURS]
        costs = [setup.cost(rationales[0])] if data in setup.clinical else []
        for method in (*methods, *(QUERYING if costs else ())):
            yield Line((TITLES[data], method), ((rationales, _growth(method)), (costs, _time(method))))


SMALLEST = TableSpec(
    name="smallest",
    title="The smallest rationale",
    keys=("data", "method"),
    columns=(
        Column("passed", "passed", 3, "up"),
        Column("default", "default", 3),
        Column("slots", "slots (median)", 1, "down"),
        Column("mean_slots", "slots (mean)", 1, "down"),
        Column("comprehensiveness", "comprehensiveness", 3, "up"),
        Column("flips", "flips", 3),
        Column("shuffled", "accuracy, values shuffled", 3),
        Column("commonest", "commonest class", 3),
        Column("milliseconds", "milliseconds", 2, "down"),
    ),
    lines=_smallest,
    about="""\
Features are added in the order of a ranking until the language model, shown only these, gives the same
answer with at least half of the evidence. *Passed* is the share of predictions that get there. The search continues
until the check passes, so every ranking passes for nearly every prediction that has any evidence, even a random one:
compare the number of slots instead. *Default* is the share of predictions that the model also makes for an
empty record; no features are shown for those. *Flips* is how often the answer changes when the rationale is removed.
*Accuracy, values shuffled* uses the same masks on values of other sequences; compare it with *commonest class*.
*Milliseconds* per sequence to rank its slots, all methods in one run on one machine, training not counted; KernelSHAP
and the greedy search ask the language model and were timed on a few sequences.""",
)
