"""The doctor: everything that can be measured about codes before a language model is trained on them.

`examine` measures a tokenizer on a table, and says in words what is wrong and how to fix it.

`ceiling` says how well anything could predict from the codes: the same LightGBM is fitted on raw slots, quantised
vectors and codes of the same records. A language model cannot recover what is lost from raw slots to codes.

Shapes: N records, D slots, d latent, K levels, F features of one representation, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from tefm.base.errors import InputError, extra
from tefm.base.training import threads_for
from tefm.codes.coder import Codes, SlotCoder
from tefm.codes.fidelity import Collisions, Fidelity, LevelUse, codebook_use, collisions, measure
from tefm.codes.tokenizer import RecordTokenizer, kept_roles
from tefm.scoring import weighted
from tefm.scoring.weighted import bootstrap, resample_counts
from tefm.tables.columns import needed_columns
from tefm.tables.grouping import by_entity, in_buckets
from tefm.tables.layout import Slots
from tefm.tables.readers.table import Table
from tefm.tables.sequences import balance, check_label, distinct_rows, split
from tefm.tabular.learners import LIGHTGBM

#: Names of representations that the ceiling compares.
RAW, CODES = "raw slots", "codes"

#: A level that uses less than this share of its entries gets a warning.
FULL_USE = 0.99
#: A level whose perplexity is at most this share of the entries that the distinct records could use has collapsed.
COLLAPSED = 0.25
#: How much AUROC the codes may lose against the raw slots before there is a warning.
CEILING_LOSS = 0.02
#: How many of the records may share their code with a record of another label before there is a warning.
CONFLICTS = 0.05


@dataclass(frozen=True)
class CodeFinding:
    """One problem, and how to fix it."""

    level: str  # "warning" or "note"
    problem: str
    remedy: str


@dataclass(frozen=True)
class Examination:
    """Every measurement of one tokenizer on one table."""

    task_aware: bool
    fidelity: Fidelity
    use: list[LevelUse]
    collisions: Collisions
    #: scores of LightGBM on raw slots, latents and codes; None without labels
    ceiling: dict[str, Score] | None
    findings: list[CodeFinding]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self) | {"fidelity": self.fidelity.to_dict()}


def examine(
    coder: SlotCoder,
    x_ND: Slots,
    *,
    labels_N: NDArray[Any] | None = None,
    train_N: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Examination:
    """Measure a coder on records.

    With labels (None where unknown), the ceiling is fitted on those of `train_N` and scored on the other labelled ones.
    """
    codes_NK = coder.encode(x_ND)
    scores, labels = None, None
    if labels_N is not None and train_N is not None:
        used_N = labels_N != np.array(None)
        features = {RAW: x_ND[used_N], "latents": coder.latent(x_ND[used_N]), CODES: coder.embed(codes_NK[used_N])}
        scores = ceiling(features, labels_N[used_N], train_N[used_N], ~train_N[used_N], seed=seed)
        labels = labels_N if used_N.all() else None  # conflicts can only be counted where every record has a label
    fidelity = measure(x_ND, coder.decode(codes_NK), coder.layout, coder.mode_D_)
    use, shared = codebook_use(codes_NK, coder.config.entries), collisions(x_ND, codes_NK, labels)
    findings = [  # worst first
        *_codebook_findings(coder, x_ND, codes_NK),
        *_fidelity_findings(coder, fidelity),
        *_label_findings(coder, shared, scores),
    ]
    return Examination(bool(coder.classes_), fidelity, use, shared, scores, findings)


def examine_table(tokenizer: RecordTokenizer, table: Table, *, seed: int = 0) -> Examination:
    """Measure a tokenizer on a table; if it has the label, sequences are split by entity for the ceiling."""
    schema = tokenizer.schema
    roles = kept_roles(schema, table)
    frame = table.frame(list(dict.fromkeys([*needed_columns(table.columns, schema, table.name), *roles])))
    if frame.height < 2:
        raise InputError(f"{frame.height} record(s) are too few to examine", file=table.name, remedy="give at least 2")
    x_ND = tokenizer.vectoriser.transform(frame)
    if schema.label is None or schema.label not in table.columns:
        return examine(tokenizer.coder, x_ND, seed=seed)
    absent = [role for role in ("entity", "time") if getattr(schema, role) not in roles]
    sequences = by_entity(frame, schema.model_copy(update=dict.fromkeys(absent)), file=table.name)
    sequences = sequences.select(sequences.labelled)
    if sequences.labels is not None:
        sequences = replace(sequences, labels=in_buckets(sequences.labels, schema, table.name))
    check_label(sequences.labels, column=schema.label, file=table.name)
    sequences = sequences.select(balance(sequences, seed=seed))
    parts = split(sequences, shares=(0.8, 0.0, 0.2), seed=seed)
    labels_N = np.full(len(x_ND), None, dtype=object)
    labels_N[sequences.last] = sequences.labels
    train_N = np.zeros(len(x_ND), dtype=bool)
    train_N[sequences.last[parts == "train"]] = True
    return examine(tokenizer.coder, x_ND, labels_N=labels_N, train_N=train_N, seed=seed)


def _codebook_findings(coder: SlotCoder, x_ND: Slots, codes_NK: Codes) -> Iterator[CodeFinding]:
    """Levels that are not used; each distinct record counts once: repeated records are not a fault of the codes."""
    first = distinct_rows(x_ND)[0]
    for level in codebook_use(codes_NK[first], coder.config.entries):
        if level.perplexity <= COLLAPSED * min(level.entries, len(first)):
            used = f"{len(first):,} distinct records use its {level.entries} entries"
            problem = f"level {level.level} has collapsed: {used} as if there were {level.perplexity:.0f}"
            remedy = f"use fewer entries (--entries {max(2, coder.config.entries // 2)}), or more training steps"
            yield CodeFinding("warning", problem, remedy)
        elif level.utilisation < FULL_USE and len(first) >= level.entries:  # fewer records cannot use them all
            problem = f"level {level.level}: {level.dead} of {level.entries} entries are never used"
            remedy = "expected on a table of few records; otherwise use fewer entries (--entries)"
            yield CodeFinding("warning", problem, remedy)


def _fidelity_findings(coder: SlotCoder, fidelity: Fidelity) -> Iterator[CodeFinding]:
    config, lost = coder.config, fidelity.lost
    if lost:
        names = ", ".join(lost[:6]) + (" …" if len(lost) > 6 else "")
        yield CodeFinding(
            "warning",
            f"{len(lost)} field(s) are lost ({names}): decoding is no better than guessing their most common value",
            f"add a level (--levels {config.levels + 1}), or put fields you do not need under `ignore:`",
        )
    if fidelity.recall is not None and fidelity.recall < 0.5:
        problem = f"only {fidelity.recall:.0%} of the members present in sets are decoded"
        yield CodeFinding("warning", problem, f"add a level (--levels {config.levels + 1})")
    if fidelity.slot_accuracy <= fidelity.mode_slot_accuracy:
        guessing = f"always guessing the most common value ({fidelity.mode_slot_accuracy:.3f})"
        problem = f"slot accuracy {fidelity.slot_accuracy:.3f} is no better than {guessing}"
        yield CodeFinding("warning", problem, "train longer (--steps), or give more records")


def _label_findings(coder: SlotCoder, shared: Collisions, scores: dict[str, Score] | None) -> Iterator[CodeFinding]:
    if scores is not None and (codes := scores[CODES].auroc) < (raw := scores[RAW].auroc) - CEILING_LOSS:
        problem = f"the codes can predict at AUROC {codes:.3f} at best, the raw slots at {raw:.3f}"
        remedy = "add levels or entries" if coder.classes_ else "learn task-aware codes (leave out --unsupervised)"
        yield CodeFinding("warning", problem, remedy)
    if shared.conflicting is not None and shared.conflicting > CONFLICTS * shared.records:
        share = f"{shared.conflicting / shared.records:.0%} of the records"
        problem = f"{share} share their code with a record of another label"
        yield CodeFinding("warning", problem, "add entries or levels to separate them")


# ---- the code ceiling ------------------------------------------------------------------------------------------------


#: Enough to know the standard error to about 5% (1 / √(2 × 200)).
RESAMPLES = 200


@dataclass(frozen=True)
class Score:
    """How well one representation predicts: AUROC (with several classes, the mean of one against the rest)
    with its bootstrap standard error over the test rows, accuracy and macro F1."""

    auroc: float
    auroc_se: float
    accuracy: float
    macro_f1: float
    train_records: int
    test_records: int


def ceiling(
    features: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
    *,
    seed: int = 0,
) -> dict[str, Score]:
    """Score each named N×F representation."""
    with extra("doctor", "the code ceiling needs LightGBM"):
        from lightgbm import LGBMClassifier
    for name, rows in {"train": train, "test": test, **features}.items():
        if len(rows) != len(labels):
            raise InputError(f"{name!r} has {len(rows)} rows, but there are {len(labels)} labels")
    if both := int((train & test).sum()):
        raise InputError(f"{both} records are in both the training and the test rows", remedy="score on held-out rows")
    classes = np.unique(labels[train | test])
    train_labels, test_labels = (np.searchsorted(classes, labels[rows]) for rows in (train, test))
    _check_classes(classes, {"training": train_labels, "test": test_labels})

    scores = {}
    for name, x_NF in features.items():
        model: Any = LGBMClassifier(**LIGHTGBM, random_state=seed)
        with threads_for(len(train_labels)):
            model.fit(x_NF[train], train_labels)
        probabilities_NC = model.predict_proba(x_NF[test])
        predicted_N = probabilities_NC.argmax(axis=1)
        auroc, auroc_se = auroc_with_error(probabilities_NC, test_labels, seed)
        scores[name] = Score(
            auroc=auroc,
            auroc_se=auroc_se,
            accuracy=float((predicted_N == test_labels).mean()),
            macro_f1=float(f1_score(test_labels, predicted_N, average="macro", zero_division=0)),
            train_records=len(train_labels),
            test_records=len(test_labels),
        )
    return scores


def _check_classes(classes: NDArray[Any], parts: Mapping[str, NDArray[np.int64]]) -> None:
    if len(classes) < 2:
        raise InputError(
            f"the label has {len(classes)} classes, but prediction needs two", remedy="choose another label"
        )
    for part, labels_N in parts.items():
        missing = np.setdiff1d(np.arange(len(classes)), labels_N)
        if len(missing):
            raise InputError(
                f"{len(missing)} of {len(classes)} classes of the label do not occur in the {part} rows",
                value=classes[missing].tolist()[0],
                remedy="split stratified by the label, take more records, or leave the class out",
            )


def auroc_with_error(
    probabilities_NC: NDArray[np.float64], labels_N: NDArray[np.int64], seed: int
) -> tuple[float, float]:
    """The AUROC and its bootstrap standard error, stratified by class so that no sample lacks one."""

    def metric(weights_RN: NDArray[np.float64]) -> NDArray[np.float64]:
        return weighted.macro(weighted.auroc, probabilities_NC, labels_N, weights_RN)

    auroc, *resampled = bootstrap(metric, resample_counts(len(labels_N), RESAMPLES, seed, strata_N=labels_N))
    return float(auroc), float(np.std(resampled, ddof=1))
