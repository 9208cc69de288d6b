"""Rationales for people: a card for the terminal and a page for the browser, out of the same words.

Both say everything in text and need no colour; bars only repeat what stands beside them. The page is one file that
asks no network for anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tefm.rationale.card import Answer, Bar, Rationale, RationaleRecord, quoted

#: Cells of a full bar: leaves the words more than half of 80 columns.
BAR = 16


def readings(rationale: Rationale) -> list[tuple[str, Answer]]:
    """What the model was shown, and what it said."""
    return [
        ("all features", rationale.full),
        ("the rationale alone", rationale.alone),
        ("all but the rationale", rationale.without),
        ("nothing", rationale.nothing),
    ]


def seal(rationale: Rationale) -> str:
    """The verdict in a word or two."""
    return ("passed" if rationale.passed else "not passed") + f": {rationale.verdict}"


# ---- terminal ---------------------------------------------------------------------------------------------------


def card(rationale: Rationale) -> RenderableType:
    """One rationale as a card, 80 columns wide or more."""
    parts: list[RenderableType] = [_text(f"Kept: {rationale.kept}."), ""]
    for record in rationale.telling:
        parts += [*_record_lines(rationale, record), ""]
    if rationale.on_losses:
        parts += [_text(rationale.on_losses, "dim"), ""]
    if rationale.silent:
        parts += [_text(rationale.silent, "dim"), ""]
    parts += [Rule(_text(f"Check, {seal(rationale)}", "bold"), align="left", characters="─", style="dim")]
    parts += [_answers(rationale), _text(rationale.conclusion, "bold")]
    parts.append(
        _text(f"Sufficiency {rationale.sufficiency:z.3f}, comprehensiveness {rationale.comprehensiveness:z.3f}.", "dim")
    )
    return Panel(
        Group(*parts),
        title=_text(rationale.title, "bold"),
        title_align="left",
        border_style="green" if rationale.passed else "yellow",
    )


def _record_lines(rationale: Rationale, record: RationaleRecord) -> Iterator[RenderableType]:
    yield Rule(_text(rationale.heading(record), "bold"), align="left", characters="─", style="dim")
    for group, kept in record.groups.items():
        line = _text(f"{group}. " if group else "", "bold")
        yield line.append_text(_text("; ".join(statement.within for statement in kept) + "."))
    bars = Table.grid(padding=(0, 1))
    bars.add_column(ratio=1, overflow="fold")
    bars.add_column(no_wrap=True)
    bars.add_column(no_wrap=True)
    for bar in record.bars:
        bars.add_row(
            _text(bar.words, "" if bar.kept else "dim"),
            _bar(bar.weight, kept=bar.kept),
            _text(f"{bar.weight:.2f} {'kept' if bar.kept else 'not kept'}", "" if bar.kept else "dim"),
        )
    if record.unshown:
        bars.add_row(_text(f"and {record.unshown:,} more, kept", "dim"), "", "")
    bars.expand = True
    yield Padding(bars, (1, 0))
    yield (
        _text("Codes ", "bold")
        .append_text(_text(record.codes))
        .append(" decode to: ", "bold")
        .append_text(_text(record.decoded_text))
    )


def _answers(rationale: Rationale) -> Table:
    shown = Table.grid(padding=(0, 2))
    shown.add_column(overflow="fold")
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True, justify="right")
    shown.add_column(overflow="fold")
    shown.add_row(_text("shown to the model", "dim"), "", _text("p", "dim"), _text("it says", "dim"))
    for name, answer in readings(rationale):
        p = answer.probabilities[rationale.predicted]
        shown.add_row(_text(name), _bar(p), _text(f"{p:.3f}"), _text(answer.says))
    shown.caption = _text(f"p is the probability of {quoted(rationale.predicted)}", "dim")
    shown.caption_justify = "left"
    return shown


def _bar(share: float, *, kept: bool = True) -> Text:
    full = round(BAR * share)
    return Text(("█" if kept else "▒") * full + "·" * (BAR - full), style="" if kept else "dim")


def _text(words: str, style: str = "") -> Text:
    """A value of somebody's table as it is: no markup, and no character that a terminal obeys."""
    return Text("".join(c if c.isprintable() else " " for c in words), style=style)


# ---- browser ----------------------------------------------------------------------------------------------------

