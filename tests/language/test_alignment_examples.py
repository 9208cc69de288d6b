"""Records in the model's words: put together from pieces, they are the tokens of the sentence a person reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.miniatures import FAMILIES

from tefm.language.alignment import AlignmentExamples
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.vocabulary import BEGIN, END, CodeVocabulary, extend
from tefm.tables.phrases import FieldPhrases, Phrases

WORDS = CodeVocabulary.of("admission", levels=2, entries=4)
#: slots: age, ward, the count of drugs (never said), three drugs, icu
PHRASES = Phrases(
    "admission",
    (
        FieldPhrases("age", (0,), (("≤ 40 years", "41–70 years", "≥ 71 years"),)),
        FieldPhrases("ward", (1,), (("surgery", "Heart & lung", "other"),)),
        FieldPhrases("drugs", (3, 4, 5), (("insulin",), ("metformin",), ("heparin 5000",)), several=True),
        FieldPhrases("ICU stay", (6,), (("yes",),)),
    ),
)
SIZES = (3, 3, 4, 1, 1, 1, 1)
RECORD = np.array([2, 1, 2, 1, 0, 1, 1])
CODE = np.array([3, 0])
Opened = dict[str, tuple[Backbone, AlignmentExamples]]


@pytest.fixture(scope="module")
def opened(backbones: dict[str, Path]) -> Opened:
    def with_codes(folder: Path) -> tuple[Backbone, AlignmentExamples]:
        backbone = open_backbone(folder, device="cpu")
        return backbone, AlignmentExamples(PHRASES, backbone.tokenizer, extend(backbone, WORDS))

    return {family: with_codes(folder) for family, folder in backbones.items()}


def titles_and_values(x_D: NDArray[Any], fields: list[int]) -> list[tuple[str, str]]:
    """Title and values of fields, written by hand."""
    pairs = []
    for number in fields:
        field = PHRASES.fields[number]
        members = [values[x_D[slot] - 1] for slot, values in zip(field.slots, field.values, strict=True) if x_D[slot]]
        pairs.append((f" {field.title}:", f" {', '.join(members)}."))
    return pairs


records = st.tuples(*(st.integers(0, size) for size in SIZES)).map(np.array)


def test_a_record_reads_well(opened: Opened) -> None:
    backbone, examples = opened["llama"]
    tokenizer = backbone.tokenizer
    fields = examples.present(RECORD)
    words = tokenizer.decode(examples.to_words(RECORD, CODE, fields).ids)
    assert words == (
        f"This admission{BEGIN}<adm_a_3><adm_b_0>{END} age: 41–70 years. ward: surgery. drugs: insulin, heparin 5000."
        " ICU stay: yes."
    )
    code = tokenizer.decode(examples.to_code(RECORD, CODE, fields[:2]).ids)
    assert code == f" age: 41–70 years. ward: surgery. This admission is{BEGIN}<adm_a_3><adm_b_0>"


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_the_tokens_of_the_sentence(opened: Opened, family: str) -> None:
    backbone, examples = opened[family]
    tokenizer = backbone.tokenizer

    @given(records, st.randoms())
    def check(x_D: NDArray[Any], random: Any) -> None:
        fields = examples.present(x_D)
        random.shuffle(fields)
        fields = fields[: random.randint(0, 4)]
        sentence = "".join(title + values for title, values in titles_and_values(x_D, fields))
        words = examples.to_words(x_D, CODE, fields)
        whole = f"This admission{BEGIN}{WORDS.text(CODE)}{END}{sentence}"
        assert words.ids.tolist() == tokenizer(whole, add_special_tokens=False)["input_ids"]
        prompt = tokenizer(f"{sentence} This admission is{BEGIN}", add_special_tokens=False)["input_ids"]
        assert examples.code_prompt(x_D, fields).tolist() == prompt
        # the targets: the values and nothing else, the codes and nothing else
        values = [
            tokenizer(values, add_special_tokens=False)["input_ids"] for _, values in titles_and_values(x_D, fields)
        ]
        assert words.ids[words.target].tolist() == [token for tokens in values for token in tokens]
        code = examples.to_code(x_D, CODE, fields)
        assert code.ids.tolist() == [*prompt, *examples.ids.of(CODE)]
        assert np.flatnonzero(code.target).tolist() == [len(prompt), len(prompt) + 1]

    check()


def test_present_fields_have_something_to_say(opened: Opened) -> None:
    @given(records)
    def check(x_D: NDArray[Any]) -> None:
        expected = [n for n, slots in enumerate([[0], [1], [3, 4, 5], [6]]) if x_D[slots].any()]
        assert opened["llama"][1].present(x_D) == expected

    check()


def test_an_empty_record_asks_for_its_code_alone(opened: Opened) -> None:
    empty = np.array([0, 0, 3, 0, 0, 0, 0])  # a count of drugs says none of them
    backbone, examples = opened["gemma2"]
    assert examples.present(empty) == []
    assert (
        backbone.tokenizer.decode(examples.to_code(empty, CODE, []).ids)
        == f" This admission is{BEGIN}{WORDS.text(CODE)}"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_are_the_mean_of_the_words_of_the_values(opened: Opened, family: str) -> None:
    backbone, examples = opened[family]
    tokenizer = backbone.tokenizer
    table = backbone.model.get_input_embeddings().weight.detach().numpy()
    x_ND = np.array([RECORD, [0] * 7, [1, 0, 0, 0, 0, 0, 0]])
    embeddings_NH = examples.mean_embeddings(table, x_ND)
    phrases = [" 41–70 years", " surgery", " insulin", " heparin 5000", " yes"]
    means = [table[tokenizer(words, add_special_tokens=False)["input_ids"]].mean(axis=0) for words in phrases]
    np.testing.assert_allclose(embeddings_NH[0], np.mean(means, axis=0), atol=1e-6)
    assert not embeddings_NH[1].any()
    np.testing.assert_allclose(
        embeddings_NH[2], table[tokenizer(" ≤ 40 years", add_special_tokens=False)["input_ids"]].mean(axis=0), atol=1e-6
    )
