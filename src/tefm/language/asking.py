"""Many questions about one history: the records come first and the question last, so the records are read once.

The keys and values of a history are computed once (the prefix), and every question about it continues from there. A
question answered alone gets the same logits as in a batch, up to rounding.

Shapes: H histories, P pairs of a history and a question, B rows of a batch, T tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import model_inputs, padded
from tefm.language.prediction import answer_logits, answering, common_prefix, default_batch_tokens
from tefm.language.prompts import Ids, Prompt, PromptWriter
from tefm.language.vocabulary import TokenIds
from tefm.tables.sequences import Sequences, Text

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

    def asking(self, question: str) -> QuestionWriter:
        """The writer with another question at the end of its prompts."""
        writer = copy.copy(self)
        writer.question = question
        return writer

    def tail(self, question: str) -> Ids:
        """The tokens of a question; a code or a turn that is written in it is plain text."""
        return self._ids(f" {self._without_special_tokens(question.strip())}{self.after}", cache=False)

    def prefixes(self, histories: Sequences) -> list[Ids]:
        """The tokens of each history, up to the question."""
        return super().of_codes(histories.codes_NK, histories.starts, texts=histories.texts, gaps=histories.gaps)

    def of_codes(
        self,
        codes_NK: NDArray[np.integer],
        starts: NDArray[np.integer],
        *,
        texts: Sequence[Text] | None = None,
        gaps: Sequence[str] | None = None,
    ) -> list[Ids]:
        """One prompt per sequence: its records, then the question."""
        tail = self.tail(self.question)
        return [np.concatenate([ids, tail]) for ids in super().of_codes(codes_NK, starts, texts=texts, gaps=gaps)]


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

    Histories with several questions are read once. Progress is displayed under `title`; without one, it is not.
    """
    logits_P2 = np.zeros((len(history_P), len(answers)), dtype=np.float32)
    asked_H = np.bincount(history_P, minlength=len(prefixes_H))
    longest = max((len(tail) for tail in tails), default=0)
    length_H = np.array([len(ids) for ids in prefixes_H], dtype=np.int64)
    # a layer that sees only so far back drops the first tokens of its cache, so questions cannot share it
    fits_H = np.full(len(prefixes_H), True) if backbone.window is None else length_H + longest < backbone.window
    shared_P = ((asked_H >= SHARES_FROM) & fits_H & (length_H > 0))[history_P]
    with progress(title or "", len(history_P), show=title is not None) as advance:
        alone = np.flatnonzero(~shared_P)
        prompts = [np.concatenate([prefixes_H[history_P[p]], tails[question_P[p]]]) for p in alone]
        logits_P2[alone] = answer_logits(backbone, prompts, answers)
        advance(len(alone))
        by_length: dict[int, list[int]] = {}
        for history in np.unique(history_P[shared_P]).tolist():
            by_length.setdefault(int(length_H[history]), []).append(history)
        pairs = np.flatnonzero(shared_P)
        pairs = pairs[np.argsort(history_P[pairs], kind="stable")]
        first_H = np.searchsorted(history_P[pairs], np.arange(len(prefixes_H) + 1))
        with torch.no_grad(), autocast(backbone.device):
            for _, histories in sorted(by_length.items(), reverse=True):
                for group in _groups(histories, asked_H, longest, default_batch_tokens(backbone)):
                    own = np.concatenate([pairs[first_H[h] : first_H[h + 1]] for h in group])
                    prefixes = np.stack([prefixes_H[h] for h in group])
                    row_B = np.repeat(np.arange(len(group)), asked_H[group])
                    logits_P2[own] = _after_prefix(
                        backbone, prefixes, row_B, [tails[question] for question in question_P[own]], answers
                    )
                    advance(len(own))
    return logits_P2


def _groups(histories: Sequence[int], asked_H: NDArray[np.int64], longest: int, batch_tokens: int) -> list[list[int]]:
    """Histories of one length that are read together: as many as their questions fill a batch."""
    groups: list[list[int]] = [[]]
    tokens = 0
    for history in histories:
        own = int(asked_H[history]) * longest
        if groups[-1] and tokens + own > batch_tokens:
            groups.append([])
            tokens = 0
        groups[-1].append(history)
        tokens += own
    return groups


def _after_prefix(
    backbone: Backbone, prefixes_HT: Ids, row_B: NDArray[np.int64], tails: Sequence[Ids], answers: Sequence[int]
) -> NDArray[np.float32]:
    """The logits after tails that continue the histories with the numbers `row_B`, all of one length.

    What all tails begin with ("Next admission:") is read once with each history.
    """
    device = backbone.device
    model, columns = answering(backbone.model, answers)
    same = common_prefix(tails)
    prefixes_HT = np.hstack([prefixes_HT, np.tile(tails[0][:same], (len(prefixes_HT), 1))])
    tails = [tail[same:] for tail in tails]
    ids_HT = torch.from_numpy(prefixes_HT).to(device)
    cache = model(input_ids=ids_HT, use_cache=True, logits_to_keep=1).past_key_values
    pad, before = int(backbone.tokenizer.pad_token_id), prefixes_HT.shape[1]
    logits_B2 = np.zeros((len(tails), len(answers)), dtype=np.float32)
    for rows in similar_lengths([len(tail) for tail in tails]):
        own = copy.deepcopy(cache)
        own.batch_select_indices(torch.from_numpy(row_B[rows]).to(device))
        ids_BT, mask_BT = (tensor.to(device) for tensor in padded([tails[row] for row in rows], pad))
        inputs = model_inputs(ids_BT, mask_BT, before=before, window=backbone.window)
        output = model(**inputs, past_key_values=own, use_cache=True, logits_to_keep=1)
        logits_B2[rows] = output.logits[:, -1, columns].float().cpu().numpy()
    return logits_B2


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
