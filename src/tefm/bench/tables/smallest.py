"""Smallest: how few slots give the same answer, how often, and what finding them costs."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Pick, Plan, joined, row
from tefm.bench.measurement import Found
from tefm.bench.rationales import ASKING, OURS
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.common import TITLES, made_of
from tefm.bench.tables.rationalization import asked

ABOUT = """Features are added in the order of a ranking until the language model, shown only these, gives the same
answer with at least half of the evidence. *Passed* is the share of predictions that get there. The search continues
until the check passes, so every ranking passes for nearly every prediction that has any evidence, even a random one:
compare the number of slots instead. *Default* is the share of predictions that the model also makes for an
empty record; no features are shown for those. *Flips* is how often the answer changes when the rationale is removed.
*Accuracy, values shuffled* uses the same masks on values of other sequences; compare it with *commonest class*.
*Milliseconds* per sequence to rank its slots, all methods in one run on one machine, training not counted; KernelSHAP
and the greedy search ask the language model and were timed on a few sequences."""
COLUMNS = (
    Column("passed", "passed", 3, "up"),
    Column("default", "default", 3),
    Column("slots", "slots (median)", 1, "down"),
    Column("mean_slots", "slots (mean)", 1, "down"),
    Column("comprehensiveness", "comprehensiveness", 3, "up"),
    Column("flips", "flips", 3),
    Column("shuffled", "accuracy, values shuffled", 3),
    Column("commonest", "commonest class", 3),
    Column("milliseconds", "milliseconds", 2, "down"),
)


def _of(way: str) -> Pick:
    def pick(found: Found) -> dict[str, float | None]:
        said = dict(found["growth"].get(way, {}))
        return said | ({n: found["shuffled"][n] for n in ("shuffled", "commonest")} if way == OURS else {})

    return pick


def _time(way: str) -> Pick:
    return lambda found: {"milliseconds": found.get(way)}


def table(plan: Plan, ask: Ask) -> Table:
    rows: list[Row] = []
    for data in (*plan.clinical, *plan.flows):
        measured = asked(plan, data, others=True)
        found = [one for one in map(ask, measured) if one is not None]
        ways = list(found[0]["growth"]) if found else [OURS]
        timed = None
        if data in plan.clinical:
            timed = plan.cost(measured[0])
            ways += ASKING
        for way in ways:
            keys = {"data": TITLES[data], "way": way}
            line = row(keys, measured, ask, _of(way))
            if timed:
                line = joined(line, row(keys, [timed], ask, _time(way)))
            rows.append(line)
    return made_of(plan, "smallest", "The smallest rationale", ABOUT, ("data", "way"), COLUMNS, rows)
