"""The arrays that a fit is made from. `prepare.py` makes them from tables, the benchmarks bring their own.

The language model learns from a mix of labels and the probabilities of the teacher (`tabular/teacher.py`), whose models
never saw the sequence: from the teacher alone about sequences without a label or left out of the balance, and, for the
paper's masks, from copies with a part of the slots masked.

Shapes: N records, D slots, K levels, S sequences, F features, Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.codes.coder import SlotCoder, teacher_of
from tefm.codes.config import MAX_ROWS
from tefm.language.prompts import Prompt
from tefm.pipeline.config import ModelConfig
from tefm.questions.question_data import QuestionData
from tefm.rationale.masked_model import random_keep
from tefm.scoring.calibration import log_softmax, prior_shift
from tefm.scoring.numbers import Buckets
from tefm.tables.layout import Layout, Slots
from tefm.tables.phrases import Phrases
from tefm.tables.sequences import Sequences, Texts, class_numbers, record_texts
from tefm.tabular.inputs import ALL, Features, Kind, RecordSlots, sequence_features, sequence_texts, words_of
from tefm.tabular.label_trees import LabelTrees, grow
from tefm.tabular.teacher import Teacher, taught_by_words


@dataclass(frozen=True)
class Part:
    """The records of one part of the data, and the labelled sequences among them."""

    #: row numbers into `slots_ND`, with the texts that go into the prompt
    sequences: Sequences
    #: the class number of each sequence
    labels_S: NDArray[np.int64]
    #: the slots of all records, also of those in no sequence
    slots_ND: Slots
    #: the label of each record, which task-aware codes learn from; None where it has none
    record_labels_N: Texts | None = None
    #: whose record it is: the records of an entity are held out together
    groups_N: NDArray[Any] | None = None
    #: where the label is a number: that of each sequence
    numbers_S: NDArray[np.float64] | None = None
    #: the sequences of the part that are not used, because they have no label or for the balance of the classes
    others: Sequences | None = None
    #: their class numbers, −1 where there is no label
    other_labels_S: NDArray[np.int64] | None = None

    def with_values(self, values_N: NDArray[Any]) -> Sequences:
        """The sequences with values of their records, given one per record of the part."""
        return self.sequences.with_values(values_N[self.sequences.rows])

    @property
    def slots(self) -> Sequences:
        """The sequences with the slots of their records."""
        return self.with_values(self.slots_ND)


@dataclass(frozen=True)
class TaskData:
    """All that a fit is made from."""

    training: Part
    #: other sequences, for early stopping and calibration; may be empty
    validation: Part
    classes: tuple[str, ...]
    #: the number of the class that AUROC and the decision threshold are about
    positive: int
    prompt: Prompt
    #: which slot holds what, and what it is called
    layout: Layout
    phrases: Phrases
    #: the share of each class in the population that probabilities are about; empty: as in the training sequences
    shares: tuple[float, ...] = ()
    #: the validation sequences that early stopping uses, which are balanced like the training; None: all of them
    stopping: NDArray[np.int64] | None = None
    #: questions in words and their answers, where there are some
    questions: QuestionData | None = None
    #: where the label is a number: its classes, and how they become numbers again
    buckets: Buckets | None = None
    #: whether the labels are a task of their own; otherwise they are the answers to the first question
    labelled: bool = True

    @property
    def trained_shares(self) -> tuple[float, ...]:
        """The share of each class in the training sequences."""
        return shares_of(self.training.labels_S, len(self.classes))


@dataclass(frozen=True)
class Given:
    """What one domain of a language model is fitted from; most models have a single one."""

    data: TaskData
    config: ModelConfig
    #: codes that were learned before, with which stage 1 is skipped
    coder: SlotCoder | None = None
    #: whether they were learned from these very records
    own_coder: bool = False

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each class in the population."""
        return self.data.shares or self.data.trained_shares


def shares_of(labels_S: NDArray[np.int64], classes: int) -> tuple[float, ...]:
    """The share of each class.

    >>> shares_of(np.array([0, 1, 1, 1]), classes=2)
    (0.25, 0.75)
    """
    return tuple((np.bincount(labels_S, minlength=classes) / max(1, len(labels_S))).tolist())


