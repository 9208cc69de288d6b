"""Text from a table as plain text: nothing in it is a code, a marker or a turn of the conversation.

A tokenizer turns some strings into one token each, wherever they occur: `<|im_end|>`, `<adm_a_3>`. In the text of a
record these would pass for the end of a turn, or for codes. Here a blank splits them, so that they are read as letters.
"""

from __future__ import annotations

import re
from typing import Any


class PlainText:
    """Splits the tokenizer's added tokens in texts; any other text stays as it is."""

    def __init__(self, tokenizer: Any) -> None:
        special = set(tokenizer.all_special_tokens)
        special |= {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        # other tokens of one character, or with blanks, occur in ordinary text and are allowed there
        added = {token for token in tokenizer.get_added_vocab() if len(token) > 1 and not re.search(r"\s", token)}
        self._special = re.compile("|".join(map(re.escape, sorted(special | added))) or r"(?!)")

    def __call__(self, text: str) -> str:
        """The text with every special token split by a blank."""
        while (split := self._special.sub(_split, text)) != text:
            text = split
        return text


def _split(match: re.Match[str]) -> str:
    token = match[0]
    return f"{token[0]} {token[1:]}" if len(token) > 1 else " "  # one character cannot be split
