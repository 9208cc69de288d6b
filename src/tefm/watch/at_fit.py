"""The reference that is stored with a model: its validation records, as the finished model sees them."""

from __future__ import annotations

import numpy as np

from tefm.fitted import Fitted
from tefm.language.distributed import is_first
from tefm.language.remember import RememberedLogits
from tefm.prepare import Preparation
from tefm.records.readers.table import Table
from tefm.watch.observe import Answers, Asked, Records, answers_to, look_at
from tefm.watch.reference import Reference
from tefm.watch.seen import Seen

#: Sequences that are counted at most, those that are answered too, and those of a quick fit: answers take time.
COUNTED, ANSWERED, QUICK_ANSWERED = 100_000, 10_000, 2_000


def reference_at_fit(fitted: Fitted, preparation: Preparation, training: Table, held_out: Table) -> Reference | None:
    """All held-out sequences, with and without a label, or a sample of them; None where there is nothing to count."""
    config, vectoriser = preparation.config, preparation.vectoriser
    if vectoriser is None or fitted.coder is None or not is_first():  # only the first process saves
        return None
    frame = held_out.frame()
    everyone = preparation.sequences(frame, file=held_out.name)
    if len(everyone) < 2:
        return None
    rng = np.random.default_rng((config.seed, 17))
    logits = RememberedLogits(fitted.classifier)
    most = QUICK_ANSWERED if config.quick else ANSWERED

    def seen_as(asked: Asked) -> tuple[Records, Answers]:
        some = asked.select(rng.permutation(len(asked))[:COUNTED])
        few = some.select(np.arange(min(len(some), most)))
        return look_at(fitted, preparation, frame, some, config.seed), answers_to(
            fitted, preparation, frame, few, logits
        )

    growing = None
    if everyone.lengths.max() > 1 and config.window is None:
        growing = seen_as(Asked.after_each_record(preparation, frame, everyone))
    whole = seen_as(Asked.whole(everyone))
    return Reference.of(*whole, fitted, vectoriser, Seen.of(training, vectoriser), growing=growing)
