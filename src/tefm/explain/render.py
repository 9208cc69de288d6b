"""Explanations for people: a card for the terminal and a page for the browser, with the same words.

Both say everything in text and need no colour; bars repeat a number next to them. The page is one file that loads
nothing from the network. An explanation is also shown as a case, in the layout of the paper: a summary, a paragraph per
set (diagnoses, procedures, drugs), one for the other fields, and below each what corroborates it, all from templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tefm.explain.cards import printable, quoted, rendered
from tefm.explain.explanation import Explanation, Finding, Influence
from tefm.explain.rationale_card import Rationale, RationaleRecord

#: Characters of a full bar: leaves more than half of 80 columns for words.
BAR = 16
#: Headings of a case.
SUMMARY, OTHERS = "Summary", "Other fields"


# ---- an explanation as a case -----------------------------------------------------------------------------------


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


# ---- an explanation in a terminal -------------------------------------------------------------------------------


def explanation_card(explanation: Explanation, *, shown: int | None = None) -> RenderableType:
    """One explanation as a card, 80 columns wide or more; with at most `shown` effects of each sign."""
    parts: list[RenderableType] = [_text(explanation.conclusion, "bold")]
    parts += [_text(words) for words in (explanation.context, explanation.corroborated) if words]
    if explanation.relevant:
        for heading, findings in explanation.by_record.items():
            parts += ["", _rule(heading)]
            for finding in findings:
                parts += [_text(f"• {finding.words}"), *(_indented(words) for words in explanation.cited(finding))]
        if explanation.unnamed:
            parts.append(_text(explanation.unnamed, "dim"))
    parts += ["", _rule(f"For and against {quoted(explanation.of_class)}"), _text(explanation.risk)]
    parts += _influences(explanation, shown)
    if explanation.doubts:
        parts += ["", _text(explanation.doubts, "bold yellow")]
    if explanation.blurred:
        parts += ["", _text(explanation.blurred, "dim")]
    return _with_sources(explanation, parts)


def case_card(explanation: Explanation) -> RenderableType:
    """One explanation as a case: paragraphs, with what corroborates each below it."""
    parts: list[RenderableType] = []
    for paragraph in case_of(explanation):
        line = _text(f"{paragraph.heading}. ", "bold").append_text(_text(paragraph.words))
        parts += [line, *map(_indented, paragraph.corroboration), ""]
    if explanation.blurred:
        parts.append(_text(explanation.blurred, "dim"))
    return _with_sources(explanation, parts)


def _with_sources(explanation: Explanation, parts: list[RenderableType]) -> Panel:
    """The parts and the sources below them, under the title."""
    if explanation.sources:
        parts = [*parts, "", *(_text(f"[{n}] {of}", "dim") for n, of in enumerate(explanation.sources, start=1))]
    return _panel(explanation.title, parts, passed=explanation.verdict == "settled")


def _influences(explanation: Explanation, most: int | None) -> list[RenderableType]:
    """The effects as bars, those for the class first; the longest bar is the largest effect."""
    shown = [*explanation.supporting[:most], *explanation.opposing[:most]]
    if not shown:
        return [_text("No single feature changes the probability noticeably.", "dim")]
    largest = max(abs(one.change) for one in shown)
    intervals = [f"{one.change:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for one in shown]
    lines: list[RenderableType] = []
    for one, interval in zip(shown, intervals, strict=True):
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(ratio=1, overflow="fold")
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True, justify="right", width=max(map(len, intervals)))
        bar = _bar(abs(one.change) / largest, kept=one.change > 0)
        row.add_row(_text(explanation.placed(one.finding)), bar, _text(interval))
        lines.append(row)
        lines += [_indented(words) for words in (one.observation, *explanation.cited(one.finding)) if words]
    return lines


def _indented(words: str) -> RenderableType:
    return Padding(_text(words, "dim"), (0, 0, 0, 2))


# ---- a rationale in a terminal ----------------------------------------------------------------------------------


def card(rationale: Rationale) -> RenderableType:
    """One rationale as a card, 80 columns wide or more."""
    parts: list[RenderableType] = [_text(f"Selected: {rationale.kept}."), ""]
    for record in rationale.telling:
        parts += [*_record_lines(rationale, record), ""]
    for remark in (rationale.on_losses, rationale.silent):
        if remark:
            parts += [_text(remark, "dim"), ""]
    parts += [
        _rule(rationale.check.capitalize()),
        _answers(rationale),
        _text(rationale.conclusion, "bold"),
        _text(rationale.measures, "dim"),
    ]
    return _panel(rationale.title, parts, passed=rationale.passed)


def _record_lines(rationale: Rationale, record: RationaleRecord) -> Iterator[RenderableType]:
    yield _rule(rationale.heading(record))
    for group, statements in record.groups.items():
        line = _text(f"{group}. " if group else "", "bold")
        yield line.append_text(_text("; ".join(statement.within for statement in statements) + "."))
    yield Padding(_bars(record), (1, 0))
    yield (
        _text("Codes ", "bold")
        .append_text(_text(record.codes))
        .append(" decode to: ", "bold")
        .append_text(_text(record.decoded_text))
    )


def _bars(record: RationaleRecord) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1, overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for bar in record.bars:
        style = "" if bar.kept else "dim"
        label = f"{bar.weight:.2f} {'selected' if bar.kept else 'not selected'}"
        table.add_row(_text(bar.words, style), _bar(bar.weight, kept=bar.kept), _text(label, style))
    if record.unshown:
        table.add_row(_text(f"and {record.unshown:,} more selected", "dim"), "", "")
    return table


def _answers(rationale: Rationale) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    table.add_row(_text("input", "dim"), "", _text("p", "dim"), _text("prediction", "dim"))
    for name, answer in rationale.answers:
        p = answer.probabilities[rationale.predicted]
        table.add_row(_text(name), _bar(p), _text(f"{p:.3f}"), _text(answer.says))
    table.caption = _text(f"p is the probability of {quoted(rationale.predicted)}", "dim")
    table.caption_justify = "left"
    return table


def _panel(title: str, parts: Sequence[RenderableType], *, passed: bool) -> Panel:
    style = "green" if passed else "yellow"
    return Panel(Group(*parts), title=_text(title, "bold"), title_align="left", border_style=style)


def _rule(heading: str) -> Rule:
    return Rule(_text(heading, "bold"), align="left", characters="─", style="dim")


def _bar(share: float, *, kept: bool = True) -> Text:
    full = round(BAR * share)
    return Text(("█" if kept else "▒") * full + "·" * (BAR - full), style="" if kept else "dim")


def _text(words: str, style: str = "") -> Text:
    """A value from a user's table, without markup or control characters."""
    return Text(printable(words), style=style)


# ---- browser ----------------------------------------------------------------------------------------------------


def explanations_page(explanations: Sequence[Explanation], title: str = "Explanations") -> str:
    """All explanations as one self-contained page."""
    return rendered("explanations.html", title=title, explanations=explanations, case_of=case_of)


def to_html(rationales: Sequence[Rationale], title: str = "Rationales") -> str:
    """All rationales as one self-contained page, light or dark, from phone to print."""
    return rendered("rationales.html", title=title, rationales=rationales)
