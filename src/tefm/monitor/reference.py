"""`MonitorReference`: what held-out records looked like when the model was fitted. Counts, no records; stored with it.

`Measured` counts any records in the same cells, so that a batch can be compared with the reference.

Shapes: N records, S sequences, Q classes, K levels of C entries, E edges of bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.files import read_tensors, refusing, write_tensors
from tefm.language.training_loop import is_first
from tefm.monitor.observe import Arrivals, Observed, SampledRecords, SequenceAnswers, observe
from tefm.monitor.tally import Count, Kind, Raw, Seen, Tally, counter, field_tallies
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation
from tefm.tables.records import Records
from tefm.tables.vectorise import Vectoriser

#: What the stored reference is called.
AT_FIT = "held-out records at fit time"
#: Sequences that are counted at most, those that are answered too, and those of a quick fit: answers take time.
COUNTED, ANSWERED, QUICK_ANSWERED = 100_000, 5_000, 2_000
#: Bins of errors, with equal shares of the reference.
BINS = 10
#: Bins of confidence: their upper ends as shares of the reference. A rare class is at the upper end.
CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)


@dataclass(frozen=True, eq=False)
class Scale:
    """What all tallies have in common, so that they can be compared."""

    #: words of the training table; None where the reference is a table that was given
    seen: Seen | None
    #: where the bins of each error and of confidence end
    edges: Mapping[str, NDArray[np.float64]]

    @classmethod
    def of(cls, records: SampledRecords, answers: SequenceAnswers, seen: Seen | None, positive: int) -> Scale:
        """Bins with fixed shares of the reference."""
        shares = np.arange(1, BINS) / BINS
        ends = {
            "reconstruction": np.quantile(records.reconstruction_S, shares),
            "quantisation": np.quantile(records.quantisation_S, shares),
            "confidence": np.quantile(confidence_of(answers.p_SQ, positive), CONFIDENCE),
        }
        return cls(seen, {kind: np.unique(of) for kind, of in ends.items()})

    def binned(self, count: Count, kind: Kind, value_N: NDArray[np.float64]) -> Tally:
        """The values counted in bins."""
        edges = self.edges[kind]
        return count("", kind, np.searchsorted(edges, value_N, side="left"), len(edges) + 1, ordered=True)


def confidence_of(p_SQ: NDArray[np.float64], positive: int) -> NDArray[np.float64]:
    """Of two classes the probability of the positive one, otherwise that of the most probable one."""
    return p_SQ[:, positive] if p_SQ.shape[1] == 2 else p_SQ.max(axis=1)


def code_tallies(count: Count, records: SampledRecords, entries: int, scale: Scale) -> Iterator[Tally]:
    """What codes have, counted: the entries of each level, and how much is lost."""
    for level, entry_N in enumerate(records.codes_SK.T, start=1):
        yield count(str(level), "codes", entry_N, entries)
    yield scale.binned(count, "reconstruction", records.reconstruction_S)
    yield scale.binned(count, "quantisation", records.quantisation_S)


def answer_tallies(count: Count, answers: SequenceAnswers, fitted: Fitted, scale: Scale) -> Iterator[Tally]:
    """How sure answers are, and which, counted; of labelled sequences, the labels and what is right."""
    classes, predicted_S = len(fitted.classes), fitted.decide(answers.p_SQ)
    yield scale.binned(count, "confidence", confidence_of(answers.p_SQ, fitted.positive))
    yield count("", "predicted", predicted_S, classes)
    known = np.flatnonzero(answers.label_S >= 0)
    if len(known):
        label = answers.label_S[known]
        yield count("", "label", label, classes, known)
        yield count("", "right", predicted_S[known] == label, 2, known)


@dataclass(frozen=True, eq=False)
class Measured:
    """Records and answers, counted."""

    records: int
    tallies: tuple[Tally, ...]
    answers: SequenceAnswers
    #: the mean error of reconstruction and of quantisation
    errors: tuple[float, float]
    #: for messages; empty for a reference
    raw: Raw = field(default_factory=Raw)
    #: of the numbers of each field; an older model has none of its reference
    medians: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, observed: Observed, fitted: Fitted, vectoriser: Vectoriser, scale: Scale) -> Measured:
        (records, answers), classes, raw = observed, len(fitted.classes), Raw()
        of_records = counter(records, classes)
        tallies = (
            *field_tallies(of_records, records, vectoriser, scale.seen, raw),
            *code_tallies(of_records, records, fitted.coder.config.entries, scale),
            *answer_tallies(counter(answers, classes), answers, fitted, scale),
        )
        errors = float(records.reconstruction_S.mean()), float(records.quantisation_S.mean())
        medians = {name: float(np.median(numbers)) for name, numbers in raw.numbers.items() if len(numbers)}
        return cls(len(records), tallies, answers, errors, raw, medians)

    def tally(self, subject: str, kind: Kind) -> Tally:
        return next(tally for tally in self.tallies if tally.name == (subject, kind))

    def share(self, field: str, kind: Kind) -> float:
        """The share of the second of two cells: what is missing, or new."""
        return float(self.tally(field, kind).shares_J[1])


@dataclass(frozen=True, eq=False)
class MonitorReference:
    """Held-out records, counted, and the answers to them.

    `whole` is about whole sequences, one record of each. Someone who monitors week by week sees sequences grow, and
    an entity with many records in many weeks: `growing` is about every record, and the answers after it. It is None
    where every sequence is one record.
    """

    scale: Scale
    whole: Measured
    growing: Measured | None = None
    #: what messages call it
    name: str = AT_FIT

    @classmethod
    def of(
        cls,
        whole: Observed,
        fitted: Fitted,
        vectoriser: Vectoriser,
        seen: Seen | None,
        *,
        growing: Observed | None = None,
        name: str = AT_FIT,
    ) -> MonitorReference:
        scale = Scale.of(*whole, seen, fitted.positive)
        after = None if growing is None else Measured.of(growing, fitted, vectoriser, scale)
        return cls(scale, Measured.of(whole, fitted, vectoriser, scale), after, name)

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write one safetensors file in one step."""
        seen = self.scale.seen
        arrays: dict[str, NDArray[Any]] = dict(self.scale.edges)
        if seen is not None:
            arrays |= {f"seen.{name}": hashes for name, hashes in seen.hashes.items()}
        facts: dict[str, Any] = {"name": self.name, "seen": seen is not None}
        for name, measured in (("whole", self.whole), ("growing", self.growing)):
            if measured is not None:
                tallies = measured.tallies
                arrays[f"{name}.counts"] = np.concatenate([tally.counts_GJ.ravel() for tally in tallies])
                arrays[f"{name}.effects"] = np.array([tally.effect for tally in tallies])
                arrays |= {f"{name}.{key}": value for key, value in vars(measured.answers).items()}
                tables = [(tally.subject, tally.kind, tally.counts_GJ.shape, tally.ordered) for tally in tallies]
                facts[name] = {"records": measured.records, "errors": measured.errors, "tallies": tables}
                facts[name]["medians"] = measured.medians
        write_tensors(path, arrays, **facts)

    @classmethod
    def load(cls, path: Path) -> MonitorReference:
        """Read what `save` wrote."""
        with refusing(path, "reference of the model"):
            arrays, facts = read_tensors(path, "numpy")
            hashes = {name.removeprefix("seen."): of for name, of in arrays.items() if name.startswith("seen.")}
            edges = {kind: arrays[kind] for kind in ("reconstruction", "quantisation", "confidence")}
            scale = Scale(Seen(hashes) if facts["seen"] else None, edges)
            whole = _measured("whole", arrays, facts["whole"])
            growing = _measured("growing", arrays, facts["growing"]) if "growing" in facts else None
            return cls(scale, whole, growing, facts["name"])


