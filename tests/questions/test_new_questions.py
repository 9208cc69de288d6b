"""A new question is answered from those that it is like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tefm.language.backbone import open_backbone
from tefm.language.prediction import mean_states
from tefm.language.prompts import Prompt
from tefm.questions.answering import TrainedWords, ways_of
from tefm.questions.book import Book, Entry
from tefm.questions.catalogue import WordQuestion
from tefm.tabular.heads import Linear


class Meanings(TrainedWords):
    """The meaning of a question is planted: whether it is about the heart, and about what is broken."""

    def _meaning(self, texts: object) -> np.ndarray:
        return np.array([[float("heart" in text), float("broken" in text), 1.0] for text in texts])  # type: ignore[attr-defined]


KNOWN = ("heart failure?", "heart attack?", "broken leg?", "broken foot?")
#: One feature for each trained question.
REGRESSIONS = tuple(Linear.of(row, 0.5) for row in np.eye(4))


def meanings() -> Meanings:
    return Meanings(None, None, KNOWN, REGRESSIONS)  # type: ignore[arg-type]


def test_the_words_decide_which_questions_count() -> None:
    heart, leg = (head.score({"fields": np.eye(4)}) for head in meanings().heads(["heart pain?", "broken arm?"]))
    assert min(heart[:2]) > max(heart[2:]) and min(leg[2:]) > max(leg[:2])
    again = meanings().heads(["broken arm?"])[0].score({"fields": np.eye(4)})
    assert np.allclose(again, leg)  # whatever else is asked


def test_a_question_that_was_learned_is_answered_in_its_own_way() -> None:
    questions = [WordQuestion(text=text, kind="next", source="dx", value=text) for text in (*KNOWN, "heart pain?")]
    trained = [
        Entry(question=of, trained=True, regression=regression, share=0.25)
        for of, regression in zip(questions, REGRESSIONS, strict=False)
    ]
    book = Book(entries=(*trained, Entry(question=questions[4], trained=False, share=0.5)), prompt=Prompt(), share=0.75)
    texts = ["heart attack?", "heart pain?", "what else?"]
    known, held_out, new = ways_of(book, meanings(), texts)
    assert [way.text for way in (known, held_out, new)] == texts
    assert (known.share, held_out.share, new.share) == (0.25, 0.5, 0.75)
    assert known.head is not None and known.head.parts[0].model == REGRESSIONS[1]
    assert held_out.head is not None and held_out.head.parts[0].model not in REGRESSIONS
    (alone,) = ways_of(book, None, ["what else?"])  # a model of earlier versions
    assert alone.head is None


def test_a_mean_state_does_not_depend_on_the_batch_or_on_padding(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones["llama"], device="cpu")
    prompts = [np.array(ids, dtype=np.int64) for ids in ([5], [5, 6, 7], [8, 9, 10, 11, 12, 13])]
    together = mean_states(backbone, prompts)
    for prompt, state in zip(prompts, together, strict=True):
        assert state == pytest.approx(mean_states(backbone, [prompt])[0], abs=1e-4)
    assert np.abs(together[1] - together[2]).max() > 1e-3
