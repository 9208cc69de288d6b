"""The bundle: a fitted model as one folder, and back.

manifest.json   hashes of all parts, versions
model.json      settings, classes, prompt, calibration, figures
tokenizer/      codes, and how tables become slots
language/       the language model, an ordinary Hugging Face folder
look_alikes.safetensors training sequences (slots, no names) and a surrogate, where the model explains itself
rationale.safetensors   surrogate and extractor of the paper's masks, where they were learned
trees.json      boosted trees that answer beside the language model, where the config asks for them
questions.json  questions in words: their calibration and figures, where the model answers some
reference.safetensors   counts of held-out records, which `tefm monitor` compares new ones with
README.md       the model card

Several domains of one language model are one folder too: `manifest.json`, `language/`, and for each domain all the
other parts in `domains/NAME/`, with `adapter.safetensors` if it was added later.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from tefm.base import __version__
from tefm.base.errors import ArtefactError, InputError, did_you_mean
from tefm.base.files import (
    MANIFEST,
    is_whole,
    read_manifest,
    refusing,
    replacing,
    write_json,
    write_manifest,
    write_text,
)
from tefm.base.training import THREADS, History
from tefm.codes.tokenizer import VECTORISER, RecordTokenizer, load_vectoriser
from tefm.explain.look_alikes import LookAlikes
from tefm.language.backbone import AdaptedBackbone, Adapter, Backbone, open_backbone
from tefm.language.classifier import Answerer, Classifier
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.sealed import check_sealed, save_turns, seal_turns
from tefm.language.smollm2 import quietly
from tefm.language.training_loop import is_first
from tefm.language.vocabulary import TokenIds
from tefm.model.agreement import check_agreement, check_names, check_reference, check_width
from tefm.monitor.reference import MonitorReference, reference_at_fit
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, Prepared
from tefm.questions.book import Book
from tefm.rationale.extractor import MaskExplainer
from tefm.scoring.calibration import Calibration
from tefm.scoring.metrics import METRICS
from tefm.scoring.numbers import CONCORDANCE, NUMBER_METRICS, Buckets
from tefm.show.html import render
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import text_of
from tefm.tabular.label_trees import LabelTrees

KIND, KIND_DOMAINS = "tefm model", "tefm model with domains"
LANGUAGE, TOKENIZER, DOMAINS, ADAPTER = "language", "tokenizer", "domains", "adapter.safetensors"
#: A domain is a folder, and what `--domain` names.
NAME = re.compile(r"\w[\w .-]*")
LOOK_ALIKES, EXPLAINER = "look_alikes.safetensors", "rationale.safetensors"
REFERENCE, QUESTIONS, TREES = "reference.safetensors", "questions.json", "trees.json"

Part = TypeVar("Part")


@dataclass(frozen=True)
class Bundle:
    """All that is saved of a model."""

    fitted: Fitted
    #: how tables become its input
    preparation: Preparation
    #: what was measured: name of the part → figures
    figures: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    #: the table it was fitted on and how that was split, where a task said so
    source: Mapping[str, Any] | None = None
    #: what new records are compared with; None for a model of an older version
    reference: MonitorReference | None = None
    #: the classes as the label's own values, where these are numbers or truth values
    values: tuple[bool | int | float, ...] | None = None

    @classmethod
    def of_fit(cls, prepared: Prepared, fitted: Fitted) -> Bundle:
        """The bundle of a model that was just fitted."""
        figures = {} if fitted.validation is None else {"validation": fitted.validation.to_dict()}
        buckets, preparation = fitted.buckets, prepared.preparation
        values = None if buckets else _values(prepared.training, fitted.classes)
        held_out = prepared.held_out.cut(None if buckets is None else buckets.above())
        reference = reference_at_fit(fitted.reading(), preparation, prepared.training, held_out)
        preparation = replace(preparation, cuts=buckets)
        return cls(fitted, preparation, figures, reference=reference, values=values)


def _values(training: Records, classes: tuple[str, ...]) -> tuple[bool | int | float, ...] | None:
    """The classes as the values of the label column that they stand for; None where that is text."""
    if training.schema.label is None:
        return None
    values = training.frame[training.schema.label].unique().drop_nulls()
    if not (values.dtype.is_integer() or values.dtype.is_float() or values.dtype == pl.Boolean):
        return None
    by_text = dict(zip(text_of(values, ()).to_list(), values.to_list(), strict=True))
    return tuple(by_text[name] for name in classes)


def is_saved(folder: Path) -> bool:
    """Whether `folder` holds a whole bundle, of one domain or of several."""
    return is_whole(folder, KIND) or is_whole(folder, KIND_DOMAINS)


def save_domains(bundles: Mapping[str, Bundle], folder: Path) -> Path:
    """Write domains of one language model; a single one has no name. Of several processes, the first one does."""
    import torch
    import transformers

    if not is_first():
        return folder
    first = next(iter(bundles.values()))
    versions = {
        "tefm": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    facts = {"versions": versions, "threads": THREADS if first.fitted.config.deterministic else torch.get_num_threads()}
    with replacing(folder, ours=is_saved) as temporary:
        backbone = first.fitted.classifier.backbone
        for name, bundle in bundles.items():
            place = temporary / DOMAINS / name if name else temporary
            place.mkdir(parents=True, exist_ok=True)
            _save_parts(bundle, place)
            own = bundle.fitted.classifier.backbone
            if name and isinstance(own, AdaptedBackbone):
                own.adapter.save(place / ADAPTER)
            elif name:
                backbone = own  # the one that all share
        with quietly():
            backbone.model.save_pretrained(temporary / LANGUAGE)
            backbone.tokenizer.save_pretrained(temporary / LANGUAGE)
        save_turns(backbone.tokenizer, temporary / LANGUAGE)
        if "" in bundles:
            write_manifest(temporary, KIND, codes=first.fitted.coder.identity, **facts)
        else:
            write_manifest(temporary, KIND_DOMAINS, domains=list(bundles), **facts)
    return folder


def _save_parts(bundle: Bundle, folder: Path) -> None:
    """Everything but the language model."""
    fitted, preparation = bundle.fitted, bundle.preparation
    body: dict[str, Any] = {
        "config": fitted.config.model_dump(mode="json"),
        "schema": preparation.schema.model_dump(mode="json"),
        "classes": fitted.classes,
        "values": bundle.values,
        "positive": fitted.positive,
        "shares": fitted.shares,
        "prompt": fitted.prompt.model_dump(mode="json"),
        "calibration": fitted.calibration.to_dict(),
        "codes": fitted.coder.identity,
        "ids": asdict(fitted.classifier.ids),
        "history": {stage: asdict(history) for stage, history in fitted.history.items()},
        "figures": dict(bundle.figures),
        "source": bundle.source,
        "question": fitted.question,
        "buckets": None if fitted.buckets is None else fitted.buckets.model_dump(mode="json"),
    }
    write_json(folder / "model.json", body)
    parts = {
        LOOK_ALIKES: fitted.look_alikes,
        EXPLAINER: fitted.explainer,
        TREES: fitted.trees,
        QUESTIONS: fitted.book,
        REFERENCE: bundle.reference,
    }
    for name, part in parts.items():
        if part is not None:
            part.save(folder / name)
    RecordTokenizer.of(preparation.vectoriser, fitted.coder).save(folder / TOKENIZER)
    write_text(folder / "README.md", card_of(bundle))


def load(folder: Path, *, device: str | None = None, domain: str | None = None) -> Bundle:
    """Read a bundle; parts that do not belong together are refused, and nothing in it is run.

    Of several domains, one is named.
    """
    place = _place(folder, domain)
    if domain is None:
        read_manifest(folder, KIND)
    else:  # nothing of the other domains is read
        read_manifest(folder, KIND_DOMAINS, only=(f"{LANGUAGE}/", f"{place.relative_to(folder).as_posix()}/"))
    with refusing(folder, "model"):
        return _load(place, _load_language(folder, device))


def load_domains(folder: Path, *, device: str | None = None) -> dict[str, Bundle]:
    """Read all domains of a bundle; they share one language model."""
    read_manifest(folder, KIND_DOMAINS)
    with refusing(folder, "model"):
        backbone = _load_language(folder, device)
        return {name: _load(_place(folder, name), backbone) for name in domains_of(folder) or ()}


def domains_of(folder: Path) -> tuple[str, ...] | None:
    """The names of the domains of a saved model; None for a model of one domain, which has no name."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        names = tuple(manifest["domains"]) if manifest["kind"] == KIND_DOMAINS else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # what is wrong with it is said where it is read
    if names is not None and not (names and all(isinstance(name, str) and NAME.fullmatch(name) for name in names)):
        raise ArtefactError("the manifest lists invalid domain names", file=folder / MANIFEST, remedy="save it again")
    return names


