"""`TEFM`: the stages as one model. fit, predict, predict_proba, explain, evaluate, save, load.

A table goes through the `RecordTokenizer` (codes/) into codes and through the `Classifier` (language/) into probabilities;
the `Explainer` (rationale/) ranks the slots that a probability rests on.

Shapes: S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.checkpoint import identity, stage_folder
from tefm.base.errors import InputError, NotFittedError
from tefm.base.progress import note
from tefm.codes.coder import class_numbers
from tefm.codes.tokenizer import RecordTokenizer
from tefm.explain import Choice, explain, learn_to_explain, slot_sequences
from tefm.language.align import Alignment
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.classifier import Classifier
from tefm.language.distributed import first_process_makes, is_first
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.train import History
from tefm.language.vocabulary import CodeVocabulary
from tefm.rationale.card import Rationale
from tefm.rationale.extractor import Explainer
from tefm.rationale.masking import with_masked_copies
from tefm.records.grouping import by_entity, by_window
from tefm.records.infer import infer_schema
from tefm.records.phrases import phrases_of
from tefm.records.prompt_context import gap_words, last_texts
from tefm.records.readers.table import open_table
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.records.serialise import serialise
from tefm.records.splitting import balance, check_label, split
from tefm.scoring.calibration import Calibration
from tefm.scoring.metrics import Scores, score
from tefm.task import ModelConfig

VALIDATION_SHARE = 0.1
#: What the first stage depends on, of all that a fit does.
CODES_DEPEND_ON = ("records", "schema", "seed", "codes", "task_aware", "device")
#: Records that the alignment is measured on, at most.
JUDGED = 1_000


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on labelled sequences, and what it reads for it."""

    scores: Scores
    #: tokens per sequence that the language model is shown
    tokens_mean: float
    tokens_median: float
    #: sequences without a label, which are not judged
    unlabelled: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**self.scores.to_dict(), **{name: value for name, value in vars(self).items() if name != "scores"}}


@dataclass(frozen=True)
class _Part:
    """A part of a table: all of its records, and the labelled sequences among them."""

    frame: pl.DataFrame
    rows: NDArray[np.int64]
    sequences: Sequences

    @property
    def records(self) -> pl.DataFrame:
        return self.frame[self.rows]


