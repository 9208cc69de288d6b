"""The demo: hospital admissions become codes, and a language model answers from the codes alone.

Fits a tokenizer on the embedded Diabetes130 data, measures it on patients it has not seen, shows three records with
their codes and what the codes still say, and tunes SmolLM2 to tell who died, beside LightGBM on the same patients.
It ends with the features that one prediction rests on, checked with the model itself.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.markup import escape

from tefm.base.progress import out
from tefm.codes.doctor import examine
from tefm.codes.tokenizer import RecordTokenizer
from tefm.datasets import diabetes130
from tefm.fit import fit_frame, judged_sequences
from tefm.language.vocabulary import CodeVocabulary
from tefm.model import TEFM
from tefm.rationale.card import Rationale, to_json
from tefm.rationale.render import card
from tefm.records.describe import statements
from tefm.records.grouping import by_entity
from tefm.records.sequences import Sequences
from tefm.records.splitting import rows_of, split
from tefm.show.terminal import examination_tables, outcome_tables
from tefm.task import Split


def run_demo(*, steps: int = 1_500, layers: int = 4, tune_steps: int = 160, quiet: bool = False) -> dict[str, Any]:
    """Run the demo and return its figures."""
    started = time.perf_counter()
    data = diabetes130()
    model = TEFM(
        data.schema,
        balance="all",
        prompt="mortality",
        layers=layers,
        tune={"steps": tune_steps},
        align="none",
        rationale={"questions": 4_000, "rounds": 0, "surrogate_steps": 800, "epochs": 25},
    )
    everyone = by_entity(data.frame, data.schema)
    parts = split(everyone, seed=Split().seed)
    train, test = rows_of(everyone, parts, "train"), rows_of(everyone, parts, "test")
    if not quiet:
        out.print(f"[bold]Diabetes130[/]: {data.frame.height:,} admissions of {len(everyone):,} patients")
        out.print(f"[dim]{escape(data.source)}[/]", highlight=False)
        out.print(
            f"learning codes from {len(train):,} admissions; {len(test):,} of other patients are kept for the test"
        )
    tokenizer = RecordTokenizer(steps=steps).fit(data.frame[train], data.schema)
    x_ND = tokenizer.vectoriser.transform(data.frame)
    judged, of_judged = judged_sequences(model, everyone, parts)
    found = examine(
        tokenizer.coder,
        x_ND,
        labels_N=data.frame["outcome"].to_numpy().astype(object),
        train_N=_among(judged.last[of_judged == "train"], len(x_ND)),
        test_N=_among(judged.last[of_judged == "test"], len(x_ND)),
        judged_N=_among(test, len(x_ND)),
    )
    if not quiet:
        for part in examination_tables(found):
            out.print(part)
        _show_records(tokenizer, x_ND[test[:: len(test) // 3][:3]])
        out.print(f"\ntuning the first {layers} blocks of SmolLM2-135M on the codes: did the patient die?")
    outcome = fit_frame(model.set_params(tokenizer=tokenizer), data.frame, Split())
    if not quiet:
        for part in outcome_tables(outcome):
            out.print(part)
    shown = _one_that_died(model, data.frame, judged.select(of_judged == "test"))
    if not quiet:
        out.print("\nwhat one of the predictions rests on:")
        out.print(card(shown))
        out.print(f"\nall in {time.perf_counter() - started:.0f} s. Your own table: tefm inspect TABLE")
    seconds = round(time.perf_counter() - started, 1)
    return {"seconds": seconds, **found.to_dict(), "task": outcome.to_dict(), "rationale": to_json(shown)}


def _one_that_died(model: TEFM, frame: pl.DataFrame, sequences: Sequences, some: int = 24) -> Rationale:
    """The rationale of a patient of whom the model says so, one that passes if there is any."""
    few = sequences.select(np.arange(min(some, len(sequences))))
    found = model.explain(frame[np.sort(few.rows)])
    return max(found, key=lambda one: (one.predicted == "died", one.passed, one.full.p))


def _among(rows: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    chosen = np.zeros(count, dtype=bool)
    chosen[rows] = True
    return chosen


def _show_records(tokenizer: RecordTokenizer, x_ND: NDArray[Any]) -> None:
    """Records in words, their codes, and what comes back; what the codes lost or changed is marked."""
    record, config = tokenizer.vectoriser.table_schema.record, tokenizer.config
    tokens = CodeVocabulary.of(record, levels=config.levels, entries=config.entries)
    codes_NK = tokenizer.coder.encode(x_ND)
    for number, (x_D, code, back_D) in enumerate(zip(x_ND, codes_NK, tokenizer.coder.decode(codes_NK), strict=True), 1):
        out.print(f"\n[bold]record {number}[/]  {tokens.said(code)}", highlight=False)
        before = {said.field: said.words for said in statements(tokenizer.vectoriser, x_D)}
        after = {said.field: said.words for said in statements(tokenizer.vectoriser, back_D)}
        for field in dict.fromkeys([*before, *after]):
            was, now = before.get(field), after.get(field)
            if was == now:
                out.print(f"  [green]=[/] {escape(str(was))}", highlight=False)
            else:
                out.print(
                    f"  [yellow]≠[/] {escape(was or '(absent)')}  [dim]→ {escape(now or '(absent)')}[/]",
                    highlight=False,
                )
