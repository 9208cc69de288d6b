"""What a language model reads out of codes, or out of the same records as text: align, tune, predict, score."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Setting

from tefm import bundle, pipeline
from tefm.base.settings import Preset, Settings
from tefm.bench.data import DATA
from tefm.bench.measurement import Bench, Found, Measurement
from tefm.bench.tokenizers import Codes
from tefm.bundle import Bundle
from tefm.language.backbone import open_backbone
from tefm.language.config import Start
from tefm.language.prompts import Prompt, Style
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.pipeline import Fitted, TaskData
from tefm.task import ModelConfig


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


class Prediction(Measurement):
    """A language model tuned on the training sequences, its answers to the test sequences scored once.

    Temperature and threshold come from the validation sequences, and so does the number of steps.
    """

    KIND: ClassVar[str] = "prediction"

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
        measured: Found = {"tunes": []}
        # several tunes start from one aligned model, which the first leaves in a checkpoint
        several = len(self.tunes) > 1 and self.align != "none"
        with tempfile.TemporaryDirectory(dir=bench.folder) if several else nullcontext() as folder:
            for number, tune in enumerate(self.tunes):
                fitted, figures = self._fit(bench, tune, Path(folder) if folder else None)
                measured["tunes"].append(figures)
                if fitted.alignment is not None and number == 0:
                    history = fitted.history["align"]
                    measured["alignment"] = {
                        "steps": history.steps,
                        "seconds": history.seconds,
                        **fitted.alignment.to_dict(),
                    }
                if self.keep and number == 0:
                    bundle.save(Bundle(fitted), bench.kept(self))
        return measured

    def config(self, tune: Tune) -> ModelConfig:
        """The settings of the fit, as `tefm fit` takes them; explanations are measured apart from it."""
        align = self.align if self.align == "none" else {"preset": self.align, **self.align_settings}
        settings = {"preset": tune.preset, **({} if tune.seed is None else {"seed": tune.seed}), **tune.settings}
        return ModelConfig(
            backbone=self.backbone,
            layers=self.layers,
            start=self.start,
            align=align,
            tune=settings,
            masked_copies=tune.masked_copies,
            inputs="codes" if self.codes else "text",
            text_limit=self.limit,
            rationale="none",
            seed=self.place[1],
        )

    def task_data(self, bench: Bench, tune: Tune) -> TaskData:
        """What the fit is made from."""
        name, split = self.place
        data = self.codes.split_data(bench) if self.codes else bench.sources.split(name, split)
        task_name = tune.task or DATA[name][0]
        task = data.tasks[task_name]
        training = task.of("train")
        if tune.sequences is not None:
            rng = np.random.default_rng((split if tune.seed is None else tune.seed, 5))
            training = np.sort(rng.permutation(training)[: tune.sequences])
        prompt = question(task_name, tune.style, task.classes, task.positive)
        texts = None if self.codes else bench.sources.texts(name, split)
        return data.task_data(task_name, prompt, texts=texts, training=training)

    def _fit(self, bench: Bench, tune: Tune, checkpoint: Path | None) -> tuple[Fitted, Found]:
        """Fit as the product does, and score the test sequences, once."""
        name, split = self.place
        config, task_data = self.config(tune), self.task_data(bench, tune)
        backbone = open_backbone(self.backbone, layers=self.layers, random_body=self.random_body, seed=split)
        coder = self.codes.open(bench)[1] if self.codes else None
        fitted = pipeline.fit(task_data, config, coder=coder, backbone=backbone, checkpoint=checkpoint)
        data = self.codes.split_data(bench) if self.codes else bench.sources.split(name, split)
        task_name = tune.task or DATA[name][0]
        texts = None if self.codes else bench.sources.texts(name, split)
        part = data.part(task_name, "test", data.tasks[task_name].of("test"), texts=texts)
        test = part.sequences if part.x_ND is None else part.with_values(part.x_ND)
        scored = fitted.evaluate(test, part.labels_S)
        history = fitted.history["tune"]
        return fitted, {
            "tune": tune.model_dump(mode="json"),
            "config": config.tune_config.model_dump(),
            "steps": [history.best_step, history.steps],
            "seconds": history.seconds,
            "tokens": scored.tokens_mean,
            "validation": None if fitted.validation is None else fitted.validation.to_dict(),
            "test": scored.to_dict(),
        }

    # ---- the fitted model, for measurements that ask it --------------------------------------------------------

    def left(self, bench: Bench) -> bool:
        return not self.keep or bundle.is_saved(bench.kept(self))

    def fitted(self, bench: Bench) -> Fitted:
        """The model that was kept."""
        assert self.codes is not None and self.keep, "only a kept model that reads codes can be asked"
        return bundle.load(bench.kept(self)).fitted


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