# ---- what the language model learns from -----------------------------------------------------------------------------


#: Sequences without a label, or left out of the balance, that are learned from, per training sequence at most.
OTHERS = 1
#: Sequences that the teacher learns from, at most; those of the training come first.
TAUGHT = 200_000
#: What became of each slot over a sequence is looked at from this many records on average: of fewer, it says little.
ORDERED = 3
#: Sequences with masked copies, at most: enough to learn what a partial record looks like.
COPIED = 5_000


@dataclass(frozen=True)
class Lesson:
    """Sequences as the language model reads them, with a class and, where there is a teacher, class probabilities."""

    sequences: Sequences
    labels_S: NDArray[np.int64]
    classes_SQ: NDArray[np.float64] | None = None


def examples_of(data: TaskData, config: ModelConfig) -> int:
    """How many sequences the language model will learn from, and histories with questions about them."""
    count, asked = len(data.training.sequences), 0 if data.questions is None else data.questions.examples
    if not data.labelled:
        return asked
    if _teaches(config) and data.training.others is not None:
        count += min(len(data.training.others), OTHERS * count)
    return count + config.copies * min(count, COPIED) + asked


def lesson_of(
    data: TaskData, config: ModelConfig, coder: SlotCoder, codes_NK: NDArray[Any], *, own_codes: bool = False
) -> Lesson:
    """The training sequences, some of the others, and masked copies; `codes_NK` are the codes of all records.

    `own_codes`: the coder was fitted on these records.
    """
    rows, labels_S, classes_SQ = data.training.sequences, data.training.labels_S, None
    if _teaches(config):
        everyone, everyone_labels_S = _everyone(data.training, config)
        log_SQ = _of_records(data, config, coder, everyone, everyone_labels_S) if own_codes else None
        if log_SQ is None or (everyone.lengths > 1).any():  # the earlier records may say more than the last ones
            taught = Teacher.fit(
                list(_choices(data, config, everyone).values()),
                everyone_labels_S,
                _groups(config, everyone),
                classes=len(data.classes),
                seed=config.seed,
                known_NQ=log_SQ,
            )
            log_SQ = taught.log_NQ
        log_SQ = _with_words(log_SQ, config, everyone, everyone_labels_S)
        classes_SQ = _mixed(log_SQ, everyone_labels_S, len(rows), data.trained_shares, config.tune_config.label_share)
        drawn = np.random.default_rng((config.seed, 7)).permutation(len(everyone) - len(rows))[: OTHERS * len(rows)]
        used = np.concatenate([np.arange(len(rows)), len(rows) + np.sort(drawn)])
        rows, classes_SQ = everyone.select(used), classes_SQ[used]
        # the answer of the others is the most probable one
        labels_S = np.concatenate([labels_S, classes_SQ[len(labels_S) :].argmax(axis=1)])
    codes = rows.with_values(codes_NK[rows.rows])
    rng = np.random.default_rng((config.seed, 4))
    copied = np.tile(np.sort(rng.permutation(len(rows))[:COPIED]), config.copies)
    if len(copied):
        slots = rows.select(copied)
        slots = slots.with_values(data.training.slots_ND[slots.rows])
        # a language model that has only seen whole records answers confidently, and wrongly, about one with three
        # features; what the check of a rationale says would depend on that
        codes = codes.followed_by(coder.coded(slots.masked(random_keep(slots, rng))))
    learned = np.concatenate([np.arange(len(rows)), copied])
    return Lesson(codes, labels_S[learned], None if classes_SQ is None else classes_SQ[learned])


def _teaches(config: ModelConfig) -> bool:
    return config.tune_config.label_share < 1


def _everyone(part: Part, config: ModelConfig) -> tuple[Sequences, NDArray[np.int64]]:
    """The training sequences, then the others, as rows; with class numbers, −1 where there is no label."""
    if part.others is None or part.other_labels_S is None or not len(part.others):
        return part.sequences, part.labels_S
    room = max(0, TAUGHT - len(part.sequences))
    kept = np.sort(np.random.default_rng((config.seed, 8)).permutation(len(part.others))[:room])
    others = part.others.select(kept)
    return part.sequences.followed_by(others), np.concatenate([part.labels_S, part.other_labels_S[kept]])


