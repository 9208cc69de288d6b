"""The reference that is stored with a model: its validation records, as the finished model sees them."""

from __future__ import annotations

import numpy as np

from tefm.language.distributed import is_first
from tefm.language.remember import RememberedLogits
from tefm.pipeline import Fitted
from tefm.prepare import Preparation
from tefm.records.readers.table import Table
from tefm.watch.observe import observe
from tefm.watch.periods import growing
from tefm.watch.reference import Answers, Reference
from tefm.watch.seen import Seen

#: Sequences that are counted at most; of a quick fit, fewer.
SEQUENCES, QUICK_SEQUENCES = 10_000, 2_000


def reference_at_fit(fitted: Fitted, preparation: Preparation, training: Table, held_out: Table) -> Reference | None:
    """All held-out sequences, with and without a label, or a sample of them; None where there is nothing to count."""
    config, vectoriser = preparation.config, preparation.vectoriser
    if vectoriser is None or fitted.coder is None or not is_first():  # only the first process saves
        return None
    frame = held_out.frame()
    everyone = preparation.sequences(frame, file=held_out.name)
    if len(everyone) < 2:
        return None
    most, rng = QUICK_SEQUENCES if config.quick else SEQUENCES, np.random.default_rng((config.seed, 17))
    sequences = everyone.select(np.sort(rng.permutation(len(everyone))[:most]))
    logits = RememberedLogits(fitted.classifier)
    observed = observe(fitted, preparation, frame, sequences, logits=logits)
    grown = None
    if sequences.lengths.max() > 1 and config.window is None:
        # after each record, for a sample of sequences with about as many records
        few = sequences.select(rng.permutation(len(sequences))[: max(1, int(most / sequences.lengths.mean()))])
        periods = growing(preparation, frame, few, np.arange(len(few.rows)))
        grown = Answers.of(
            observe(fitted, preparation, frame, few, periods.sequences, periods.unit_S, logits=logits)
        )
    return Reference.of(observed, fitted, vectoriser, Seen.of(training, vectoriser), growing=grown)
