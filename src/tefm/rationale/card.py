"""One verified rationale in words: what was kept, record by record, and what the model made of it.

The words come from the schema by template. Statements, what the codes give back of them, and the text are made of kept
slots alone: what was not kept carried nothing of the answer that was checked, so it is not said as if it had. The bars
show the ranking, where other present slots stand too, each named as it is and marked as not kept.

Shapes: N records of one sequence, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from tefm.base.errors import InputError
from tefm.rationale.verdict import Verdict

if TYPE_CHECKING:  # a stored rationale is shown at once, without torch and the table's libraries
    from tefm.rationale.masked_model import Keep
    from tefm.rationale.verify import Verification
    from tefm.records.layout import Slots
    from tefm.records.vectorise import Vectoriser

#: Highest ranked present slots of a record that are shown as bars.
BARS = 12


@dataclass(frozen=True)
class Answer:
    """What the model says of some of the features."""

    says: str
    #: per class
    probabilities: dict[str, float]

    @property
    def p(self) -> float:
        """The probability of what it says."""
        return self.probabilities[self.says]


@dataclass(frozen=True)
class Retention:
    """How much was kept, counted in slots."""

    kept: int
    present: int
    slots: int

    @property
    def of_slots(self) -> float:
        return self.kept / max(self.slots, 1)

    @property
    def of_present(self) -> float:
        return self.kept / max(self.present, 1)


@dataclass(frozen=True)
class KeptStatement:
    """A field in words, with the slots it rests on and the largest of their weights."""

    field: str
    group: str | None
    words: str
    slots: tuple[int, ...]
    weight: float

    @property
    def within(self) -> str:
        """The words below the heading of their group: a field that is called like its group is not named twice."""
        return self.words.removeprefix(f"{self.group}: ") if self.group else self.words


@dataclass(frozen=True)
class Bar:
    """A present slot with its place in the ranking, 1 for the highest of the sequence."""

    #: field and value, of a set one member
    words: str
    weight: float
    kept: bool


@dataclass(frozen=True)
class RationaleRecord:
    """What was kept of one record."""

    #: 1 is the first
    number: int
    #: when it was, or what it is called
    label: str | None
    #: the codes of the whole record, as tokens
    codes: str
    statements: tuple[KeptStatement, ...]
    #: what those codes give back of the slots of each statement; empty where nothing comes back
    decoded: tuple[str, ...]
    bars: tuple[Bar, ...]

    @property
    def groups(self) -> dict[str | None, list[KeptStatement]]:
        """The statements by group, in the order of the schema."""
        found: dict[str | None, list[KeptStatement]] = {}
        for statement in self.statements:
            found.setdefault(statement.group, []).append(statement)
        return found

    @property
    def text(self) -> str:
        """One sentence per group."""
        said = [(f"{group}: " if group else "") + _listed(kept) for group, kept in self.groups.items()]
        return " ".join(f"{sentence}." for sentence in said) or "Nothing kept."

    @property
    def decoded_text(self) -> str:
        """What the codes give back, and where that differs from the record."""
        said = []
        for statement, words in zip(self.statements, self.decoded, strict=True):
            if words == statement.words:
                said.append(words)
            else:
                value = statement.words.partition(": ")[2]  # both begin with the name of the field
                said.append(f"{words} [not {value}]" if words else f"[lost: {statement.words}]")
        return "; ".join(said)

    @property
    def lossless(self) -> bool:
        """Whether the codes give back all that was kept."""
        return all(words == one.words for one, words in zip(self.statements, self.decoded, strict=True))

    @property
    def unshown(self) -> int:
        """The kept slots that have no bar."""
        return sum(len(statement.slots) for statement in self.statements) - sum(bar.kept for bar in self.bars)


@dataclass(frozen=True)
class Rationale:
    """The few features that a prediction rests on, and how the model answers with and without them."""

    #: what the sequences are called (a patient, a host), and which one this is
    entity: str
    sequence: str
    #: what one record is called
    record: str
    classes: tuple[str, ...]
    full: Answer
    alone: Answer
    without: Answer
    nothing: Answer
    verdict: Verdict
    passed: bool
    sufficiency: float
    comprehensiveness: float
    retention: Retention
    records: tuple[RationaleRecord, ...]
    #: the column that holds the classes
    label: str | None = None

    @property
    def predicted(self) -> str:
        return self.full.says

    @property
    def title(self) -> str:
        return f"{self.entity} {self.sequence}: {self.named(self.predicted)} (p = {self.full.p:.2f})"

    def named(self, name: str) -> str:
        """A class with its column: a bare 0 or yes says little."""
        return f"{self.label} = {name}" if self.label else name

    @property
    def kept(self) -> str:
        """The retention in words, counted both ways."""
        r = self.retention
        return f"{r.kept:,} of {r.present:,} present features ({r.of_present:.1%}), {r.of_slots:.1%} of all {r.slots:,}"

    @property
    def telling(self) -> tuple[RationaleRecord, ...]:
        """The records of which something was kept."""
        return tuple(record for record in self.records if record.statements)

    @property
    def silent(self) -> str:
        """The other records in words; empty when there is none."""
        numbers = [record.number for record in self.records if not record.statements]
        if not numbers:
            return ""
        return f"Nothing kept of {self.record}{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}."

    @property
    def text(self) -> str:
        """All that was kept, in words."""
        said = [f"{self.heading(record)}: {record.text}" for record in self.telling]
        return " ".join([*said, self.silent]).strip()

    def heading(self, record: RationaleRecord) -> str:
        """What a record is called above its words."""
        name = f"{self.record.capitalize()} {record.number} of {len(self.records)}"
        return f"{name} ({record.label})" if record.label else name

    @property
    def on_losses(self) -> str:
        """What it means where the codes do not give back what was kept; empty where they do."""
        if all(record.lossless for record in self.records):
            return ""
        return (
            f"In brackets: what the {self.record} says and its codes do not give back. The model reads codes, not "
            "features, so it answers from what the codes did keep; the check codes the kept features again, alone."
        )

    @property
    def conclusion(self) -> str:
        """What the check found, in plain words."""
        one = self.retention.kept == 1
        these = "this feature" if one else f"these {self.retention.kept:,} features"
        them, give = ("it", "gives") if one else ("them", "give")
        several = len(self.records) > 1
        records = f"{self.record}s" if several else self.record
        alone = self.alone.probabilities[self.predicted]
        nothing = self.nothing.probabilities[self.predicted]
        if self.verdict == "default":
            return (
                f"The model says the same of {'empty' if several else 'an empty'} {records}, {quoted(self.predicted)} "
                f"(p = {nothing:.2f}, with all features {self.full.p:.2f}): "
                f"nothing in {'these' if several else 'this'} {records} argues for it beyond that."
            )
        if not self.retention.kept:
            said = f"{quoted(self.nothing.says)} (p = {self.nothing.p:.2f})"
            return f"No feature is kept, and of nothing the model says {said}."
        if self.alone.says != self.predicted:
            return (
                f"{these.capitalize()} alone {'does' if one else 'do'} not give the same answer: "
                f"{quoted(self.alone.says)} (p = {self.alone.p:.2f}) instead of {quoted(self.predicted)} "
                f"(p = {self.full.p:.2f})."
            )
        same = f"Kept alone, {these} {give} the same answer, {quoted(self.predicted)} (p = {alone:.2f})"
        if self.verdict == "insufficient":
            return (
                f"{same}, but too little of the evidence for it: nothing gives p = {nothing:.2f}, "
                f"the whole {records} p = {self.full.p:.2f}."
            )
        if self.without.says == self.predicted:
            return (
                f"{same}; the rest of the {records} alone gives the same answer too (p = {self.without.p:.2f}): "
                f"the evidence is redundant."
            )
        return f"{same}; without {them} the model says {quoted(self.without.says)} (p = {self.without.p:.2f})."


# ---- from arrays ------------------------------------------------------------------------------------------------


def describe_rationale(
    vectoriser: Vectoriser,
    x_ND: Slots,
    keep_ND: Keep,
    scores_ND: NDArray[np.floating[Any]],
    verification: Verification,
    *,
    sequence: str,
    classes: Sequence[str],
    codes: Sequence[str],
    decoded_ND: Slots,
    labels: Sequence[str | None] | None = None,
    bars: int = BARS,
) -> Rationale:
    """The rationale of one sequence in words, out of what selection, ranking and verification found.

    `codes` are those of the whole records as tokens, `decoded_ND` the slots that they give back, `labels` say when
    each record was.
    """
    from tefm.records.describe import statements

    assert x_ND.shape == keep_ND.shape == scores_ND.shape == decoded_ND.shape, "one row per record, one column per slot"
    assert len(codes) == len(x_ND), "one code per record"
    schema = vectoriser.table_schema
    present_ND = x_ND > 0
    keep_ND = keep_ND & present_ND
    weight_ND = _weights(scores_ND, present_ND)

    def answer(label: int, probabilities: Sequence[float]) -> Answer:
        return Answer(classes[label], {name: float(p) for name, p in zip(classes, probabilities, strict=True)})

    def described(i: int) -> RationaleRecord:
        said = statements(vectoriser, np.where(keep_ND[i], x_ND[i], 0))
        given_back = {
            decoded.field: decoded.words for decoded in statements(vectoriser, np.where(keep_ND[i], decoded_ND[i], 0))
        }
        return RationaleRecord(
            number=i + 1,
            label=labels[i] if labels is not None else None,
            codes=codes[i],
            statements=tuple(
                KeptStatement(one.field, one.group, one.words, one.slots, float(weight_ND[i, list(one.slots)].max()))
                for one in said
            ),
            decoded=tuple(given_back.get(one.field, "") for one in said),
            bars=_bars(vectoriser, x_ND[i], weight_ND[i], keep_ND[i], bars),
        )

    return Rationale(
        entity=schema.entity or "sequence",
        sequence=sequence,
        record=schema.record,
        classes=tuple(classes),
        full=answer(verification.label, verification.full),
        alone=answer(verification.label_alone, verification.alone),
        without=answer(verification.label_without, verification.without),
        nothing=answer(verification.label_nothing, verification.nothing),
        verdict=verification.verdict,
        passed=verification.passed,
        sufficiency=float(verification.sufficiency),
        comprehensiveness=float(verification.comprehensiveness),
        retention=Retention(int(keep_ND.sum()), int(present_ND.sum()), x_ND.size),
        records=tuple(described(i) for i in range(len(x_ND))),
        label=schema.label,
    )


def _weights(scores_ND: NDArray[np.floating[Any]], present_ND: Keep) -> NDArray[np.float64]:
    """Scores as shares of the highest of the sequence; a ranking below 0 begins at its lowest score."""
    scores_ND = scores_ND.astype(np.float64)
    ranked = scores_ND[present_ND & np.isfinite(scores_ND)]
    low, high = ranked.min(initial=0.0), ranked.max(initial=-np.inf)
    if high <= low:  # no slot is better than another
        return present_ND.astype(np.float64)
    weight_ND: NDArray[np.float64] = np.where(present_ND, np.clip((scores_ND - low) / (high - low), 0, 1), 0.0)
    return weight_ND


def _bars(
    vectoriser: Vectoriser,
    x_D: Slots,
    weight_D: NDArray[np.float64],
    keep_D: Keep,
    most: int,
) -> tuple[Bar, ...]:
    """The highest ranked present slots; of two with the same weight the kept one first."""
    from tefm.records.describe import statements

    present = np.flatnonzero(x_D)
    order = present[np.lexsort((~keep_D[present], -weight_D[present]))][:most]

    def words(at: int) -> str:
        only_D = np.zeros_like(x_D)
        only_D[at] = x_D[at]
        return statements(vectoriser, only_D)[0].words

    return tuple(Bar(words(at), float(weight_D[at]), bool(keep_D[at])) for at in order.tolist())


# ---- to machines and back ---------------------------------------------------------------------------------------


def to_json(rationale: Rationale) -> dict[str, Any]:
    """Plain types, with the words beside them; `from_json` reads them back."""
    body: dict[str, Any] = _adapter().dump_python(rationale, mode="json")
    return body | {"text": rationale.text, "conclusion": rationale.conclusion}


def from_json(body: Any) -> Rationale:
    """The rationale that `to_json` wrote."""
    try:
        return _adapter().validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or None
        raise InputError(
            f"this is no rationale: {first['msg']}",
            column=where,
            remedy="give what `to_json` or `tefm explain --json` wrote, unchanged",
        ) from error


@cache
def _adapter() -> TypeAdapter[Rationale]:
    return TypeAdapter(Rationale)


# ---- words ------------------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """A class within a sentence, where a bare 1 or normal would be misread.

    >>> quoted("1")
    '“1”'
    """
    return f"“{name}”"


def _listed(kept: Sequence[KeptStatement]) -> str:
    return "; ".join(statement.within for statement in kept)


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in words.

    >>> _ranges([1, 2, 3, 5, 7, 8])
    '1–3, 5, 7–8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
