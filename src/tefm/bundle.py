"""The bundle: a fitted model as one folder, and back.

manifest.json   hashes of all parts, versions
model.json      settings, classes, prompt, calibration, figures
tokenizer/      codes, and how tables become slots
language/       the language model, an ordinary Hugging Face folder
look_alikes.safetensors training sequences (slots, no names) and a surrogate, where the model explains itself
rationale.safetensors   surrogate and extractor of the paper's masks, where they were learned
questions.json  questions in words: their calibration and figures, where the model answers some
reference.safetensors   counts of held-out records, which `tefm monitor` compares new ones with
README.md       the model card
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tefm.agreement import check_agreement, check_width
from tefm.base.errors import ArtefactError, InputError
from tefm.base.files import is_whole, read_manifest, refusing, replacing_folder, write_json, write_manifest, write_text
from tefm.base.training import THREADS
from tefm.base.version import __version__
from tefm.codes.coder import SlotCoder
from tefm.codes.storage import load_coder, save_coder
from tefm.codes.tokenizer import VECTORISER, RecordTokenizer, load_vectoriser
from tefm.language.align import Alignment
from tefm.language.backbone import open_backbone
from tefm.language.classifier import Classifier
from tefm.language.distributed import is_first
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.sealed import check_sealed
from tefm.language.smollm2 import quietly
from tefm.language.train import History
from tefm.language.vocabulary import TokenIds
from tefm.pipeline import Fitted
from tefm.prepare import Preparation
from tefm.questions.book import Book
from tefm.rationale.look_alikes import LookAlikes
from tefm.rationale.masks.storage import load_explainer, save_explainer
from tefm.records.schema import Schema
from tefm.scoring.calibration import Calibration
from tefm.show.model_card import CodesFacts, ModelCardFacts, model_card
from tefm.task import ModelConfig
from tefm.watch.reference import Reference

KIND = "tefm model"
LOOK_ALIKES, EXPLAINER = "look_alikes.safetensors", "rationale.safetensors"
REFERENCE, QUESTIONS = "reference.safetensors", "questions.json"


@dataclass(frozen=True)
class Bundle:
    """All that is saved of a model."""

    fitted: Fitted
    #: how tables become its input; None for a model of arrays, as the benchmarks make them
    preparation: Preparation | None = None
    #: what was measured: name of the part → figures
    figures: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    #: the table it was fitted on and how that was split, where a task said so
    source: Mapping[str, Any] | None = None
    #: what new records are compared with; None for a model of arrays, of text, or of an older version
    reference: Reference | None = None


def is_saved(folder: Path) -> bool:
    """Whether `folder` holds a whole bundle."""
    return is_whole(folder, KIND)


def save(bundle: Bundle, folder: Path) -> Path:
    """Write a bundle; of several processes, the first one does."""
    import torch
    import transformers

    if not is_first():
        return folder
    fitted, preparation = bundle.fitted, bundle.preparation
    with replacing_folder(folder, ours=is_saved) as temporary:
        identity = None if fitted.coder is None else fitted.coder.identity
        ids, alignment = fitted.classifier.ids, fitted.alignment
        body: dict[str, Any] = {
            "config": fitted.config.model_dump(mode="json"),
            "schema": None if preparation is None else preparation.schema.model_dump(mode="json"),
            "classes": fitted.classes,
            "positive": fitted.positive,
            "shares": fitted.shares,
            "prompt": fitted.prompt.model_dump(mode="json"),
            "calibration": fitted.calibration.to_dict(),
            "codes": identity,
            "ids": None if ids is None else asdict(ids),
            "history": {stage: history.to_dict() for stage, history in fitted.history.items()},
            "alignment": None if alignment is None else asdict(alignment),
            "figures": dict(bundle.figures),
            "source": bundle.source,
        }
        write_json(temporary / "model.json", body)
        if fitted.look_alikes is not None:
            fitted.look_alikes.save(temporary / LOOK_ALIKES)
        if fitted.explainer is not None:
            save_explainer(fitted.explainer, temporary / EXPLAINER)
        if fitted.book is not None:
            fitted.book.save(temporary / QUESTIONS)
        if bundle.reference is not None:
            bundle.reference.save(temporary / REFERENCE)
        if fitted.coder is not None:
            _save_codes(fitted.coder, preparation, temporary / "tokenizer")
        with quietly():
            fitted.classifier.backbone.model.save_pretrained(temporary / "language")
            fitted.classifier.backbone.tokenizer.save_pretrained(temporary / "language")
        if preparation is not None:
            write_text(temporary / "README.md", model_card(card_facts(bundle)))
        versions = {
            "tefm": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }
        threads = THREADS if fitted.config.deterministic else torch.get_num_threads()
        write_manifest(temporary, KIND, versions=versions, codes=identity, threads=threads)
    return folder


def _save_codes(coder: SlotCoder, preparation: Preparation | None, folder: Path) -> None:
    if preparation is not None:
        preparation.tokenizer(coder).save(folder)
    else:
        folder.mkdir()
        save_coder(coder, folder)


def load(folder: Path, *, device: str | None = None) -> Bundle:
    """Read a bundle; parts that do not belong together are refused, and nothing in it is run."""
    read_manifest(folder, KIND)
    with refusing(folder, "model"):
        return _load(folder, device)


def _load(folder: Path, device: str | None) -> Bundle:
    check_sealed(folder / "language")
    try:
        body = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        config = ModelConfig.checked(body["config"])
        schema = None if body["schema"] is None else Schema.model_validate(body["schema"])
        classes, prompt = tuple(body["classes"]), Prompt.checked(body["prompt"])
        calibration = Calibration.from_dict(body["calibration"])
        history = {stage: History(**steps) for stage, steps in body["history"].items()}
        ids = None if body["ids"] is None else TokenIds(**body["ids"])
        alignment = None
        if body["alignment"] is not None:
            alignment = Alignment(**{**body["alignment"], "exact": tuple(body["alignment"]["exact"])})
        positive, figures, source, identity = (body[name] for name in ("positive", "figures", "source", "codes"))
        shares = tuple(body["shares"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            f"the parts of this model do not belong together: {error}", file=folder, remedy="save it again"
        ) from error
    coder, preparation, look_alikes, explainer = None, None, None, None
    if identity is None:
        preparation = None if schema is None else Preparation(schema, config, None)
    else:
        coder, preparation = _load_codes(folder / "tokenizer", schema, config, prompt, identity, device)
        # the manifest knows whether they should be there
        if (folder / LOOK_ALIKES).is_file():
            check_width(folder / LOOK_ALIKES)
            look_alikes = LookAlikes.load(coder, folder / LOOK_ALIKES)
        if (folder / EXPLAINER).is_file():
            check_width(folder / EXPLAINER)
            explainer = load_explainer(coder, folder / EXPLAINER)
    backbone = open_backbone(folder / "language", device=device, sealed=True)
    backbone.name = config.backbone
    writer = PromptWriter(backbone.tokenizer, prompt, classes, ids)
    classifier = Classifier(backbone, writer, text_limit=config.text_limit)
    fitted = Fitted(
        config,
        classes,
        positive,
        prompt,
        classifier,
        calibration,
        coder,
        look_alikes,
        explainer,
        alignment,
        history,
        shares=shares,
        book=Book.load(folder / QUESTIONS) if (folder / QUESTIONS).is_file() else None,
    )
    check_agreement(fitted, preparation, folder)
    reference = Reference.load(folder / REFERENCE) if (folder / REFERENCE).is_file() else None
    return Bundle(fitted, preparation, figures, source, reference)


def load_preparation(folder: Path) -> Preparation:
    """How a saved model sees tables, without loading its weights: a table can be checked before that."""
    read_manifest(folder, KIND, only=("model.json", f"tokenizer/{VECTORISER}"))
    with refusing(folder, "model"):
        preparation = _load_preparation(folder)
    if preparation is None:
        raise InputError(
            "this model was fitted on arrays and does not read tables", file=folder, remedy="fit it on a table"
        )
    return preparation


def load_book(folder: Path) -> Book:
    """The questions of a saved model, without loading its weights."""
    read_manifest(folder, KIND, only=("model.json", QUESTIONS) if (folder / QUESTIONS).is_file() else ("model.json",))
    if not (folder / QUESTIONS).is_file():
        raise InputError(
            "this model answers no questions: it was fitted on a label alone",
            file=folder,
            remedy="add `questions:` to the task file and fit it again",
        )
    return Book.load(folder / QUESTIONS)


def _load_preparation(folder: Path) -> Preparation | None:
    try:
        body = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        schema, config = body["schema"], ModelConfig.checked(body["config"])
        reads_codes, gaps = body["codes"] is not None, Prompt.checked(body["prompt"]).gaps
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            f"the settings of this model cannot be read: {error}", file=folder, remedy="save it again"
        ) from error
    if schema is None:
        return None
    vectoriser = load_vectoriser(folder / "tokenizer") if reads_codes else None
    return Preparation(Schema.model_validate(schema), config, vectoriser, gaps)


def _load_codes(
    folder: Path, schema: Schema | None, config: ModelConfig, prompt: Prompt, identity: str, device: str | None
) -> tuple[SlotCoder, Preparation | None]:
    """The codes of a bundle, and how tables become slots where it says so."""
    preparation = None
    if schema is None:
        coder = load_coder(folder, device=device)
    else:
        tokenizer = RecordTokenizer.load(folder, device=device)
        coder, preparation = tokenizer.coder, Preparation(schema, config, tokenizer.vectoriser, prompt.gaps)
    if coder.identity != identity:
        raise ArtefactError(
            "the tokenizer is not the one that this language model was trained with",
            file=folder,
            value=coder.identity,
            remedy="put back the tokenizer that the bundle was saved with",
        )
    return coder, preparation


def card_facts(bundle: Bundle) -> ModelCardFacts:
    """What the model card and a notebook say about a model."""
    fitted, preparation = bundle.fitted, bundle.preparation
    assert preparation is not None, "a model of arrays has no card"
    coder, calibration, look_alikes = fitted.coder, fitted.calibration, fitted.look_alikes
    codes = None
    if coder is not None:
        codes = CodesFacts(coder.layout.width, coder.config.levels, coder.config.entries, bool(coder.classes_))
    return ModelCardFacts(
        title=preparation.title,
        base_model=fitted.config.backbone,
        classes=fitted.classes,
        one_sequence=preparation.one_sequence,
        blocks=fitted.classifier.backbone.model.config.num_hidden_layers,
        parameters=fitted.classifier.backbone.model.num_parameters(),
        temperature=calibration.temperature,
        threshold=calibration.threshold,
        positive=fitted.classes[calibration.positive],
        rule=calibration.rule,
        weighted=bool(calibration.weights),
        codes=codes,
        alignment=fitted.alignment,
        explains=look_alikes is not None,
        donors=0 if look_alikes is None else len(look_alikes.population),
        agreement=None if look_alikes is None else look_alikes.agreement,
        scores=bundle.figures,
        quick=fitted.config.quick,
    )