def _place(folder: Path, domain: str | None) -> Path:
    """The folder with the parts of a domain."""
    names = domains_of(folder)
    if names is None and domain is None:
        return folder
    if names is None:
        raise InputError("this model has a single, unnamed domain", file=folder, remedy="leave `domain` out")
    if domain is None:
        listed = ", ".join(names)
        raise InputError(f"this model has several domains: {listed}", file=folder, remedy="name one, --domain NAME")
    if domain not in names:
        raise InputError("this model has no such domain", file=folder, value=domain, remedy=did_you_mean(domain, names))
    return folder / DOMAINS / domain


def _load_language(folder: Path, device: str | None) -> Backbone:
    check_sealed(folder / LANGUAGE)
    backbone = open_backbone(folder / LANGUAGE, device=device, sealed=True)
    seal_turns(backbone.tokenizer, folder / LANGUAGE)
    return backbone


def _load(folder: Path, backbone: Backbone) -> Bundle:
    body, config, prompt = _settings(folder)
    tokenizer = RecordTokenizer.load(folder / TOKENIZER, device=str(backbone.device))
    coder, preparation = tokenizer.coder, _preparation(body, config, tokenizer.vectoriser, prompt)
    if coder.identity != body["codes"]:
        raise ArtefactError(
            "the tokenizer is not the one that this language model was trained with",
            file=folder / TOKENIZER,
            value=coder.identity,
            remedy="put back the tokenizer that the bundle was saved with",
        )
    backbone = replace(backbone, name=config.backbone)
    if (folder / ADAPTER).is_file():
        backbone = Adapter.load(folder / ADAPTER).applied(backbone)
    ids = body["ids"]
    writer = PromptWriter(backbone.tokenizer, prompt, tuple(body["classes"]), None if ids is None else TokenIds(**ids))
    fitted = Fitted(
        config,
        writer.classes,
        body["positive"],
        prompt,
        Answerer(Classifier(backbone, writer), coder),
        Calibration.from_dict(body["calibration"]),
        _part(folder / LOOK_ALIKES, partial(LookAlikes.load, coder)),
        _part(folder / EXPLAINER, partial(MaskExplainer.load, coder)),
        {stage: History(**steps) for stage, steps in body["history"].items()},
        shares=tuple(body["shares"]),
        book=_part(folder / QUESTIONS, Book.load),
        question=body.get("question"),  # earlier versions have none
        buckets=_buckets(body),
    )
    trees = _part(folder / TREES, LabelTrees.load)
    if trees is not None:
        fitted = fitted.with_trees(trees)
    check_agreement(fitted, preparation, folder)
    if fitted.question is not None:
        fitted = fitted.answering(fitted.question)
    reference = _part(folder / REFERENCE, MonitorReference.load)
    if reference is not None:
        check_reference(reference, len(fitted.classes) if fitted.buckets is None else 2, folder / REFERENCE)
    values = tuple(body.get("values") or ()) or None  # earlier versions have none
    return Bundle(fitted, preparation, body["figures"], body["source"], reference, values)


