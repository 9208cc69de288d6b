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
#: Effects of single features of each sign that a card in a terminal shows.
SHORT = 3
#: Conditions that such a card shows of a rule that settles nothing.
SOME = 6
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
    shares = explanation.joint.shares if settling and explanation.joint is not None else ()
    effects = {effect.finding: effect for effect in (*explanation.shown, *shares)}
    named = dict.fromkeys([*settling, *effects])
    by_heading: dict[str, list[Finding]] = {}
    for finding in sorted(named, key=lambda finding: (finding.record, finding not in settling)):
        heading = finding.words.partition(": ")[0] if finding.of_set else OTHERS
        by_heading.setdefault(heading, []).append(finding)
    if OTHERS in by_heading:  # it comes last
        by_heading[OTHERS] = by_heading.pop(OTHERS)
    risk = explanation.risk if explanation.shown else ""
    remarks = (explanation.balanced, explanation.other_values, explanation.doubts)
    summary = (explanation.conclusion, explanation.effect, risk, *remarks)
    checks = tuple(filter(None, [explanation.made_up, explanation.real, explanation.opposite]))
    return Paragraph(SUMMARY, " ".join(filter(None, summary)), checks), *(
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
        role = "settles the answer" if alone else "is one of the conditions that settle the answer"
    else:
        role = "is the best rule found" if alone else "belongs to the best rule found"
    sentences, evidence = [], []
    for finding in findings:
        # under the heading of its field, a feature does not repeat it
        words = finding.words if heading == OTHERS else finding.words.partition(": ")[2]
        deeds, notes = [], explanation.cited(finding)
        if (effect := effects.get(finding)) is not None:
            verb = "raises" if effect.change > 0 else "lowers"
            of_class = explanation.of_class if effect in explanation.shown else explanation.answer.says
            deeds.append(f"{verb} the probability of {quoted(of_class)} by {abs(effect.change):.3f}")
            notes = [effect.observation, *notes]
        if finding in settling:
            deeds.append(role)
        sentences.append(f"{words}{explanation.place(finding)} {' and '.join(deeds)}.")
        evidence += [f"{words}: {note}" for note in notes if note]
    return Paragraph(heading, " ".join(sentences), tuple(evidence))


# ---- an explanation in a terminal -------------------------------------------------------------------------------


def explanation_card(explanation: Explanation, *, bibliography: bool = False) -> RenderableType:
    """One explanation as a card, 80 columns wide or more; its sources are listed with `bibliography`."""
    parts: list[RenderableType] = [_text(explanation.conclusion, "bold")]
    if explanation.relevant and explanation.settling.findings:
        parts += [_rule_table(explanation), *_levels(explanation)]
    remarks = (explanation.made_up, explanation.real, explanation.opposite, explanation.balanced)
    parts += [_text(words) for words in (*remarks, explanation.other_values) if words]
    if explanation.influences:
        parts += [_rule(f"For and against {quoted(explanation.of_class)}"), _text(explanation.risk)]
        parts += _influences(explanation)
    if explanation.doubts:
        parts.append(_text(explanation.doubts, "bold yellow"))
    if len(explanation.lossy) > 1:
        parts.append(_text(f"The codes that the model reads blur {len(explanation.lossy)} of these values.", "dim"))
    elif explanation.blurred:
        parts.append(_text(explanation.blurred, "dim"))
    return _with_sources(explanation, parts, bibliography)


def _rule_table(explanation: Explanation) -> Table:
    """The conditions, each with its share in the joint effect, the precision without it, and what references say."""
    shares = () if explanation.joint is None else explanation.joint.shares
    figures = [Column(no_wrap=True, justify="right") for _ in range(2)]
    table = Table.grid(Column(ratio=1, overflow="fold"), *figures, padding=(0, 1), expand=True)
    if shares:
        without = "without it" if explanation.settling.without else ""
        table.add_row("", _text("effect", "dim"), _text(without, "dim"))
    findings = explanation.settling.findings
    most = len(findings) if explanation.verified else SOME
    for number, finding in enumerate(findings[:most]):
        effect = f"{shares[number].change:+.2f}" if shares else ""
        if shares and shares[number].high > shares[number].low:
            effect += f" ±{(shares[number].high - shares[number].low) / 2:.2f}"
        precision = explanation.settling.without[number] if explanation.settling.without else None
        without = "" if precision is None else f"{precision.value:.0%}"
        table.add_row(_text(f"• {explanation.placed(finding)}"), _text(effect), _text(without))
        words = shares[number].observation if shares and shares[number].words else ""
        for line in filter(None, [words, *explanation.cited(finding)]):
            table.add_row(_indented(line), "", "")
    if len(findings) > most:
        table.add_row(_text(f"and {len(findings) - most} more", "dim"), "", "")
    return table


def _levels(explanation: Explanation) -> Iterator[RenderableType]:
    """The probability of the answer with the rule, without it, and of everybody, as bars from 0 to 1."""
    if not explanation.levels:
        return
    table = _bars(Column(no_wrap=True, justify="right"))
    for words, p in explanation.levels:
        table.add_row(_text(words), _bar(p), _text(f"{p:.2f}"))
    yield table


def case_card(explanation: Explanation, *, bibliography: bool = False) -> RenderableType:
    """One explanation as a case: paragraphs, with what corroborates each below it."""
    parts: list[RenderableType] = []
    for paragraph in case_of(explanation):
        line = _text(f"{paragraph.heading}. ", "bold").append_text(_text(paragraph.words))
        parts += [line, *map(_indented, paragraph.corroboration), ""]
    if explanation.blurred:
        parts.append(_text(explanation.blurred, "dim"))
    return _with_sources(explanation, parts, bibliography)


def _with_sources(explanation: Explanation, parts: list[RenderableType], bibliography: bool) -> Panel:
    """The parts and the sources below them, under the title."""
    if explanation.sources and not bibliography:
        count = len(explanation.sources)
        parts = [*parts, _text(f"{count} source{'s' * (count > 1)} cited: --bibliography lists them", "dim")]
    elif explanation.sources:
        parts = [*parts, "", *(_text(f"[{n}] {of}", "dim") for n, of in enumerate(explanation.sources, start=1))]
    return _panel(explanation.title, parts, passed=explanation.verdict == "settled")


def _influences(explanation: Explanation) -> list[RenderableType]:
    """The effects of single features as bars on a scale from 0 to 1, those for the class first."""
    shown = [*explanation.supporting[:SHORT], *explanation.opposing[:SHORT]]
    if not shown:
        return [_text("No single feature changes the probability noticeably.", "dim")]
    table = _bars(Column(no_wrap=True, justify="right"))
    for one in shown:
        bar = _bar(abs(one.change), kept=one.change > 0)
        table.add_row(_text(explanation.placed(one.finding)), bar, _text(f"{one.change:+.3f} ({one.interval})"))
    return [table]


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
