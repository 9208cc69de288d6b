"""`MonitorReference`: what held-out records looked like when the model was fitted. Counts, no records; stored with it.

`Measured` counts any records in the same cells, so that a batch can be compared with the reference.

Shapes: N records, S sequences, Q classes, K levels of C entries, E edges of bins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import ArtefactError
from tefm.base.files import replacing
from tefm.language.training_loop import is_first
from tefm.monitor.fields import Raw, Seen, field_tallies
from tefm.monitor.observe import Arrivals, SampledRecords, SequenceAnswers, answers_to, look_at
from tefm.monitor.tally import Kind, Tally
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation
from tefm.tables.records import Records
from tefm.tables.vectorise import Vectoriser

#: What the stored reference is called.
AT_FIT = "held-out records at fit time"
#: Sequences that are counted at most, those that are answered too, and those of a quick fit: answers take time.
COUNTED, ANSWERED, QUICK_ANSWERED = 100_000, 10_000, 2_000
#: Bins of errors, with equal shares of the reference.
BINS = 10
#: Bins of confidence: their upper ends as shares of the reference. A rare class is at the upper end.
CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)


@dataclass(frozen=True, eq=False)
class Scale:
    """What all tallies have in common, so that they can be compared."""

    #: words of the training table; None where the reference is a table that was given
    seen: Seen | None
    reconstruction_E: NDArray[np.float64]
    quantisation_E: NDArray[np.float64]
    confidence_E: NDArray[np.float64]

    @classmethod
    def of(cls, records: SampledRecords, answers: SequenceAnswers, seen: Seen | None, positive: int) -> Scale:
        """Bins with fixed shares of the reference."""
        return cls(
            seen,
            np.unique(np.quantile(records.reconstruction_S, np.arange(1, BINS) / BINS)),
            np.unique(np.quantile(records.quantisation_S, np.arange(1, BINS) / BINS)),
            np.unique(np.quantile(confidence_of(answers.p_SQ, positive), CONFIDENCE)),
        )


def confidence_of(p_SQ: NDArray[np.float64], positive: int) -> NDArray[np.float64]:
    """Of two classes the probability of the positive one, otherwise that of the most probable one."""
    confidence_S: NDArray[np.float64] = p_SQ[:, positive] if p_SQ.shape[1] == 2 else p_SQ.max(axis=1)
    return confidence_S


def answer_tallies(answers: SequenceAnswers, fitted: Fitted, confidence_E: NDArray[np.float64]) -> list[Tally]:
    """Tallies of the answers: how sure they are, and which; of labelled sequences, the labels and what is right."""
    classes = len(fitted.classes)
    predicted_S = fitted.decide(answers.p_SQ)
    label_S, unit_S = answers.label_S, answers.unit_S
    bin_S = np.searchsorted(confidence_E, confidence_of(answers.p_SQ, fitted.positive), side="left")
    tallies = [
        Tally.of("", "confidence", bin_S, unit_S, label_S, len(confidence_E) + 1, classes, ordered=True),
        Tally.of("", "predicted", predicted_S, unit_S, label_S, classes, classes),
    ]
    known = np.flatnonzero(label_S >= 0)
    if len(known):
        unit, label = unit_S[known], label_S[known]
        right = (predicted_S[known] == label).astype(np.int64)
        tallies.append(Tally.of("", "label", label, unit, label, classes, classes))
        tallies.append(Tally.of("", "right", right, unit, label, 2, classes))
    return tallies


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

    @classmethod
    def of(
        cls, records: SampledRecords, answers: SequenceAnswers, fitted: Fitted, vectoriser: Vectoriser, scale: Scale
    ) -> Measured:
        classes, coder = len(fitted.classes), fitted.coder
        tallies, raw = field_tallies(records, vectoriser, scale.seen, classes)

        def add(subject: str, kind: Kind, cell_N: NDArray[Any], cells: int, ordered: bool = False) -> None:
            tallies.append(
                Tally.of(subject, kind, cell_N, records.unit_S, records.label_S, cells, classes, ordered=ordered)
            )

        for level, entry_N in enumerate(records.codes_SK.T, start=1):
            add(str(level), "codes", entry_N.astype(np.int64), coder.config.entries)
        for kind, error_N, edges in (
            ("reconstruction", records.reconstruction_S, scale.reconstruction_E),
            ("quantisation", records.quantisation_S, scale.quantisation_E),
        ):
            add("", kind, np.searchsorted(edges, error_N, side="left"), len(edges) + 1, True)  # type: ignore[arg-type]
        tallies += answer_tallies(answers, fitted, scale.confidence_E)
        errors = float(records.reconstruction_S.mean()), float(records.quantisation_S.mean())
        return cls(len(records), tuple(tallies), answers, errors, raw)


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
        records: SampledRecords,
        answers: SequenceAnswers,
        fitted: Fitted,
        vectoriser: Vectoriser,
        seen: Seen | None,
        *,
        growing: tuple[SampledRecords, SequenceAnswers] | None = None,
        name: str = AT_FIT,
    ) -> MonitorReference:
        scale = Scale.of(records, answers, seen, fitted.positive)
        whole = Measured.of(records, answers, fitted, vectoriser, scale)
        grown = None if growing is None else Measured.of(*growing, fitted, vectoriser, scale)
        return cls(scale, whole, grown, name)

    def measured(self, *, growing: bool = False) -> Measured:
        """What a batch is compared with; `growing` if its sequences are as they were at the end of a period."""
        return self.growing if growing and self.growing is not None else self.whole

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write one safetensors file in one step."""
        from safetensors.numpy import save_file

        scale = self.scale
        arrays: dict[str, NDArray[Any]] = {
            "reconstruction": scale.reconstruction_E,
            "quantisation": scale.quantisation_E,
            "confidence": scale.confidence_E,
        }
        if scale.seen is not None:
            arrays |= {f"seen.{name}": hashes for name, hashes in scale.seen.hashes.items()}
        facts: dict[str, Any] = {"name": self.name, "seen": scale.seen is not None}
        for name, measured in (("whole", self.whole), ("growing", self.growing)):
            if measured is not None:
                tallies, answers = measured.tallies, measured.answers
                arrays[f"{name}.counts"] = np.concatenate([tally.counts_GJ.ravel() for tally in tallies])
                arrays[f"{name}.effects"] = np.array([tally.effect for tally in tallies])
                arrays |= {f"{name}.{key}": value for key, value in vars(answers).items()}
                tables = [(tally.subject, tally.kind, tally.counts_GJ.shape, tally.ordered) for tally in tallies]
                facts[name] = {"records": measured.records, "errors": measured.errors, "tallies": tables}
        with replacing(path) as temporary:
            save_file(
                {name: np.ascontiguousarray(of) for name, of in arrays.items()},
                temporary,
                metadata={"facts": json.dumps(facts)},
            )

    @classmethod
    def load(cls, path: Path) -> MonitorReference:
        """Read what `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
                facts = json.loads(file.metadata()["facts"])
            hashes = {name.removeprefix("seen."): of for name, of in arrays.items() if name.startswith("seen.")}
            scale = Scale(
                Seen(hashes) if facts["seen"] else None,
                *(arrays[name] for name in ("reconstruction", "quantisation", "confidence")),
            )
            parts = {name: _measured(name, arrays, facts[name]) for name in ("whole", "growing") if name in facts}
            return cls(scale, parts["whole"], parts.get("growing"), facts["name"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(
                f"the reference of this model cannot be read: {error}", file=path, remedy="save the model again"
            ) from error


def _measured(name: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> Measured:
    """One part of a stored reference; its counts are one long array."""
    tables = facts["tallies"]
    ends = np.cumsum([groups * cells for _, _, (groups, cells), _ in tables])
    parts = np.split(arrays[f"{name}.counts"], ends[:-1])
    tallies = tuple(
        Tally(subject, kind, part.reshape(shape), float(effect), ordered)
        for (subject, kind, shape, ordered), part, effect in zip(tables, parts, arrays[f"{name}.effects"], strict=True)
    )
    answers = SequenceAnswers(*(arrays[f"{name}.{key}"] for key in ("p_SQ", "label_S", "unit_S")))
    first, second = facts["errors"]
    return Measured(facts["records"], tallies, answers, (first, second))


def reference_at_fit(
    fitted: Fitted, preparation: Preparation, training: Records, held_out: Records
) -> MonitorReference | None:
    """The reference that is stored with a model: its validation records, as the finished model sees them.

    All held-out sequences count, with and without a label, or a sample of them; None where there is nothing to count.
    """
    config, vectoriser = preparation.config, preparation.vectoriser
    if not is_first():  # only the first process saves
        return None
    frame, everyone = held_out.frame, held_out.sequences
    if len(everyone) < 2:
        return None
    rng = np.random.default_rng((config.seed, 17))
    answerer = fitted.answerer.remembering()
    most = QUICK_ANSWERED if config.quick else ANSWERED

    def observed(arrivals: Arrivals) -> tuple[SampledRecords, SequenceAnswers]:
        some = arrivals.select(rng.permutation(len(arrivals))[:COUNTED])
        few = some.select(np.arange(min(len(some), most)))
        records = look_at(fitted, preparation, frame, some, config.seed)
        return records, answers_to(fitted, preparation, frame, few, answerer)

    growing = None
    if everyone.lengths.max() > 1 and config.window is None:
        growing = observed(Arrivals.after_each_record(preparation, frame, everyone))
    whole = observed(Arrivals.whole(everyone))
    return MonitorReference.of(*whole, fitted, vectoriser, Seen.of(training.frame, vectoriser), growing=growing)
