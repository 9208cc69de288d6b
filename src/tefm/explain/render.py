"""Explanations for people: a card for the terminal and a page for the browser, with the same words.

Both say everything in text and need no colour; bars repeat a number next to them. The page is one file that loads
nothing from the network. An explanation is also shown as a case, in the layout of the paper: a summary, a paragraph per
set (diagnoses, procedures, drugs), one for the other fields, and below each what corroborates it, all from templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from tefm.explain.cards import Card, printable, quoted, rendered
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


def case_of(explanation: Explanation) -> tuple[Paragraph, ...]:
    """The paragraphs; a field of which nothing is named has none."""
    settling = explanation.settling.findings if explanation.relevant else ()
    effects = {effect.finding: effect for effect in explanation.shown}
    named = dict.fromkeys([*settling, *effects])
    by_heading: dict[str, list[Finding]] = {}
    for finding in sorted(named, key=lambda finding: (finding.record, finding not in settling)):
        heading = finding.words.partition(": ")[0] if finding.of_set else OTHERS
        by_heading.setdefault(heading, []).append(finding)
    if OTHERS in by_heading:  # it comes last
        by_heading[OTHERS] = by_heading.pop(OTHERS)
    summary = (explanation.conclusion, explanation.context, explanation.risk, explanation.doubts)
    first = Paragraph(SUMMARY, " ".join(filter(None, summary)), tuple(filter(None, [explanation.corroborated])))
    return first, *(
        _paragraph(explanation, heading, findings, settling, effects) for heading, findings in by_heading.items()
    )


def _paragraph(
    explanation: Explanation,
    heading: str,
    findings: Sequence[Finding],
    settling: Sequence[Finding],
    effects: Mapping[Finding, Influence],
) -> Paragraph:
    """What each feature does, and what is known about it."""
    alone = explanation.settling.size == 1
    if explanation.verified:
        role = "settles the answer" if alone else "is one of the features that settle the answer"
    else:
        role = "is the best feature found" if alone else "belongs to the best set found"
    sentences, evidence = [], []
    for finding in findings:
        # under the heading of its field, a feature does not repeat it
        words = finding.words if heading == OTHERS else finding.words.partition(": ")[2]
        deeds, notes = [], explanation.cited(finding)
        if (effect := effects.get(finding)) is not None:
            verb = "raises" if effect.change > 0 else "lowers"
            deeds.append(f"{verb} the probability of {quoted(explanation.of_class)} by {abs(effect.change):.3f}")
            notes = [effect.observation, *notes]
        if finding in settling:
            deeds.append(role)
        sentences.append(f"{words}{explanation.place(finding)} {' and '.join(deeds)}.")
        evidence += [f"{words}: {note}" for note in notes if note]
    return Paragraph(heading, " ".join(sentences), tuple(evidence))


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
        row = _bars(Column(no_wrap=True, justify="right", width=max(map(len, intervals))))
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
    ranking = _bars(Column(no_wrap=True))
    for bar in record.bars:
        style = "" if bar.kept else "dim"
        label = f"{bar.weight:.2f} {'selected' if bar.kept else 'not selected'}"
        ranking.add_row(_text(bar.words, style), _bar(bar.weight, kept=bar.kept), _text(label, style))
    if record.unshown:
        ranking.add_row(_text(f"and {record.unshown:,} more selected", "dim"))
    yield Padding(ranking, (1, 0))
    codes = _text("Codes ", "bold").append_text(_text(record.codes))
    yield codes.append(" decode to: ", "bold").append_text(_text(record.decoded_text))


def _answers(rationale: Rationale) -> Table:
    words, right = Column(overflow="fold"), Column(no_wrap=True, justify="right")
    table = Table.grid(words, Column(no_wrap=True), right, Column(overflow="fold"), padding=(0, 2))
    table.add_row(_text("input", "dim"), "", _text("p", "dim"), _text("prediction", "dim"))
    for name, answer in rationale.answers:
        p = answer.probabilities[rationale.predicted]
        table.add_row(_text(name), _bar(p), _text(f"{p:.3f}"), _text(answer.says))
    table.caption = _text(f"p is the probability of {quoted(rationale.predicted)}", "dim")
    table.caption_justify = "left"
    return table


# ---- parts of both ----------------------------------------------------------------------------------------------


def _panel(title: str, parts: Sequence[RenderableType], *, passed: bool) -> Panel:
    style = "green" if passed else "yellow"
    return Panel(Group(*parts), title=_text(title, "bold"), title_align="left", border_style=style)


def _rule(heading: str) -> Rule:
    return Rule(_text(heading, "bold"), align="left", characters="─", style="dim")


def _bars(figures: Column) -> Table:
    """A table of features, bars and figures as wide as the card."""
    return Table.grid(Column(ratio=1, overflow="fold"), Column(no_wrap=True), figures, padding=(0, 1), expand=True)


def _bar(share: float, *, kept: bool = True) -> Text:
    full = round(BAR * share)
    return Text(("█" if kept else "▒") * full + "·" * (BAR - full), style="" if kept else "dim")


def _text(words: str, style: str = "") -> Text:
    """A value from a user's table, without markup or control characters."""
    return Text(printable(words), style=style)


# ---- browser ----------------------------------------------------------------------------------------------------


def cards_page(cards: Sequence[Card], title: str = "Explanations") -> str:
    """All cards as one self-contained page, light or dark, from phone to print."""
    return rendered("cards.html", title=title, cards=cards, case_of=case_of)
