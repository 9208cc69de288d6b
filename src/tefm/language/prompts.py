"""Prompts: the input of the model, the question, and the answers.

A `Prompt` is a template in the task file. `PromptWriter` fills it with sequences of codes and returns token ids.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.errors import SettingsError, did_you_mean
from tefm.base.settings import Settings
from tefm.language.backbone import turns
from tefm.language.shortening import REMEMBERED_TEXTS, Shortener, coarse, condensed
from tefm.language.vocabulary import BEGIN, END, Ids, TokenIds
from tefm.tables.sequences import Sequences

Style = Literal["full", "compact"]

#: Characters of a prompt's message, of an answer or of the name of a class, at most.
LONGEST_TEXT = 10_000
#: What stands around codes with `markers`, under the names that these texts had as settings.
AROUND = {"before": BEGIN, "after": END, "between": ", "}
#: What a prompt's message may leave open.
PLACEHOLDERS = ("records", "count", "text")

#: In a task with two classes, the class with one of these names is the positive one.
POSITIVE_WORDS = frozenset(
    ("1", "1.0", "true", "yes", "y", "t", "positive", "died", "dead", "death", "attack", "malicious", "fraud", "churn")
)


class Prompt(Settings):
    """A template: the records, the question, the answers.

    >>> Prompt.preset("mortality", positive="died", negative="survived").answers["died"]
    'Yes, the patient died.'
    """

    #: the user's message; {records} stands for the codes, {count} for their number, {text} for the free text of the
    #: last record
    message: str = Setting(default="{records}", max_length=LONGEST_TEXT)
    #: a begin and an end token around each code, and a comma between two codes; without them, codes stand alone
    markers: bool = True
    #: wrap the message in the tokenizer's chat template, if it has one
    chat: bool = True
    #: class → the model's answer; the other classes answer with their name, or with a letter where the names begin
    #: with the same token
    answers: dict[str, Annotated[str, Setting(max_length=LONGEST_TEXT)]] = Setting(default_factory=dict)
    #: the maximum number of tokens of free text, where its columns have no budgets of their own
    text_tokens: int = 256
    #: the maximum number of tokens of all texts of a sequence, where every record has its own; the oldest are cut first
    all_text_tokens: int = Setting(default=1_024, ge=1)
    #: the maximum number of tokens of codes: of longer histories the oldest records are told in fewer; None: no limit
    code_tokens: int | None = Setting(default=None, ge=8)
    #: tokens of each text column; they come from the schema
    text_budgets: tuple[int, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, given: Any) -> Any:
        """What stands around codes is one setting, `markers`, and times are fields; earlier prompts say more."""
        if not isinstance(given, dict) or not given.keys() & {*AROUND, "gaps"}:
            return given
        if given.get("gaps"):
            raise ValueError(
                "the setting `gaps` of the prompt was removed"
                " → leave it out: with `time:` in the schema, the time since the previous record is a field"
            )
        if not given.keys() & AROUND.keys():
            return {name: value for name, value in given.items() if name != "gaps"}
        texts = {name: given.get(name, marker) for name, marker in AROUND.items()}
        if texts != AROUND and any(texts.values()):
            raise ValueError(
                "`before`, `after` and `between` of the prompt are fixed texts now"
                " → use `markers: true` or `markers: false`"
            )
        others = {name: value for name, value in given.items() if name not in (*AROUND, "gaps")}
        return {**others, "markers": texts == AROUND}

    @model_validator(mode="after")
    def _consistent(self) -> Prompt:
        try:
            placeholders = [name for _, name in pieces(self.message)]
        except ValueError as error:
            raise ValueError(
                f"the prompt's message has an unknown placeholder: {error}"
                " → use {records}, {count}, {text}; write {{ and }} for braces"
            ) from error
        if placeholders.count("records") != 1:
            raise ValueError(
                "the prompt's message must contain {records} exactly once → write {records} where the codes belong"
            )
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
            raise SettingsError("unknown prompt", value=name, remedy=did_you_mean(name, PRESETS))
        if style not in PRESETS[name]:
            raise SettingsError("unknown style of prompt", value=style, remedy="use one of: full, compact")
        body = dict(PRESETS[name][style])
        names = {"label": label.replace("_", " "), "record": record}
        body["message"] = "".join(
            escaped(text) + (escaped(names[name]) if name in names else f"{{{name}}}" if name else "")
            for text, name in pieces(body["message"], (*PLACEHOLDERS, *names))
        )
        yes, no = body.pop("yes", None), body.pop("no", None)
        if yes and positive is not None and negative is not None:
            body["answers"] = {positive: yes, negative: no}
        return cls.checked({**body, **changes})


def pieces(template: str, known: Sequence[str] = PLACEHOLDERS) -> list[tuple[str, str | None]]:
    """A template as texts, each followed by a placeholder or by nothing; `{{` and `}}` are braces.

    Placeholders are plain names: no attributes, no widths, nothing that `str.format` would compute.

    >>> pieces("{count} of {{x}}: {records}")
    [('', 'count'), (' of {', None), ('x}', None), (': ', 'records')]
    """
    parsed = []
    for text, name, width, conversion in string.Formatter().parse(template):
        if name is not None and (name not in known or width or conversion):
            raise ValueError(f"{{{name}{f'!{conversion}' if conversion else ''}{f':{width}' if width else ''}}}")
        parsed.append((text, name))
    return parsed


def filled(parts: Sequence[tuple[str, str | None]], values: Mapping[str, str]) -> str:
    """The pieces of a template as one text; a placeholder without a value is empty."""
    return "".join(text + values.get(name or "", "") for text, name in parts)


def escaped(text: str) -> str:
    """Text as a part of a template: its braces are braces."""
    return text.replace("{", "{{").replace("}", "}}")


_COMPACT: dict[str, Any] = {"markers": False, "chat": False}
#: for each preset the paper's full wording, and a compact one with as few tokens as possible
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
    """The positive class of a two-class task: the one with a typical name (`POSITIVE_WORDS`), else the rarer one."""
    named = [name for name in classes if name.strip().lower() in POSITIVE_WORDS]
    if len(named) == 1:
        return named[0]
    return min(zip(counts, classes, strict=True), key=lambda pair: pair[0])[1]


class PromptWriter:
    """Writes sequences as prompts of token ids, and the classes as answers."""

    def __init__(self, tokenizer: Any, prompt: Prompt, classes: Sequence[str], ids: TokenIds | None = None) -> None:
        self.tokenizer, self.prompt, self.classes, self.ids = tokenizer, prompt, tuple(classes), ids
        unknown = sorted(set(prompt.answers) - set(classes))
        if unknown:
            remedy = did_you_mean(unknown[0], classes)
            raise SettingsError("the prompt has an answer for an unknown class", value=unknown[0], remedy=remedy)
        start = tokenizer.bos_token or tokenizer.eos_token or ""
        self.opening, self.closing = turns(tokenizer) if prompt.chat else (start, "")
        parts = pieces(prompt.message)
        names = [name for _, name in parts]
        past = names.index("records") + 1
        self._to_records, self._from_records, self._places_text = parts[:past], parts[past:], "text" in names
        self._before, self._after, self._between = AROUND.values() if prompt.markers else ("", "", "")
        #: per class the token ids of its answer; their first tokens differ
        self.answers = self._answers()
        self._known_ids: dict[str, Ids] = {}
        self.shortener = Shortener(
            tokenizer, prompt.text_budgets, alone=prompt.text_tokens, most=prompt.all_text_tokens
        )

    @property
    def first_tokens(self) -> list[int]:
        """The first token of each class's answer: its logit is the score of the class."""
        return [int(answer[0]) for answer in self.answers]

    # ---- prompts ----------------------------------------------------------------------------------------------

    def of_codes(self, sequences: Sequences) -> list[Ids]:
        """One prompt per sequence of codes, with its free text, of the last record or of each.

        The codes of the entity come first, as the last record has them, then the oldest records of a long history, in
        few tokens.
        """
        assert self.ids is not None, "prompts of codes need code tokens"
        tokens_NK, starts = self.ids.of(sequences.codes_NK), sequences.starts.tolist()
        own = self.ids.levels - self.ids.profile
        prompts = []
        for number, (start, end) in enumerate(itertools.pairwise(starts)):
            texts, count = sequences.texts, end - start
            notes = [""] * count if texts is None else self.shortener(texts[number], count)
            head, tail = self._around(count, notes[-1] if notes else "")
            parts: list[Ids] = []
            text = head
            old, group = condensed(count, own, self.prompt.code_tokens)
            in_front = [tokens_NK[end - 1, own:]] * bool(self.ids.profile)
            in_front += [coarse(tokens_NK[start : start + old, 0], group)] * bool(old)
            for tokens in in_front:
                parts += [self.tokenised(text + self._before), tokens]
                text = self._after + self._between
            for row, note in zip(range(start + old, end), notes[old:], strict=True):
                # the text between two codes is tokenised in one piece, as the tokenizer would do
                parts += [self.tokenised(text + self._before), tokens_NK[row, :own]]
                text = self._after + _beside(note) + self._between
            text = (self._after if parts else head) + tail
            prompts.append(np.concatenate([*parts, self.tokenised(text)]))
        return prompts

    def _around(self, count: int, text: str) -> tuple[str, str]:
        """What comes before and after the records; `text` is that of the last one."""
        values = {"count": str(count), "text": text}
        unplaced = "" if self._places_text else _beside(text)
        head, tail = (filled(parts, values) for parts in (self._to_records, self._from_records))
        return self.opening + head, unplaced + tail + self.closing

    def tokenised(self, text: str) -> Ids:
        """The token ids of a text, in which special tokens are special."""
        if (ids := self._known_ids.get(text)) is None:
            if len(self._known_ids) >= REMEMBERED_TEXTS:
                self._known_ids.clear()
            ids = np.array(self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else [], dtype=np.int64)
            self._known_ids[text] = ids
        return ids

    # ---- answers ----------------------------------------------------------------------------------------------

    def _answers(self) -> list[Ids]:
        """The answers as token ids: the prompt's, else the names of the classes, else letters."""
        blank = "" if self.prompt.chat else " "
        words = [self.prompt.answers.get(name, f"{blank}{name}") for name in self.classes]
        # some tokenizers make the blank before a word a token of its own: then try without it
        for variant in (words, [word.strip() for word in words]):
            answers = self._tokenised(variant)
            if len({ids[0] for ids in answers}) == len(answers):
                return answers
        if self.prompt.answers:
            firsts = [ids[0] for ids in answers]
            same = [word for word, first in zip(words, firsts, strict=True) if firsts.count(first) > 1]
            problem = "these answers begin with the same token, but the first token must identify the class"
            raise SettingsError(problem, value=same[:2], remedy="begin each answer with a different word")
        return self._tokenised(_letters(self.tokenizer, len(self.classes), blank))

    def _tokenised(self, words: Sequence[str]) -> list[Ids]:
        end = [self.tokenizer.eos_token_id] if self.prompt.chat and self.tokenizer.eos_token_id is not None else []
        answers = []
        for word in words:
            ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
            if not ids:
                raise SettingsError("an answer is empty", value=word, remedy="write at least one word per class")
            answers.append(np.array([*ids, *end], dtype=np.int64))
        return answers


