"""matplotlib's SVG as part of a page: colours of the page, ids that do not clash, and a text alternative."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from markupsafe import Markup

SVG = "http://www.w3.org/2000/svg"
_REFERENCE = re.compile(r"url\(#([^)]+)\)|^#(.+)$")


def inline_svg(svg: str, anchor: str, title: str, description: str, colours: Mapping[str, str]) -> Markup:
    """Prepare a drawing for the body of an HTML page.

    Metadata and the style sheet go, since a style sheet in a drawing applies to the whole page. Groups whose id
    begins with `plot-` get that name as their class; ids that are referred to begin with `anchor`; others go.
    """
    root = ET.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    ids = _referenced(root)
    renamed = {name: f"{anchor}-{number}" for number, name in enumerate(ids, start=1)}
    for element in root.iter():
        element.tag = _local(element.tag)
        element.tail = None  # indentation
        if not (element.text or "").strip():
            element.text = None
        element.attrib = _attributes(element.attrib, renamed, colours)
    root.attrib = {
        "xmlns": SVG,
        "viewBox": root.attrib["viewBox"],
        "class": "plot",
        "role": "img",
        "aria-labelledby": f"{anchor}-title {anchor}-desc",
    }
    for name, text in (("desc", description), ("title", title)):
        element = ET.Element(name, {"id": f"{anchor}-{name}"})
        element.text = printable(text)
        root.insert(0, element)
    return Markup(ET.tostring(root, encoding="unicode"))


def printable(text: str) -> str:
    """Text without control characters, most of which XML does not allow.

    >>> printable("a\\x00b")
    'a b'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _referenced(root: ET.Element) -> list[str]:
    """The ids that something in the drawing refers to, in the order of the drawing."""
    used = {
        match[1] or match[2]
        for element in root.iter()
        for value in element.attrib.values()
        for match in _REFERENCE.finditer(value)
    }
    return [element.attrib["id"] for element in root.iter() if element.attrib.get("id") in used]


def _attributes(
    attributes: Mapping[str, str], renamed: Mapping[str, str], colours: Mapping[str, str]
) -> dict[str, str]:
    result = {}
    for key, value in attributes.items():
        key = _local(key)
        if key == "id" and value.startswith("plot-"):
            key, value = "class", value.removeprefix("plot-")
        elif key == "id":
            if value not in renamed:
                continue
            value = renamed[value]
        elif key == "style":
            value = _style(value, colours)
        elif (match := _REFERENCE.search(value)) is not None:
            name = match[1] or match[2]
            value = value.replace(f"#{name}", f"#{renamed[name]}")
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            value = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", value)
        result[key] = value
    return result


def _style(style: str, colours: Mapping[str, str]) -> str:
    """The colours of the page instead of those of the drawing; the font is the page's, its size the drawing's."""
    style = re.sub(r"#[0-9a-f]{6}", lambda match: colours.get(match[0], match[0]), style)
    return re.sub(r"font-family: [^;]*; ", "", style)
