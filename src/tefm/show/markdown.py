"""The little Markdown that tables say about themselves, as HTML: paragraphs, lists, code, bold, emphasis, links."""

from __future__ import annotations

import re
from html import escape

_FENCE = re.compile(r"^```.*?\n(.*?)^```\s*$", re.M | re.S)
_BULLET = re.compile(r"^\s*[-*] ")


def to_html(text: str) -> str:
    """Blocks are parted by empty lines.

    >>> to_html("**Ours** is `a < b`.\\n\\n- one\\n- two")
    '<p><b>Ours</b> is <code>a &lt; b</code>.</p>\\n<ul><li>one</li><li>two</li></ul>\\n'
    """
    parts = []
    for number, piece in enumerate(_FENCE.split(text)):
        if number % 2:
            parts.append(f"<pre><code>{escape(piece)}</code></pre>\n")
        else:
            parts += [_block(block) for block in re.split(r"\n\s*\n", piece) if block.strip()]
    return "".join(parts)


def _block(block: str) -> str:
    items: list[str] = []
    before: list[str] = []
    for line in block.strip().splitlines():
        if _BULLET.match(line):
            items.append(_BULLET.sub("", line))
        elif items:
            items[-1] += " " + line.strip()
        else:
            before.append(line.strip().lstrip("#").strip())
    said = f"<p>{inline(' '.join(before))}</p>\n" if before else ""
    return said + (f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>\n" if items else "")


def inline(text: str) -> str:
    """A line: what is code stays as it is written.

    >>> inline("*slot accuracy*, [docs](https://example.org/?a=1&b=2), `**x**`, 2 * 3 * 4")
    '<em>slot accuracy</em>, <a href="https://example.org/?a=1&amp;b=2">docs</a>, <code>**x**</code>, 2 * 3 * 4'
    """
    parts = []
    for number, piece in enumerate(re.split(r"`([^`]+)`", text)):
        said = escape(piece)
        if number % 2:
            parts.append(f"<code>{said}</code>")
            continue
        # only addresses that a reader may follow: a page or a place, never a script
        said = re.sub(r"\[([^\]]+)\]\(((?:https?://|#|[\w./-]+(?=[)#]))[^)\s]*)\)", r'<a href="\2">\1</a>', said)
        said = re.sub(r"\*\*(?=\S)(.+?)(?<=\S)\*\*", r"<b>\1</b>", said)
        parts.append(re.sub(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])", r"<em>\1</em>", said))
    return "".join(parts)
