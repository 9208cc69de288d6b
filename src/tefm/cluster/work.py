"""Encode, predict and explain on a cluster: the same results as on one machine, in the same order.

Workers read the model and the table by their paths: on several machines, both lie on a disk that all of them see.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from tefm.base.errors import InputError, did_you_mean
from tefm.base.progress import log
from tefm.cluster.engine import Engine, run
from tefm.cluster.plan import Plan, plan_rows, plan_sequences
from tefm.cluster.workers import EXPLANATION, Encoder, Explainer, Predictor
from tefm.codes.stream import check_targets, no_codes, write_codes
from tefm.codes.tokenizer import RecordTokenizer
from tefm.explain.explanation import Explanation
from tefm.explain.reasons import Question
from tefm.model.domains import find_domain
from tefm.model.estimator import MANY, TEFM, answer_column
from tefm.pipeline.prepare import Preparation
from tefm.tables.chunks import ROWS
from tefm.tables.references import References

#: Rows of a part that is encoded: a whole number of the batches that one machine encodes.
ENCODED_ROWS = 1 << 17
#: Rows of a part that is explained: an explanation takes about a second.
EXPLAINED_ROWS = 1 << 8


def encode_on_ray(
    engine: Engine,
    folder: Path,
    source: str,
    out: Path,
    *,
    absent: bool = False,
    device: str | None = None,
    rows: int = ENCODED_ROWS,
) -> int:
    """Write the codes of Parquet files as `encode_to_parquet` does; returns the number of records."""
    folder = folder.absolute()
    tokenizer = RecordTokenizer.load(folder, device="cpu")
    plan = plan_rows(source, rows)
    targets = check_targets(source, out)
    empty = no_codes(tokenizer, tokenizer.vectoriser.readable(plan.table, absent=absent))  # before anything is started

    def make(gpu: str | None) -> Encoder:
        return Encoder(RecordTokenizer.load(folder, device=device or gpu), absent)

    files = [targets[Path(part.pieces[0].file)] for part in plan.parts]
    results = run(engine, plan, make, "encoding", like=len(set(targets.values())) == 1)
    written = 0
    for target, frames in groupby(results, key=lambda result: files[result[0]]):
        written += write_codes((frame for _, frame in frames), empty, target, lambda _: None)
    for target in dict.fromkeys(targets.values()):
        if target not in files:
            write_codes((), empty, target, lambda _: None)
    return written


def predict_on_ray(
    engine: Engine,
    folder: Path,
    source: str,
    *,
    domain: str | None = None,
    absent: bool = False,
    device: str | None = None,
    rows: int = ROWS,
) -> Iterator[pl.DataFrame]:
    """What `TEFM.predict_batches` gives, part by part."""
    folder = folder.absolute()
    domain, preparation, plan = _planned(folder, source, domain, absent, rows)

    def make(gpu: str | None) -> Predictor:
        return Predictor(TEFM.load(folder, device=device or gpu, domain=domain), absent)

    answers: Counter[str] = Counter()
    column = answer_column(preparation.sequence_noun)
    for _, predictions in run(engine, plan, make, "predicting"):
        answers.update(predictions[column].to_list())
        yield predictions
    if answers.total() >= MANY and len(answers) == 1:
        log.warning(f"all {answers.total():,} sequences have the same prediction: {next(iter(answers))}")


def explain_on_ray(
    engine: Engine,
    folder: Path,
    source: str,
    *,
    domain: str | None = None,
    entities: Sequence[str] | None = None,
    references: References | None = None,
    absent: bool = False,
    device: str | None = None,
    rows: int = EXPLAINED_ROWS,
    **question: Any,
) -> list[Explanation]:
    """What `TEFM.explain` gives."""
    folder, asked = folder.absolute(), Question.checked(question)
    domain, preparation, plan = _planned(folder, source, domain, absent, rows)

    def make(gpu: str | None) -> Explainer:
        model = TEFM.load(folder, device=device or gpu, domain=domain)
        return Explainer(model, absent, asked, references, entities)

    explanations: list[Explanation] = []
    for _, results in run(engine, plan, make, "explaining"):
        explanations += [pickle.loads(content) for content in results[EXPLANATION]]
    if entities is None:
        return explanations
    found = {str(one.sequence): one for one in explanations}
    for name in entities:
        if name not in found:
            noun, remedy = preparation.sequence_noun, did_you_mean(name, found) if found else "check the name"
            raise InputError(f"there is no such {noun} in this table", file=source, value=name, remedy=remedy)
    return [found[name] for name in entities]


def _planned(
    folder: Path, source: str, domain: str | None, absent: bool, rows: int
) -> tuple[str | None, Preparation, Plan]:
    """The domain, how it sees tables, and the parts of this one; a table that does not fit is refused here."""
    domain, preparation = find_domain(folder, source, domain)
    plan = plan_sequences(source, preparation.schema, window=preparation.config.window, rows=rows)
    preparation.readable(plan.table, absent=absent)
    return domain, preparation, plan
