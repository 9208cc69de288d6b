"""The whole fit, top to bottom: arrays and a config in, a `Fitted` out. Everything that fits a model runs this.

    1. codes         slots are compressed into K small integers each
    2. alignment     the language model learns what the new tokens mean, in words
    3. fine-tuning   it learns to answer the question from the codes alone
    4. explanations  a surrogate learns the model's answers, for the search for features that settle them

`stages.py` has a function for each. The pipeline knows no table: `prepare.py` turns tables into these arrays, the
benchmarks bring their own.

Shapes: N records, D slots, K levels, S sequences, Q classes.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tefm.base.errors import SettingsError
from tefm.base.progress import in_part, job, stage_name
from tefm.base.training import History, identity, reproducible, stage_folder
from tefm.language.backbone import Adapter, Backbone, open_backbone
from tefm.language.classifier import Answerer, Classifier
from tefm.language.prompts import PromptWriter
from tefm.language.training_loop import is_first
from tefm.language.vocabulary import CodeVocabulary
from tefm.pipeline import stages
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import Given
from tefm.pipeline.fitted import Fitted


def fit(
    given: Given, *, backbone: Backbone | None = None, device: str | None = None, checkpoint: Path | None = None
) -> Fitted:
    """Run the four stages. With `checkpoint`, a folder, a run that was interrupted resumes when it is called again.

    `backbone` is opened as the config says when left out; one that differs from that needs a checkpoint folder of its
    own.
    """
    return fit_domains({"": given}, backbone=backbone, device=device, checkpoint=checkpoint)[""]


def fit_domains(
    domains: Mapping[str, Given],
    *,
    backbone: Backbone | None = None,
    device: str | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Fitted]:
    """Fit several domains, by name: each has its own codes, and they share one language model.

    Stage 3 is one fine-tuning on what all of them ask.
    """
    config = language_config({name: given.config for name, given in domains.items()})
    shares = of_all({name: expected_shares(given.config) for name, given in domains.items()})
    with reproducible(config.deterministic), job(shares):
        backbone = backbone or open_backbone(config.backbone, layers=config.kept_layers, device=device)
        _refuse_early(domains, backbone)
        begun: dict[str, stages.Begun] = {}
        for name, given in domains.items():
            # what they have left in the language model so far, by what the names of their tokens begin with
            before = {own.classifier.vocabulary.stem: (own.coder.identity, own.aligned.loss) for own in begun.values()}
            with in_part(name):
                begun[name] = begin(given, backbone, before, device=device, checkpoint=checkpoint)
        depends_on = {name: _depends_on(own.given, own.coder.identity, device) for name, own in begun.items()}
        work = stage_folder(checkpoint, "tune", lambda: depends_on.get("", depends_on))
        history = stages.tune(list(begun.values()), backbone, config, work)
        fitted = {}
        for name, own in begun.items():
            with in_part(name):
                fitted[name] = finish(own, own.classifier, history, work / name if work else None)
    return fitted


def extend(
    given: Given,
    backbone: Backbone,
    stems: Collection[str],
    *,
    device: str | None = None,
    checkpoint: Path | None = None,
) -> Fitted:
    """Add a domain to a finished language model, which stays as it is; `stems` are those of its code tokens.

    The new domain has its own codes, rows for their tokens, and a low-rank change of the weights that holds for it
    alone. The config trains these (`trains: lora` or `rows`), and leaves the alignment out.
    """
    config = given.config
    assert config.tune_config.trains != "full" and config.align == "none", "the body stays as it is"
    with reproducible(config.deterministic), job(expected_shares(config)):
        _refuse_early({"": given}, backbone)
        own = replace(backbone, model=copy.deepcopy(backbone.model), tokenizer=copy.deepcopy(backbone.tokenizer))
        begun = begin(given, own, dict.fromkeys(stems), device=device, checkpoint=checkpoint)
        depends_on = _depends_on(given, begun.coder.identity, device)
        weights = (weight.detach().cpu().numpy() for weight in backbone.model.parameters())
        work = stage_folder(checkpoint, "extend", lambda: {**depends_on, "language": identity(*weights)})
        history = stages.tune([begun], own, config, work, frozen=len(backbone.tokenizer))
        adapted = Adapter.between(backbone, own, config.tune_config.rank).applied(backbone)
        writer = PromptWriter(adapted.tokenizer, given.data.prompt, given.data.classes, begun.classifier.ids)
        return finish(begun, Classifier(adapted, writer), history, work)


#: Records whose words say where new token rows start.
WORDS_FROM = 20_000
#: What the domains of one language model must agree in.
SHARED = ("backbone", "kept_layers", "tune_config", "deterministic")


def language_config(configs: Mapping[str, ModelConfig]) -> ModelConfig:
    """The settings of the one language model, which are those of the first domain; refuses others that differ."""
    first, *others = configs.values()
    for name, config in zip(list(configs)[1:], others, strict=True):
        for setting in SHARED:
            values = [getattr(of, setting) for of in (first, config)]
            if setting == "tune_config":  # what differs here is the domain's own
                values = [value.model_copy(update={"seed": 0, "label_share": 0.0}) for value in values]
            if values[0] != values[1]:
                word = {"kept_layers": "layers", "tune_config": "tune"}.get(setting, setting)
                raise SettingsError(
                    f"`{word}` differs between {next(iter(configs))} and {name}, which share one language model",
                    remedy="give it the same value in all task files, or leave it out",
                )
    return first


def expected_shares(config: ModelConfig) -> dict[str, float]:
    """How the time of a fit is divided among its stages, roughly."""
    aligned = config.align not in ("none", "auto")  # then it takes longer than all the others together
    return {
        "codes": 0.35,
        "align": 1.2 if aligned else 0.01,
        "tune": 0.45,
        "beside": 0.05 * config.grows_trees,
        "questions": 0.2 * (config.questions is not None),
        "explain": 0.2 * (config.explanations_config is not None),
        "masks": 0.2 * (config.rationale_config is not None),
    }


def of_all(domains: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The shares of the stages of all domains, by name; there is one fine-tuning."""
    stages: dict[str, float] = {}
    for name, of_domain in domains.items():
        for own, share in of_domain.items():
            key = own if own == "tune" else stage_name(own, name)
            stages[key] = stages.get(key, 0.0) + share
    return stages


