"""Smallest: how few slots give the same answer, how often, and what finding them costs."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Pick, Plan, joined, row
from tefm.bench.measurement import Found
from tefm.bench.rationales import ASKING, OURS
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.common import TITLES, made_of
from tefm.bench.tables.rationalization import asked

ABOUT = """Each rationale grows in the order of a ranking until the answer holds. *Passed* is the share of the
predictions for which it does; of a *default* the model says what it says of an empty record, so that there is
nothing to show. *Flips* is how often the answer changes without the rationale. *Milliseconds* per sequence to rank
its slots, all ways in one run on one machine, learning not counted; KernelSHAP and the greedy search that ask the
language model are timed on a few sequences. Shuffled values under the same masks must be no better than guessing: a
mask alone says nothing."""
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