class TEFM:
    """Sequences of records in, classes out, read by a language model from codes alone.

    The settings are those of `ModelConfig`. `tokenizer` is a fitted one (or its folder) to read codes of; without it,
    one is learned. `inputs="text"` reads the serialised records instead, with the same question and training: the
    baseline.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        tokenizer: RecordTokenizer | str | Path | None = None,
        device: str | None = None,
        **settings: Any,
    ) -> None:
        self.schema, self.tokenizer, self.device = schema, tokenizer, device
        self.config = ModelConfig.checked(settings)
        self.schema_: Schema | None = None
        self.tokenizer_: RecordTokenizer | None = None
        self.reader_: Classifier | None = None
        self.classes_: tuple[str, ...] = ()
        #: the number of the class that AUROC and the threshold are about
        self.positive_ = 1
        self.prompt_: Prompt | None = None
        self.calibration_ = Calibration()
        self.alignment_: Alignment | None = None
        self.history_: dict[str, History] = {}
        self.explainer_: Explainer | None = None
        #: what was measured, for the model card: name of the part → figures
        self.figures_: dict[str, dict[str, Any]] = {}
        #: the table it was fitted on and how that was split, where a task said so: a report looks there again
        self.source_: dict[str, Any] | None = None

    # ---- scikit-learn's manners -------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings that the model was made with."""
        return {"schema": self.schema, "tokenizer": self.tokenizer, "device": self.device, **dict(self.config)}

    def set_params(self, **settings: Any) -> TEFM:
        """Change settings before `fit`."""
        self.schema = settings.pop("schema", self.schema)
        self.tokenizer = settings.pop("tokenizer", self.tokenizer)
        self.device = settings.pop("device", self.device)
        self.config = ModelConfig.checked({**dict(self.config), **settings})
        return self

    # ---- learning ---------------------------------------------------------------------------------------------

    def fit(self, table: Any, *, validation: Any = None, checkpoint: str | Path | None = None) -> TEFM:
        """Learn from the labelled sequences of a table.

        `validation` is a table of other sequences for early stopping and calibration; without one, a tenth of the
        sequences is held out. With `checkpoint`, a folder, a run that was killed goes on from there when the same
        call is made again; several processes need one, to share what the first has learned.
        """
        training, held = self._parts(table, validation)
        self.classes_, labels_S = class_numbers(np.asarray(training.sequences.labels))
        counts = np.bincount(labels_S, minlength=len(self.classes_)).tolist()
        told = ", ".join(f"{count:,} {name}" for name, count in zip(self.classes_, counts, strict=True))
        note(f"{len(training.sequences):,} sequences to learn from ({told}), {len(held.sequences):,} held out")
        self.positive_ = self.config.positive_number(self.classes_, counts)
        self.prompt_ = self.config.prompt_for(self.classes_, self.positive_, self._fitted_schema)
        # what can be refused is refused before the first stage takes its time
        backbone = open_backbone(self.config.backbone, layers=self.config.kept_layers, device=self.device)
        PromptWriter(backbone.tokenizer, self.prompt_, self.classes_)
        place = Path(checkpoint) if checkpoint is not None else None
        settings = {**self.get_params(), "schema": self._fitted_schema}
        if place is not None:
            settings["records"] = identity(training.records, held.records)
        if self.config.inputs == "codes":
            about_codes = {name: settings.get(name) for name in CODES_DEPEND_ON}
            self.tokenizer_ = self._tokenizer(training, held, stage_folder(place, "codes", about_codes))
            settings["tokenizer"] = self.tokenizer_.coder.identity
        work = stage_folder(place, "language", settings)
        if self.config.inputs == "codes":
            reader = self.reader_ = self._code_reader(backbone, training, held, work)
        else:
            reader = self.reader_ = Classifier(backbone)
        # a class without training sequences is not judged
        judged = held.sequences.select(np.isin(np.asarray(held.sequences.labels), self.classes_))
        held_labels = self._numbers(judged)
        shown = self.read(held.frame, judged) if len(judged) else None
        examples, example_labels = self._examples(training, labels_S)
        steps = self.config.tune_config.total_steps(len(example_labels))
        note(
            f"stage 3 · tuning inherits {backbone.name}, {reader.backbone.model.num_parameters():,} weights: "
            f"{steps:,} steps at most (`tune: {{steps: 400}}` in the task for fewer)"
        )
        self.history_["tune"] = reader.tune(
            self.prompt_,
            self.classes_,
            examples,
            example_labels,
            shown,
            held_labels,
            self.config.tune_config,
            checkpoint=work / "tune.checkpoint" if work else None,
            finished=work / "tuned.pt" if work else None,
        )
        if shown is not None:
            logits_SQ = reader.logits(shown)
            self.calibration_ = Calibration.fit(logits_SQ, held_labels, positive=self.positive_)
            self.figures_["validation"] = self._judged(logits_SQ, held_labels, shown).to_dict()
        rationale = self.config.rationale_config
        if rationale is not None and is_first():  # the others have nothing to save, and nobody to explain to
            note(f"stage 4 · the extractor inherits {len(training.sequences):,} sequences and the model as their judge")
            kept = work / "rationale.safetensors" if work else None
            self.explainer_ = learn_to_explain(self, training.frame, training.sequences, rationale, kept)
        return self

    def _parts(self, table: Any, validation: Any) -> tuple[_Part, _Part]:
        """What is learned from, and what is held out for early stopping and calibration."""
        opened = open_table(table)
        schema = self.schema_ = self._schema(opened)
        frame = opened.frame()
        sequences = self.sequences(frame, schema, file=opened.name)
        check_label(sequences.labels, column=schema.label, file=opened.name)
        if validation is None:
            parts = split(sequences, shares=(1 - VALIDATION_SHARE, VALIDATION_SHARE, 0.0), seed=self.config.seed)
            pairs = [(frame, sequences.select(parts == part)) for part in ("train", "validation")]
        else:
            other = open_table(validation)
            held_frame = other.frame()
            pairs = [(frame, sequences), (held_frame, self.sequences(held_frame, schema, file=other.name))]
        found = []
        for part_frame, part in pairs:
            found.append(_Part(part_frame, np.sort(part.rows), part.select(self.chosen(part))))
        return found[0], found[1]

    def _code_reader(self, backbone: Backbone, training: _Part, held: _Part, work: Path | None) -> Classifier:
        """Stage 2: a backbone that knows the codes."""
        tokenizer = self.tokenizer_
        assert tokenizer is not None, "codes come first"
        coder = tokenizer.coder
        note(f"stage 1 · {coder.layout.width} slots become {coder.config.levels} × {coder.config.entries} codes")
        phrases = phrases_of(tokenizer.vectoriser)
        x_ND = tokenizer.vectoriser.transform(training.records)
        codes_NK = coder.encode(x_ND)
        reader = Classifier.open(
            backbone,
            CodeVocabulary.of(phrases.record, levels=coder.config.levels, entries=coder.config.entries),
            coder.network.quantiser.codebooks_KCd.detach().cpu().numpy(),
            start=self.config.start,
            seed=self.config.seed,
            words=(phrases, x_ND, codes_NK),
        )
        config = self.config.align_config(len(training.sequences), backbone.device.type)
        if config is None:
            note("stage 2 · no alignment: it pays with few labelled sequences and a GPU (align: default makes it)")
            return reader
        note(f"stage 2 · alignment inherits {len(codes_NK):,} records and their codes")
        finished = work / "aligned.pt" if work else None
        if (found := reader.restore(finished)) is not None:
            self.history_["align"], self.alignment_ = found
            return reader
        self.history_["align"] = reader.align(
            phrases, x_ND, codes_NK, config, checkpoint=work / "align.checkpoint" if work else None
        )
        chosen = np.random.default_rng(self.config.seed).permutation(len(held.rows))[:JUDGED]
        held_ND = tokenizer.vectoriser.transform(held.records[np.sort(chosen)])
        self.alignment_ = reader.measure_alignment(phrases, held_ND, coder.encode(held_ND), coder)
        reader.keep(finished, self.history_["align"], self.alignment_)
        return reader

    def _examples(self, training: _Part, labels_S: NDArray[np.int64]) -> tuple[Sequences, NDArray[np.int64]]:
        """What is learned from: the training sequences, and copies of which only a random part is kept."""
        copies = self.config.masked_copies
        if self.config.inputs == "text" or not copies:
            return self.read(training.frame, training.sequences), labels_S
        assert self.tokenizer_ is not None
        slots = slot_sequences(self, training.frame, training.sequences)
        shown = with_masked_copies(slots, self.tokenizer_.coder.encode, copies, self.config.seed)
        return shown, np.tile(labels_S, 1 + copies)

    def _tokenizer(self, training: _Part, held: _Part, work: Path | None) -> RecordTokenizer:
        """The tokenizer as given, or fitted on the training records."""
        if isinstance(self.tokenizer, RecordTokenizer):
            return self.tokenizer
        if self.tokenizer is not None:
            return RecordTokenizer.load(self.tokenizer, device=self.device)
        schema = self._fitted_schema
        settings = {"seed": self.config.seed, **self.config.codes}

        def make() -> RecordTokenizer:
            return RecordTokenizer(device=self.device, **settings).fit(
                open_table(training.records, name=training.sequences.file),
                schema,
                # task-aware codes stop on what they tell about the label, which is measured on a part they hold out
                validation=None if self.config.task_aware else held.records,
                task_aware=self.config.task_aware,
                checkpoint=work / "tokenizer.checkpoint" if work else None,
            )

        return first_process_makes(make, work / "tokenizer" if work else None, device=self.device)

    # ---- predicting -------------------------------------------------------------------------------------------

    def predict_proba(self, table: Any) -> NDArray[np.float64]:
        """Per sequence of the table the probability of each of `classes_`."""
        return self._probabilities(*self.frame_and_sequences(table))

    def predict(self, table: Any) -> NDArray[np.object_]:
        """Per sequence of the table its class."""
        return np.array(self.classes_, dtype=object)[self.calibration_.predict(self.predict_proba(table))]

    def predict_table(self, table: Any) -> pl.DataFrame:
        """One row per sequence: whose it is, how many records, the class, and the probability of each class."""
        frame, sequences = self.frame_and_sequences(table)
        p_SQ = self._probabilities(frame, sequences)
        said = np.array(self.classes_, dtype=object)[self.calibration_.predict(p_SQ)]
        return pl.DataFrame(
            {
                self.sequence_noun: pl.Series(sequences.names.astype(str)),
                "records": sequences.lengths,
                "predicted": pl.Series(said.astype(str)),
                **{f"p({name})": p_SQ[:, number] for number, name in enumerate(self.classes_)},
            }
        )

    def evaluate(self, table: Any, *, resamples: int = 1_000) -> Evaluation:
        """Every figure on the labelled sequences of a table, with bootstrap intervals."""
        opened = open_table(table)
        frame = opened.frame()
        given = self.sequences(frame, self._fitted_schema, file=opened.name)
        sequences = given.select(self.chosen(given, test=True))
        unknown = sorted({label for label in np.asarray(sequences.labels) if label not in self.classes_})
        if unknown:
            raise InputError(
                "the table has a class that the model does not know",
                file=opened.name,
                column=self._fitted_schema.label,
                value=unknown[0],
                remedy=f"the model knows {', '.join(self.classes_)}: leave these records out, or fit on all classes",
            )
        if not len(sequences):
            raise InputError(
                "no sequence of this table has a label",
                file=opened.name,
                column=self._fitted_schema.label,
                remedy="fill it in, or predict without it",
            )
        shown = self.read(frame, sequences)
        found = self._judged(self.reader.logits(shown, show=True), self._numbers(sequences), shown, resamples)
        return replace(found, unlabelled=int((~given.labelled).sum()))

    def _judged(
        self,
        logits_SQ: NDArray[Any],
        labels_S: NDArray[np.int64],
        shown: Sequences,
        resamples: int = 1_000,
    ) -> Evaluation:
        p_SQ = self.calibration_.probabilities(logits_SQ)
        predicted_S = self.calibration_.predict(p_SQ)
        scores = score(
            p_SQ, labels_S, self.classes_, predicted_N=predicted_S, positive=self.positive_, resamples=resamples
        )
        tokens_S = np.array([len(prompt) for prompt in self.reader.prompts(shown)])
        return Evaluation(scores, float(tokens_S.mean()), float(np.median(tokens_S)))

    def _probabilities(self, frame: pl.DataFrame, sequences: Sequences) -> NDArray[np.float64]:
        return self.calibration_.probabilities(self.reader.logits(self.read(frame, sequences), show=True))

    # ---- explaining -------------------------------------------------------------------------------------------

    def explain(self, table: Any, *, entities: Sequence[str] | None = None, **choice: Any) -> list[Rationale]:
        """Which features each prediction of a table rests on, checked: kept alone, they give the same answer.

        Each rationale is the smallest that passes the check. With `keep`, a share of all slots (`of="present"`: of
        those that a record has) is kept instead, `over` the sequence or each record, and the check says whether that
        was enough. `entities` explains only some sequences.
        """
        return explain(self, table, Choice.checked(choice), entities=entities)

    @property
    def explainer(self) -> Explainer:
        if self.explainer_ is None:
            self.reader  # noqa: B018  # a model that has learned nothing says so
            raise NotFittedError(
                "this model has not learned to explain", remedy="fit it with inputs: codes and without rationale: none"
            )
        return self.explainer_

    @property
    def sequence_noun(self) -> str:
        """What a sequence is called."""
        schema = self._fitted_schema
        return "segment" if self.config.window else schema.entity or schema.record

    @property
    def one_sequence(self) -> str:
        """What a sequence is made of."""
        schema, window = self._fitted_schema, self.config.window
        if window:
            return f"{window} consecutive {schema.record}s"
        return f"the {schema.record}s of one {schema.entity}" if schema.entity else f"one {schema.record}"

    @property
    def title(self) -> str:
        """What is told from what."""
        return f"{self._fitted_schema.label} from {self.one_sequence}"

    # ---- tables become sequences ------------------------------------------------------------------------------

    @property
    def reader(self) -> Classifier:
        if self.reader_ is None:
            raise NotFittedError("this model has not learned anything yet", remedy="call fit(table) or load(folder)")
        return self.reader_

    @property
    def _fitted_schema(self) -> Schema:
        if self.schema_ is None:
            raise NotFittedError("this model has not learned anything yet", remedy="call fit(table) or load(folder)")
        return self.schema_

    def _schema(self, opened: Any) -> Schema:
        schema = self.schema or infer_schema(opened)
        if schema.label is None:
            raise InputError(
                "there is no label to learn",
                file=opened.name,
                remedy="name its column in the schema: `label: COLUMN`",
            )
        return schema

    def sequences(
        self, frame: pl.DataFrame, schema: Schema, *, file: str | None = None, whole: bool = True
    ) -> Sequences:
        """The sequences of a table: windows, or the records of each entity; `whole` leaves a short last window out."""
        if self.config.window is not None:
            return by_window(
                frame, schema, self.config.window, drop_last=whole, background=self.config.background, file=file
            )
        return by_entity(frame, schema, background=self.config.background, file=file)

    def chosen(self, sequences: Sequences, *, test: bool = False) -> NDArray[np.int64]:
        """Which sequences of a part are learned from, or judged: the labelled ones, balanced as the settings say."""
        labelled = np.flatnonzero(sequences.labelled)
        if self.config.balance == "all" or (self.config.balance == "train" and not test):
            return labelled[balance(sequences.select(labelled), seed=self.config.seed)]
        return labelled

    def frame_and_sequences(self, table: Any) -> tuple[pl.DataFrame, Sequences]:
        """A table to predict: labels are neither needed nor looked at."""
        opened = open_table(table)
        schema = self._fitted_schema.model_copy(update={"label": None})
        frame = opened.frame()
        if not frame.height:
            raise InputError("the table has no rows", file=opened.name, remedy="give a table with records")
        return frame, self.sequences(frame, schema, file=opened.name, whole=False)

    def _numbers(self, sequences: Sequences) -> NDArray[np.int64]:
        """The class numbers of labelled sequences."""
        numbers = {name: number for number, name in enumerate(self.classes_)}
        return np.array([numbers[label] for label in np.asarray(sequences.labels)], dtype=np.int64)

    def read(self, frame: pl.DataFrame, sequences: Sequences) -> Sequences:
        """What the language model reads of sequences."""
        schema = self._fitted_schema
        if self.config.inputs == "text":
            return replace(sequences, texts=serialise(frame, schema, sequences, "compact"))
        assert self.tokenizer_ is not None and self.prompt_ is not None
        codes_NK = self.tokenizer_.encode(open_table(frame[sequences.rows], name=sequences.file))
        texts, gaps = self.beside(frame, sequences)
        return replace(sequences, values=codes_NK, texts=texts, gaps=gaps)

    def beside(self, frame: pl.DataFrame, sequences: Sequences) -> tuple[list[str] | None, list[str] | None]:
        """What the prompt says beside the codes: free text per sequence, and the time between two records."""
        assert self.prompt_ is not None
        schema = self._fitted_schema
        gaps = gap_words(frame, schema, sequences) if self.prompt_.gaps else None
        return last_texts(frame, schema, sequences), gaps

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the model as one folder, a bundle (tefm.bundle)."""
        from tefm.bundle import save

        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> TEFM:
        """Read a bundle; one whose parts do not belong together is refused."""
        from tefm.bundle import load

        return load(Path(folder), device=device)
