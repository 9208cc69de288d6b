"""A trained `Explainer` as one safetensors file: its tensors, its settings, and how well it agrees with the model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tefm.base.errors import ArtefactError
from tefm.base.files import replacing
from tefm.codes.coder import SlotCoder
from tefm.rationale.config import RationaleConfig
from tefm.rationale.masks.extractor import Explainer
from tefm.rationale.surrogate import Agreement


def save_explainer(explainer: Explainer, path: Path) -> None:
    """Write an explainer in one step."""
    from safetensors.torch import save_file

    agreement = explainer.agreement_
    facts = {"config": explainer.config.model_dump(), "agreement": asdict(agreement) if agreement else None}
    with replacing(path) as temporary:
        save_file(explainer.tensors(), temporary, metadata={"facts": json.dumps(facts)})


def load_explainer(coder: SlotCoder, path: Path) -> Explainer:
    """Read what `save_explainer` wrote; `coder` is the one that it was trained with."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
            facts = json.loads(file.metadata()["facts"])
        explainer = Explainer.from_tensors(coder, tensors, RationaleConfig.checked(facts["config"]))
        explainer.agreement_ = Agreement(**facts["agreement"]) if facts["agreement"] else None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ArtefactError(f"this explainer cannot be read: {error}", file=path, remedy="save it again") from error
    return explainer
