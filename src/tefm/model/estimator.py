"""`TEFM`: the whole thing as a scikit-learn classifier of tables. fit, predict, explain, evaluate, save, load.

`prepare.py` turns a table into arrays, `pipeline.py` fits the four stages on them, `bundle.py` saves the result.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial, wraps
from html import escape
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from tefm.base.errors import InputError, NotFittedError, SettingsError, did_you_mean, failing_as
from tefm.base.progress import log, progress
from tefm.base.training import ahead
from tefm.codes.tokenizer import RecordTokenizer
from tefm.explain.explanation import Explanation
from tefm.explain.rationale_card import Rationale
from tefm.explain.reasons import Question
from tefm.explain.summary import Summary
from tefm.language.config import Start
from tefm.language.prompts import Style
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.model import explainer
from tefm.model.ask import QuestionExplainer, ask, book_of, teach, with_taught
from tefm.model.bundle import Bundle, card_of, save_domains
from tefm.model.bundle import load as load_bundle
from tefm.monitor.differences import LEVEL
from tefm.monitor.monitor import Monitoring, monitor
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.fit import fit as fit_pipeline
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, Prepared, label_numbers, prepare, records_of
from tefm.questions.book import question_frame
from tefm.scoring.breakdown import Decisions, Evaluation
from tefm.scoring.decision import one_answer
from tefm.scoring.numbers import NumberScores
from tefm.tables.infer import infer_schema
from tefm.tables.readers.arrow import as_table
from tefm.tables.readers.table import Table, open_table
from tefm.tables.records import Records
from tefm.tables.references import References
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences

Made = TypeVar("Made", bound=BaseEstimator)

#: From this number of sequences on, it is odd that all have the same prediction.
MANY = 50
#: The column that labels given apart from the table are put into, when the schema names none.
LABEL = "label"


class _NotFittedYetError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]  # scikit-learn is untyped
    """What both kinds of callers catch."""


def _naming_parameters(model: type[Made]) -> type[Made]:
    """An estimator whose constructor suggests a name for a parameter that it does not have."""
    construct = model.__init__

    @wraps(construct)
    def checked(self: Made, *values: Any, **given: Any) -> None:
        known = list(signature(construct).parameters)[1:]
        for name in given:
            if name not in known:
                raise TypeError(f"{model.__name__} has no parameter {name!r}; {did_you_mean(name, known)}")
        construct(self, *values, **given)

    model.__init__ = checked
    return model


@_naming_parameters
@dataclass(eq=False, repr=False)
class TEFM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Predict a class for each sequence of records with a language model that reads codes.

    A *sequence* is all the records of one entity (the schema's `entity` column), `window` consecutive rows, or, with
    neither, a single row. `predict`, `predict_proba` and `explain` return one result per sequence, in the order of
    the sequences' first rows; `predict_table` returns them with the identifiers.

    Tables are paths (CSV, Parquet, Arrow, JSON lines, DuckDB), polars or pandas frames, pyarrow tables, NumPy arrays,
    one record as a dict, or a list of dicts.

    Parameters
    ----------
    schema : Schema, optional
        What the columns mean: entity, time, label, fields. Inferred from the training table when left out.
    tokenizer : RecordTokenizer or path, optional
        A fitted tokenizer (without the label among its fields); learned by `fit` when left out.
    device : str, optional
        `cpu` or `cuda`; the GPU when there is one.
    window : int, optional
        Consecutive rows that make a sequence; the records of an entity when left out.
    background : str, optional
        The background class, e.g. BENIGN: the label of a sequence is the first one that differs from it.
    balance : {"none", "train", "all"}
        Keep as many sequences of every class as the rarest has: for training, or for training and evaluation.
    codes : dict, optional
        Settings of the tokenizer (`TokenizerConfig`), like `{"levels": 3, "entries": 128}`.
    task_aware : bool
        Whether the codes learn from the training labels too. They then carry a part of the answer.
    backbone : str
        The causal language model: `smollm2-135m`, a folder, or a Hugging Face hub id.
    layers : int, optional
        First transformer blocks of the backbone that are kept; 6 of SmolLM2's 30, all of any other.
    start : {"codebook", "words", "mean"}
        Where the embeddings of the new tokens start.
    align : {"auto", "none", "default", "paper"} or dict
        Alignment of codes and words before fine-tuning; `auto` aligns with few labels and a GPU.
    prompt : str or dict
        The question: the name of a preset (`generic`, `mortality`, `intrusion`), or settings of a `Prompt`.
    style : {"compact", "full"}
        The wording of a preset's prompt.
    positive : str, optional
        Of two classes, the one of AUROC and threshold; by default, by its name (yes, died, attack …), else the rarer.
    decision : {"auto", "accuracy", "f1", "balanced"} or dict
        The metric that decisions optimise: accuracy, F1 (macro F1 of several classes), mean recall, or the cost of
        missing each class, `{"cost": {"died": 20, "survived": 1}}`. `auto`: F1 if a class is below 0.2.
    tune : dict, optional
        Settings of the fine-tuning (`TuneConfig`), like `{"steps": 400}`.
    beside : {"auto", "trees", "none"}
        `trees`: boosted trees on the fields answer too; the mean of both is weighted on validation sequences.
        `none`: the language model alone, from the codes alone. `auto`: `trees`, unless the paper's masks are learned.
    explanations : {"default", "none"} or dict
        Settings of the explanations (`LookAlikeConfig`), which store training sequences without names, or `none`.
    rationale : {"none", "default", "paper"} or dict
        Also learn the paper's masks (`RationaleConfig`), for `explain_masked`.
    questions : list of dict or dict, optional
        Questions in words, with the label or instead of it: entries (`QuestionSettings`), or a `QuestionsConfig`.
    quick : bool
        A first look in minutes of CPU: short training on a sample, no explanations unless `explanations` is set.
    deterministic : bool
        The same model on any number of cores: `fit` uses one thread and algorithms whose results do not vary.
    seed : int
        Everything random depends on it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, in alphabetical order; numbers or truth values where the label was.
    fitted_ : Fitted
        The four stages: coder, classifier, calibration, explainer.
    preparation_ : Preparation
        How tables become their input.
    n_features_in_ : int
        The columns of the training table.
    figures_ : dict
        What was measured, by part of the data (`validation`, `test`).
    source_ : dict or None
        The table that a task file named and how it was split.
    reference_ : MonitorReference or None
        Counts of held-out records, which `monitor` compares new ones with.

    Examples
    --------
    >>> from tefm import TEFM
    >>> TEFM(prompt="mortality", layers=2)
    TEFM(layers=2, prompt='mortality')
    """

    schema: Schema | None = None
    _: KW_ONLY
    tokenizer: RecordTokenizer | str | Path | None = None
    device: str | None = None
    window: int | None = None
    background: str | None = None
    balance: Literal["none", "train", "all"] = "none"
    codes: Mapping[str, Any] | None = None
    task_aware: bool = True
    backbone: str = SMOLLM2
    layers: int | None = None
    start: Start = "codebook"
    align: str | Mapping[str, Any] = "auto"
    prompt: str | Mapping[str, Any] = "generic"
    style: Style = "compact"
    positive: str | None = None
    decision: str | Mapping[str, Any] = "auto"
    tune: Mapping[str, Any] | None = None
    beside: Literal["auto", "trees", "none"] = "auto"
    explanations: str | Mapping[str, Any] = "default"
    rationale: str | Mapping[str, Any] = "none"
    questions: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None
    quick: bool = False
    deterministic: bool = False
    seed: int = 0
    #: explanations of questions, once one was asked for
    _explainer: QuestionExplainer | None = field(default=None, init=False)

    @property
    def config(self) -> ModelConfig:
        """The parameters, checked; an error names the one that is wrong."""
        given = {name: getattr(self, name) for name in ModelConfig.model_fields}
        return ModelConfig.checked({name: value for name, value in given.items() if value is not None})

    # ---- learning ---------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, validation: Any = None, checkpoint: str | Path | None = None) -> TEFM:
        """Learn from the labelled sequences of a table.

        Parameters
        ----------
        X : table
            The training records, one per row.
        y : array-like, optional
            One label per row, in place of the schema's label column.
        validation : table, optional
            Other sequences, for early stopping and calibration; a tenth of the sequences when left out.
        checkpoint : path, optional
            A folder: an interrupted fit resumes from there when it is called again. Several processes need one.
        """
        prepared = self.prepared(X, y, validation=validation)
        place = None if checkpoint is None else Path(checkpoint)
        fitted = fit_pipeline(prepared.given, device=self.device, checkpoint=place)
        self.adopt(Bundle.of_fit(prepared, fitted))
        made = sum(field.derived for field in prepared.preparation.schema.fields)
        self.n_features_in_ = len(prepared.training.frame.columns) - made - (y is not None)
        return self

    def prepared(self, X: Any, y: Any = None, *, validation: Any = None) -> Prepared:
        """What `fit` learns from; nothing is learned yet."""
        opened = _opened(X, y, self.schema)
        schema = self.schema or infer_schema(opened, label=LABEL if y is not None else None)
        # validated again, also without a change: `model_copy` would let a label through that is also a field
        schema = schema.with_roles(**({"label": LABEL} if y is not None and schema.label is None else {}))
        config = self.config
        training = records_of(opened.frame(), schema, config, file=opened.name).timed()
        if validation is None:
            return self.prepared_records(training)
        held_out = open_table(validation, meds=schema.meds)
        return self.prepared_records(
            training, records_of(held_out.frame(), training.schema, config, file=held_out.name)
        )

    def prepared_records(self, training: Records, validation: Records | None = None) -> Prepared:
        """What a fit on these records learns from; nothing is learned yet."""
        tokenizer = self.tokenizer
        if tokenizer is not None and not isinstance(tokenizer, RecordTokenizer):
            tokenizer = RecordTokenizer.load(tokenizer, device=self.device)
        return prepare(training, self.config, validation=validation, tokenizer=tokenizer)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def adopt(self, bundle: Bundle) -> None:
        """Become the model of a bundle."""
        self.fitted_ = bundle.fitted
        self.preparation_ = bundle.preparation
        self.classes_ = np.array(bundle.values or bundle.fitted.classes, dtype=None if bundle.values else object)
        self.figures_ = dict(bundle.figures)
        self.source_ = bundle.source
        self.reference_ = bundle.reference

    @property
    def bundle(self) -> Bundle:
        """All that is saved."""
        fitted = self.fitted
        values = tuple(self.classes_.tolist()) if self.classes_.dtype != object else None
        return Bundle(fitted, self.preparation, self.figures_, self.source_, self.reference_, values)

    def _repr_html_(self) -> str:
        """A fitted model in a notebook: what it predicts, and its figures."""
        if not self.__sklearn_is_fitted__():
            return f"<pre>{escape(repr(self))}</pre>"
        return card_of(self.bundle, "model.html")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    @property
    def fitted(self) -> Fitted:
        """The fitted stages; an error says so where there are none yet."""
        if not self.__sklearn_is_fitted__():
            raise _NotFittedYetError(
                "this model has not been fitted yet", remedy="call fit(table) or TEFM.load(folder)"
            )
        return self.fitted_

    @property
    def preparation(self) -> Preparation:
        """How tables become the model's input; an error says so before `fit`."""
        self.fitted  # noqa: B018
        return self.preparation_

    @property
    def tokenizer_(self) -> RecordTokenizer:
        """The first stage as a tokenizer of tables."""
        return RecordTokenizer.of(self.preparation.vectoriser, self.fitted.coder)

    # ---- predicting -------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any, *, absent: bool = False) -> NDArray[np.float64]:
        """The probability of each of `classes_`, one row per sequence of the table.

        With `absent`, here and below, fields whose columns are missing count as absent; otherwise that is an error.
        """
        records = self.preparation.to_predict(as_table(X), absent=absent)
        return self.fitted.probabilities(self.preparation.slots(records))

    def predict(self, X: Any, *, absent: bool = False, threshold: float | None = None) -> NDArray[Any]:
        """The class of each sequence of the table: one per sequence, not one per row, in the type of the label.

        Where the label is a number, it is the median of the number's distribution (`predict_table` has all of it).

        Where a sequence has several rows, `tefm.scorers` compare it with a `y` of one label per row. `threshold` as in
        `with_threshold`.
        """
        fitted, p_SQ = self.fitted.deciding_at(threshold), self.predict_proba(X, absent=absent)
        if fitted.buckets is not None:
            return fitted.buckets.predicted(p_SQ).median_S
        predicted_S = fitted.decide(p_SQ)
        self._warn_of_one_answer(np.bincount(predicted_S, minlength=len(fitted.classes)))
        return self.classes_[predicted_S]

    def reading(self, above: float | None = None) -> TEFM:
        """Of a number, the model as it says whether it is above a threshold (by default, the training labels' median).

        Classes stay as they are.
        """
        model = copy(self)
        model.fitted_ = self.fitted.reading(above)
        cuts = None if self.fitted.buckets is None else self.fitted.buckets.above(above)
        model.preparation_ = replace(self.preparation, cuts=cuts)
        return model

    def with_threshold(self, threshold: float | None) -> TEFM:
        """The model as it predicts the positive one of two classes from this probability on; None changes nothing."""
        model = copy(self)
        model.fitted_ = self.fitted.deciding_at(threshold)
        return model

    def predict_table(self, X: Any, *, absent: bool = False, each_record: bool = False) -> Any:
        """One row per sequence: its identifier, its number of records, the class, and the probability of each class.

        Where the label is a number: the median (`prediction`), the mean, and the ends of the interval in place of the
        class, and the probabilities of its buckets.

        The identifier keeps its column name and type. The result is a pandas frame when a pandas frame was given, and
        a polars frame otherwise. With `each_record`, one row per record: the prediction once this record was known, and
        its time.
        """
        return _of_kind(X, pl.concat(self.predict_batches(X, absent=absent, each_record=each_record)))

    def predict_batches(self, X: Any, *, absent: bool = False, each_record: bool = False) -> Iterator[pl.DataFrame]:
        """What `predict_table` returns, part by part: a table larger than memory is never whole in memory.

        Where the records of an entity lie anywhere in it, they are brought together on disk first.
        """
        answers: Counter[str] = Counter()
        column = answer_column(self.preparation.sequence_noun)
        with progress("predicting", None) as advance:
            for predictions in self.predicted(X, absent=absent, each_record=each_record):
                yield predictions
                if self.fitted.buckets is None:
                    answers.update(predictions[column].to_list())
                advance(predictions.height)
        self._warn_of_one_answer(np.array([answers[value] for value in self.classes_.tolist()]))

    def predicted(
        self, X: Any, *, absent: bool = False, before: int = 0, each_record: bool = False
    ) -> Iterator[pl.DataFrame]:
        """Predictions for a table that may be a part of another, in which `before` sequences precede it."""
        preparation = self.preparation
        time = preparation.schema.time if each_record else None
        answerer = self.fitted.answerer.remembering()
        for records, slots in ahead(preparation.batches(as_table(X), absent=absent, each_record=each_record)):
            p_SQ = self.fitted.calibration.probabilities(answerer.logits(slots))
            columns: dict[str, Any] = {"records": records.sequences.lengths}
            if (buckets := self.fitted.buckets) is not None:
                columns |= buckets.predicted(p_SQ).columns
            else:
                columns["predicted"] = pl.Series(self.classes_.tolist()).gather(self.fitted.decide(p_SQ))
            columns |= {f"p({name})": p_SQ[:, number] for number, name in enumerate(self.fitted.classes)}
            if time is not None:
                columns[f"{time}_" if time in columns else time] = records.frame[time][records.sequences.last]
            yield self._identified(records, pl.DataFrame(columns), before)
            before += len(records)

    def _identified(self, records: Records, columns: pl.DataFrame, before: int) -> pl.DataFrame:
        """Columns beside the entity of each sequence, or its number in the table, where `before` sequences precede."""
        noun, entity = self.preparation.sequence_noun, self.preparation.entity
        if entity is None:
            identifiers = pl.Series(np.arange(before, before + len(records)))
        else:
            identifiers = records.frame[entity][records.sequences.last]
        # the identifier keeps its name, see `answer_column`
        beside = columns.rename(lambda name: _beside(name, noun))
        return beside.select(identifiers.alias(noun), *beside.columns)

    def _warn_of_one_answer(self, answers_Q: NDArray[np.int64]) -> None:
        """Warn where all of many sequences get the same answer."""
        if answers_Q.sum() >= MANY:
            for warning in one_answer(answers_Q, self.fitted.classes, self.fitted.calibration.rule):
                log.warning(warning)

    def evaluate(self, X: Any, *, resamples: int = 1_000, absent: bool = False) -> Evaluation:
        """Every figure on the labelled sequences of a table, with bootstrap intervals.

        Sequences of a class that the model does not know count as errors, and are listed.
        """
        preparation, fitted = self.preparation, self.fitted
        records, unlabelled = preparation.to_evaluate(as_table(X), absent=absent)
        if fitted.buckets is not None:
            figures = fitted.evaluate(
                preparation.slots(records), records.numbers_S, resamples=resamples, followed=records.followed
            )
            return replace(figures, unlabelled=unlabelled)
        classes = (*fitted.classes, *preparation.unknown(records, fitted.classes))
        labels_S, slots = label_numbers(records.sequences, classes), preparation.slots(records)
        codes = fitted.codes(slots)
        p_SQ = fitted.probabilities(slots, codes)
        figures = fitted.evaluation(codes, p_SQ, labels_S, resamples=resamples)
        decided = fitted.decision_in_words, fitted.calibration.threshold
        decisions = Decisions.of(labels_S, fitted.decide(p_SQ), classes, len(fitted.classes), *decided)
        return replace(figures, unlabelled=unlabelled, decisions=decisions)

    def score(self, X: Any, y: Any = None, sample_weight: None = None) -> float:
        """Accuracy over the labelled sequences of a table; `y` gives one label per row, where the table has none.

        Where the label is a number, it is the mean absolute error with a minus sign.
        """
        return _scored("accuracy" if self.fitted.buckets is None else "mae", self, X, y)

    # ---- questions in words -----------------------------------------------------------------------------------

    @property
    def questions_(self) -> pl.DataFrame:
        """The questions of the model: whether each was trained or held out, its AUROC and that of a LightGBM."""
        return question_frame(book_of(self.fitted))

    def ask(self, X: Any, question: str | Sequence[str], *, absent: bool = False, anyway: bool = False) -> Any:
        """The probability of yes for each sequence of a table, with what it is worth beside it.

        One row per sequence and question. `known` says whether the question was trained, held out of training, or is
        new; `auroc` is the figure of a trained question, and for others the mean over held-out questions. Where that
        is not known, new questions have no probability, unless it is wanted `anyway`.
        """
        texts = [question] if isinstance(question, str) else list(question)
        return _of_kind(X, pl.concat(self.ask_batches(X, texts, absent=absent, anyway=anyway)))

    def ask_batches(
        self, X: Any, questions: Sequence[str], *, absent: bool = False, anyway: bool = False
    ) -> Iterator[pl.DataFrame]:
        """What `ask` returns, part by part of the table."""
        book_of(self.fitted)
        before = 0
        for records, slots in ahead(self.preparation.batches(as_table(X), absent=absent)):
            answers = ask(self.fitted, self.preparation, slots, questions, anyway=anyway)
            yield pl.concat([self._identified(records, to_one, before) for to_one in answers])
            before += len(records)

    def teach(
        self,
        X: Any,
        question: str,
        *,
        answer: str,
        yes: str | None = None,
        share: float | None = None,
        absent: bool = False,
    ) -> str:
        """Learn a new question from a few labelled sequences, in seconds; returns what its answers are worth.

        The column `answer` holds the answers, at the last record of each sequence; `yes` is the value that means yes.
        Nothing but the new question changes. `share` is the share of yes in the population, where the labelled
        sequences have another one.
        """
        if share is not None and not 0 < share < 1:
            raise SettingsError("a share must be between 0 and 1", value=str(share), remedy="for example 0.1")
        records = self.preparation.to_predict(as_table(X), absent=absent)
        entry = teach(self.fitted, self.preparation, records, question, answer, yes=yes, share=share)
        self.fitted_ = with_taught(self.fitted, entry)
        return book_of(self.fitted).worth(entry.question.text)

    # ---- monitoring -------------------------------------------------------------------------------------------

    def monitor(
        self,
        X: Any,
        *,
        reference: Any = None,
        by: str | None = None,
        absent: bool = False,
        level: float = LEVEL,
        seed: int = 0,
    ) -> Monitoring:
        """Whether the records of a table differ from those at fit time, why, and with labels how good the answers are.

        `reference` is a table of usual records to compare with, in place of the held-out records of the fit. `by`
        (`day`, `week` or `month`) cuts the table into batches by the schema's time column; otherwise it is one batch.
        `level` is the share of batches without drift that raise an alarm.
        """
        read = self.reading()
        return monitor(
            read.fitted,
            read.preparation,
            self.reference_,
            as_table(X),
            reference=None if reference is None else as_table(reference),
            by=by,
            absent=absent,
            level=level,
            seed=seed,
        )

    # ---- explaining -------------------------------------------------------------------------------------------

    def explain(
        self,
        X: Any,
        *,
        question: str | None = None,
        entities: Sequence[str] | None = None,
        limit: int | None = None,
        absent: bool = False,
        of_class: str | None = None,
        above: float | None = None,
        precision: float = 0.9,
        most: int = 10,
        without: Sequence[str] | None = None,
        sensitive: Sequence[str] | None = None,
        similar: int = 0,
        references: References | str | Path | None = None,
    ) -> list[Explanation]:
        """Why the model answers as it does: a rule that settles the answer, its cases, and its effect.

        A rule settles an answer if sequences that satisfy it get the same answer: made-up ones, which have everything
        else from other training sequences, and real ones; the model itself is asked. `of_class` names the class that
        single features are about (the answer), `precision` the share of the cases that must agree (0.9), `most` the
        number of conditions (10). No condition is about the fields `without`; cards mark `sensitive` ones and say what
        the answer would be with other values of them (as the settings of the fit say). `similar`
        is how many of the stored training sequences to show: the most similar ones that satisfy the rule. `entities`
        explains only these sequences, `limit` only the first ones. `references`, a table with the columns field, value,
        statement and source, are cited beside the features that they are about. `question` explains the answer to a
        question in words instead of the class; the first time, it takes some seconds longer. Where the label is a
        number, the answer is whether it is `above` this one (the median of the training labels).
        """
        asked = Question.checked(
            {"of_class": of_class, "above": above, "precision": precision, "most": most}
            | {"without": without, "sensitive": sensitive, "similar": similar}
        )
        if references is not None and not isinstance(references, References):
            references = References.read(references)
        explainer.look_alikes_of(self.fitted)  # before anything is vectorised
        if question is not None:
            book_of(self.fitted)
        slots = self.preparation.slots(self._to_explain(X, entities, absent, limit))
        if question is None:
            return explainer.explain_slots(self.fitted, self.preparation, slots, asked, references)
        if self._explainer is None or self._explainer.fitted is not self.fitted:  # a new fit starts afresh
            self._explainer = QuestionExplainer(self.fitted)
        return self._explainer.explain(self.preparation, slots, question, asked, references)

    def explain_population(
        self,
        X: Any,
        *,
        sequences: int = 200,
        absent: bool = False,
        of_class: str | None = None,
        above: float | None = None,
        precision: float = 0.9,
        most: int = 10,
        without: Sequence[str] | None = None,
    ) -> Summary:
        """What explanations of a table have in common: the rules that settle the most answers, the fields that matter.

        A random sample of at most `sequences` is explained. `of_class` is the class that effects are about: of two
        classes the positive one, otherwise the answer to each sequence. No rule is about the fields `without`.
        """
        fitted = self.fitted.reading(above)
        if of_class is None and len(fitted.classes) == 2:
            of_class = fitted.classes[fitted.positive]
        asked = Question.checked({"of_class": of_class, "precision": precision, "most": most, "without": without})
        explainer.look_alikes_of(fitted)  # before anything is vectorised
        return explainer.explain_population(fitted, self.preparation, self._drawn(X, sequences, absent), asked)[1]

    def importance(self, X: Any, *, sequences: int = 500, absent: bool = False) -> Any:
        """How much the answers depend on each field, the most important first, over random `sequences` of a table.

        The values of one field change places among the sequences, and the model answers again. `change` is how far the
        probabilities move on average, with its 95% interval (`low`, `high`), `flips` the share of the sequences that
        get another class. Labels are not used. Fields that say the same can stand in for each other: each then looks
        unimportant. Free text is not among the fields.
        """
        slots, vectoriser = self._drawn(X, sequences, absent), self.preparation.vectoriser
        return _of_kind(X, explainer.importance(self.fitted.reading(), vectoriser, slots, seed=self.seed))

    def explain_masked(
        self, X: Any, *, entities: Sequence[str] | None = None, absent: bool = False, **choice: Any
    ) -> list[Rationale]:
        """The paper's procedure, masked sufficiency: slots with which alone, all others masked, the answer is the same.

        Each rationale is the smallest one found. With `keep`, a share of all slots (`of="present"`: of those that a
        record has) is kept instead, `over` the sequence or each record. The model must have learned masks
        (`rationale="default"` or `"paper"`). This check passes for most answers, and for random slots too.
        """
        checked = explainer.Choice.checked(choice)
        return explainer.explain_masked(self.fitted, self.preparation, self._to_explain(X, entities, absent), checked)

    def _to_explain(self, X: Any, entities: Sequence[str] | None, absent: bool, limit: int | None = None) -> Records:
        records = self.preparation.to_predict(as_table(X), absent=absent)
        if entities is None and limit is None:
            return records
        numbers = {str(name): number for number, name in enumerate(records.sequences.names)}
        chosen = [*numbers.values()]
        if entities is not None:
            chosen = explainer.named(numbers, entities, self.preparation.sequence_noun, file=records.file)
        return records.select(np.array(chosen[:limit], dtype=np.int64))

    def _drawn(self, X: Any, sequences: int, absent: bool) -> Sequences:
        """At most this many sequences of a table, drawn at random, as slots."""
        if sequences < 1:
            raise SettingsError("at least one sequence is needed", value=sequences, remedy="give 1 or more")
        records = self._to_explain(X, None, absent)
        drawn = np.sort(np.random.default_rng(self.seed).permutation(len(records))[:sequences])
        return self.preparation.slots(records.select(drawn))

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the model as one folder (`tefm.model.bundle`)."""
        return save_domains({"": self.bundle}, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None, domain: str | None = None) -> TEFM:
        """Read a saved model; a folder whose parts do not belong together is refused.

        `domain` names one of several (`tefm.Domains` reads all of them).
        """
        return cls.of(load_bundle(Path(folder), device=device, domain=domain), device=device)

    @classmethod
    def of(cls, bundle: Bundle, *, device: str | None = None) -> TEFM:
        """The model of a bundle."""
        settings = bundle.fitted.config.model_dump()
        model = cls(bundle.preparation.schema, device=device, **settings)
        model.adopt(bundle)
        return model

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, revision: str | None = None, token: str | None = None, device: str | None = None
    ) -> TEFM:
        """A saved model from a folder, or from the Hugging Face hub by its name (owner/model)."""
        from tefm.model.hub import download

        return cls.load(download(str(name), revision=revision, token=token), device=device)

    def push_to_hub(self, name: str, *, private: bool = True, token: str | None = None) -> str:
        """Upload the model to the Hugging Face hub as owner/model; returns the address of the commit.

        A model that explains contains training sequences (without names): make it public only if these may be.
        """
        from tefm.model.hub import upload

        with tempfile.TemporaryDirectory() as folder:
            return upload(self.save(Path(folder) / "model"), name, private=private, token=token)


def _scored(metric: str, model: TEFM, X: Any, y: Any = None) -> float:
    """A metric over the labelled sequences of a table."""
    scores = model.evaluate(_opened(X, y, model.preparation.schema), resamples=0).scores
    metrics: Mapping[str, Any] = scores.metrics if isinstance(scores, NumberScores) else vars(scores)
    if metric not in metrics:
        remedy = "leave `scoring` out: `score` is the mean absolute error with a minus sign"
        raise SettingsError("this score applies to classes, but the label is a number", value=metric, remedy=remedy)
    value: float = metrics[metric].value
    return -value if metric in ("brier", "mae") else value


#: Scorers for scikit-learn that know sequences: `y` has one label per row, and each sequence counts once.
scorers: dict[str, Callable[..., float]] = {
    "roc_auc": partial(_scored, "auroc"),
    "average_precision": partial(_scored, "auprc"),
    "accuracy": partial(_scored, "accuracy"),
    "f1_macro": partial(_scored, "macro_f1"),
    "neg_brier_score": partial(_scored, "brier"),
}


def answer_column(noun: str) -> str:
    """The column of a table of predictions that holds the class; `noun` is what a sequence is called."""
    return _beside("predicted", noun)


def _beside(name: str, noun: str) -> str:
    """The name of a column beside the identifier, which keeps its own."""
    return f"{name}_" if name == noun else name


# ---- labels apart from the table ---------------------------------------------------------------------------------


def _opened(X: Any, y: Any, schema: Schema | None) -> Table:
    """The table, with the labels that were given apart from it."""
    opened = open_table(as_table(X), meds=None if schema is None else schema.meds)
    if y is None:
        return opened
    column = schema.label if schema is not None and schema.label is not None else LABEL
    remedy = "give one class per row; for a number, a schema with label={'column': …, 'kind': 'number'}"
    with failing_as(ValueError, "y does not hold classes: {reason}", remedy=remedy):
        if schema is None or schema.number is None:
            check_classification_targets(y)
        labels = pl.Series(column_or_1d(y, warn=True))
    frame = opened.frame()
    if len(labels) != frame.height:
        raise InputError(
            f"y has {len(labels)} labels, but the table has {frame.height} rows",
            file=opened.name,
            remedy="give one label per row",
        )
    return open_table(frame.with_columns(labels.alias(column)), name=opened.name)


def _of_kind(given: Any, table: pl.DataFrame) -> Any:
    """A table of results as a pandas frame where a pandas frame was given."""
    return table.to_pandas() if type(given).__module__.split(".")[0] == "pandas" else table
