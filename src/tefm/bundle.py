"""The bundle: a trained model as one folder.

manifest.json   hashes of all parts, versions
model.json      settings, classes, prompt, calibration, what was measured
tokenizer/      schema and codebooks (RecordTokenizer)
language/       the language model, an ordinary Hugging Face folder
rationale.safetensors   surrogate and extractor, where the model explains itself
README.md       the model card
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tefm import __version__
from tefm.base.errors import ArtefactError
from tefm.base.files import is_whole, read_manifest, replacing_folder, write_json, write_manifest, write_text
from tefm.codes.tokenizer import RecordTokenizer
from tefm.explain import load_explainer, save_explainer
from tefm.language.align import Alignment
from tefm.language.backbone import open_backbone
from tefm.language.classifier import Classifier
from tefm.language.distributed import is_first
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.smollm2 import quietly
from tefm.language.train import History
from tefm.language.vocabulary import TokenIds
from tefm.model import TEFM
from tefm.records.schema import Schema
from tefm.scoring.calibration import Calibration

KIND = "tefm model"
EXPLAINER = "rationale.safetensors"


def is_saved(folder: Path) -> bool:
    """Whether `folder` holds a whole bundle."""
    return is_whole(folder, KIND)


def save(model: TEFM, folder: Path) -> Path:
    """Write a fitted model; of several processes, the first one does."""
    import torch
    import transformers

    if not is_first():
        return folder

    reader, tokenizer = model.reader, model.tokenizer_
    assert model.prompt_ is not None and model.schema_ is not None
    with replacing_folder(folder, ours=is_saved) as temporary:
        body: dict[str, Any] = {
            "config": model.config.model_dump(mode="json"),
            "schema": model.schema_.model_dump(mode="json"),
            "classes": model.classes_,
            "positive": model.positive_,
            "prompt": model.prompt_.model_dump(mode="json"),
            "calibration": model.calibration_.to_dict(),
            "codes": None if tokenizer is None else tokenizer.coder.identity,
            "ids": None if reader.ids is None else asdict(reader.ids),
            "history": {stage: history.to_dict() for stage, history in model.history_.items()},
            "alignment": None if model.alignment_ is None else asdict(model.alignment_),
            "figures": model.figures_,
            "source": model.source_,
        }
        write_json(temporary / "model.json", body)
        if model.explainer_ is not None:
            save_explainer(model.explainer_, temporary / EXPLAINER)
        if tokenizer is not None:
            tokenizer.save(temporary / "tokenizer")
        with quietly():
            reader.backbone.model.save_pretrained(temporary / "language")
            reader.backbone.tokenizer.save_pretrained(temporary / "language")
        write_text(temporary / "README.md", card(model))
        versions = {
            "tefm": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }
        write_manifest(temporary, KIND, versions=versions, codes=body["codes"])
    return folder


def load(folder: Path, *, device: str | None = None) -> TEFM:
    """Read a saved model; parts that do not belong together are refused."""
    read_manifest(folder, KIND)
    try:
        body = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        model = TEFM(device=device, **body["config"])
        model.schema = model.schema_ = Schema.model_validate(body["schema"])
        model.classes_, model.positive_ = tuple(body["classes"]), body["positive"]
        model.prompt_ = Prompt.checked(body["prompt"])
        model.calibration_ = Calibration.from_dict(body["calibration"])
        model.history_ = {stage: History(**history) for stage, history in body["history"].items()}
        model.figures_, model.source_ = body["figures"], body.get("source")  # older bundles have none
        ids = None if body["ids"] is None else TokenIds(**body["ids"])
        if body["alignment"] is not None:
            model.alignment_ = Alignment(**{**body["alignment"], "exact": tuple(body["alignment"]["exact"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            f"the parts of this model do not belong together: {error}", file=folder, remedy="save it again"
        ) from error
    if body["codes"] is not None:
        tokenizer = model.tokenizer_ = RecordTokenizer.load(folder / "tokenizer", device=device)
        if tokenizer.coder.identity != body["codes"]:
            raise ArtefactError(
                "the tokenizer is not the one that this language model has learned to read",
                file=folder / "tokenizer",
                value=tokenizer.coder.identity,
                remedy="put the tokenizer back that the bundle was saved with",
            )
        if (folder / EXPLAINER).is_file():  # the manifest knows whether it should be there
            model.explainer_ = load_explainer(tokenizer.coder, folder / EXPLAINER)
    backbone = open_backbone(folder / "language", device=device)
    backbone.name = model.config.backbone
    reader = model.reader_ = Classifier(backbone, ids)
    reader.writer_ = PromptWriter(backbone.tokenizer, model.prompt_, model.classes_, ids)
    return model


def card(model: TEFM) -> str:
    """The model card: what it is, what it reads, what was measured."""
    reader = model.reader
    lines = [
        "---",
        f"base_model: {model.config.backbone}",
        "library_name: tefm",
        "---",
        f"# {model.title}",
        "",
        f"- classes: {', '.join(model.classes_)}; one sequence is {model.one_sequence}",
        f"- language model: {model.config.backbone}, {reader.backbone.model.config.num_hidden_layers} blocks, "
        f"{reader.backbone.model.num_parameters():,} weights; `language/` loads with `AutoModelForCausalLM`",
    ]
    if model.tokenizer_ is not None:
        coder = model.tokenizer_.coder
        kind = "task-aware: they saw the labels of the training records and carry part of the answer"
        lines.append(
            f"- codes: {coder.layout.width} slots become {coder.config.levels} of {coder.config.entries} each, "
            + (kind if coder.classes_ else "unsupervised: they saw no label")
        )
    else:
        lines.append("- reads the serialised records, not codes (the raw-text baseline)")
    if model.alignment_ is not None:
        a = model.alignment_
        exact = " / ".join(f"{share:.2f}" for share in a.exact)
        lines += [
            f"- alignment, {a.records:,} held-out records: slot accuracy from words {a.slot_accuracy:.4f} "
            f"(true codes {a.upper_slot_accuracy:.4f}, most common values {a.mode_slot_accuracy:.4f}), "
            f"exact codes {exact}, loss of the words {a.true_loss:.3f} with the true code, {a.shuffled_loss:.3f} with "
            "that of another record",
        ]
    if model.explainer_ is not None and model.explainer_.agreement_ is not None:
        same = model.explainer_.agreement_
        lines.append(
            "- rationales: the surrogate that they were learned with gives the language model's label for "
            f"{same.whole_same:.1%} of {same.sequences:,} held-out sequences (masked: {same.masked_same:.1%}); "
            "every rationale is checked with the language model itself"
        )
    for part, figures in model.figures_.items():
        lines += ["", f"## Measured on the {part} part ({figures['n']:,} sequences)", "", "| figure | value | 95% |"]
        lines.append("| --- | --- | --- |")
        for name in ("auroc", "auprc", "accuracy", "macro_f1", "brier", "ece"):
            found = figures[name]
            if found["value"] is not None:
                lines.append(f"| {name} | {found['value']:.4f} | {found['low']:.4f}–{found['high']:.4f} |")
        lines.append(f"| tokens per sequence | {figures['tokens_mean']:.1f} | |")
    calibration = model.calibration_
    threshold = "the most probable class" if calibration.threshold is None else f"p ≥ {calibration.threshold:.3f}"
    lines += ["", f"Temperature {calibration.temperature:.3f}, decision: {threshold}; both learned on validation.", ""]
    lines += [
        "```python",
        "from tefm import TEFM",
        "",
        'model = TEFM.load("this folder")',
        'model.predict_table("new records.csv")',
        *(['print(model.explain("new records.csv")[0].text)'] if model.explainer_ is not None else []),
        "```",
        "",
    ]
    return "\n".join(lines)
