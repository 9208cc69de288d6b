"""What a language model predicts from codes, or from the same records as text."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Setting

from tefm.base.settings import Preset, Settings
from tefm.bench.data import DATA, SplitData
from tefm.bench.measurement import Bench, Figures, Measurement
from tefm.bench.tokenizers import Codes
from tefm.bundle import Bundle, is_saved
from tefm.bundle import load as load_bundle
from tefm.bundle import save as save_bundle
from tefm.fitted import Fitted
from tefm.language.backbone import open_backbone
from tefm.language.config import Start
from tefm.language.prompts import Style
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.pipeline import fit as fit_pipeline
from tefm.task import ModelConfig
from tefm.taskdata import TaskData


class Tune(Settings):
    """One fine-tuning; several may start from the same (aligned) model."""

    #: None is the first task of the data set
    task: str | None = None
    style: Style = "compact"
    #: training sequences, drawn from all of them; None takes all
    sequences: int | None = None
    #: draws the sequences and the order of the steps; None is the number of the split
    seed: int | None = None
    masked_copies: int = 1
    preset: Preset = "default"
    #: changes to the settings of fine-tuning
    settings: dict[str, Any] = Setting(default_factory=dict)


class Prediction(Measurement):
    """A language model, fine-tuned on the training sequences as `tefm fit` does it and scored once on the test part.

    Temperature, threshold and the number of steps are chosen on the validation sequences.
    """

    KIND: ClassVar[str] = "prediction"

    #: None reads the records as text
    codes: Codes | None = None
    #: for text: the data set and the split
    data: str = ""
    split: int = 0
    #: for text: at most so many tokens, the last ones
    limit: int | None = None

    backbone: str = SMOLLM2
    layers: int | None = None
    random_body: bool = False
    start: Start = "codebook"
    align: Literal["none", "default", "paper"] = "none"
    align_settings: dict[str, Any] = Setting(default_factory=dict)
    tunes: tuple[Tune, ...] = (Tune(),)
    #: save the first fine-tuned model, for measurements of its rationales
    keep: bool = False

    def needs(self) -> tuple[Measurement, ...]:
        return (self.codes,) if self.codes else ()

    @property
    def source(self) -> tuple[str, int]:
        """The data set and the split."""
        return (self.codes.data, self.codes.split) if self.codes else (self.data, self.split)

    def split_data(self, bench: Bench) -> SplitData:
        return self.codes.split_data(bench) if self.codes else bench.sources.split(*self.source)

    def texts(self, bench: Bench) -> list[str] | None:
        """The texts of all sequences; None for codes."""
        return None if self.codes else bench.sources.texts(*self.source)

    def prepare(self, bench: Bench) -> None:
        self.split_data(bench)
        self.texts(bench)

    def measure(self, bench: Bench) -> Figures:
        data, texts = self.split_data(bench), self.texts(bench)
        coder = self.codes.open(bench)[1] if self.codes else None
        figures: Figures = {"tunes": []}
        # several fine-tunings share one alignment: the first leaves the aligned model in the checkpoint
        shared = len(self.tunes) > 1 and self.align != "none"
        with tempfile.TemporaryDirectory(dir=bench.folder) if shared else nullcontext() as folder:
            for number, tune in enumerate(self.tunes):
                fitted = fit_pipeline(
                    self._task_data(data, tune, texts),
                    self.config(tune),
                    coder=coder,
                    backbone=open_backbone(
                        self.backbone, layers=self.layers, random_body=self.random_body, seed=self.source[1]
                    ),
                    checkpoint=Path(folder) if folder else None,
                )
                figures["tunes"].append(self._test_figures(data, tune, texts, fitted))
                if number == 0 and fitted.alignment is not None:
                    history = fitted.history["align"]
                    figures["alignment"] = {
                        "steps": history.steps,
                        "seconds": history.seconds,
                        **fitted.alignment.to_dict(),
                    }
                if number == 0 and self.keep:
                    save_bundle(Bundle(fitted), bench.artefacts(self))
        return figures

    def config(self, tune: Tune) -> ModelConfig:
        """The settings of the fit, as `tefm fit` takes them; rationales are separate measurements."""
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
            explanations="none",
            seed=self.source[1],
        )

    def _task(self, tune: Tune) -> str:
        return tune.task or DATA[self.source[0]][0]

    def _task_data(self, data: SplitData, tune: Tune, texts: list[str] | None) -> TaskData:
        task = self._task(tune)
        training = data.tasks[task].of("train")
        if tune.sequences is not None:
            rng = np.random.default_rng((self.source[1] if tune.seed is None else tune.seed, 5))
            training = np.sort(rng.permutation(training)[: tune.sequences])
        return data.task_data(task, tune.style, texts=texts, training=training)

    def _test_figures(self, data: SplitData, tune: Tune, texts: list[str] | None, fitted: Fitted) -> Figures:
        test = fitted.evaluate(*data.sequences(self._task(tune), "test", texts=texts))
        history = fitted.history["tune"]
        return {
            "tune": tune.model_dump(mode="json"),
            "config": fitted.config.tune_config.model_dump(),
            "steps": [history.best_step, history.steps],
            "seconds": history.seconds,
            "tokens": test.tokens_mean,
            "validation": None if fitted.validation is None else fitted.validation.to_dict(),
            "test": test.to_dict(),
        }

    # ---- the saved model, for measurements of its rationales -----------------------------------------------------

    def has_artefacts(self, bench: Bench) -> bool:
        return not self.keep or is_saved(bench.artefacts(self))

    def fitted(self, bench: Bench) -> Fitted:
        """The saved model."""
        assert self.codes is not None and self.keep, "only a model of codes with `keep` is saved"
        return load_bundle(bench.artefacts(self)).fitted


def title_of(backbone: str) -> str:
    """The name of a backbone in tables.

    >>> title_of("smollm2-135m"), title_of("models/TinyLlama-1.1B-Chat")
    ('SmolLM2-135M', 'TinyLlama-1.1B-Chat')
    """
    return "SmolLM2-135M" if backbone == SMOLLM2 else Path(backbone).name
