"""Starts: where the rows of new tokens begin, and what the pretrained body brings."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, row, tuned
from tefm.bench.table import Row, Table
from tefm.bench.tables.common import JUDGED, PREDICTION, RECIPES, TITLES, made_of
from tefm.language.config import Start

ABOUT = f"""The rows of new tokens start from a random projection of their codebook vectors (*codebook*), from the
embeddings of the words that describe their records (*words*), or from the mean of the vocabulary (*mean*). *Random
body* draws all weights of the language model at random, so the difference is what pretraining adds. {JUDGED}"""
STARTS: tuple[Start, ...] = ("codebook", "words", "mean")


def table(plan: Plan, ask: Ask) -> Table:
    rows: list[Row] = []
    for data in plan.clinical:
        for recipe in RECIPES:
            codes = [plan.codes(data, split, recipe) for split in plan.splits]
            small = (plan.tune(data), plan.tune(data, sequences=300, seed=1))
            for words, start, random_body in (
                *((name, name, False) for name in STARTS),
                ("random body", STARTS[0], True),
            ):
                tunes = small[:1] if random_body else small
                asked = [plan.reading(code, *tunes, start=start, random_body=random_body) for code in codes]
                for number, sequences in enumerate(("all", "300")[: len(tunes)]):
                    keys = {"data": TITLES[data], "codes": recipe, "start": words, "sequences": sequences}
                    rows.append(row(keys, asked, ask, tuned(number)))
    return made_of(
        plan, "starts", "How new tokens start", ABOUT, ("data", "codes", "start", "sequences"), PREDICTION, rows
    )
