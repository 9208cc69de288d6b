"""Ordinary text is left as it is by what takes special tokens out of texts (tests/bench/test_families.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures import FAMILIES

from tefm.language.backbone import open_backbone
from tefm.language.shortening import PlainText


@pytest.mark.parametrize("family", FAMILIES)
def test_ordinary_text_stays_as_it_is(backbones: dict[str, Path], family: str) -> None:
    plain = PlainText(open_backbone(backbones[family], device="cpu").tokenizer)
    text = "BP < 120, ratio |a| > 3, {x}, <b>bold</b>,\n\n  two blanks. Ünïcode ✓"
    assert plain(text) == text