def _refuse_early(domains: Mapping[str, Given], backbone: Backbone) -> None:
    """Refuse what cannot work, before the first stage."""
    for given in domains.values():
        PromptWriter(backbone.tokenizer, given.data.prompt, given.data.classes)  # refuses a prompt that cannot work
        given.config.decision_for(given.data.classes, given.shares)  # refuses costs of other classes


def begin(
    given: Given,
    backbone: Backbone,
    before: Mapping[str, object],
    *,
    device: str | None = None,
    checkpoint: Path | None = None,
) -> stages.Begun:
    """Stages 1 and 2 of a domain; those `before` it have added tokens with these stems to the same backbone."""
    data, config = given.data, given.config
    coder = given.coder or stages.learn_codes(data, config, device=device, checkpoint=checkpoint)
    codes_NK, held_NK = coder.encode(data.training.slots_ND), coder.encode(data.validation.slots_ND)
    classifier = Classifier.open(
        backbone,
        CodeVocabulary.of(
            data.phrases.record,
            levels=coder.levels,
            entries=coder.config.entries,
            profile=coder.profile_levels,
            taken=before,
        ),
        coder.codebooks_KCd,
        data.prompt,
        data.classes,
        start=config.start,
        seed=config.seed,
        words=(data.phrases, data.training.slots_ND[:WORDS_FROM], codes_NK[:WORDS_FROM]),
        share_markers=bool(before),
    )
    aligned = stages.align(data, config, classifier, coder, codes_NK, before, checkpoint=checkpoint)
    return stages.Begun(given, coder, codes_NK, held_NK, classifier, aligned)


def finish(begun: stages.Begun, classifier: Classifier, tuned: History, work: Path | None = None) -> Fitted:
    """After the fine-tuning: probabilities, decisions, and stage 4."""
    data, config, history = begun.data, begun.config, {"align": begun.aligned, "tune": tuned}
    fitted = Fitted(
        config,
        data.classes,
        data.positive,
        data.prompt,
        Answerer(classifier, begun.coder),
        history={name: steps for name, steps in history.items() if steps.steps},
        shares=begun.given.shares,
        buckets=data.buckets,
    )
    if data.labelled:
        if config.grows_trees:
            fitted = stages.with_trees(fitted, data, begun.validation)
        slots, labels_S = data.validation.slots, data.validation.labels_S
        numbers_S = data.validation.numbers_S
        fitted = stages.calibrate(fitted, slots, begun.validation, labels_S, data.trained_shares, numbers_S)
    if data.questions is not None:
        fitted = stages.calibrate_questions(fitted, begun)
    return stages.learn_to_explain(data, fitted, work) if is_first() else fitted  # only the first process saves


def _depends_on(given: Given, codes: str, device: str | None) -> dict[str, Any]:
    """What the fine-tuned model depends on: everything but what is settled after it. `codes` is their identity."""
    data, config = given.data, given.config
    arrays: list[Any] = [data.stopping]
    for part in (data.training, data.validation):
        sequences = part.sequences
        arrays += [sequences.rows, sequences.starts, sequences.texts, part.labels_S, part.slots_ND]
        arrays += [part.others.rows, part.other_labels_S] if part.others is not None else []
    if (questions := data.questions) is not None:
        arrays += [questions.held_out_Q, [question.text for question in questions.questions]]
        arrays += [
            array
            for part in (questions.training, questions.validation)
            for array in (part.histories.rows, part.histories.starts, part.answers_HQ)
        ]
    return {
        "config": config.model_dump_json(exclude={"explanations", "rationale", "decision", "beside"}),
        "copies": config.copies,  # they depend on `rationale`
        "codes": codes,
        "data": identity(*arrays),
        "classes": data.classes,
        "prompt": data.prompt.model_dump_json(),
        "device": device,
    }
