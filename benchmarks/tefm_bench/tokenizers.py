"""Codes on their own: what a tokenizer reconstructs, and what its codes predict without a language model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Setting

from tefm.base.files import replacing
from tefm.codes.coder import SlotCoder, load_coder, save_coder
from tefm.codes.fidelity import codebook_use, collisions, measure
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.stages import learn_codes
from tefm.scoring import weighted
from tefm_bench.data import DATA, SplitData
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.prefixes import hierarchy

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The codes of all records, in the folder of the coder.
CODES = "codes.npz"
Recipe = Literal["task-aware", "unsupervised", "paper"]


class Codes(Measurement):
    """A tokenizer, fitted on the training records: reconstruction of test records, and use of the codebooks."""

    KIND: ClassVar[str] = "codes"

    data: str
    split: int
    #: `task-aware` learned from the labels of the training records, `unsupervised` did not; `paper` is the paper's
    #: plain objective
    recipe: Recipe = "task-aware"
    #: changes to the settings of the tokenizer
    settings: dict[str, Any] = Setting(default_factory=dict)
    buckets: int | None = None

    def split_data(self, bench: Bench) -> SplitData:
        return bench.sources.split(self.data, self.split, self.buckets)

    def config(self) -> ModelConfig:
        """The settings of the fit that learns these codes."""
        codes = {"preset": "paper" if self.recipe == "paper" else "default", **self.settings}
        return ModelConfig(codes=codes, task_aware=self.recipe == "task-aware", seed=self.split)

    def prepare(self, bench: Bench) -> None:
        self.split_data(bench)

    def measure(self, bench: Bench) -> Figures:
        data = self.split_data(bench)
        coder = learn_codes(data.task_data(DATA[self.data]), self.config())
        codes_NK = coder.encode(data.x_ND)
        with replacing(bench.artefacts(self), ours=_has_codes) as temporary:
            save_coder(coder, temporary)
            np.savez_compressed(temporary / CODES, codes=codes_NK)
        return _test_figures(data, coder, codes_NK)

    def has_artefacts(self, bench: Bench) -> bool:
        return _has_codes(bench.artefacts(self))

    def open(self, bench: Bench) -> tuple[NDArray[np.uint16], SlotCoder]:
        """The codes of all records, and the tokenizer."""
        folder = bench.artefacts(self)
        with np.load(folder / CODES) as file:
            return file["codes"], load_coder(folder)


def _has_codes(folder: Path) -> bool:
    return (folder / CODES).is_file()


def _test_figures(data: SplitData, coder: SlotCoder, codes_NK: NDArray[Any]) -> Figures:
    """The figures of a tokenizer on the test records."""
    test_N = data.in_part("test")
    x_ND, test_NK = data.x_ND[test_N], codes_NK[test_N]
    fidelity = measure(x_ND, coder.decode(test_NK), data.layout, coder.mode_D_).to_dict()
    fidelity.pop("fields")
    return {
        "config": coder.config.model_dump(),
        "test": fidelity,
        # of all records, and of the test records alone, as in the paper
        "use": [asdict(level) for level in codebook_use(codes_NK, coder.config.entries)],
        "test_use": [asdict(level) for level in codebook_use(test_NK, coder.config.entries)],
        "hierarchy": [asdict(prefix) for prefix in hierarchy(x_ND, test_NK, data.layout)],
        "collisions": asdict(collisions(x_ND, test_NK, data.label_N[test_N].astype(object))),
    }


class Ceiling(Measurement):
    """How well LightGBM predicts from the quantised latent of the last record, and from its raw slots."""

    KIND: ClassVar[str] = "ceiling"

    codes: Codes

    def needs(self) -> tuple[Measurement, ...]:
        return (self.codes,)

    def measure(self, bench: Bench) -> Figures:
        from tefm.codes.doctor import ceiling

        data = self.codes.split_data(bench)
        codes_NK, coder = self.codes.open(bench)
        task = data.tasks[DATA[self.codes.data]]
        last = task.sequences.last
        features = {"codes": coder.embed(codes_NK[last]), "raw": data.x_ND[last]}
        labels = np.array(task.classes)[task.labels_S]
        scores = ceiling(features, labels, task.part_S == 0, task.part_S == 2)
        return {name: asdict(score) for name, score in scores.items()}


class LabelHead(Measurement):
    """How well the label head of a task-aware tokenizer ranks the test sequences by their last record.

    No language model is involved: the head is a linear layer on the quantised latent, trained with the codes.
    """

    KIND: ClassVar[str] = "label-head"

    codes: Codes

    def needs(self) -> tuple[Measurement, ...]:
        return (self.codes,)

    def measure(self, bench: Bench) -> Figures:
        task = self.codes.split_data(bench).tasks[DATA[self.codes.data]]
        codes_NK, coder = self.codes.open(bench)
        test = task.of("test")
        scores_SQ = label_scores(coder, codes_NK[task.sequences.last[test]], task.classes)
        auroc = weighted.macro(
            weighted.auroc, scores_SQ, task.labels_S[test], np.ones((1, len(test))), positive=task.positive
        )
        return {"auroc": float(auroc[0]), "sequences": len(test)}


def label_scores(coder: SlotCoder, codes_NK: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.float64]:
    """What the label head predicts for each class: standardised log-odds, −∞ for a class it never saw.

    The head of two classes has a single output, the log-odds of the second.
    """
    import torch

    head = coder.network.head
    assert head is not None, "only task-aware codes have a label head"
    with torch.inference_mode():
        outputs_NQ = head(torch.from_numpy(coder.embed(codes_NK)).to(coder.device)).double().cpu().numpy()
    if len(coder.classes_) == 2:
        outputs_NQ = np.hstack([-outputs_NQ, outputs_NQ])
    by_class = dict(zip(coder.classes_, outputs_NQ.T, strict=True))
    return np.stack([by_class.get(name, np.full(len(codes_NK), -np.inf)) for name in classes], axis=1)
