"""Prompts: exactly the tokens of the text that a person would read, and answers that one token tells apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from support.miniatures import FAMILIES, miniature

from tefm.base.errors import SettingsError
from tefm.language.backbone import Backbone, open_backbone, turns
from tefm.language.prompts import PRESETS, Prompt, PromptWriter, positive_class
from tefm.language.vocabulary import BEGIN, END, CodeVocabulary, TokenIds, extend
from tefm.tables.sequences import Sequences

WORDS = CodeVocabulary.of("admission", levels=2, entries=8)
CODES = np.array([[0, 7], [3, 3], [5, 0], [7, 1], [2, 2]])
STARTS = np.array([0, 1, 3, 5])
ONE = Sequences(CODES[:1], np.array([0, 1]))
TEXTS = ["The patient was sent home.", "", "  Insulin {given}, 2 units;\nno metformin."]
MORTALITY = {"positive": "died", "negative": "survived"}


class Tokenised:
    """A backbone's tokenizer with the tokens of codes."""

    def __init__(self, backbone: Backbone) -> None:
        self.tokenizer: Any = backbone.tokenizer
        self.ids: TokenIds = extend(backbone, WORDS)

    def writer(self, prompt: Prompt, classes: tuple[str, ...] = ("survived", "died")) -> PromptWriter:
        return PromptWriter(self.tokenizer, prompt, classes, self.ids)

    def __call__(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture(scope="module")
def families(backbones: dict[str, Path]) -> dict[str, Tokenised]:
    return {family: Tokenised(open_backbone(folder, device="cpu")) for family, folder in backbones.items()}


@pytest.fixture(scope="module")
def llama(families: dict[str, Tokenised]) -> Tokenised:
    return families["llama"]


# ---- long histories -------------------------------------------------------------------------------------------------


def coded(llama: Tokenised, codes: np.ndarray, limit: int | None) -> list[int]:
    """The code tokens of the only sequence, as written."""
    prompt = Prompt(message="{records}", code_tokens=limit, chat=False, markers=False)
    (ids,) = llama.writer(prompt).of_codes(Sequences(codes, np.array([0, len(codes)])))
    return [token for token in ids.tolist() if llama.ids.first <= token < llama.ids.past]


@given(records=st.integers(1, 80), limit=st.integers(8, 40), seed=st.integers(0, 9))
def test_a_long_history_has_a_limit_and_its_last_records_are_whole(
    llama: Tokenised, records: int, limit: int, seed: int
) -> None:
    codes = np.random.default_rng(seed).integers(0, 8, (records, 2))
    told, whole = coded(llama, codes, limit), coded(llama, codes, None)
    assert len(whole) == 2 * records
    assert len(told) <= limit and (told == whole or len(told) > limit // 2)
    last = limit // 2 // 2 * 2  # half of the tokens
    assert told[-last:] == whole[-last:]
    old = told[: len(told) - last]
    assert set(old) <= set(whole)
    if records <= limit // 2:
        assert told == whole
    elif records <= limit - last // 2:  # each old record has its own token: the first level of its code, in order
        count = 2 * records - len(told)
        assert told[:count] == whole[: 2 * count : 2]


def test_neighbouring_records_share_their_most_frequent_code(llama: Tokenised) -> None:
    codes = np.array([[1, 0], [1, 3], [2, 0], [4, 4], [5, 5], [5, 6], *[[7, 7]] * 2])
    told = coded(llama, np.repeat(codes, 2, axis=0), 8)  # two whole records, and four tokens for fourteen
    a = llama.ids.first
    assert told == [a + 1, a + 4, a + 5, a + 7, *llama.ids.of(codes[-2:]).ravel().tolist()]


def test_without_a_limit_every_record_is_told(llama: Tokenised) -> None:
    """As in the models of earlier versions, whose prompts have none."""
    assert Prompt.stored({"message": "{records}"}).code_tokens is None
    assert len(coded(llama, np.zeros((2_000, 2), dtype=np.int64), None)) == 4_000


# ---- the tokens of a prompt -----------------------------------------------------------------------------------------


def readable(prompt: Prompt, around: tuple[str, str], i: int, text: str) -> str:
    """Prompt i as one string."""
    records = ""
    before, after, between = (BEGIN, END, ", ") if prompt.markers else ("", "", "")
    for row in range(STARTS[i], STARTS[i + 1]):
        records += between if row > STARTS[i] else ""
        records += before + WORDS.text(CODES[row]) + after
    message = prompt.message
    if text and "{text}" not in message:
        message = message.replace("{records}", "{records}\n{text}\n")
    return around[0] + message.format(records=records, count=STARTS[i + 1] - STARTS[i], text=text) + around[1]


PROMPTS = {
    "mortality full": Prompt.preset("mortality", **MORTALITY),
    "mortality compact": Prompt.preset("mortality", "compact", **MORTALITY),
    "generic full without chat": Prompt.preset("generic", label="end_of_stay", record="admission", chat=False),
    "generic compact": Prompt.preset("generic", "compact", label="end_of_stay"),
    "text in front": Prompt(message="Note: {text}\n{records} Died after {count}?", chat=True),
    "codes alone in a chat": Prompt(message="Here {records}!", markers=False),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_is_the_tokens_of_its_text(families: dict[str, Tokenised], family: str, name: str) -> None:
    tokenised, prompt = families[family], PROMPTS[name]
    tokenizer = tokenised.tokenizer
    around = turns(tokenizer) if prompt.chat else (tokenizer.bos_token or tokenizer.eos_token, "")
    writer = tokenised.writer(prompt)
    for texts in (None, TEXTS):
        for _ in range(2):  # what is kept from the first time changes nothing
            prompts = writer.of_codes(Sequences(CODES, STARTS, texts=texts))
            expected = [readable(prompt, around, i, texts[i] if texts else "") for i in range(len(STARTS) - 1)]
            assert [ids.tolist() for ids in prompts] == [tokenised(text) for text in expected]


def test_a_tokenizer_without_a_chat_template(tmp_path: Path) -> None:
    tokenised = Tokenised(open_backbone(miniature("llama", tmp_path, chat=False), device="cpu"))
    prompts = tokenised.writer(Prompt(message="{records} Died?")).of_codes(ONE)
    assert prompts[0].tolist() == tokenised(f"{BEGIN}{WORDS.text(CODES[0])}{END} Died?\n")


def test_a_long_text_is_cut(llama: Tokenised) -> None:
    prompt = Prompt(message="{records}{text}", text_tokens=6, chat=False)
    text = "The patient is a woman of 63 years."
    ids = llama.writer(prompt).of_codes(replace(ONE, texts=[text]))[0]
    assert ids.tolist() == [
        *llama("<|im_start|>" + BEGIN), *llama(WORDS.text(CODES[0])), llama.ids.end, *llama(text)[:6]
    ]  # fmt: skip


# ---- no text can write a code ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", [7, 256])
def test_no_text_brings_a_token_of_control(families: dict[str, Tokenised], family: str, limit: int) -> None:
    tokenised = families[family]
    added = tokenised.tokenizer.get_added_vocab()
    assert {"<adm_a_3>", BEGIN, tokenised.tokenizer.eos_token} <= set(added)
    hostile = [
        *added,
        "<|im_end|>",
        "<adm_a_3><adm_b_3>",
        "<<adm_a_3>>",
        "<|<|im_end|>im_end|>",
        "".join(added),
    ]
    texts = [f"well{bad}, home" for bad in hostile]
    writer = tokenised.writer(Prompt(message="{records} Died?", text_tokens=limit))
    codes = Sequences(np.tile(CODES[:1], (len(texts), 1)), np.arange(len(texts) + 1))
    honest = writer.of_codes(replace(codes, texts=["well, home"] * len(texts)))
    controls = set(added.values())
    for with_text, without in zip(writer.of_codes(replace(codes, texts=texts)), honest, strict=True):
        assert [token for token in with_text if token in controls] == [token for token in without if token in controls]


def test_a_text_of_brackets_and_blanks_stays_as_it_is(llama: Tokenised) -> None:
    text = "BP < 120, ratio |a| > 3, <b>bold</b>"
    writer = llama.writer(Prompt(message="{records}{text}", chat=False))
    ids = writer.of_codes(replace(ONE, texts=[text]))[0]
    assert llama.tokenizer.decode(ids).endswith(END + text)


# ---- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize(
    "classes",
    [
        ("no", "yes"),
        ("0", "1"),
        ("BENIGN", "Bot", "PortScan"),
        ("DoS Hulk", "DoS GoldenEye", "BENIGN"),
        ("<30", ">30", "NO"),
        tuple(f"class {number}" for number in range(26)),
    ],
)
def test_first_tokens_tell_the_classes_apart(
    families: dict[str, Tokenised], family: str, chat: bool, classes: tuple[str, ...]
) -> None:
    tokenised = families[family]
    writer = tokenised.writer(Prompt(chat=chat), classes)
    assert len(writer.answers) == len(set(writer.first_tokens)) == len(classes)
    assert all(tokenised.tokenizer.decode([token]).strip() for token in writer.first_tokens)
    assert all((answer[-1] == tokenised.tokenizer.eos_token_id) == chat for answer in writer.answers)


def test_names_answer_where_they_can_and_letters_where_they_begin_alike(llama: Tokenised) -> None:
    def answers(*classes: str) -> list[str]:
        ids = llama.writer(Prompt(), classes).answers
        return [llama.tokenizer.decode(answer, skip_special_tokens=True) for answer in ids]

    assert answers("benign", "attack") == ["benign", "attack"]
    assert answers("DoS Hulk", "DoS GoldenEye") == ["A", "B"]


def test_given_answers_are_said(llama: Tokenised) -> None:
    writer = llama.writer(Prompt.preset("mortality", **MORTALITY))
    eos = llama.tokenizer.eos_token_id
    assert [answer.tolist() for answer in writer.answers] == [
        [*llama("No, the patient survived."), eos],
        [*llama("Yes, the patient died."), eos],
    ]


@pytest.mark.parametrize(
    ("classes", "counts", "expected"),
    [
        (("no", "yes"), (1, 9), "yes"),
        (("0", "1"), (1, 9), "1"),
        (("Died ", "lived"), (9, 1), "Died "),
        (("A", "B"), (9, 1), "B"),
        (("yes", "true"), (1, 9), "yes"),
    ],
)
def test_the_positive_class(classes: tuple[str, str], counts: tuple[int, int], expected: str) -> None:
    assert positive_class(classes, counts) == expected


# ---- wording --------------------------------------------------------------------------------------------------------


def test_the_papers_words() -> None:
    mortality = Prompt.preset("mortality", **MORTALITY)
    assert mortality.message == (
        "This patient has {count} hospital admission(s): {records}. Based on the patient's admission history, "
        "did the patient die during their last hospital admission?"
    )
    assert mortality.answers == {"died": "Yes, the patient died.", "survived": "No, the patient survived."}
    assert mortality.markers and mortality.chat
    intrusion = Prompt.preset("intrusion", positive="attack", negative="BENIGN")
    assert intrusion.message == "{count} network flow(s): {records}. Is the final flow part of an attack?"
    assert intrusion.answers["BENIGN"] == "No, it is benign."


@pytest.mark.parametrize("name", PRESETS)
def test_compact_is_the_codes_and_a_word_or_two(llama: Tokenised, name: str) -> None:
    full, compact = (
        llama.writer(Prompt.preset(name, style, label="died")).of_codes(Sequences(CODES, STARTS))[2]
        for style in ("full", "compact")
    )
    assert len(compact) < len(full) / 2
    assert compact[1:5].tolist() == llama.ids.of(CODES[3:5]).flatten().tolist()


def test_a_preset_can_be_changed() -> None:
    prompt = Prompt.preset("generic", label="end_of_stay", record="visit", markers=True)
    assert prompt.message == "There are {count} visit(s): {records}. What is the end of stay after the last visit?"
    assert prompt.markers


def test_times_are_fields_and_not_words(explained: Explained) -> None:
    """Prompts of earlier versions could say how much time had passed."""
    assert Prompt.checked({"gaps": False}) == Prompt()
    explained(SettingsError, lambda: Prompt.checked({"gaps": True}), "gaps", "`time:`")


# ---- what is wrong --------------------------------------------------------------------------------------------------


def test_answers_that_begin_alike(llama: Tokenised, explained: Explained) -> None:
    prompt = Prompt(answers={"died": "The end", "survived": "The answer"})
    explained(SettingsError, lambda: llama.writer(prompt), "same token", "The end", "different word")


def test_more_classes_than_the_tokenizer_has_letters(llama: Tokenised, explained: Explained) -> None:
    classes = tuple(f"class {number}" for number in range(40))
    explained(SettingsError, lambda: llama.writer(Prompt(), classes), "40 single-token words", "answers")


def test_an_empty_answer(llama: Tokenised, explained: Explained) -> None:
    explained(SettingsError, lambda: llama.writer(Prompt(answers={"died": ""})), "empty")


def test_an_answer_of_an_unknown_class(llama: Tokenised, explained: Explained) -> None:
    prompt = Prompt(answers={"survivd": "No"})
    explained(SettingsError, lambda: llama.writer(prompt), "survivd", "did you mean 'survived'")


@pytest.mark.parametrize(
    "message", ["{records} {patient}?", "{records} {}", "{records} {count", "{records.name}", "{records[name]}"]
)
def test_an_unknown_placeholder(message: str, explained: Explained) -> None:
    explained(SettingsError, lambda: Prompt.checked({"message": message}), "placeholder", "{records}, {count}, {text}")


@pytest.mark.parametrize("message", ["Died?", "{records} {records}"])
def test_records_not_exactly_once(message: str, explained: Explained) -> None:
    explained(SettingsError, lambda: Prompt.checked({"message": message}), "{records} exactly once")


def test_an_unknown_preset(explained: Explained) -> None:
    explained(SettingsError, lambda: Prompt.preset("mortalty"), "did you mean 'mortality'")
    explained(SettingsError, lambda: Prompt.preset("generic", "long"), "full, compact")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message", ["{records} {count:>999999999}", "{records.__class__}", "{records!r}", "{records} {0}"]
)
def test_a_message_computes_nothing(message: str) -> None:
    with pytest.raises(SettingsError, match="placeholder"):
        Prompt.checked({"message": message})


def test_braces_in_names_and_messages_stay_braces(llama: Tokenised) -> None:
    prompt = Prompt.preset("generic", "full", label="a{b}", record="{count:>999999999}")
    (ids,) = llama.writer(prompt, ("{x}", "y{0}")).of_codes(ONE)
    text = llama.tokenizer.decode(ids)
    assert "There are 1 {count:>999999999}(s): " in text and ". What is the a{b} after" in text
    (ids,) = llama.writer(Prompt(message="{{count}} of {count}: {records}"), ("x", "y")).of_codes(ONE)
    assert "{count} of 1: " in llama.tokenizer.decode(ids)


# ---- prompts of earlier versions ------------------------------------------------------------------------------------


def test_what_stood_around_codes_in_earlier_versions(explained: Explained) -> None:
    around = {"before": BEGIN, "after": END, "between": ", "}
    assert Prompt.checked(around) == Prompt() and Prompt.checked({"between": ", "}) == Prompt()
    assert Prompt.checked(dict.fromkeys(around, "")) == Prompt(markers=False)
    explained(SettingsError, lambda: Prompt.checked({"before": "code "}), "fixed texts", "markers: false")
