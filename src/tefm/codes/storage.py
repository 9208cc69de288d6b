"""A trained `SlotCoder` on disk: config, layout, what was learned, weights. The caller seals the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tefm.base.errors import ArtefactError
from tefm.base.files import write_json
from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.codes.network import CodeNetwork
from tefm.codes.train import History
from tefm.records.layout import Layout


def save_coder(coder: SlotCoder, folder: Path) -> None:
    """Write the parts of a coder into a folder."""
    from safetensors.torch import save_file

    write_json(folder / "config.json", coder.config.model_dump(mode="json"))
    write_json(folder / "layout.json", coder.layout.to_json())
    learned = {"mode": coder.mode_D_.tolist(), "classes": coder.classes_, "history": asdict(coder.history_)}
    write_json(folder / "learned.json", learned)
    state = {name: value.detach().cpu().contiguous() for name, value in coder.network.state_dict().items()}
    save_file(state, str(folder / "network.safetensors"))


def load_coder(folder: Path, *, device: str | None = None) -> SlotCoder:
    """Read what `save_coder` wrote; parts that contradict each other are refused."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = TokenizerConfig.checked(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        layout = Layout.from_json(json.loads((folder / "layout.json").read_text(encoding="utf-8")))
        learned = json.loads((folder / "learned.json").read_text(encoding="utf-8"))
        state = load_file(str(folder / "network.safetensors"))
        _check_shapes(state, layout, config)
        network = CodeNetwork(layout, config, targets=len(state.get("head.bias", ())))
        network.load_state_dict(state)
        history = History(**learned["history"])
        mode_D = np.array(learned["mode"], dtype=layout.dtype)
        classes = tuple(learned["classes"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ArtefactError(
            f"the parts of this tokenizer do not belong together: {error}", file=folder, remedy="save it again"
        ) from error
    coder = SlotCoder(config, device=device)
    coder.network_, coder.history_ = network.to(coder.device).eval(), history
    coder.mode_D_, coder.classes_ = mode_D, classes
    return coder


def _check_shapes(state: Mapping[str, Any], layout: Layout, config: TokenizerConfig) -> None:
    """Refuse settings that promise other weights than there are, before memory is taken for them."""
    sizes = layout.sizes_D
    if not layout.width or sizes.min() < 1 or sizes.max() > np.iinfo(np.uint16).max:
        raise ValueError("a slot has from 1 to 65,535 values")
    columns = layout.width if config.inputs == "scaled" else int(sizes.sum())
    shapes = {
        "encoder.0.weight": (config.hidden, columns),
        "quantiser.codebooks_KCd": (config.levels, config.entries, config.latent),
    }
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(state[name].shape)}, not {shape}")
    if config.blocks > len(state):
        raise ValueError(f"there are no weights of {config.blocks:,} blocks")
