"""Markdown in pages: what a table says about itself, without anything that loads or runs."""

from __future__ import annotations

from markupsafe import Markup
from tefm_bench.page import to_html

from tefm.show.html import inline


def test_blocks() -> None:
    html = to_html("One\nline, **bold**.\n\n- a `b*c*`\n  goes on\n- d")
    assert html.startswith("<p>One\nline, <strong>bold</strong>.</p>\n<ul>")
    assert "<li>a <code>b*c*</code>\ngoes on</li>" in html and "<li>d</li>" in html
    assert (
        to_html("```\npython -m tefm_bench <all>\n```")
        == "<pre><code>python -m tefm_bench &lt;all&gt;\n</code></pre>\n"
    )


def test_lines() -> None:
    assert inline("[all](docs/results.md#codes)") == '<a href="docs/results.md#codes">all</a>'
    assert inline("2 * 3 * 4 and C*D") == "2 * 3 * 4 and C*D"
    assert isinstance(inline("a"), Markup), "a template does not escape it again"


def test_nothing_loads_or_runs() -> None:
    html = to_html("<script>x</script> ![i](https://example.org/i.png) [l](javascript:alert(1)) [d](data:text/html,x)")
    assert "<script" not in html and "<img" not in html
    assert 'href="javascript' not in html and 'href="data' not in html
