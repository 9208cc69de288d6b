"""Prompts: what the model is shown and asked, and what it is to answer.

A `Prompt` is a template in the task file. `PromptWriter` turns sequences of codes (or of text, for the raw-text
baseline) into token ids with it.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.errors import SettingsError, did_you_mean
from tefm.base.settings import Settings
from tefm.language.backbone import turns
from tefm.language.vocabulary import BEGIN, END, TokenIds

Style = Literal["full", "compact"]
Ids = NDArray[np.int64]

#: A class of two is the one that is asked for when it is called like this.
POSITIVE_WORDS = frozenset(
    ("1", "1.0", "true", "yes", "y", "t", "positive", "died", "dead", "death", "attack", "malicious", "fraud", "churn")
)


class Prompt(Settings):
    """What is asked: the records, the question, the answers.

    >>> Prompt.preset("mortality", positive="died", negative="survived").answers["died"]
    'Yes, the patient died.'
    """

    #: the user's message; {records} is where the codes go, {count} how many, {text} the free text of the last record
    message: str = "{records}"
    #: what stands around a code, and between two of them
    before: str = BEGIN
    after: str = END
    between: str = ", "
    #: whether the tokenizer's chat template is put around the message, where it has one
    chat: bool = True
    #: class → what the model answers; classes that are not here answer with their name, or a letter where names
    #: begin alike
    answers: dict[str, str] = Setting(default_factory=dict)
    #: words about the time between two records in front of the later one
    gaps: bool = False
    #: tokens of free text, at most
    text_tokens: int = 256

    @model_validator(mode="after")
    def _consistent(self) -> Prompt:
        try:
            shown = self.message.format(records="{records}", count=1, text="")
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(
                f"the message has a placeholder that is not known: {error} → use {{records}}, {{count}}, {{text}}"
            ) from error
        if shown.count("{records}") != 1:
            raise ValueError("the message says {records} not exactly once → put {records} where the codes belong")
        return self

    @classmethod
    def preset(
        cls,
        name: str,
        style: Style = "full",
        *,
        positive: str | None = None,
        negative: str | None = None,
        label: str = "outcome",
        record: str = "record",
        **changes: Any,
    ) -> Prompt:
        """The paper's wording for `mortality` and `intrusion`, or a `generic` question for the label."""
        if name not in PRESETS:
            raise SettingsError("there is no such prompt", value=name, remedy=did_you_mean(name, PRESETS))
        if style not in PRESETS[name]:
            raise SettingsError("there is no such style", value=style, remedy="one of: full, compact")
        body = dict(PRESETS[name][style])
        names = {
            "label": label.replace("_", " "),
            "record": record,
            "records": "{records}",
            "count": "{count}",
            "text": "",
        }
        body["message"] = body["message"].format(**names)
        yes, no = body.pop("yes", None), body.pop("no", None)
        if yes and positive is not None and negative is not None:
            body["answers"] = {positive: yes, negative: no}
        return cls.checked({**body, **changes})


_COMPACT: dict[str, Any] = {"before": "", "after": "", "between": "", "chat": False}
#: per preset the paper's full wording, and one with as few tokens as can be
PRESETS: dict[str, dict[Style, dict[str, Any]]] = {
    "mortality": {
        "full": {
            "message": "This patient has {count} hospital admission(s): {records}. Based on the patient's admission "
            "history, did the patient die during their last hospital admission?",
            "yes": "Yes, the patient died.",
            "no": "No, the patient survived.",
        },
        "compact": {**_COMPACT, "message": "{records} Died?", "yes": " Yes", "no": " No"},
    },
    "intrusion": {
        "full": {
            "message": "{count} network flow(s): {records}. Is the final flow part of an attack?",
            "yes": "Yes, it is part of an attack.",
            "no": "No, it is benign.",
        },
        "compact": {**_COMPACT, "message": "{records} Attack?", "yes": " Yes", "no": " No"},
    },
    "generic": {
        "full": {"message": "There are {count} {record}(s): {records}. What is the {label} after the last {record}?"},
        "compact": {**_COMPACT, "message": "{records} {label}:"},
    },
}


def positive_class(classes: Sequence[str], counts: Sequence[int]) -> str:
    """The class a two-class task asks for: one called so, else the rarer one."""
    named = [name for name in classes if name.strip().lower() in POSITIVE_WORDS]
    if len(named) == 1:
        return named[0]
    return min(zip(counts, classes, strict=True), key=lambda pair: pair[0])[1]


