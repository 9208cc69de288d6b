"""What is shown of a fit and of a model, as plain data; `tefm.model.run` and `tefm.model.report` measure it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tefm.codes.doctor import Examination
from tefm.explain.explanation import Explanation
from tefm.explain.summary import Summary
from tefm.language.shortening import TokenCount
from tefm.questions.book import Book
from tefm.scoring.breakdown import Bin, ClassScores, Confusion, Curve, Evaluation, GroupScores, ThresholdCounts
from tefm.scoring.metrics import Verdict
from tefm.scoring.numbers import metrics_in

#: A bootstrap over fewer sequences than this gives intervals that are too narrow.
FEW_FOR_INTERVALS = 50
#: What the scores of classes are called; of those with an arrow, less is better.
TITLES = {
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "auprc": "AUPRC",
    "brier": "Brier ↓",
    "ece": "ECE ↓",
}


def titles_of(scores: Mapping[str, Any]) -> Mapping[str, str]:
    """What the scores of classes, or of a number, are called."""
    return TITLES if "auroc" in scores else metrics_in(scores)


def plain(figures: Any) -> dict[str, Any]:
    """A dataclass of figures for JSON, which has no nan: None instead.

    >>> from tefm.scoring.weighted import Interval
    >>> plain(Interval(0.5, float("nan"), 1.0))
    {'value': 0.5, 'low': None, 'high': 1.0}
    """
    return asdict(figures, dict_factory=lambda pairs: {name: None if x != x else x for name, x in pairs})


@dataclass(frozen=True)
class Method:
    """The scores of one model on the sequences of the report, as `Scores.to_dict` gives them."""

    name: str
    scores: Mapping[str, Any]
    #: per sequence; 0 for a model that reads the table directly
    tokens: float


@dataclass(frozen=True)
class FieldGroups:
    """The scores of the groups that one field divides the sequences into, by their last records."""

    field: str
    groups: tuple[GroupScores, ...]


@dataclass(frozen=True)
class Overview:
    """The data that the report is about."""

    #: part → class → labelled sequences
    classes: Mapping[str, Mapping[str, int]]
    records: int
    #: the share of the records without a value, for the fields that lack some; the largest first
    missing: Mapping[str, float]
    fields: int
    #: records per sequence: fewest, median, mean, most
    lengths: tuple[float, float, float, float]
    #: records with the same time as the one before them in their sequence; None without times
    tied: int | None = None


@dataclass(frozen=True)
class Case:
    """One explained sequence, with the class that was recorded."""

    explanation: Explanation
    label: str


@dataclass(frozen=True)
class ExplainedExamples:
    """What explanations of some sequences have in common, and examples."""

    summary: Summary
    cases: tuple[Case, ...]
    #: wrong predictions among all sequences of the report
    wrong: int


@dataclass(frozen=True)
class Figures:
    """Everything a report shows."""

    title: str
    #: the column that holds the classes
    label: str
    #: name and value, for the head of the page
    facts: Mapping[str, str]
    #: the class that AUROC and calibration refer to; None for several classes
    positive: str | None
    methods: tuple[Method, ...]
    confusion: Confusion
    overview: Overview
    tokens: tuple[TokenCount, ...]
    calibration: tuple[Bin, ...]
    #: what `tefm doctor` measures of the codes
    codes: Examination
    #: sequences whose tokens were counted
    tokens_counted: int
    #: classes and groups with fewer sequences than this are marked
    few: int
    #: which model is better here, in a sentence; None where that was not measured
    verdict: str | None = None
    #: of the positive class, or of several classes
    curves: tuple[Curve, ...] = ()
    #: None for several classes
    thresholds: ThresholdCounts | None = None
    #: the fields whose groups differ most in accuracy, and how many more there are
    groups: tuple[FieldGroups, ...] = ()
    more_groups: int = 0
    #: the classes, the most frequent first; empty for two classes, which the scores cover
    by_class: tuple[ClassScores, ...] = ()
    explained: ExplainedExamples | None = None
    warnings: tuple[str, ...] = ()
    #: of times until an event, times and the shares without it after them: as observed (Kaplan–Meier), as predicted
    remaining: tuple[tuple[Sequence[float], Sequence[float]], ...] | None = None

    @property
    def number(self) -> float | None:
        """Of a label that is a number: what its interval is to hold; the classes are up to the median and above it."""
        return self.methods[0].scores.get("interval")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        body = plain(replace(self, explained=None)) | {"codes": self.codes.to_dict()}
        if (explained := self.explained) is not None:
            body["explained"] = {
                "summary": asdict(explained.summary),
                "cases": [{"label": case.label, "explanation": case.explanation.to_json()} for case in explained.cases],
                "wrong": explained.wrong,
            }
        return body


@dataclass(frozen=True)
class Outcome:
    """What came of a task: figures on its test part, and those of what users do today."""

    #: what the model is called beside others
    title: str
    classes: tuple[str, ...]
    #: sequences that were trained on, validated on and tested on
    sequences: Mapping[str, int]
    test: Evaluation
    #: figures of tabular models on the same sequences; empty when LightGBM is not installed
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tokens: tuple[TokenCount, ...] = ()
    #: what a reader of the figures has to know
    remarks: tuple[str, ...] = ()
    #: the model and the tabular model that did best on validation; None without a comparison
    verdict: Verdict | None = None
    #: what was predicted for the test sequences of each class
    confusion: Confusion | None = None
    #: how good the answers to questions in words are, where there are some
    questions: Book | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "classes": list(self.classes),
            "sequences": dict(self.sequences),
            "test": self.test.to_dict(),
            "baselines": {name: figures["test_calibrated"] for name, figures in self.baselines.items()},
            "tokens": [vars(count) for count in self.tokens],
            "remarks": list(self.remarks),
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "confusion": None if self.confusion is None else asdict(self.confusion),
            **({} if self.questions is None else {"questions": self.questions.model_dump(mode="json")}),
        }
