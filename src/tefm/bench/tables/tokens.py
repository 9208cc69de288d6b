"""Tokens per sequence, as codes and as text."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Setup
from tefm.bench.table import Column, Figure, Row, Table
from tefm.bench.tables.common import TITLES, table_of
from tefm.bench.tables.published import BACKBONES, STANDS_FOR

ABOUT = """Tokens per sequence (mean of 100 sequences), with the question for codes, without it for text. *Share of
prose* compares with the same records as prose, as the paper's token retention does. For flows, CSV and TOON are the
shortest text. The paper counts 3,938 tokens for a MIMIC-III patient and 5,639 for ten flows (Qwen3); it does not print
its prose, and our records differ."""
COLUMNS = (Column("mean", "tokens", 1, "down"), Column("share", "share of prose", 4, "down"))


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        paper = BACKBONES[STANDS_FOR[data]]
        for line in (lookup(setup.tokens(data)) or {"rows": []})["rows"]:
            keys = {"data": TITLES[data], "form": line["format"], "tokenizer": line["tokenizer"]}
            figures = {"mean": Figure((line["mean"],)), "share": Figure((line["share_of_prose"],))}
            forms = next((forms for name, forms in paper.items() if name.startswith(line["tokenizer"])), None)
            form = {"prose": 0, "codes, full prompt": 1}.get(line["format"])
            published = {"mean": float(forms[form][0])} if forms and form is not None else {}
            rows.append(Row(keys, figures, published))
    return table_of(setup, "tokens", "Tokens", ABOUT, ("data", "form", "tokenizer"), COLUMNS, rows)
