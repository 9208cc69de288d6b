"""Measuring what a report shows: a fitted model on labelled sequences, each figure once.

Shapes: N records, S sequences, Q classes, K levels.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.progress import note, progress
from tefm.codes.coder import SlotCoder
from tefm.codes.doctor import findings, use_of_distinct
from tefm.codes.fidelity import codebook_use, collisions, measure
from tefm.codes.hierarchy import hierarchy
from tefm.explain import judge_of, slot_sequences
from tefm.fit import compared, count_tokens, judged_sequences, parted, rare, repeated
from tefm.rationale.card import quoted
from tefm.rationale.select import by_chance
from tefm.rationale.verify import faithfulness
from tefm.records.layout import Slots
from tefm.records.readers.table import Table, open_table
from tefm.records.sequences import Sequences
from tefm.scoring.metrics import score
from tefm.show.figures import Case, Codes, Cost, Figures, Map, Method, Rationales, class_by_class, reliability
from tefm.task import Task

if TYPE_CHECKING:
    from tefm.model import TEFM

#: Records on the map: more hide each other.
MAPPED = 2_000
#: Sequences that faithfulness is measured on, and those that are explained one by one: both ask the model many times.
ASKED, EXPLAINED = 200, 40
#: Wrong answers that are explained to find one whose rationale passes.
WRONG = 10
#: Classes that are counted in the head of the page.
NAMED = 25
#: Shares of the present features that are kept, as in docs/results/rationalization.md.
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)


def source_of(model: TEFM, name: str | None = None, *, query: str | None = None) -> Table | Task:
    """What a report is about: a task or a table by the name of its file, else what the model was fitted on."""
    if name is None:
        if model.source_ is None:
            raise InputError(
                "this model does not say which table it was fitted on",
                remedy="give the task file (its test part is used), or a table with labelled sequences",
            )
        return Task.checked(model.source_)
    return Task.load(name) if name.endswith((".yaml", ".yml")) else open_table(name, query=query)


def figures_of(model: TEFM, source: Any) -> Figures:
    """Measure a model on the labelled sequences of a table, or on the test part of a `Task`.

    With a task, tabular models learn from its training part, to stand beside the model.
    """
    part = _test_part(model, source) if isinstance(source, Task) else _whole_table(model, source)
    frame, sequences = part.frame, part.sequences
    assert model.schema_ is not None
    note(f"report · predicting {len(sequences):,} sequences")
    started = time.perf_counter()
    shown = model.read(frame, sequences)
    p_SQ = model.calibration_.probabilities(model.reader.logits(shown, show=True))
    seconds = time.perf_counter() - started
    labels_S = _numbers(model, sequences, part.file)
    predicted_S = model.calibration_.predict(p_SQ)
    scores = score(p_SQ, labels_S, model.classes_, predicted_N=predicted_S, positive=model.positive_).to_dict()
    tokens = count_tokens(model, frame, sequences)
    read = float(np.mean([len(prompt) for prompt in model.reader.prompts(shown)]))
    form = "codes" if model.tokenizer_ is not None else "text"
    methods = [Method(f"TEFM ({form})", scores, read)]
    methods += [Method(name, found["test_calibrated"], 0.0) for name, found in part.baselines.items()]
    two = len(model.classes_) == 2
    said_S = p_SQ[:, model.positive_] if two else p_SQ[np.arange(len(p_SQ)), predicted_S]
    hit_S = labels_S == (model.positive_ if two else predicted_S)
    rationales, to_explain = None, None
    if model.explainer_ is not None:
        wrong = np.flatnonzero(labels_S != predicted_S)
        surest = wrong[np.argsort(-p_SQ[wrong, predicted_S[wrong]], kind="stable")]
        rationales, to_explain = _rationales(model, part, labels_S, surest)
    return Figures(
        title=model.title,
        label=str(model.schema_.label),
        facts=_facts(model, part),
        positive=model.classes_[model.positive_] if two else None,
        methods=tuple(methods),
        tokens=tuple(tokens),
        calibration=reliability(said_S, hit_S),
        cost=Cost(len(sequences) / seconds, to_explain, _machine(model)),
        by_class=() if two else class_by_class(labels_S, predicted_S, model.classes_),
        codes=None if model.tokenizer_ is None else codes_of(model.tokenizer_.coder, part.slots(model)),
        rationales=rationales,
        warnings=(
            *part.warnings,
            *_stored_otherwise(model, scores, part),
            *map(_sentence, rare(model.classes_, sequences)),
        ),
    )


# ---- what is reported on ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    frame: pl.DataFrame
    #: the labelled ones
    sequences: Sequences
    file: str
    about: str
    is_test: bool
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def slots(self, model: TEFM) -> Slots:
        """All records, labelled or not."""
        assert model.tokenizer_ is not None
        return model.tokenizer_.vectoriser.transform(self.frame)


def _whole_table(model: TEFM, table: Any) -> _Part:
    opened = open_table(table)
    frame = opened.frame()
    assert model.schema_ is not None
    sequences = model.sequences(frame, model.schema_, file=opened.name)
    chosen = sequences.select(model.chosen(sequences, test=True))
    warning = (
        "A saved model does not know which sequences it has learned from: if these are among them, every figure here "
        "flatters. Give the task file instead of a table to see its test part."
    )
    return _Part(frame, chosen, opened.name, "all labelled sequences of the table", False, warnings=(warning,))


def _test_part(model: TEFM, task: Task) -> _Part:
    """The test part as `tefm fit` took it, and tabular models on the same split."""
    opened = open_table(task.table, query=task.query)
    frame = opened.frame()
    assert model.schema_ is not None
    sequences = model.sequences(frame, model.schema_, file=opened.name)
    parts, told = parted(model, sequences, task.split)
    note("report · fitting LightGBM and logistic regression on the same split")
    judged = judged_sequences(model, sequences, parts)
    baselines = compared(model, frame, *judged)
    remarks = (*told, *repeated(frame, model.schema_, *judged))
    test = frame[np.sort(sequences.select(parts == "test").rows)]
    sequences = model.sequences(test, model.schema_, file=opened.name)
    chosen = sequences.select(model.chosen(sequences, test=True))
    about = "the test part of the task, never learned from"
    return _Part(test, chosen, opened.name, about, True, baselines, tuple(map(_sentence, remarks)))


def _numbers(model: TEFM, sequences: Sequences, file: str) -> NDArray[np.int64]:
    """The class number of each sequence."""
    assert model.schema_ is not None
    numbers = {name: number for number, name in enumerate(model.classes_)}
    unknown = sorted({str(label) for label in np.asarray(sequences.labels) if label not in numbers})
    if unknown or not len(sequences):
        raise InputError(
            "the table has a class that the model does not know"
            if unknown
            else "no sequence of this table is labelled",
            file=file,
            column=model.schema_.label,
            value=unknown[0] if unknown else None,
            remedy=f"a report needs sequences labelled with {', '.join(model.classes_)}",
        )
    return np.array([numbers[label] for label in np.asarray(sequences.labels)], dtype=np.int64)


def _stored_otherwise(model: TEFM, scores: Mapping[str, Any], part: _Part) -> tuple[str, ...]:
    """A test part that gives other figures than those of the fit is another one."""
    stored = model.figures_.get("test")
    if not part.is_test or stored is None:
        return ()
    if (stored["n"], stored["accuracy"]["value"]) == (scores["n"], scores["accuracy"]["value"]):
        return ()
    return (
        f"The fit stored other figures of its test part ({stored['n']:,} sequences, accuracy "
        f"{stored['accuracy']['value']:.3f}): table or task file have changed since, so some of the sequences here may "
        "have been learned from.",
    )


def _sentence(remark: str) -> str:
    return f"{remark[0].upper()}{remark[1:]}."


def _facts(model: TEFM, part: _Part) -> dict[str, str]:
    assert model.schema_ is not None
    sequences, schema = part.sequences, model.schema_
    counts = Counter(np.asarray(sequences.labels).astype(str).tolist()).most_common()
    counted = [f"{count:,} × {quoted(name)}" for name, count in counts[:NAMED]]
    counted += [f"{len(counts) - NAMED:,} more classes"] if len(counts) > NAMED else []
    backbone = model.reader.backbone.model
    with_records = f" with {len(sequences.rows):,} {schema.record}s" if model.config.window or schema.entity else ""
    facts = {
        "Task": f"{schema.label}: {', '.join(map(quoted, model.classes_))}",
        "One sequence": model.one_sequence,
        "Data": f"{part.file}, {part.about}",
        "Sequences": f"{len(sequences):,}{with_records}; {schema.label}: {', '.join(counted)}",
        "Language model": f"{model.config.backbone}, {backbone.config.num_hidden_layers} blocks, "
        f"{backbone.num_parameters() / 1e6:,.1f} million weights",
    }
    if model.tokenizer_ is not None:
        coder = model.tokenizer_.coder
        kind = "saw the labels of the training records" if coder.classes_ else "saw no label"
        facts["Codes"] = (
            f"{coder.layout.width:,} slots become {coder.config.levels} numbers of {coder.config.entries} each "
            f"(K{coder.config.levels}-C{coder.config.entries}); they {kind}"
        )
    calibration = model.calibration_
    decides = "the most probable class"
    if calibration.threshold is not None:
        positive = model.classes_[calibration.positive]
        decides = f"{schema.label} = {positive} if its probability is at least {calibration.threshold:.3f}"
    facts["Decision"] = f"{decides}, temperature {calibration.temperature:.3f}"
    return facts


def _machine(model: TEFM) -> str:
    import torch

    device = model.reader.backbone.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"


# ---- what is measured -------------------------------------------------------------------------------------------


def codes_of(coder: SlotCoder, x_ND: Slots, *, seed: int = 0) -> Codes:
    """The examination of the doctor, with the counts and the map that a page shows; the records are coded once."""
    from sklearn.decomposition import PCA

    note(f"report · examining the codes of {len(x_ND):,} records")
    codes_NK = coder.encode(x_ND)
    fidelity = measure(x_ND, coder.decode(codes_NK), coder.layout, coder.mode_D_)
    use, shared = codebook_use(codes_NK, coder.config.entries), collisions(x_ND, codes_NK)
    prefixes = hierarchy(x_ND, codes_NK, coder.layout, seed=seed)
    some = np.sort(np.random.default_rng(seed).permutation(len(x_ND))[:MAPPED])
    flat_N2, variance = np.zeros((len(some), 2)), 1.0
    if len(np.unique(codes_NK[some], axis=0)) > 2:  # up to two points lie on a line, whatever the space
        pca = PCA(2, random_state=seed)
        flat_N2 = pca.fit_transform(coder.embed(codes_NK[some]))
        variance = float(pca.explained_variance_ratio_.sum())
    counts_KC = [np.bincount(codes_N, minlength=coder.config.entries) for codes_N in codes_NK.T]
    return Codes(
        records=len(x_ND),
        task_aware=bool(coder.classes_),
        use=tuple(use),
        counts=tuple(tuple(sorted(counts_C.tolist(), reverse=True)) for counts_C in counts_KC),
        fidelity=fidelity,
        collisions=shared,
        hierarchy=tuple(prefixes),
        map=Map(
            tuple(flat_N2[:, 0].tolist()),
            tuple(flat_N2[:, 1].tolist()),
            tuple(codes_NK[some, 0].tolist()),
            variance,
        ),
        findings=tuple(
            findings(
                coder, fidelity, use_of_distinct(x_ND, codes_NK, coder.config.entries), shared, prefixes, scores=None
            )
        ),
    )


def _rationales(
    model: TEFM, part: _Part, labels_S: NDArray[np.int64], wrong: NDArray[np.int64]
) -> tuple[Rationales, float]:
    """Faithfulness of some sequences, a few of them explained; and the seconds that one explanation took.

    `wrong` are the numbers of all sequences that are answered wrongly, the surest first.
    """
    order = np.random.default_rng(model.config.seed).permutation(len(part.sequences))
    asked = np.sort(order[:ASKED])
    slots = slot_sequences(model, part.frame, part.sequences.select(asked))
    judge = judge_of(model)
    with progress(f"faithfulness of {len(asked):,} sequences", None):
        rankings: dict[str, NDArray[Any]] = {
            "TEFM": model.explainer.rank(slots, judge(slots)),
            "random": by_chance(slots),
        }
        curves = faithfulness(judge, slots, labels_S[asked], rankings, SHARES, of="present")

    def explained(some: NDArray[np.int64]) -> list[Case]:
        found = model.explain(part.frame, entities=[str(name) for name in part.sequences.names[some]])
        return [Case(one, model.classes_[label]) for one, label in zip(found, labels_S[some], strict=True)]

    started = time.perf_counter()
    cases = explained(np.sort(order[:EXPLAINED]))
    seconds = (time.perf_counter() - started) / len(cases)
    found = [case.rationale for case in cases]
    missed = explained(wrong[:WRONG]) if len(wrong) else []
    kept = [one.retention.kept for one in found if one.passed]
    return Rationales(
        asked=len(asked),
        curves=tuple(curves),
        explained=len(found),
        passed=sum(one.passed for one in found),
        default=sum(one.verdict == "default" for one in found),
        kept=float(np.median(kept)) if kept else None,
        cases=_telling_cases(cases, missed),
        wrong=len(wrong),
    ), seconds


def _telling_cases(cases: list[Case], wrong: list[Case]) -> tuple[Case, ...]:
    """Right answers of two classes that pass, the surest of each, and a wrong one, if possible one that passes."""
    passed = sorted((case for case in cases if case.rationale.passed), key=lambda case: -case.rationale.full.p)
    right = [case for case in passed if case.rationale.predicted == case.label]
    by_class = {case.rationale.predicted: case for case in reversed(right)}
    missed = sorted(wrong, key=lambda case: not case.rationale.passed)
    return (*list(by_class.values())[:2], *missed[:1]) or tuple(cases[:1])