class PromptWriter:
    """Sequences in, token ids out."""

    def __init__(self, tokenizer: Any, prompt: Prompt, classes: Sequence[str], ids: TokenIds | None = None) -> None:
        self.tokenizer, self.prompt, self.classes, self.ids = tokenizer, prompt, tuple(classes), ids
        unknown = sorted(set(prompt.answers) - set(classes))
        if unknown:
            raise SettingsError(
                "the prompt has an answer for a class that does not exist",
                value=unknown[0],
                remedy=did_you_mean(unknown[0], classes),
            )
        opening, closing = turns(tokenizer) if prompt.chat else (tokenizer.bos_token or tokenizer.eos_token or "", "")
        self.opening, self.closing = opening, closing
        #: per class the token ids of its answer; their first tokens differ
        self.answers = self._answers()
        self._pieces: dict[str, Ids] = {}
        # a token of one character, or with blanks, is one that texts may have
        added = [token for token in tokenizer.get_added_vocab() if len(token) > 1 and not re.search(r"\s", token)]
        self._special = re.compile("|".join(map(re.escape, added)) or r"(?!)")

    @property
    def first_tokens(self) -> list[int]:
        """Per class the token that its probability is read from."""
        return [int(answer[0]) for answer in self.answers]

    # ---- prompts ----------------------------------------------------------------------------------------------

    def of_codes(
        self,
        codes_NK: NDArray[np.integer],
        starts: NDArray[np.integer],
        *,
        texts: Sequence[str] | None = None,
        gaps: Sequence[str] | None = None,
    ) -> list[Ids]:
        """One prompt per sequence; sequence i has the records starts[i]…starts[i+1] of `codes_NK`.

        `gaps` are words per record that stand in front of it (empty for none).
        """
        assert self.ids is not None, "prompts of codes need the tokens of codes"
        tokens_NK = self.ids.of(codes_NK)
        found = []
        for i in range(len(starts) - 1):
            count = int(starts[i + 1] - starts[i])
            head, tail = self._around(count, texts[i] if texts else "")
            parts: list[Ids] = []
            for row in range(int(starts[i]), int(starts[i + 1])):
                # all the text between two codes is tokenised in one piece, as the tokenizer would
                said = self.prompt.after + self.prompt.between if parts else head
                said += (gaps[row] if gaps is not None else "") + self.prompt.before
                parts += [self._ids(said, keep=bool(parts) or not texts), tokens_NK[row]]
            said = (self.prompt.after if parts else head) + tail
            found.append(np.concatenate([*parts, self._ids(said, keep=not texts)]))
        return found

    def of_texts(self, records: Sequence[str], counts: Sequence[int], *, limit: int | None = None) -> list[Ids]:
        """The same question over serialised records; `limit` keeps the last tokens of the records only."""
        found = []
        for text, count in zip(records, counts, strict=True):
            head, tail = self._around(int(count), "")
            body = self._ids(self._plain(text), keep=False)
            found.append(np.concatenate([self._ids(head), body[-limit:] if limit else body, self._ids(tail)]))
        return found

    def _around(self, count: int, text: str) -> tuple[str, str]:
        """What stands before and after the records."""
        message = self.prompt.message
        if text and "{text}" not in message:
            message = message.replace("{records}", "{records}\n{text}\n")
        head, tail = message.split("{records}")
        text = self._shortened(text)
        head, tail = (part.format(count=count, text=text) for part in (head, tail))
        return self.opening + head, tail + self.closing

    def _shortened(self, text: str) -> str:
        """The first tokens of a text."""
        if not text:
            return text
        text = self._plain(text)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return text if len(ids) <= self.prompt.text_tokens else self.tokenizer.decode(ids[: self.prompt.text_tokens])

    def _plain(self, text: str) -> str:
        """A text without special tokens: one in it would be read as a code or a turn, so it is broken up."""
        while (broken := self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)) != text:
            text = broken
        return text

    def _ids(self, text: str, *, keep: bool = True) -> Ids:
        if text not in self._pieces:
            ids = np.array(self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else [], dtype=np.int64)
            if not keep:
                return ids
            self._pieces[text] = ids
        return self._pieces[text]

    # ---- answers ----------------------------------------------------------------------------------------------

    def _answers(self) -> list[Ids]:
        blank = "" if self.prompt.chat else " "
        words = [self.prompt.answers.get(name, f"{blank}{name}") for name in self.classes]
        # a tokenizer may take the blank in front of a word for a token of its own
        for tried in (words, [word.strip() for word in words]):
            found = self._tokenised(tried)
            if len({ids[0] for ids in found}) == len(found):
                return found
        if self.prompt.answers:
            firsts = [ids[0] for ids in found]
            alike = [word for word, first in zip(words, firsts, strict=True) if firsts.count(first) > 1]
            raise SettingsError(
                "these answers begin with the same token, so that one token cannot tell them apart",
                value=alike[:2],
                remedy="let each answer begin with another word",
            )
        return self._tokenised(_letters(self.tokenizer, len(self.classes), blank))

    def _tokenised(self, words: Sequence[str]) -> list[Ids]:
        end = [self.tokenizer.eos_token_id] if self.prompt.chat and self.tokenizer.eos_token_id is not None else []
        found = []
        for word in words:
            ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
            if not ids:
                raise SettingsError("an answer is empty", value=word, remedy="write a word for every class")
            found.append(np.array([*ids, *end], dtype=np.int64))
        return found


def _letters(tokenizer: Any, count: int, blank: str) -> list[str]:
    """As many short words as there are classes, each a token of its own: A, B, C, …"""
    found: list[str] = []
    seen: set[int] = set()
    for size in (1, 2, 3):
        for letters in itertools.product(string.ascii_uppercase, repeat=size):
            word = "".join(letters)
            ids = tokenizer(blank + word, add_special_tokens=False)["input_ids"]
            if len(ids) > 1:
                ids = tokenizer(word, add_special_tokens=False)["input_ids"]
            else:
                word = blank + word
            if len(ids) == 1 and ids[0] not in seen:
                found.append(word)
                seen.add(ids[0])
            if len(found) == count:
                return found
    raise SettingsError(
        f"this tokenizer has no {count} short words to answer with", remedy="give answers in the prompt"
    )
