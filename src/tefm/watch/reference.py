"""`Reference`: what held-out records looked like when the model was fitted. Counts, no records; stored with the model.

`Measured` is the same for any records, so that a batch can be compared with it.

Shapes: N records, S sequences, Q classes, K levels of C entries, E edges of bins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import ArtefactError
from tefm.base.files import replacing
from tefm.pipeline import Fitted
from tefm.records.vectorise import Vectoriser
from tefm.watch.fields import Raw, field_tallies
from tefm.watch.observe import Observed, coder_of
from tefm.watch.seen import Seen
from tefm.watch.tally import Kind, Tally

#: What the stored reference is called.
AT_FIT = "held-out records at fit time"
#: Bins of errors, with equal shares of the reference.
BINS = 10
#: Bins of confidence: their upper ends as shares of the reference. A rare class is at the upper end.
CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to some sequences: probabilities, class numbers of the labels (−1 without one), and entities."""

    p_SQ: NDArray[np.float64]
    label_S: NDArray[np.int64]
    unit_S: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.p_SQ)

    @property
    def labelled(self) -> float:
        """The share of sequences with a label."""
        return float((self.label_S >= 0).mean()) if len(self) else 0.0

    @classmethod
    def of(cls, observed: Observed) -> Answers:
        return cls(observed.p_SQ, observed.label_S, observed.unit_S)


@dataclass(frozen=True, eq=False)
class Scale:
    """What all tallies have in common, so that they can be compared."""

    #: words of the training table; None where the reference is a table that was given
    seen: Seen | None
    reconstruction_E: NDArray[np.float64]
    quantisation_E: NDArray[np.float64]
    confidence_E: NDArray[np.float64]

    @classmethod
    def of(cls, observed: Observed, seen: Seen | None, positive: int) -> Scale:
        """Bins with fixed shares of the reference."""
        return cls(
            seen,
            np.unique(np.quantile(observed.reconstruction_N, np.arange(1, BINS) / BINS)),
            np.unique(np.quantile(observed.quantisation_N, np.arange(1, BINS) / BINS)),
            np.unique(np.quantile(confidence_of(observed.p_SQ, positive), CONFIDENCE)),
        )


def confidence_of(p_SQ: NDArray[np.float64], positive: int) -> NDArray[np.float64]:
    """Of two classes the probability of the positive one, otherwise that of the most probable one."""
    confidence_S: NDArray[np.float64] = p_SQ[:, positive] if p_SQ.shape[1] == 2 else p_SQ.max(axis=1)
    return confidence_S


def answer_tallies(answers: Answers, fitted: Fitted, confidence_E: NDArray[np.float64]) -> list[Tally]:
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
    answers: Answers
    #: the mean error of reconstruction and of quantisation
    errors: tuple[float, float]
    #: for messages; empty for a reference
    raw: Raw = field(default_factory=Raw)

    @classmethod
    def of(cls, observed: Observed, fitted: Fitted, vectoriser: Vectoriser, scale: Scale) -> Measured:
        records, classes, coder = observed.records, len(fitted.classes), coder_of(fitted)
        tallies, raw = field_tallies(records, vectoriser, scale.seen, classes)

        def add(subject: str, kind: Kind, cell_N: NDArray[Any], cells: int, ordered: bool = False) -> None:
            tallies.append(
                Tally.of(subject, kind, cell_N, records.unit_N, records.label_N, cells, classes, ordered=ordered)
            )

        for level, entry_N in enumerate(observed.codes_NK.T, start=1):
            add(str(level), "codes", entry_N.astype(np.int64), coder.config.entries)
        for kind, error_N, edges in (
            ("reconstruction", observed.reconstruction_N, scale.reconstruction_E),
            ("quantisation", observed.quantisation_N, scale.quantisation_E),
        ):
            add("", kind, np.searchsorted(edges, error_N, side="left"), len(edges) + 1, True)  # type: ignore[arg-type]
        answers = Answers.of(observed)
        tallies += answer_tallies(answers, fitted, scale.confidence_E)
        errors = float(observed.reconstruction_N.mean()), float(observed.quantisation_N.mean())
        return cls(len(records.x_ND), tuple(tallies), answers, errors, raw)


