"""Cross-domain: the same on network flows."""

from __future__ import annotations

from tefm.bench.data import FLOWS
from tefm.bench.experiments import Ask, Plan
from tefm.bench.table import Table
from tefm.bench.tables.common import JUDGED, PREDICTION, made_of
from tefm.bench.tables.prediction import methods

ABOUT = f"""Segments of ten consecutive flows. DDoS and PortScan: is the last flow part of the attack? Attack type:
which label does it have? The sample has 15 labels, of which 12 occur in the test parts. {JUDGED} Text is cut to its
last 4,096 tokens. A test part holds about 100 segments for DDoS and PortScan, where one error is 0.01, and 434 for
attack type. Flows of one attack are much alike, and the split is random, so neighbouring flows are on both sides of
it. TinyLlama's weights were de-quantised from 2 bits."""


def table(plan: Plan, ask: Ask) -> Table:
    rows = [
        line for data in (plan.flows if plan.quick else FLOWS) if data in plan.data for line in methods(plan, ask, data)
    ]
    return made_of(plan, "crossdomain", "Network flows", ABOUT, ("data", "method"), PREDICTION, rows)
