"""The doctor: everything that can be known about codes before a language model is trained on them.

`examine` measures a tokenizer on a table; `findings` says in words what is wrong and what to change.

Shapes: N records, D slots, d latent, K levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.codes.ceiling import Score, ceiling
from tefm.codes.coder import SlotCoder
from tefm.codes.fidelity import Collisions, Fidelity, LevelUse, codebook_use, collisions, measure, row_ids
from tefm.codes.hierarchy import PrefixDistance, hierarchy
from tefm.codes.tokenizer import RecordTokenizer
from tefm.records.grouping import by_entity
from tefm.records.layout import Slots
from tefm.records.readers.table import Table
from tefm.records.splitting import balance, check_label, split
from tefm.records.vectorise import needed_columns

#: The names of what the ceiling compares.
RAW, CODES = "raw slots", "codes"

#: A level that uses less than this share of its entries is called out.
FULL_USE = 0.99
#: A level whose perplexity is at most this share of the entries that the distinct records could use has collapsed.
COLLAPSED = 0.25
#: How much AUROC the codes may lose against the raw slots before it is called out.
CEILING_LOSS = 0.02
#: Share of records that share their code with a record of another label.
CONFLICTS = 0.05


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, with what to change."""

    level: str  # "warning" or "note"
    problem: str
    remedy: str


@dataclass(frozen=True)
class Examination:
    """All measurements of one tokenizer on one table."""

    fidelity: Fidelity
    use: list[LevelUse]
    collisions: Collisions
    hierarchy: list[PrefixDistance]
    #: scores of LightGBM on raw slots and on the quantised latents; None without labels
    ceiling: dict[str, Score] | None
    task_aware: bool
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "task_aware": self.task_aware,
            "fidelity": self.fidelity.to_dict(),
            "use": [level.to_dict() for level in self.use],
            "collisions": self.collisions.to_dict(),
            "hierarchy": [prefix.to_dict() for prefix in self.hierarchy],
            "ceiling": None if self.ceiling is None else {k: score.to_dict() for k, score in self.ceiling.items()},
            "findings": [vars(finding) for finding in self.findings],
        }