@dataclass(frozen=True, eq=False)
class Reference:
    """Held-out records, counted, and the answers to them.

    `answers` are those to whole sequences. Someone who monitors week by week sees sequences grow, so `growing` are the
    answers after each record; None where every sequence is one record.
    """

    scale: Scale
    records: int
    #: of records only
    tallies: tuple[Tally, ...]
    answers: Answers
    errors: tuple[float, float]
    growing: Answers | None = None
    #: what messages call it
    name: str = AT_FIT

    @classmethod
    def of(
        cls,
        observed: Observed,
        fitted: Fitted,
        vectoriser: Vectoriser,
        seen: Seen | None,
        *,
        growing: Answers | None = None,
        name: str = AT_FIT,
    ) -> Reference:
        scale = Scale.of(observed, seen, fitted.positive)
        measured = Measured.of(observed, fitted, vectoriser, scale)
        tallies = tuple(tally for tally in measured.tallies if tally.kind not in OF_ANSWERS)
        return cls(scale, measured.records, tallies, measured.answers, measured.errors, growing, name)

    def measured(self, fitted: Fitted, *, growing: bool = False) -> Measured:
        """What a batch is compared with; `growing` if its sequences are as they were at the end of a period."""
        answers = self.growing if growing and self.growing is not None else self.answers
        confidence = answer_tallies(answers, fitted, self.scale.confidence_E)
        return Measured(self.records, (*self.tallies, *confidence), answers, self.errors)

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write one safetensors file in one step."""
        from safetensors.numpy import save_file

        scale = self.scale
        arrays: dict[str, NDArray[Any]] = {
            "counts": np.concatenate([tally.counts_GJ.ravel() for tally in self.tallies]),
            "effects": np.array([tally.effect for tally in self.tallies]),
            "reconstruction": scale.reconstruction_E,
            "quantisation": scale.quantisation_E,
            "confidence": scale.confidence_E,
        }
        parts = {"answers": self.answers} | ({} if self.growing is None else {"growing": self.growing})
        for name, answers in parts.items():
            arrays |= {f"{name}.{key}": value for key, value in vars(answers).items()}
        if scale.seen is not None:
            arrays |= {f"seen.{name}": hashes for name, hashes in scale.seen.hashes.items()}
        facts = {
            "records": self.records,
            "errors": self.errors,
            "name": self.name,
            "seen": scale.seen is not None,
            "tallies": [(t.subject, t.kind, t.counts_GJ.shape, t.ordered) for t in self.tallies],
        }
        with replacing(path) as temporary:
            save_file(
                {name: np.ascontiguousarray(of) for name, of in arrays.items()},
                temporary,
                metadata={"facts": json.dumps(facts)},
            )

    @classmethod
    def load(cls, path: Path) -> Reference:
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
            answers = {
                name: Answers(**{key: arrays[f"{name}.{key}"] for key in ("p_SQ", "label_S", "unit_S")})
                for name in ("answers", "growing")
                if f"{name}.p_SQ" in arrays
            }
            return cls(
                scale,
                facts["records"],
                _tallies(arrays["counts"], arrays["effects"], facts["tallies"]),
                answers["answers"],
                tuple(facts["errors"]),
                answers.get("growing"),
                facts["name"],
            )
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(
                f"the reference of this model cannot be read: {error}", file=path, remedy="save the model again"
            ) from error


#: Tallies that follow from the answers, and are not stored.
OF_ANSWERS: frozenset[Kind] = frozenset({"confidence", "predicted", "label", "right"})


def _tallies(counts: NDArray[np.int64], effects: NDArray[np.float64], facts: Sequence[Any]) -> tuple[Tally, ...]:
    """Tallies from one long array of counts."""
    ends = np.cumsum([groups * cells for _, _, (groups, cells), _ in facts])
    parts = np.split(counts, ends[:-1])
    return tuple(
        Tally(subject, kind, part.reshape(shape), float(effect), ordered)
        for (subject, kind, shape, ordered), part, effect in zip(facts, parts, effects, strict=True)
    )
