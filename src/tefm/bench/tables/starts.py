"""Starts: the initial embeddings of new tokens, and what the pretrained body adds."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Setup, row, tuned
from tefm.bench.table import Row, Table
from tefm.bench.tables.common import PREDICTION, PROTOCOL, RECIPES, TITLES, table_of
from tefm.language.config import Start

ABOUT = f"""The rows of new tokens start from a random projection of their codebook vectors (*codebook*), from the
embeddings of the words that describe their records (*words*), or from the mean of the vocabulary (*mean*). *Random
body* draws all weights of the language model at random, so the difference is what pretraining adds. {PROTOCOL}"""
STARTS: tuple[Start, ...] = ("codebook", "words", "mean")


def table(setup: Setup, lookup: Lookup) -> Table:
    rows: list[Row] = []
    for data in setup.clinical:
        for recipe in RECIPES:
            codes = [setup.codes(data, split, recipe) for split in setup.splits]
            small = (setup.tune(data), setup.tune(data, sequences=300, seed=1))
            for title, start, random_body in (
                *((name, name, False) for name in STARTS),
                ("random body", STARTS[0], True),
            ):
                tunes = small[:1] if random_body else small
                predictions = [setup.prediction(code, *tunes, start=start, random_body=random_body) for code in codes]
                for number, sequences in enumerate(("all", "300")[: len(tunes)]):
                    keys = {"data": TITLES[data], "codes": recipe, "start": title, "sequences": sequences}
                    rows.append(row(keys, predictions, lookup, tuned(number)))
    return table_of(
        setup, "starts", "How new tokens start", ABOUT, ("data", "codes", "start", "sequences"), PREDICTION, rows
    )
