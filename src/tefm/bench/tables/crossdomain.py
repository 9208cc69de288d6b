"""Cross-domain: the same on network flows."""

from __future__ import annotations

from tefm.bench.data import FLOWS
from tefm.bench.experiments import Ask, Plan
from tefm.bench.table import Table
from tefm.bench.tables.common import JUDGED, PREDICTION, made_of
from tefm.bench.tables.prediction import methods

ABOUT = f"""Segments of ten consecutive flows: is the last one part of an attack (DDoS, PortScan), or which attack
is it? {JUDGED} Text is cut to its last 4,096 tokens. A test part holds about 100 segments, so that 0.99 is one
error."""


def table(plan: Plan, ask: Ask) -> Table:
    rows = [
        line for data in (plan.flows if plan.quick else FLOWS) if data in plan.data for line in methods(plan, ask, data)
    ]
    return made_of(plan, "crossdomain", "Network flows", ABOUT, ("data", "method"), PREDICTION, rows)
