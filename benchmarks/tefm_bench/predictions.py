"""What a language model predicts from codes, or from the same records as text."""

from __future__ import annotations

import pickle
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.files import replacing
from tefm.base.settings import Preset, Settings
from tefm.base.training import History
from tefm.language.backbone import Backbone
from tefm.language.config import AlignConfig, Start
from tefm.language.prompts import Style
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import Given
from tefm.pipeline.fit import begin
from tefm.pipeline.fit import fit as fit_pipeline
from tefm.pipeline.fitted import Fitted
from tefm.scoring.breakdown import Evaluation
from tefm_bench.alignment import measured
from tefm_bench.backbones import opened
from tefm_bench.data import DATA, SplitData
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.text_model import TextModel
from tefm_bench.tokenizers import Codes


class FlowAlign(AlignConfig):
    """The alignment of flows: with 77 numbers, descriptions are long, and those that become codes teach more."""

    backward: ClassVar[float] = 0.75

    @property
    def whole(self) -> float:
        return 0.75


class Varied(ModelConfig):
    """The settings of a fit, and what only benchmarks vary."""

    #: copies to learn from without learning masks: rationales are separate measurements
    masked_copies: int = 0

    @property
    def copies(self) -> int:
        return self.masked_copies

    def align_config(self, sequences: int, device: str) -> AlignConfig | None:
        """The settings of stage 2; those of flows are the ones that name their shares."""
        if isinstance(self.align, dict) and "backward" in self.align:
            others = {name: of for name, of in self.align.items() if name not in ("preset", "backward", "whole")}
            return FlowAlign.checked({"seed": self.seed, **others})
        return super().align_config(sequences, device)


class Tune(Settings):
    """One fine-tuning; several may start from the same (aligned) model."""

    style: Style = "compact"
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

    def prepare(self, bench: Bench) -> None:
        self.split_data(bench)
        if not self.codes:
            bench.sources.texts(*self.source)

    def measure(self, bench: Bench) -> Figures:
        return self._measure_codes(bench, self.codes) if self.codes else self._measure_texts(bench)

    def _measure_codes(self, bench: Bench, codes: Codes) -> Figures:
        data, coder, task = codes.split_data(bench), codes.open(bench)[1], DATA[codes.data]
        figures: Figures = {"tunes": []}
        # the alignment is measured before the first fine-tuning, and all of them start from the aligned model, which
        # is left in the checkpoint
        aligns = self.align != "none"
        with tempfile.TemporaryDirectory(dir=bench.folder) if aligns else nullcontext() as folder:
            checkpoint = Path(folder) if folder else None
            for number, tune in enumerate(self.tunes):
                arrays = data.task_data(task, tune.style)
                given = Given(arrays, self.config(tune), coder, own_coder=True)
                if number == 0 and aligns:
                    begun = begin(given, self._backbone(), {}, checkpoint=checkpoint)
                    figures["alignment"] = {
                        "steps": begun.aligned.steps,
                        "seconds": begun.aligned.seconds,
                        **measured(begun).to_dict(),
                    }
                fitted = fit_pipeline(given, backbone=self._backbone(), checkpoint=checkpoint)
                test = fitted.evaluate(*data.sequences(task, "test"))
                figures["tunes"].append(
                    _figures_of(tune, fitted.config, fitted.history["tune"], fitted.validation, test)
                )
                if number == 0 and self.keep:
                    with replacing(self._stored(bench)) as temporary:
                        temporary.write_bytes(pickle.dumps(fitted))
        return figures

    def _measure_texts(self, bench: Bench) -> Figures:
        data, texts, task = self.split_data(bench), bench.sources.texts(*self.source), DATA[self.data]
        figures: Figures = {"tunes": []}
        for tune in self.tunes:
            config = self.config(tune)
            text_task = data.text_task(task, tune.style, texts)
            model = TextModel.fit(text_task, config, self._backbone(), limit=self.limit)
            test = model.evaluate(data.texts(task, data.tasks[task].of("test"), texts))
            figures["tunes"].append(_figures_of(tune, config, model.history, model.validation, test))
        return figures

    def _backbone(self) -> Backbone:
        return opened(self.backbone, layers=self.layers)

    def config(self, tune: Tune) -> ModelConfig:
        """The settings of the fit, as `tefm fit` takes them; rationales are separate measurements."""
        align = self.align if self.align == "none" else {"preset": self.align, **self.align_settings}
        settings = {"preset": tune.preset, **tune.settings}
        return Varied(
            backbone=self.backbone,
            layers=self.layers,
            start=self.start,
            align=align,
            tune=settings,
            masked_copies=tune.masked_copies,
            explanations="none",
            seed=self.source[1],
        )

    # ---- the saved model, for measurements of its rationales -----------------------------------------------------

    def has_artefacts(self, bench: Bench) -> bool:
        return not self.keep or self._stored(bench).is_file()

    def fitted(self, bench: Bench) -> Fitted:
        """The saved model."""
        assert self.codes is not None and self.keep, "only a model of codes with `keep` is saved"
        fitted: Fitted = pickle.loads(self._stored(bench).read_bytes())
        return fitted

    def _stored(self, bench: Bench) -> Path:
        return bench.artefacts(self) / "fitted.pickle"


def _figures_of(
    tune: Tune, config: ModelConfig, history: History, validation: Evaluation | None, test: Evaluation
) -> Figures:
    """What is stored of one fine-tuning."""
    return {
        "tune": tune.model_dump(mode="json"),
        "config": config.tune_config.model_dump(),
        "steps": [history.best_step, history.steps],
        "seconds": history.seconds,
        "tokens": test.tokens_mean,
        "validation": None if validation is None else validation.to_dict(),
        "test": test.to_dict(),
    }