def _part(path: Path, load: Callable[[Path], Part]) -> Part | None:
    """A part that not every model has: the manifest knows whether it should be there."""
    if not path.is_file():
        return None
    if path.name in (LOOK_ALIKES, EXPLAINER):
        check_width(path)
    return load(path)


def _settings(folder: Path) -> tuple[dict[str, Any], ModelConfig, Prompt]:
    """What `model.json` holds, with the settings and the prompt in it."""
    body: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    if body["codes"] is None:
        raise ArtefactError(
            "this model reads text instead of codes, which this version does not support",
            file=folder,
            remedy="fit it again, or load it with the version that made it",
        )
    check_names(body["classes"], body.get("values"), folder / "model.json")
    return body, ModelConfig.stored(body["config"]), Prompt.checked(body["prompt"])


def _preparation(body: dict[str, Any], config: ModelConfig, vectoriser: Vectoriser, prompt: Prompt) -> Preparation:
    closed = Schema.model_validate(body["schema"]).closed(vectoriser.value_names)
    return Preparation(closed, config, vectoriser, _buckets(body))


def _buckets(body: Mapping[str, Any]) -> Buckets | None:
    """The buckets of a label that is a number; models of earlier versions have none."""
    return None if body.get("buckets") is None else Buckets.checked(body["buckets"])


def load_preparation(folder: Path, domain: str | None = None) -> Preparation:
    """How a saved model sees tables, without loading its weights: a table can be checked before that."""
    place = _checked(folder, domain, "model.json", f"{TOKENIZER}/{VECTORISER}")
    with refusing(folder, "model"):
        body, config, prompt = _settings(place)
        return _preparation(body, config, load_vectoriser(place / TOKENIZER), prompt)


def load_book(folder: Path, domain: str | None = None) -> Book:
    """The questions of a saved model, without loading its weights."""
    book = _part(_checked(folder, domain, "model.json", QUESTIONS) / QUESTIONS, Book.load)
    if book is None:
        raise InputError(
            "this model does not answer questions: it was fitted on a label only",
            file=folder,
            remedy="add `questions:` to the task file and fit it again",
        )
    return book


def _checked(folder: Path, domain: str | None, *files: str) -> Path:
    """The folder with the parts of a domain, of which these files are those that were saved."""
    place = _place(folder, domain)
    only = [(place.relative_to(folder) / name).as_posix() for name in files]
    read_manifest(folder, KIND if domain is None else KIND_DOMAINS, only=only)
    return place


def card_of(bundle: Bundle, template: str = "model_card.md") -> str:
    """The model card as Markdown, with the header that the hub reads; `model.html` is the one for a notebook."""
    fitted = bundle.fitted
    concordance = tuple(CONCORDANCE) if fitted.buckets is not None and fitted.buckets.survival is not None else ()
    metrics = ("mae", "rmse", "coverage", "width")
    base_model = json.dumps(fitted.config.backbone, ensure_ascii=False)  # in quotes, any path is valid YAML
    return render(
        f"show/{template}",
        fitted=fitted,
        preparation=bundle.preparation,
        figures=bundle.figures,
        METRICS=tuple(METRICS if fitted.buckets is None else NUMBER_METRICS) + concordance,
        COMPARED=("auroc", "accuracy") if fitted.buckets is None else (*concordance, *metrics),
        base_model=base_model,
    )
