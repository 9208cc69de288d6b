"""Which of the fields about repeated values (`tables/repeats.py`) help to predict the label.

Trees predict the label of held-out sequences with these fields and without; those that lower the loss are kept.

Shapes: S sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tefm.base.progress import note, progress
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import ORDERED
from tefm.tables.layout import Layout, Slot
from tefm.tables.records import Records
from tefm.tables.repeats import SEEN, last_seen, repeat_fields
from tefm.tables.schema import Field, Schema
from tefm.tables.sequences import class_numbers
from tefm.tables.vectorise import Vectoriser
from tefm.tabular.inputs import Features, RecordSlots, sequence_features
from tefm.tabular.teacher import Fold, boosted_trees, folds_of, learned, unordered

#: Sequences that are looked at; with fewer than the least, a difference says nothing.
LEAST, MOST = 200, 4_000
#: Boosted trees in each fit: enough to see what helps.
TREES = 60
#: Standard errors by which the loss must be lower.
ERRORS = 3.0


def with_repeats(training: Records, vectoriser: Vectoriser, config: ModelConfig) -> Schema:
    """The schema, with those fields about repeats that lower the loss on held-out sequences of the training part."""
    schema, given = training.schema, training.sequences
    fields = repeat_fields(schema, training.frame.columns)
    labelled = np.flatnonzero(given.labelled)
    # of fewer records on average, repeats say little
    if not fields or config.window or len(labelled) < LEAST or given.lengths.mean() < ORDERED:
        return schema
    drawn = np.random.default_rng((config.seed, 29)).permutation(labelled)[:MOST]
    kept = _telling(fields, training.select(np.sort(drawn)), vectoriser, config.seed)
    for field in kept:
        note(f"field {field.name!r} added: repeats help to predict the label (`repeat_fields: none` leaves it out)")
    return Schema.checked({**dict(schema), "fields": (*schema.fields, *kept)})


def _telling(fields: Sequence[Field], records: Records, vectoriser: Vectoriser, seed: int) -> list[Field]:
    """The fields without which the label is predicted worse."""
    classes, labels_S = class_numbers(np.asarray(records.sequences.labels))
    if len(classes) < 2:
        return []
    known = sequence_features(RecordSlots.of(records.as_slots(vectoriser), vectoriser.layout), "order")
    added = [_features(field, records) for field in fields]

    def losses(*features: Features) -> NDArray[np.float64]:
        x_SF = np.hstack([of.x_NF for of in features], dtype=np.float32)
        return _losses(Features(x_SF, sum((of.kinds for of in features), ())), labels_S, len(classes), seed)

    with progress("testing whether repeated values help to predict the label", 2 + len(fields)) as advance:
        alone_S = losses(known)
        advance(1)

        def help_to_predict(*features: Features) -> bool:
            less_S = alone_S - losses(known, *features)
            advance(1)
            return bool(less_S.mean() > ERRORS * less_S.std() / np.sqrt(len(less_S)))

        # all of them at first, which is the end of it in most tables
        if not help_to_predict(*added):
            return []
        return [field for field, features in zip(fields, added, strict=True) if help_to_predict(features)]


def _features(field: Field, records: Records) -> Features:
    """How often and how recently values were last seen just before, earlier, or never."""
    seen_N = last_seen(field, records.frame, records.schema, records.sequences)
    layout = Layout((Slot(field.name, "category", len(SEEN)),))
    return sequence_features(RecordSlots(seen_N[:, None], layout, records.sequences), "order")


def _losses(features: Features, labels_S: NDArray[np.int64], classes: int, seed: int) -> NDArray[np.float64]:
    """The log loss of each sequence, from trees that were fitted without it."""
    fold_S = folds_of(np.arange(len(labels_S)), np.random.default_rng(seed))
    loss_S = np.zeros(len(labels_S))
    for number in np.unique(fold_S):
        held_out = np.flatnonzero(fold_S == number)
        rows = np.flatnonzero(fold_S != number)
        trees = boosted_trees(TREES, seed=seed, unordered_F=unordered(features))
        model = learned(trees, features.x_NF[rows], labels_S[rows])
        (log_SQ,) = Fold([model], np.ones(classes)).answers(features.x_NF[held_out])
        loss_S[held_out] = -log_SQ[np.arange(len(held_out)), labels_S[held_out]]
    return loss_S
