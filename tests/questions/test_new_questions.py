"""A new question is answered from those that it is like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tefm.language.backbone import open_backbone
from tefm.language.prediction import mean_states
from tefm.language.prompts import Prompt
from tefm.questions.answering import TrainedWords, ways_of
from tefm.questions.book import Book, Entry, Figure
from tefm.questions.catalogue import WordQuestion
from tefm.show.terminal import question_tables
from tefm.tabular.heads import Head, Linear, of_regression


class Meanings(TrainedWords):
    """The meaning of a question is planted: whether it is about the heart, and about what is broken."""

    def _meaning(self, texts: object) -> np.ndarray:
        return np.array([[float("heart" in text), float("broken" in text), 1.0] for text in texts])  # type: ignore[attr-defined]


KNOWN = ("heart failure?", "heart attack?", "broken leg?", "broken foot?")
#: One feature for each trained question.
REGRESSIONS = tuple(Linear.of(row, 0.5) for row in np.eye(4))


def heads_of() -> list[Head]:
    return [of_regression(regression) for regression in REGRESSIONS]


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


@pytest.mark.parametrize(
    ("figure", "warning"),
    [
        (Figure(auroc=0.7, low=0.6, high=0.8), ""),
        (Figure(auroc=0.6, low=0.45, high=0.75), "no better than chance"),
        (Figure(auroc=0.4, low=0.3, high=0.5), "below chance"),
        (Figure(auroc=0.4), "below chance"),
        (Figure(), ""),
    ],
)
def test_a_figure_that_is_chance_says_so(figure: Figure, warning: str) -> None:
    assert figure.warning == warning
    question = WordQuestion(text="heart failure?", kind="column")
    for trained in (True, False):
        entry = Entry(question=question, trained=trained, head=heads_of()[0], figure=figure)
        book = Book(entries=(entry,), prompt=Prompt())
        assert book.worth("heart failure?").endswith(f": {warning}." if warning else ").")
        (table, *_) = question_tables(book)
        assert not warning or warning in next(iter(table.columns[2].cells))


def test_where_nothing_is_known_of_new_questions_there_is_no_guess() -> None:
    known = Entry(question=WordQuestion(text="heart failure?", kind="column"), trained=True)
    book = Book(entries=(known,), prompt=Prompt())
    assert book.is_guess("asdf qwer") and not book.is_guess("Heart failure")
    assert "unknown" in book.worth("asdf qwer") and "“heart failure?”" in book.worth("asdf qwer")
    measured = book.model_copy(update={"new": Figure(auroc=0.6)})
    assert not measured.is_guess("asdf qwer") and "“heart failure?”" in measured.worth("asdf qwer")


def test_answers_of_which_one_is_right_are_one_distribution() -> None:
    p_QS = np.array([[0.6, 0.1], [0.9, 0.3]])
    whole = Book(entries=(), prompt=Prompt(), rest={"ward": 0.0, "place": 0.5})
    assert whole.among("ward", p_QS).tolist() == pytest.approx([0.4, 0.25])
    assert whole.among("place", p_QS).tolist() == pytest.approx([0.4, 0.1])  # another place is next


def test_a_mean_state_does_not_depend_on_the_batch_or_on_padding(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones["llama"], device="cpu")
    prompts = [np.array(ids, dtype=np.int64) for ids in ([5], [5, 6, 7], [8, 9, 10, 11, 12, 13])]
    together = mean_states(backbone, prompts)
    for prompt, state in zip(prompts, together, strict=True):
        assert state == pytest.approx(mean_states(backbone, [prompt])[0], abs=1e-4)
    assert np.abs(together[1] - together[2]).max() > 1e-3
