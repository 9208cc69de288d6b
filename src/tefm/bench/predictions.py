"""What a language model reads out of codes, or out of the same records as text: align, tune, predict, score."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.base.files import replacing_folder
from tefm.base.settings import Preset, Settings
from tefm.bench.data import DATA, SplitData
from tefm.bench.measurement import Bench, Found, Measurement
from tefm.bench.tokenizers import Codes
from tefm.codes.coder import SlotCoder
from tefm.language.backbone import open_backbone
from tefm.language.classifier import Classifier
from tefm.language.config import AlignConfig, Start, TuneConfig
from tefm.language.prompts import Prompt, PromptWriter, Style
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.smollm2 import quietly
from tefm.language.vocabulary import CodeVocabulary, TokenIds
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.masking import with_masked_copies
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Calibration
from tefm.scoring.metrics import score

#: Records whose words say where new rows start.
WORDS_FROM = 20_000


class Tune(Settings):
    """One way to tune; several begin from the same (aligned) model."""

    task: str | None = None
    style: Style = "compact"
    #: training sequences, drawn from all of them; None takes all
    sequences: int | None = None
    #: draws the sequences and the order of the steps; the number of the split when left out
    seed: int | None = None
    masked_copies: int = 1
    preset: Preset = "default"
    settings: dict[str, Any] = Setting(default_factory=dict)


class Reading(Measurement):
    """A language model tuned on the training sequences, its answers to the test sequences scored once.

    Temperature and threshold come from the validation sequences, and so does the number of steps.
    """

    KIND: ClassVar[str] = "reading"

    #: None reads the records as text
    codes: Codes | None = None
    #: for text: the data set and the split
    data: str = ""
    split: int = 0
    #: tokens of text, at most; the last ones stay
    limit: int | None = None

    backbone: str = SMOLLM2
    layers: int | None = None
    random_body: bool = False
    start: Start = "codebook"
    align: Literal["none", "default", "paper"] = "none"
    align_settings: dict[str, Any] = Setting(default_factory=dict)
    #: test records that the alignment is measured on
    judged: int = 1_000
    tunes: tuple[Tune, ...] = (Tune(),)
    #: leave the first tuned model for others to ask
    keep: bool = False

    def needs(self) -> tuple[Measurement, ...]:
        return (self.codes,) if self.codes else ()

    @property
    def place(self) -> tuple[str, int]:
        """Data set and split."""
        return (self.codes.data, self.codes.split) if self.codes else (self.data, self.split)

    def measure(self, bench: Bench) -> Found:
        name, split = self.place
        data = self.codes.split_data(bench) if self.codes else bench.sources.split(name, split)
        reader, codes_NK, coder = self._open(bench, data)
        found: Found = {}
        if self.align != "none":
            assert codes_NK is not None and coder is not None, "text has no codes to align"
            found["alignment"] = self._aligned(reader, data, codes_NK, coder)
        if len(self.tunes) > 1:
            weights = reader.backbone.model.state_dict()
            start = {tensor: value.detach().to("cpu", copy=True) for tensor, value in weights.items()}
        found["tunes"] = []
        for number, tune in enumerate(self.tunes):
            if number:
                reader.backbone.model.load_state_dict(start)
            outcome, calibration = self._tuned(bench, reader, data, codes_NK, coder, tune)
            found["tunes"].append(outcome)
            if self.keep and number == 0:
                self._keep(bench, reader, calibration)
        return found

    def _open(self, bench: Bench, data: SplitData) -> tuple[Classifier, NDArray[np.uint16] | None, SlotCoder | None]:
        split = self.place[1]
        backbone = open_backbone(self.backbone, layers=self.layers, random_body=self.random_body, seed=split)
        if self.codes is None:
            return Classifier(backbone, text_limit=self.limit), None, None
        codes_NK, coder = self.codes.open(bench)
        train = np.flatnonzero(data.in_part("train"))[:WORDS_FROM]
        reader = Classifier.open(
            backbone,
            CodeVocabulary.of(data.phrases.record, levels=coder.config.levels, entries=coder.config.entries),
            coder.network.quantiser.codebooks_KCd.detach().cpu().numpy(),
            start=self.start,
            seed=split,
            words=(data.phrases, data.x_ND[train], codes_NK[train]),
        )
        return reader, codes_NK, coder

    def _aligned(self, reader: Classifier, data: SplitData, codes_NK: NDArray[Any], coder: SlotCoder) -> Found:
        assert self.align != "none"
        config = AlignConfig.preset(self.align, **{"seed": self.place[1], **self.align_settings})
        train_N = data.in_part("train")
        history = reader.align(data.phrases, data.x_ND[train_N], codes_NK[train_N], config)
        judged = np.random.default_rng(0).permutation(np.flatnonzero(data.in_part("test")))[: self.judged]
        quality = reader.measure_alignment(data.phrases, data.x_ND[judged], codes_NK[judged], coder, beam=4)
        return {"steps": history.steps, "seconds": history.seconds, **quality.to_dict()}

    def _tuned(
        self,
        bench: Bench,
        reader: Classifier,
        data: SplitData,
        codes_NK: NDArray[Any] | None,
        coder: SlotCoder | None,
        tune: Tune,
    ) -> tuple[Found, Calibration]:
        name, split = self.place
        task_name = tune.task or DATA[name][0]
        task = data.tasks[task_name]
        seed = split if tune.seed is None else tune.seed
        sequences: Sequences
        if codes_NK is None:
            sequences = Sequences(task.rows, task.starts, texts=bench.sources.texts(name, split))
        else:
            sequences = Sequences(codes_NK[task.rows], task.starts)
        train, held, test = (task.of(part) for part in ("train", "validation", "test"))
        if tune.sequences is not None:
            train = np.sort(np.random.default_rng((seed, 5)).permutation(train)[: tune.sequences])
        learned: Sequences = sequences.select(train)
        copies = tune.masked_copies if coder is not None else 0
        if coder is not None and copies:
            whole = Sequences(data.x_ND[task.rows], task.starts).select(train)
            learned = with_masked_copies(whole, coder.encode, copies, seed)
        config = TuneConfig.preset(tune.preset, **{"seed": seed, **tune.settings})
        # as many steps as without copies
        config = config.model_copy(update={"epochs": config.epochs / (1 + copies)})
        prompt = question(task_name, tune.style, task.classes, task.positive)
        held_labels, labels = task.labels_S[held], np.tile(task.labels_S[train], 1 + copies)
        history = reader.tune(prompt, task.classes, learned, labels, sequences.select(held), held_labels, config)
        held_logits, test_logits = (reader.logits(sequences.select(rows)) for rows in (held, test))
        calibration = Calibration.fit(held_logits, held_labels, positive=task.positive)

        def scored(logits: NDArray[Any], labels_S: NDArray[np.int64]) -> Found:
            p_SQ = calibration.probabilities(logits)
            predicted = calibration.predict(p_SQ)
            return score(p_SQ, labels_S, task.classes, predicted_N=predicted, positive=task.positive).to_dict()

        tokens = np.array([len(prompt) for prompt in reader.prompts(sequences.select(test))])
        return {
            "tune": tune.model_dump(mode="json"),
            "config": config.model_dump(),
            "steps": [history.best_step, history.steps],
            "seconds": history.seconds,
            "tokens": float(tokens.mean()),
            "validation": scored(held_logits, held_labels),
            "test": scored(test_logits, task.labels_S[test]),
        }, calibration

    # ---- the tuned model, for those who ask it ------------------------------------------------------------------

    def left(self, bench: Bench) -> bool:
        return not self.keep or _is_kept(bench.kept(self))

    def _keep(self, bench: Bench, reader: Classifier, calibration: Calibration) -> None:
        assert reader.ids is not None, "who reads text is not asked about slots"
        with quietly(), replacing_folder(bench.kept(self), ours=_is_kept) as temporary:
            reader.backbone.model.save_pretrained(temporary)
            reader.backbone.tokenizer.save_pretrained(temporary)
            facts = {"ids": asdict(reader.ids), "calibration": calibration.to_dict()}
            (temporary / "reader.json").write_text(json.dumps(facts), encoding="utf-8")

    def judge(self, bench: Bench) -> tuple[MaskedModel, SlotCoder]:
        """The tuned model as a judge of slots, and its tokenizer."""
        assert self.codes is not None and self.keep, "only a kept model that reads codes can be asked"
        folder: Path = bench.kept(self)
        facts = json.loads((folder / "reader.json").read_text(encoding="utf-8"))
        coder = self.codes.open(bench)[1]
        name = self.codes.data
        task_name = self.tunes[0].task or DATA[name][0]
        task = self.codes.split_data(bench).tasks[task_name]
        reader = Classifier(open_backbone(folder), TokenIds(**facts["ids"]))
        prompt = question(task_name, self.tunes[0].style, task.classes, task.positive)
        reader.writer_ = PromptWriter(reader.backbone.tokenizer, prompt, task.classes, reader.ids)
        return MaskedModel(coder.encode, reader.logits, Calibration.from_dict(facts["calibration"])), coder


def _is_kept(folder: Path) -> bool:
    return (folder / "reader.json").is_file()


def named(backbone: str) -> str:
    """What a backbone is called in tables.

    >>> named("smollm2-135m"), named("models/TinyLlama-1.1B-Chat")
    ('SmolLM2-135M', 'TinyLlama-1.1B-Chat')
    """
    return "SmolLM2-135M" if backbone == SMOLLM2 else Path(backbone).name


def question(task: str, style: Style, classes: tuple[str, ...], positive: int) -> Prompt:
    """The prompt of a task."""
    if task == "readmission":
        return Prompt.preset("generic", style, label="readmission within 30 days", record="admission")
    if task == "attack":
        return Prompt.preset("generic", style, label="attack", record="flow")
    preset = "mortality" if task == "mortality" else "intrusion"
    return Prompt.preset(preset, style, positive=classes[positive], negative=classes[1 - positive])
