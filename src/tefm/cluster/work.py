"""Encode, predict and explain on a cluster: the same results as on one machine, in the same order.

Workers read the model and the table by their paths: on several machines, both lie on a disk that all of them see.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tefm.base.progress import log
from tefm.cluster.engine import SEQUENCE, Engine, PartWork, Plan, plan_rows, plan_sequences, run
from tefm.codes.tokenizer import RecordTokenizer, check_targets, encoded, no_codes, write_codes
from tefm.explain.explanation import Explanation
from tefm.explain.reasons import Question
from tefm.model.domains import find_domain
from tefm.model.estimator import MANY, TEFM, answer_column
from tefm.model.explainer import explain_slots, named
from tefm.pipeline.prepare import Preparation
from tefm.tables.chunks import ROWS
from tefm.tables.readers.table import Table
from tefm.tables.references import References

#: Rows of a part that is encoded: a whole number of the batches that one machine encodes.
ENCODED_ROWS = 1 << 17
#: Rows of a part that is explained: an explanation takes about a second.
EXPLAINED_ROWS = 1 << 8
#: The column of pickled explanations.
EXPLANATION = "explanation"


@dataclass
class OnRay:
    """A saved model or tokenizer and a table of Parquet files, on a Ray cluster."""

    engine: Engine
    folder: Path
    source: str
    domain: str | None = None
    absent: bool = False
    device: str | None = None
    #: of two classes, from which probability on the positive one is predicted; the model's own when left out
    threshold: float | None = None
    #: rows of a part, about; what suits the work when left out
    rows: int | None = None

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()

    def encode(self, out: Path) -> int:
        """Write the codes as `encode_to_parquet` does; returns the number of records."""
        tokenizer = RecordTokenizer.load(self.folder, device="cpu")
        # derived fields need the other records of an entity, so a file is not cut
        is_whole = any(field.derived for field in tokenizer.schema.fields)
        plan = plan_rows(self.source, sys.maxsize if is_whole else self.rows or ENCODED_ROWS)
        targets = check_targets(self.source, out)
        readable = tokenizer.vectoriser.readable(plan.table, absent=self.absent)  # before anything is started
        empty = no_codes(tokenizer, readable)

        def make(gpu: str | None) -> PartWork:
            return partial(encode_part, RecordTokenizer.load(self.folder, device=self.device or gpu), self.absent)

        ends = np.cumsum([count for _, count in plan.files])
        places = np.searchsorted(ends, [start for start, _ in plan.parts], side="right")
        files = [targets[Path(plan.files[place][0])] for place in places.tolist()]
        results = run(self.engine, plan, make, "encoding", like=len(set(targets.values())) == 1)
        written = 0
        for target, frames in groupby(results, key=lambda result: files[result[0]]):
            written += write_codes((frame for _, frame in frames), empty, target, lambda _: None)
        for target in dict.fromkeys(targets.values()):
            if target not in files:
                write_codes((), empty, target, lambda _: None)
        return written

    def predict(self) -> Iterator[pl.DataFrame]:
        """What `TEFM.predict_batches` gives, part by part."""
        preparation, plan = self._planned(ROWS)
        answers: Counter[str] = Counter()
        column = answer_column(preparation.sequence_noun)
        for _, predictions in run(
            self.engine, plan, lambda gpu: partial(predict_part, *self._loaded(gpu)), "predicting"
        ):
            if column in predictions.columns:  # not where the label is a number
                answers.update(predictions[column].to_list())
            yield predictions
        if answers.total() >= MANY and len(answers) == 1:
            log.warning(f"all {answers.total():,} sequences have the same prediction: {next(iter(answers))}")

    def explain(
        self, *, entities: Sequence[str] | None = None, references: References | None = None, **question: Any
    ) -> list[Explanation]:
        """What `TEFM.explain` gives."""
        checked = Question.checked(question)
        preparation, plan = self._planned(EXPLAINED_ROWS)

        def make(gpu: str | None) -> PartWork:
            return partial(explain_part, *self._loaded(gpu), checked, references, entities)

        explanations: list[Explanation] = []
        for _, results in run(self.engine, plan, make, "explaining"):
            explanations += [pickle.loads(content) for content in results[EXPLANATION]]
        if entities is None:
            return explanations
        by_name = {str(explanation.sequence): explanation for explanation in explanations}
        return named(by_name, entities, preparation.sequence_noun, file=self.source)

    def _planned(self, rows: int) -> tuple[Preparation, Plan]:
        """How the model sees tables, and the parts of this one; a table that does not fit is refused here."""
        self.domain, preparation = find_domain(self.folder, self.source, self.domain)
        window = preparation.config.window
        plan = plan_sequences(self.source, preparation.schema, window=window, rows=self.rows or rows)
        preparation.readable(plan.table, absent=self.absent)
        return preparation, plan

    def _loaded(self, gpu: str | None) -> tuple[TEFM, bool]:
        model = TEFM.load(self.folder, device=self.device or gpu, domain=self.domain)
        return model.with_threshold(self.threshold), self.absent


# ---- the work on a part: it begins with the row `start` of the whole table --------------------------------------


def encode_part(tokenizer: RecordTokenizer, absent: bool, start: int, table: Table) -> pl.DataFrame:
    """The codes of the records."""
    return pl.concat(encoded(tokenizer, tokenizer.vectoriser.readable(table, absent=absent)))


def predict_part(model: TEFM, absent: bool, start: int, table: Table) -> pl.DataFrame:
    """The predictions for the sequences."""
    return pl.concat(model.predicted(table, absent=absent, before=start // (model.preparation.config.window or 1)))


def explain_part(
    model: TEFM,
    absent: bool,
    question: Question,
    references: References | None,
    entities: Sequence[str] | None,
    start: int,
    table: Table,
) -> pl.DataFrame:
    """The explanations of the sequences, pickled; of `entities` only, where they are given."""
    preparation = model.preparation
    records = preparation.to_predict(table, absent=absent)
    sequences = records.sequences
    if preparation.entity is None:  # sequences are numbered
        before = start // (preparation.config.window or 1)
        names = [str(before + number) for number in range(len(sequences))]
        sequences = replace(sequences, ids=np.array(names, dtype=object))
    chosen = np.arange(len(sequences))
    if entities is not None:
        chosen = chosen[np.isin(sequences.names.astype(str), entities)]
    slots = preparation.slots(records.with_sequences(sequences.select(chosen)))
    explanations = explain_slots(model.fitted, preparation, slots, question, references)
    contents = [pickle.dumps(explanation) for explanation in explanations]
    return pl.DataFrame({EXPLANATION: contents, SEQUENCE: chosen}, {EXPLANATION: pl.Binary, SEQUENCE: pl.Int64})