#: What the page of rationales and the report look like.
STYLE = """
:root { color-scheme: light dark; --ground: #fff; --card: #f6f7f9; --ink: #16191d; --soft: #565e69; --line: #cfd4da;
  --bar: #1f6feb; --other: #8a929c; --good: #14692b; --doubt: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ground: #0f1216; --card: #181c22; --ink: #e8eaed; --soft: #a4acb6;
  --line: #343b44; --bar: #6ea8fe; --other: #767f8a; --good: #6fd08c; --doubt: #f0b35a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 54rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin: 0; } h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; margin: 1rem 0; }
p { margin: .35rem 0; } .soft, .no { color: var(--soft); } a { color: var(--bar); }
.seal { font-weight: 600; color: var(--doubt); } .passed .seal { color: var(--good); }
table { width: 100%; table-layout: fixed; border-collapse: collapse; margin: .5rem 0; }
caption { text-align: left; color: var(--soft); }
th, td { text-align: left; vertical-align: top; padding: .2rem .5rem .2rem 0; font-weight: inherit; }
th:first-child { width: 50%; } .answers th:first-child { width: 32%; } .answers th:last-child { width: 26%; }
thead { color: var(--soft); font-size: .875rem; }
.bar { display: flex; align-items: center; gap: .5rem; font-variant-numeric: tabular-nums; }
.track { flex: 1; height: .7rem; min-width: 2rem; border: 1px solid var(--line); border-radius: .2rem; }
.bar span:last-child { white-space: nowrap; } .mask .bar span:last-child { width: 6.5rem; }
.track i { display: block; height: 100%; background: var(--bar); } .no .track i { background: var(--other); }
code { font-size: .875rem; }
@media (max-width: 30rem) { body { padding: .5rem; } article { padding: .75rem; } }
@media print { article { break-inside: avoid; } }
"""


def to_html(rationales: Sequence[Rationale], title: str = "Rationales") -> str:
    """One page that stands alone: light or dark as the reader has it, from phone to print."""
    listed = "".join(
        f'<li><a href="#r{i}">{escape(rationale.title)}</a> <span class="soft">{escape(seal(rationale))}</span></li>'
        for i, rationale in enumerate(rationales, start=1)
    )
    contents = f'<nav aria-label="Rationales"><ol>{listed}</ol></nav>' if len(rationales) > 1 else ""
    cards = "".join(article(rationale, f"r{i}") for i, rationale in enumerate(rationales, start=1))
    return whole_page(title, f"{contents}\n{cards}")


def whole_page(title: str, inside: str, style: str = "") -> str:
    """One HTML file that asks no network for anything; `inside` is HTML already, `style` is added to ours."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{inside}</main>
</body>
</html>
"""


def article(rationale: Rationale, anchor: str) -> str:
    """One rationale as a card of a page in this `STYLE`."""
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td>{_track(p := answer.probabilities[rationale.predicted], f"{p:.3f}")}</td>'
        f"<td>{escape(answer.says)}</td></tr>\n"
        for name, answer in readings(rationale)
    )
    remarks = "".join(
        f'<p class="soft">{escape(words)}</p>' for words in (rationale.on_losses, rationale.silent) if words
    )
    return f"""<article id="{anchor}" aria-labelledby="{anchor}-title"{' class="passed"' if rationale.passed else ""}>
<h2 id="{anchor}-title">{escape(rationale.title)}</h2>
<p class="soft">Kept: {escape(rationale.kept)}</p>
<p><span class="seal">{escape(seal(rationale).capitalize())}.</span> {escape(rationale.conclusion)}</p>
<table class="answers"><caption>Probability of {escape(quoted(rationale.predicted))}</caption>
<thead><tr><th scope="col">shown to the model</th><th scope="col">p</th><th scope="col">it says</th></tr></thead>
<tbody>
{rows}</tbody></table>
<p class="soft">Sufficiency {rationale.sufficiency:z.3f}, comprehensiveness {rationale.comprehensiveness:z.3f}</p>
{"".join(_section(rationale, record) for record in rationale.telling)}{remarks}
</article>
"""


def _section(rationale: Rationale, record: RationaleRecord) -> str:
    paragraphs = ""
    for group, kept in record.groups.items():
        said = "; ".join(
            f'<span data-field="{escape(s.field)}" data-slots="{" ".join(map(str, s.slots))}">{escape(s.within)}</span>'
            for s in kept
        )
        paragraphs += f"<p>{f'<b>{escape(group)}.</b> ' if group else ''}{said}.</p>\n"
    return f"""<section>
<h3>{escape(rationale.heading(record))}</h3>
{paragraphs}<table class="mask"><caption>The mask: highest ranked features</caption>
<thead><tr><th scope="col">feature</th><th scope="col">weight</th></tr></thead>
<tbody>
{"".join(_bar_row(bar) for bar in record.bars)}</tbody></table>
{f'<p class="soft">and {record.unshown:,} more, kept</p>' if record.unshown else ""}
<p>Codes <code>{escape(record.codes)}</code> decode to: {escape(record.decoded_text)}</p>
</section>
"""


def _bar_row(bar: Bar) -> str:
    label = f"{bar.weight:.2f} {'kept' if bar.kept else 'not kept'}"
    shown = "" if bar.kept else ' class="no"'
    return f'<tr{shown}><th scope="row">{escape(bar.words)}</th><td>{_track(bar.weight, label)}</td></tr>\n'


def _track(share: float, label: str) -> str:
    drawn = f'<span class="track" aria-hidden="true"><i style="width:{100 * share:.1f}%"></i></span>'
    return f'<span class="bar">{drawn}<span>{label}</span></span>'
