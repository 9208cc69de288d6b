"""An explanation as a case, in the layout of the paper: a summary, a paragraph per set (diagnoses, procedures, drugs),
one for the other fields, and below each what corroborates it.

Everything comes from templates: a sentence names a feature, what it does to the probability, and whether it settles the
answer. It needs no torch, so that a stored explanation can be shown anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from tefm.rationale.explanation import Explanation, Finding, Influence
from tefm.rationale.parts import printable, quoted

SUMMARY, OTHERS = "Summary", "Other fields"


@dataclass(frozen=True)
class Paragraph:
    """A heading, its sentences, and the evidence from outside the model."""

    heading: str
    words: str
    corroboration: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Point:
    """A feature that the explanation names: because it settles the answer, because it has an effect, or for both."""

    finding: Finding
    settles: bool
    influence: Influence | None


def case_of(explanation: Explanation) -> tuple[Paragraph, ...]:
    """The paragraphs; a field of which nothing is named has none."""
    by_heading: dict[str, list[_Point]] = {}
    others: list[_Point] = []
    for point in _points(explanation):
        of_set = point.finding.of_set
        (by_heading.setdefault(_title(point.finding), []) if of_set else others).append(point)
    summary = (explanation.conclusion, explanation.context, explanation.risk, explanation.doubts)
    paragraphs = [Paragraph(SUMMARY, " ".join(filter(None, summary)), tuple(filter(None, [explanation.corroborated])))]
    paragraphs += [_paragraph(explanation, heading, points) for heading, points in by_heading.items()]
    if others:
        paragraphs.append(_paragraph(explanation, OTHERS, others))
    return tuple(paragraphs)


def case_text(explanation: Explanation) -> str:
    """The case as plain text."""
    blocks = [printable(explanation.title)]
    for paragraph in case_of(explanation):
        lines = [f"{paragraph.heading}. {paragraph.words}", *(f"  {words}" for words in paragraph.corroboration)]
        blocks.append("\n".join(map(printable, lines)))
    if explanation.sources:
        blocks.append("\n".join(printable(f"[{n}] {of}") for n, of in enumerate(explanation.sources, start=1)))
    return "\n\n".join(blocks)


def _points(explanation: Explanation) -> list[_Point]:
    """All named features, record by record; those that settle the answer first."""
    influences = {_key(of.finding): of for of in (*explanation.supporting, *explanation.opposing)}
    settling = {_key(of): of for of in explanation.settling.findings} if explanation.relevant else {}
    findings = settling | {key: of.finding for key, of in influences.items() if key not in settling}
    points = [_Point(finding, key in settling, influences.get(key)) for key, finding in findings.items()]
    return sorted(points, key=lambda point: (point.finding.record, not point.settles))


def _key(finding: Finding) -> tuple[int, str]:
    return finding.record, finding.words


def _title(finding: Finding) -> str:
    return finding.words.partition(": ")[0]


def _paragraph(explanation: Explanation, heading: str, points: list[_Point]) -> Paragraph:
    sentences, evidence = [], []
    for point in points:
        finding = point.finding
        # under the heading of its field, a feature does not repeat it
        named = finding.words if heading == OTHERS else finding.words.partition(": ")[2]
        place = f" ({explanation.record} {finding.record} of {explanation.records})" if explanation.records > 1 else ""
        sentences.append(f"{named}{place} {' and '.join(_deeds(explanation, point))}.")
        observed = point.influence.observation if point.influence else ""
        notes = [*([observed] if observed else []), *explanation.cited(finding)]
        evidence += [f"{named}: {note}" for note in notes]
    return Paragraph(heading, " ".join(sentences), tuple(evidence))


def _deeds(explanation: Explanation, point: _Point) -> list[str]:
    """What a feature does."""
    deeds = []
    if point.influence is not None:
        change = point.influence.change
        verb = "raises" if change > 0 else "lowers"
        deeds.append(f"{verb} the probability of {quoted(explanation.of_class)} by {abs(change):.3f}")
    if point.settles:
        alone = explanation.settling.size == 1
        if explanation.verified:
            deeds.append("settles the answer" if alone else "is one of the features that settle the answer")
        else:
            deeds.append("is the best feature found" if alone else "belongs to the best set found")
    return deeds