def _of_records(
    data: TaskData, config: ModelConfig, coder: SlotCoder, everyone: Sequences, labels_S: NDArray[np.int64]
) -> NDArray[np.float32] | None:
    """The log-probabilities of the classes from the teacher of the codes, which knows the last record alone."""
    part, taught = data.training, coder.teacher_
    labels_N, settings = part.record_labels_N, config.tokenizer_config
    single = bool((everyone.lengths == 1).all())
    sampled = len(part.slots_ND) > MAX_ROWS  # then the codes have not seen all records
    if not config.task_aware or sampled or coder.classes_ != data.classes:
        return None
    if config.window and not single:  # the teacher has seen other records of the same window
        return None
    assert labels_N is not None, "task-aware codes have labels"
    if taught is None:  # the coder was learned before this run was interrupted
        _, taught = teacher_of(part.slots_ND, data.layout, labels_N, part.groups_N, seed=settings.seed)
    log_SQ: NDArray[np.float32] = taught.log_NQ[everyone.last]
    if not single:  # the classes of sequences have other shares than those of records
        shares = (shares_of(of[of >= 0], len(data.classes)) for of in (class_numbers(labels_N)[1], labels_S))
        log_SQ = log_softmax(log_SQ + np.array(prior_shift(*shares) or (0.0,))).astype(np.float32)
    return log_SQ


def feature_kinds(config: ModelConfig, sequences: Sequences) -> tuple[Kind, ...]:
    """What a tabular model may be given of a sequence; validation chooses. Of one record, all kinds are the same."""
    if sequences.lengths.max() == 1:
        return ("last",)
    if config.window:
        return ("last", "flat")
    return ("last", "history", "order") if sequences.lengths.mean() >= ORDERED else ("last", "history")


def _choices(data: TaskData, config: ModelConfig, everyone: Sequences) -> dict[Kind, Features]:
    """The features that models of whole sequences choose from."""
    records = RecordSlots(data.training.slots_ND, data.layout, everyone)
    first, *others = feature_kinds(config, everyone)
    return {kind: sequence_features(records, kind) for kind in others or [first]}


def label_trees_of(data: TaskData, config: ModelConfig) -> LabelTrees | None:
    """Trees that answer beside the language model, from all labelled sequences; None where nothing can be learned."""
    everyone, labels_S = _everyone(data.training, config)
    choices, groups_S = _choices(data, config, everyone), _groups(config, everyone)
    return grow(choices, labels_S, groups_S, data.trained_shares, seed=config.seed)


def _groups(config: ModelConfig, everyone: Sequences) -> NDArray[np.int64]:
    """What is held out together: neighbouring windows, which resemble each other."""
    return np.arange(len(everyone)) // (10 if config.window else 1)


def _with_words(
    log_SQ: NDArray[np.float32], config: ModelConfig, everyone: Sequences, labels_S: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The teacher reads what the language model reads, so its answers are blind to no text."""
    texts = record_texts(everyone)
    if texts is None:
        return log_SQ
    of_sequences = sequence_texts(texts, everyone.with_values(np.arange(len(texts))), ALL)
    words_SV = words_of(of_sequences, np.arange(len(everyone)))
    if words_SV is None:
        return log_SQ
    return taught_by_words(log_SQ, words_SV, labels_S, _groups(config, everyone), seed=config.seed)


def _mixed(
    log_SQ: NDArray[np.float32],
    labels_S: NDArray[np.int64],
    trained: int,
    trained_shares: tuple[float, ...],
    label_share: float,
) -> NDArray[np.float64]:
    """The teacher's probabilities at the shares of the training sequences, mixed with the labels of these.

    `trained` sequences are trained on; the others follow.
    """
    classes = log_SQ.shape[1]
    bias = prior_shift(shares_of(labels_S[labels_S >= 0], classes), trained_shares)
    p_SQ = np.exp(log_softmax(log_SQ.astype(np.float64) + np.array(bias or (0.0,))))
    p_SQ[:trained] = (1 - label_share) * p_SQ[:trained] + label_share * np.eye(classes)[labels_S[:trained]]
    return p_SQ
