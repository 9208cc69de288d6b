"""Cross-domain: the same on network flows."""

from __future__ import annotations

from tefm.bench.data import FLOWS
from tefm.bench.experiments import Lookup, Setup
from tefm.bench.table import Table
from tefm.bench.tables.common import PREDICTION, PROTOCOL, table_of
from tefm.bench.tables.prediction import methods

ABOUT = f"""Segments of ten consecutive flows. DDoS and PortScan: is the last flow part of the attack? Attack type:
which label does it have? The sample has 15 labels, of which 12 occur in the test parts. {PROTOCOL} Text is cut to its
last 4,096 tokens. A test part holds about 100 segments for DDoS and PortScan, where one
error is 0.01, and 434 for attack type. Flows of one attack are much alike, and the split is random, so neighbouring
flows are on both sides of it. TinyLlama's weights were de-quantised from 2 bits."""


def table(setup: Setup, lookup: Lookup) -> Table:
    names = setup.flows if setup.quick else [name for name in FLOWS if name in setup.data]
    rows = [row for data in names for row in methods(setup, lookup, data)]
    return table_of(setup, "crossdomain", "Network flows", ABOUT, ("data", "method"), PREDICTION, rows)