def examine(
    coder: SlotCoder,
    x_ND: Slots,
    *,
    labels_N: NDArray[Any] | None = None,
    train_N: NDArray[np.bool_] | None = None,
    test_N: NDArray[np.bool_] | None = None,
    judged_N: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Examination:
    """Measure a coder on records.

    `judged_N` marks the records that fidelity is measured on (all by default). With labels, the ceiling is
    learned on `train_N` and scored on `test_N`; records with no label belong to neither.
    """
    judged_N = np.ones(len(x_ND), dtype=bool) if judged_N is None else judged_N
    codes_NK = coder.encode(x_ND)
    judged_ND, judged_codes_NK = x_ND[judged_N], codes_NK[judged_N]
    labels = labels_N[judged_N] if labels_N is not None and all(v is not None for v in labels_N[judged_N]) else None
    scores = None
    if labels_N is not None and train_N is not None and test_N is not None:
        used = train_N | test_N
        features = {RAW: x_ND[used], "latents": coder.latent(x_ND[used]), CODES: coder.embed(codes_NK[used])}
        scores = ceiling(features, labels_N[used], train_N[used], test_N[used], seed=seed)
    fidelity = measure(judged_ND, coder.decode(judged_codes_NK), coder.layout, coder.mode_D_)
    use = codebook_use(codes_NK, coder.config.entries)
    found = collisions(judged_ND, judged_codes_NK, labels)
    prefixes = hierarchy(judged_ND, judged_codes_NK, coder.layout, seed=seed)
    said = findings(coder, fidelity, use_of_distinct(x_ND, codes_NK, coder.config.entries), found, prefixes, scores)
    return Examination(fidelity, use, found, prefixes, scores, bool(coder.classes_), said)


def examine_table(tokenizer: RecordTokenizer, table: Table, *, seed: int = 0) -> Examination:
    """Measure a tokenizer on a table; with a label in it, sequences are split by entity for the ceiling."""
    schema = tokenizer.schema
    roles = [name for name in (schema.entity, schema.time, schema.label) if name is not None and name in table.columns]
    frame = table.frame(list(dict.fromkeys([*needed_columns(table, schema), *roles])))
    if frame.height < 2:
        raise InputError(f"{frame.height} record(s) are too few to examine", file=table.name, remedy="give at least 2")
    x_ND = tokenizer.vectoriser.transform(frame)
    if schema.label is None or schema.label not in table.columns:
        return examine(tokenizer.coder, x_ND, seed=seed)
    known = schema.model_copy(update={role: None for role in ("entity", "time") if getattr(schema, role) not in roles})
    sequences = by_entity(frame, known, file=table.name)
    sequences = sequences.select(sequences.labelled)
    check_label(sequences.labels, column=schema.label, file=table.name)
    sequences = sequences.select(balance(sequences, seed=seed))
    parts = split(sequences, shares=(0.8, 0.0, 0.2), seed=seed)
    labels_N = np.full(len(x_ND), None, dtype=object)
    labels_N[sequences.last] = sequences.labels
    train_N, test_N = np.zeros(len(x_ND), dtype=bool), np.zeros(len(x_ND), dtype=bool)
    train_N[sequences.last[parts == "train"]] = True
    test_N[sequences.last[parts == "test"]] = True
    return examine(tokenizer.coder, x_ND, labels_N=labels_N, train_N=train_N, test_N=test_N, seed=seed)


@dataclass(frozen=True)
class DistinctUse:
    """How the codebooks are used by records of which each counts once."""

    records: int
    levels: list[LevelUse]


def use_of_distinct(x_ND: Slots, codes_NK: NDArray[np.integer[Any]], entries: int) -> DistinctUse:
    """The use of the codebooks without repetitions: what recurs in a table is no fault of its codes.

    >>> x_ND = np.array([[1, 1], [1, 1], [1, 1], [2, 1]], np.uint8)
    >>> found = use_of_distinct(x_ND, np.array([[0], [0], [0], [1]]), entries=2)
    >>> found.records, found.levels[0].perplexity
    (2, 2.0)
    """
    first = np.unique(row_ids(x_ND), return_index=True)[1]
    return DistinctUse(len(first), codebook_use(codes_NK[first], entries))


def findings(
    coder: SlotCoder,
    fidelity: Fidelity,
    use: DistinctUse,
    found: Collisions,
    prefixes: list[PrefixDistance],
    scores: dict[str, Score] | None,
) -> list[Finding]:
    """What is wrong, in words, worst first."""
    config = coder.config
    said: list[Finding] = []

    def warn(problem: str, remedy: str) -> None:
        said.append(Finding("warning", problem, remedy))

    for level in use.levels:
        if level.perplexity <= COLLAPSED * min(level.entries, use.records):
            warn(
                f"level {level.level} has collapsed: {use.records:,} distinct records use its {level.entries} entries "
                f"as if there were {level.perplexity:.0f}",
                f"use fewer entries (--entries {max(2, config.entries // 2)}), or more training steps",
            )
        elif level.utilisation < FULL_USE and use.records >= level.entries:  # fewer records cannot use them all
            warn(
                f"level {level.level}: {level.dead} of {level.entries} entries are never used",
                "expected on a table of few records; otherwise set replace_dead and settle, or use fewer entries",
            )
    lost = fidelity.lost
    if lost:
        named = ", ".join(lost[:6]) + (" …" if len(lost) > 6 else "")
        warn(
            f"{len(lost)} field(s) are lost, the codes say no more about them than the most common value does: {named}",
            f"add a level (--levels {config.levels + 1}), or put fields you do not need under `ignore:`",
        )
    if fidelity.recall is not None and fidelity.recall < 0.5:
        warn(
            f"only {fidelity.recall:.0%} of the present members of sets come back",
            f"raise member_weight (now {config.member_weight:g}), or add a level",
        )
    if fidelity.slot_accuracy <= fidelity.mode_slot_accuracy:
        warn(
            f"slot accuracy {fidelity.slot_accuracy:.3f} is no better than always guessing the most common value "
            f"({fidelity.mode_slot_accuracy:.3f})",
            "train longer (--steps), or give more records",
        )
    if scores is not None:
        raw, coded = scores[RAW], scores[CODES]
        if coded.auroc < raw.auroc - CEILING_LOSS:
            remedy = "add levels or entries" if coder.classes_ else "let the codes see the label (no --unsupervised)"
            warn(f"the codes can predict at AUROC {coded.auroc:.3f} at best, the raw slots at {raw.auroc:.3f}", remedy)
    if found.conflicting is not None and found.conflicting > CONFLICTS * found.records:
        warn(
            f"{found.conflicting / found.records:.0%} of the records share their code with a record of another label",
            "more entries or levels tell them apart",
        )
    ratios = [prefix.ratio for prefix in prefixes if prefix.ratio is not None]
    if any(later >= earlier for earlier, later in pairwise(ratios)):
        said.append(
            Finding("note", "a longer prefix of the code does not mean more similar records", "train longer (--steps)")
        )
    return said
