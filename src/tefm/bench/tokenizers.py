"""What codes keep: a tokenizer is fitted on the training part and measured on the test part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field as Setting

from tefm.base.files import replacing
from tefm.bench.data import DATA, SplitData
from tefm.bench.measurement import Bench, Found, Measurement
from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.codes.fidelity import codebook_use, collisions, measure
from tefm.codes.hierarchy import hierarchy
from tefm.codes.network import CodeNetwork

if TYPE_CHECKING:
    from numpy.typing import NDArray

Recipe = Literal["task-aware", "unsupervised", "paper"]


class Codes(Measurement):
    """A tokenizer: what it keeps of held-out records, how it uses its codebooks."""

    KIND: ClassVar[str] = "codes"

    data: str
    split: int
    #: `task-aware` saw the labels of the training records, `unsupervised` none, `paper` is the paper's plain objective
    recipe: Recipe = "task-aware"
    #: changes to the tokenizer's settings
    settings: dict[str, Any] = Setting(default_factory=dict)
    buckets: int | None = None

    def split_data(self, bench: Bench) -> SplitData:
        return bench.sources.split(self.data, self.split, self.buckets)

    def config(self) -> TokenizerConfig:
        preset: Literal["default", "paper"] = "paper" if self.recipe == "paper" else "default"
        return TokenizerConfig.preset(preset, **{"seed": self.split, **self.settings})

    def measure(self, bench: Bench) -> Found:
        data, aware = self.split_data(bench), self.recipe == "task-aware"
        train_N = data.in_part("train")
        coder = SlotCoder(self.config()).fit(
            data.x_ND[train_N],
            data.layout,
            groups_N=data.group_N[train_N],
            labels_N=data.label_N[train_N].astype(object) if aware else None,
            validation_ND=None if aware else data.x_ND[data.in_part("validation")],
        )
        codes_NK = coder.encode(data.x_ND)
        self._keep(bench, coder, codes_NK)
        return examined(data, coder, codes_NK)

    def _file(self, bench: Bench) -> Path:
        return bench.kept(self).with_suffix(".npz")

    def left(self, bench: Bench) -> bool:
        return self._file(bench).exists()

    def _keep(self, bench: Bench, coder: SlotCoder, codes_NK: NDArray[Any]) -> None:
        path = self._file(bench)
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {f"state/{name}": value.cpu().numpy() for name, value in coder.network.state_dict().items()}
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file, codes=codes_NK, mode=coder.mode_D_, config=coder.config.model_dump_json(), **state
            )

    def open(self, bench: Bench) -> tuple[NDArray[np.uint16], SlotCoder]:
        """The codes of all records, and the tokenizer that made them."""
        with np.load(self._file(bench)) as file:
            arrays = {name: file[name] for name in file.files}
        coder = SlotCoder(TokenizerConfig.model_validate_json(str(arrays["config"])))
        state = {n.removeprefix("state/"): torch.from_numpy(v) for n, v in arrays.items() if n.startswith("state/")}
        network = CodeNetwork(self.split_data(bench).layout, coder.config, targets=len(state.get("head.bias", ())))
        network.load_state_dict(state)
        coder.network_, coder.mode_D_ = network.to(coder.device).eval(), arrays["mode"]
        return arrays["codes"], coder


def examined(data: SplitData, coder: SlotCoder, codes_NK: NDArray[Any]) -> Found:
    """The figures of a tokenizer on the test records."""
    test_N = data.in_part("test")
    x_ND, test_NK = data.x_ND[test_N], codes_NK[test_N]
    fidelity = measure(x_ND, coder.decode(test_NK), data.layout, coder.mode_D_).to_dict()
    fidelity.pop("fields")
    return {
        "config": coder.config.model_dump(),
        "test": fidelity,
        "use": [level.to_dict() for level in codebook_use(codes_NK, coder.config.entries)],
        "hierarchy": [prefix.to_dict() for prefix in hierarchy(x_ND, test_NK, data.layout)],
        "collisions": collisions(x_ND, test_NK, data.label_N[test_N].astype(object)).to_dict(),
    }


class Ceiling(Measurement):
    """What LightGBM reads out of the quantised latents of the last records, and out of their raw slots."""

    KIND: ClassVar[str] = "ceiling"

    codes: Codes

    def needs(self) -> tuple[Measurement, ...]:
        return (self.codes,)

    def measure(self, bench: Bench) -> Found:
        from tefm.codes.ceiling import ceiling

        data = self.codes.split_data(bench)
        codes_NK, coder = self.codes.open(bench)
        task = data.tasks[DATA[self.codes.data][0]]
        last = task.rows[task.starts[1:] - 1]
        held = {"codes": coder.embed(codes_NK[last]), "raw": data.x_ND[last]}
        labels = np.array(task.classes)[task.labels_S]
        scores = ceiling(held, labels, task.part_S == 0, task.part_S == 2)
        return {name: score.to_dict() for name, score in scores.items()}
