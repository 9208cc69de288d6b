"""Explanations for people: a card for the terminal and a page for the browser, with the same words.

Both say everything in text and need no colour; bars repeat a number next to them. The page is one file that loads
nothing from the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from tefm.explain.cards import Card, printable, quoted, rendered
from tefm.explain.explanation import Explanation
from tefm.explain.rationale_card import Rationale

#: Characters of a full bar: leaves more than half of 80 columns for words.
BAR = 16
#: Effects of single features of each sign that a card in a terminal shows.
SHORT = 3
#: Conditions that such a card shows of a rule that settles nothing.
SOME = 6
#: Lines of such a card for conditions and similar cases together.
LINES = 9


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
    parts += _similar(explanation)
    if explanation.doubts:
        parts.append(_text(explanation.doubts, "bold yellow"))
    if len(explanation.lossy) > 1:
        parts.append(_text(f"The codes that the model reads blur {len(explanation.lossy)} of these values.", "dim"))
    elif explanation.blurred:
        parts.append(_text(explanation.blurred, "dim"))
    if explanation.sources and not bibliography:
        count = len(explanation.sources)
        parts.append(_text(f"{count} source{'s' * (count > 1)} cited: --bibliography lists them", "dim"))
    elif explanation.sources:
        parts += ["", *(_text(f"[{n}] {of}", "dim") for n, of in enumerate(explanation.sources, start=1))]
    return _panel(explanation.title, parts, passed=explanation.verdict == "settled")


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
            table.add_row(Padding(_text(line, "dim"), (0, 0, 0, 2)), "", "")
    if len(findings) > most:
        table.add_row(_text(f"and {len(findings) - most} more", "dim"), "", "")
    return table


def _similar(explanation: Explanation) -> Iterator[RenderableType]:
    """A line for each of the most similar cases, fewer below a long rule: the page has all of them."""
    if explanation.similar is None:
        return
    cases = explanation.similar[: max(1, LINES - explanation.settling.size)]
    left_out = len(explanation.similar) - len(cases)
    yield _rule(explanation.similar_cases + (f" ({left_out} more on the page, --out)" if left_out else ""))
    for case in cases:
        line = _text(f"{case.title}; {'; '.join(explanation.differences(case))}")
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line


def _levels(explanation: Explanation) -> Iterator[RenderableType]:
    """The probability of the answer with the rule, without it, and of everybody, as bars from 0 to 1."""
    if not explanation.levels:
        return
    table = _bars()
    for words, p in explanation.levels:
        table.add_row(_text(words), _bar(p), _text(f"{p:.2f}"))
    yield table


def _influences(explanation: Explanation) -> list[RenderableType]:
    """The effects of single features as bars on a scale from 0 to 1, those for the class first."""
    shown = [*explanation.supporting[:SHORT], *explanation.opposing[:SHORT]]
    if not shown:
        return [_text("No single feature changes the probability noticeably.", "dim")]
    table = _bars()
    for one in shown:
        bar = _bar(abs(one.change), kept=one.change > 0)
        table.add_row(_text(explanation.placed(one.finding)), bar, _text(f"{one.change:+.3f} ({one.interval})"))
    return [table]


# ---- a rationale in a terminal ----------------------------------------------------------------------------------


def card(rationale: Rationale) -> RenderableType:
    """One rationale as a card, 80 columns wide or more."""
    parts: list[RenderableType] = [_text(f"Selected: {rationale.kept}.")]
    parts += [_text(f"• {rationale.placed(finding)}") for finding in rationale.findings]
    parts += [_text(rationale.blurred, "dim")] if rationale.blurred else []
    parts += [_rule(rationale.check.capitalize()), _answers(rationale), _text(rationale.conclusion, "bold")]
    return _panel(rationale.title, [*parts, _text(rationale.measures, "dim")], passed=rationale.passed)


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


def _bars() -> Table:
    """A table of features, bars and figures as wide as the card."""
    figures = Column(no_wrap=True, justify="right")
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
    return rendered("cards.html", title=title, cards=cards)