#: The two answers to a question in words, as classes.
NO_YES = ("no", "yes")


def question_prompt(prompt: Prompt) -> Prompt:
    """The prompt of questions in words: as the model writes records, then the question, then yes or no."""
    blank = "" if prompt.chat else " "
    answers = {name: f"{blank}{name.capitalize()}" for name in NO_YES}
    return prompt.model_copy(update={"message": "{records}", "answers": answers})


class QuestionWriter(PromptWriter):
    """Writes histories as prefixes and questions as tails; a prompt is a prefix followed by a tail.

    The records come first and the question last, so that the records are read once for many questions.
    """

    def __init__(self, tokenizer: Any, prompt: Prompt, ids: TokenIds | None, question: str = "") -> None:
        super().__init__(tokenizer, question_prompt(prompt), NO_YES, ids)
        #: what follows the question: the end of the user's turn, where there are turns
        self.after, self.closing = self.closing, ""
        self.question = question

    def tail(self, question: str) -> Ids:
        """The tokens of a question; a code or a turn that is written in it is plain text."""
        return self.tokenised(f" {self.shortener.plain(question.strip())}{self.after}")

    def prefixes(self, histories: Sequences) -> list[Ids]:
        """The tokens of each history, up to the question."""
        return super().of_codes(histories)

    def of_codes(self, sequences: Sequences) -> list[Ids]:
        """One prompt per sequence: its records, then the question."""
        tail = self.tail(self.question)
        return [np.concatenate([ids, tail]) for ids in self.prefixes(sequences)]


def _beside(note: str) -> str:
    """The text of a record, on lines of its own after the codes."""
    return f"\n{note}\n" if note else ""


def _letters(tokenizer: Any, count: int, blank: str) -> list[str]:
    """One short word per class, each a single token: A, B, C, …"""
    words: list[str] = []
    seen: set[int] = set()
    for size in (1, 2, 3):
        for letters in itertools.product(string.ascii_uppercase, repeat=size):
            word = blank + "".join(letters)
            ids = tokenizer(word, add_special_tokens=False)["input_ids"]
            if len(ids) > 1:
                word = word.strip()
                ids = tokenizer(word, add_special_tokens=False)["input_ids"]
            if len(ids) == 1 and ids[0] not in seen:
                words.append(word)
                seen.add(ids[0])
            if len(words) == count:
                return words
    problem = f"this tokenizer does not have {count} single-token words to answer with"
    raise SettingsError(problem, remedy="write one answer per class under `answers` in the prompt")