def _measured(name: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> Measured:
    """One part of a stored reference; its counts are one long array."""
    ends = np.cumsum([groups * cells for _, _, (groups, cells), _ in facts["tallies"]])
    parts = np.split(arrays[f"{name}.counts"], ends[:-1])
    tallies = tuple(
        Tally(subject, kind, part.reshape(shape), float(effect), ordered)
        for (subject, kind, shape, ordered), part, effect in zip(
            facts["tallies"], parts, arrays[f"{name}.effects"], strict=True
        )
    )
    answers = SequenceAnswers(*(arrays[f"{name}.{key}"] for key in ("p_SQ", "label_S", "unit_S")))
    first, second = facts["errors"]
    medians = {field: float(median) for field, median in dict(facts.get("medians", {})).items()}
    return Measured(facts["records"], tallies, answers, (first, second), medians=medians)


def reference_at_fit(
    fitted: Fitted, preparation: Preparation, training: Records, held_out: Records
) -> MonitorReference | None:
    """The reference that is stored with a model: its validation records, as the finished model sees them.

    All held-out sequences count, with and without a label, or a sample of them; None where there is nothing to count.
    """
    config, vectoriser = preparation.config, preparation.vectoriser
    if not is_first():  # only the first process saves
        return None
    if len(held_out) < 2:
        return None
    rng = np.random.default_rng((config.seed, 17))
    answerer = fitted.answerer.remembering()
    most = QUICK_ANSWERED if config.quick else ANSWERED

    def observed(arrivals: Arrivals) -> Observed:
        some = arrivals.select(rng.permutation(len(arrivals))[:COUNTED])
        return observe(fitted, preparation, some, answerer, seed=config.seed, most=most)

    growing = None
    if held_out.sequences.lengths.max() > 1 and config.window is None:
        every_record = np.arange(len(held_out.sequences.rows))
        growing = observed(Arrivals.after(held_out, every_record))
    whole = observed(Arrivals.whole(held_out))
    return MonitorReference.of(whole, fitted, vectoriser, Seen.of(training.frame, vectoriser), growing=growing)
