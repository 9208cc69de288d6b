"""What a model knows about its questions: their words, calibration and figures. It is stored with the model."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from pydantic import Field as Setting

from tefm.base.errors import ArtefactError, SettingsError, failing_as
from tefm.base.files import write_json
from tefm.base.settings import Settings
from tefm.language.prompts import Prompt
from tefm.questions.catalogue import WordQuestion, normal
from tefm.scoring.calibration import Calibration
from tefm.tabular.heads import Floats, Head, Linear, Way, of_regression

#: The longest question in characters: longer ones are no questions, and take time for nothing.
LONGEST = 500

#: Where a smaller share of the answers is none of those asked about, these together are sure.
FEW = 0.05

Known = Literal["trained", "held out", "taught", "new"]


class Scaling(Settings):
    """From the log-odds of yes to a probability: a temperature, and a shift of yes."""

    temperature: float = Setting(default=1.0, gt=0, allow_inf_nan=False)
    shift: float = Setting(default=0.0, allow_inf_nan=False)

    @property
    def calibration(self) -> Calibration:
        return Calibration(self.temperature, threshold=0.5, bias=(0.0, self.shift))

    def probability(self, score_P: Floats) -> Floats:
        """The probability of yes."""
        logits_P2 = np.stack([np.zeros(len(score_P)), score_P], axis=1)
        return self.calibration.probabilities(logits_P2)[:, 1]


class Figure(Settings):
    """An AUROC with its 95% interval; None where it is not defined."""

    auroc: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def warning(self) -> str:
        """That the answers are no better than guessing, as far as is known; empty where they are."""
        if self.auroc is None or min(self.auroc, self.auroc if self.low is None else self.low) > 0.5:
            return ""
        return "below chance" if self.auroc < 0.5 else "no better than chance"

    def __str__(self) -> str:
        if self.auroc is None:
            return "AUROC not known"
        between = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"AUROC {self.auroc:.3f}{between}"


class Entry(Settings):
    """One question of the model."""

    question: WordQuestion
    #: the language model was fine-tuned on it; otherwise it was taught later, or held out to measure what new
    #: questions are worth
    trained: bool
    #: what answers it beside the language model, or in its place: of a taught question all that does, of a trained one
    #: trees, where they are better than its regression
    head: Head | None = None
    #: of a trained question, a regression on the fields; new questions are answered from those of all
    regression: Linear | None = None
    #: the share of the language model's log-odds in the answer
    share: float = Setting(default=1.0, ge=0, le=1)
    scaling: Scaling = Scaling()
    figure: Figure = Figure()
    #: the AUROC of the language model alone, and of the fields alone
    by_model: float | None = None
    by_fields: float | None = None
    #: histories that it was measured on, and those of them that answer yes
    asked: int = 0
    yes: int = 0
    #: the AUROC of a LightGBM that learned this question alone
    lightgbm: float | None = None

    @property
    def known(self) -> Known:
        if self.trained:
            return "trained"
        return "held out" if self.head is None else "taught"

    @property
    def way(self) -> Way:
        """How it is answered, if it was trained or taught."""
        head = self.head
        if head is None and self.regression is not None:
            head = of_regression(self.regression)
        return Way(self.question.text, head, 0.0 if self.known == "taught" else self.share)


class Book(Settings):
    """All questions of a model, and what a new one is worth."""

    entries: tuple[Entry, ...]
    #: how the model writes records before a question
    prompt: Prompt
    #: calibration of new questions, from the questions that were held out
    common: Scaling = Scaling()
    #: the share of the language model's log-odds in the answers to them
    share: float = Setting(default=1.0, ge=0, le=1)
    #: the mean AUROC over the held-out questions, its interval over these, and how many they are
    new: Figure = Figure()
    held_out: int = 0
    #: the same questions answered by the trained question that stands in for each best on validation
    in_place: Figure = Figure()
    #: of each field of whose values exactly one is next, the share of training answers that are not asked about
    rest: dict[str, Annotated[float, Setting(ge=0, le=1)]] = Setting(default={})
    #: the part of the data that the figures are measured on
    measured_on: Literal["", "validation", "test"] = ""

    @property
    def trained(self) -> tuple[Entry, ...]:
        return self._known_as("trained")

    @property
    def held(self) -> tuple[Entry, ...]:
        return self._known_as("held out")

    @property
    def taught(self) -> tuple[Entry, ...]:
        return self._known_as("taught")

    def _known_as(self, known: Known) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.known == known)

    def with_taught(self, entry: Entry) -> Book:
        """This book with a question that was taught; it replaces one that was taught with the same words."""
        before = self.to_replace(entry.question.text)
        others = tuple(other for other in self.entries if other is not before)
        return self.model_copy(update={"entries": (*others, entry)})

    def to_replace(self, text: str) -> Entry | None:
        """The taught question with these words, if any; refuses one that the model has from its fit."""
        entry = self.entry(text)
        if entry is not None and entry.known != "taught":
            known = "trained on" if entry.trained else "held out"
            problem = f"the model has this question already: it was {known}"
            raise SettingsError(problem, value=entry.question.text, remedy="use other words")
        return entry

    def entry(self, text: str) -> Entry | None:
        """The entry of a question with these words."""
        wanted = normal(text)
        return next((entry for entry in self.entries if normal(entry.question.text) == wanted), None)

    def learned(self, text: str) -> Entry | None:
        """The entry of a question that was trained or taught."""
        entry = self.entry(text)
        return None if entry is None or entry.known == "held out" else entry

    def one_of(self, text: str) -> tuple[Entry, ...]:
        """The questions of which exactly one is answered with yes, this one first; empty where it stands alone."""
        own = self.entry(text)
        if own is None or not own.question.one_of or own.question.source not in self.rest:
            return ()
        alike = (entry for entry in self.entries if entry is not own and entry.question.one_of)
        return own, *(entry for entry in alike if entry.question.source == own.question.source)

    def among(self, source: str | None, p_QS: Floats) -> Floats:
        """The probability of the first of several answers that exclude each other, from what each has by itself."""
        sum_S, rest = p_QS.sum(axis=0), self.rest[str(source)]
        p_S: Floats = p_QS[0] / (sum_S + (rest if rest <= FEW else np.maximum(0, 1 - sum_S)))
        return p_S

    def is_guess(self, text: str) -> bool:
        """Whether a question was not learned, and it is not known what answers to such questions are worth."""
        return self.learned(text) is None and self.new.auroc is None

    def known(self, text: str) -> Known:
        entry = self.entry(text)
        return "new" if entry is None else entry.known

    def scaling(self, text: str) -> Scaling:
        """How logits become a probability: a question that was learned has its own way, new ones have a common one."""
        entry = self.learned(text)
        return self.common if entry is None else entry.scaling

    def figure(self, text: str) -> Figure:
        """How good answers to this question are: its own figure if it was learned, that of new questions otherwise."""
        entry = self.learned(text)
        return self.new if entry is None else entry.figure

    def similar(self, text: str) -> str | None:
        """The learned question with the most similar words."""
        known = {normal(entry.question.text): entry.question.text for entry in (*self.trained, *self.taught)}
        matches = get_close_matches(normal(text), known, n=1, cutoff=0.0)
        return known[matches[0]] if matches else None

    def worth(self, text: str) -> str:
        """One sentence about how accurate answers to this question are."""
        if (entry := self.learned(text)) is not None:
            of_yes, warning = f"{entry.yes:,} of them yes", f": {entry.figure.warning}" if entry.figure.warning else ""
            if entry.trained:
                on = f"{entry.asked:,} {self.measured_on} histories, {of_yes}"
                return f"Trained question: {entry.figure} ({on}){warning}."
            on = f"the {entry.asked:,} labelled sequences that it was taught with, {of_yes}"
            return f"Taught question: {entry.figure} (cross-validated on {on}){warning}."
        is_new = self.known(text) == "new"
        words = "New question" if is_new else "Question that was held out of training"
        similar = self.similar(text) if is_new else None
        instead = f" The most similar trained question is “{similar}”." if similar else ""
        if self.new.auroc is None:
            remark = "the accuracy of this model on new questions is unknown, since none were held out"
            return f"{words}: {remark} or they were too rare.{instead}"
        mean = f"mean {self.new} over {self.held_out} questions that were held out of training"
        warning = f" That is {self.new.warning}." if self.new.warning else ""
        worth = f"expected AUROC of new questions, worded like the trained ones: {mean}."
        return f"{words}: {worth}{warning}{instead}"

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Book:
        problem, failures = "the questions of this model cannot be read: {reason}", (OSError, ValueError, TypeError)
        with failing_as((*failures, RecursionError), problem, error=ArtefactError, file=path, remedy="save it again"):
            return cls.checked(json.loads(path.read_text(encoding="utf-8")))


def question_frame(book: Book) -> pl.DataFrame:
    """The questions of a model, the trained ones first."""
    rows = [
        {
            "question": entry.question.text,
            "known": entry.known,
            "auroc": entry.figure.auroc,
            "auroc_low": entry.figure.low,
            "auroc_high": entry.figure.high,
            **{name: getattr(entry, name) for name in ("by_model", "by_fields", "lightgbm", "asked", "yes")},
        }
        for entry in (*book.trained, *book.taught, *book.held)
    ]
    floats = dict.fromkeys(("auroc", "auroc_low", "auroc_high", "by_model", "by_fields", "lightgbm"), pl.Float64)
    return pl.DataFrame(rows, schema_overrides=floats)


def checked_question(text: str) -> str:
    """A question as it is asked; an empty or endless one is refused."""
    text = " ".join(text.split())
    if not text.strip("?!. "):
        raise SettingsError("the question is empty", remedy="write one, for example: Next admission: heart failure?")
    if len(text) > LONGEST:
        problem, remedy = f"the question has {len(text):,} characters", f"use at most {LONGEST}"
        raise SettingsError(problem, value=f"{text[:60]}…", remedy=remedy)
    return text
