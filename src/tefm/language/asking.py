"""Many questions about one history: the records come first and the question last, so the records are read once.

The keys and values of a history are computed once (the prefix), and every question about it continues from there. A
question answered alone gets the same logits as in a batch, up to rounding.

Shapes: H histories, P pairs of a history and a question, B rows of a batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.language.backbone import Backbone
from tefm.language.prediction import Reader, answer_logits, common_prefix, default_batch_tokens, reading
from tefm.language.prompts import Ids, Prompt, PromptWriter
from tefm.language.vocabulary import TokenIds
from tefm.tables.sequences import Sequences

#: The two answers to a question in words, as classes.
NO_YES = ("no", "yes")
#: Fewer questions per history than this are cheaper as whole prompts, which batch better.
SHARES_FROM = 3


def question_prompt(prompt: Prompt) -> Prompt:
    """The prompt of questions in words: as the model writes records, then the question, then yes or no."""
    blank = "" if prompt.chat else " "
    answers = {name: f"{blank}{name.capitalize()}" for name in NO_YES}
    return prompt.model_copy(update={"message": "{records}", "answers": answers})


class QuestionWriter(PromptWriter):
    """Writes histories as prefixes and questions as tails; a prompt is a prefix followed by a tail."""

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


def pair_logits(
    backbone: Backbone,
    prefixes_H: Sequence[Ids],
    tails: Sequence[Ids],
    history_P: NDArray[np.int64],
    question_P: NDArray[np.int64],
    answers: Sequence[int],
    *,
    title: str | None = None,
) -> NDArray[np.float32]:
    """The logits of the answers' first tokens for pairs of a history and a question.

    A history with several questions is read once. Progress is displayed under `title`; without one, it is not.
    """
    logits_P2 = np.zeros((len(history_P), len(answers)), dtype=np.float32)
    asked_H = np.bincount(history_P, minlength=len(prefixes_H))
    pairs_of_H = np.split(np.argsort(history_P, kind="stable"), np.cumsum(asked_H)[:-1])
    longest = max((len(tail) for tail in tails), default=0)
    length_H = np.array([len(ids) for ids in prefixes_H], dtype=np.int64)
    # a layer that sees only so far back drops the first tokens of its cache, so questions cannot share it
    fits_H = np.full(len(prefixes_H), True) if backbone.window is None else length_H + longest < backbone.window
    shared_H = (asked_H >= SHARES_FROM) & fits_H & (length_H > 0)
    with reading(backbone), progress(title or "", len(history_P), show=title is not None) as advance:
        alone = np.flatnonzero(~shared_H[history_P])
        prompts = [np.concatenate([prefixes_H[history_P[p]], tails[question_P[p]]]) for p in alone]
        logits_P2[alone] = answer_logits(backbone, prompts, answers)
        advance(len(alone))
        for group in _groups(np.flatnonzero(shared_H), length_H, asked_H * longest, default_batch_tokens(backbone)):
            own = np.concatenate([pairs_of_H[history] for history in group])
            asked = [tails[question] for question in question_P[own]]
            # what all questions begin with ("Next admission:") is read once with each history
            same = common_prefix(asked)
            reader = Reader(backbone, answers, np.stack([np.append(prefixes_H[h], asked[0][:same]) for h in group]))
            rests, row_B = [tail[same:] for tail in asked], np.repeat(np.arange(len(group)), asked_H[group])
            for rows in similar_lengths([len(rest) for rest in rests]):
                logits_P2[own[rows]] = reader.logits([rests[row] for row in rows], row_B[rows])
            advance(len(own))
    return logits_P2


def _groups(
    histories: NDArray[np.int64], length_H: NDArray[np.int64], tokens_H: NDArray[np.int64], batch_tokens: int
) -> list[list[int]]:
    """Histories that are read together, the longest first: of one length, and as many as fill a batch."""
    groups: list[list[int]] = []
    tokens = 0
    for history in histories[np.argsort(-length_H[histories], kind="stable")].tolist():
        tokens += int(tokens_H[history])
        if not groups or length_H[history] != length_H[groups[-1][0]] or tokens > batch_tokens:
            groups.append([])
            tokens = int(tokens_H[history])
        groups[-1].append(history)
    return groups


def similar_lengths(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Groups of similar length, so that little is padded: the longest of a group is at most a quarter longer.

    >>> [group.tolist() for group in similar_lengths([5, 20, 4, 5, 16])]
    [[2, 0, 3], [4, 1]]
    """
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    groups: list[list[int]] = []
    for row in order.tolist():
        if not groups or lengths[row] > 1.25 * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(row)
    return [np.array(group, dtype=np.int64) for group in groups]
