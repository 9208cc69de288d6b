"""The four stages of a fit, each as one function, and what follows the fine-tuning: probabilities and decisions.

`fit.py` says in which order they run.

Shapes: N records, D slots, K levels, S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tefm.base.files import replacing
from tefm.base.progress import note, stage, warn
from tefm.base.settings import StageSettings
from tefm.base.training import History, identity, stage_folder
from tefm.codes.coder import Codes, SlotCoder, load_coder, save_coder
from tefm.codes.config import MAX_ROWS
from tefm.explain.look_alikes import LookAlikes
from tefm.language.alignment import AlignmentExamples
from tefm.language.alignment import align as align_language_model
from tefm.language.backbone import Backbone
from tefm.language.classifier import Classifier
from tefm.language.training_loop import first_process_makes, is_first
from tefm.language.tuning import Questions, ToLearn, learned_together
from tefm.language.tuning import tune as tune_language_model
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import Given, TaskData, examples_of, label_trees_of, lesson_of
from tefm.pipeline.fitted import Fitted
from tefm.questions.measure import book_of, calibrated, score_questions
from tefm.questions.question_data import questions_to_learn, teacher_of
from tefm.rationale.extractor import ROUNDS, MaskExplainer
from tefm.scoring.calibration import Calibration, prior_shift
from tefm.tables.sequences import Sequences
from tefm.tabular.label_trees import best_share
from tefm.tabular.question_teacher import QuestionTeacher

Learned = TypeVar("Learned", LookAlikes, MaskExplainer)


@dataclass(frozen=True)
class Begun:
    """A domain before the fine-tuning: its codes are learned, and the language model has tokens for them."""

    given: Given
    coder: SlotCoder
    #: the codes of all records, of training and of validation
    codes_NK: Codes
    held_NK: Codes
    classifier: Classifier
    aligned: History

    @property
    def data(self) -> TaskData:
        return self.given.data

    @property
    def config(self) -> ModelConfig:
        return self.given.config

    @property
    def validation(self) -> Sequences:
        """The validation sequences as the language model reads them."""
        return self.data.validation.with_values(self.held_NK)

    @cached_property
    def question_teacher(self) -> QuestionTeacher:
        """What the training records say about the questions; learned when it is first needed."""
        data = self.data
        assert data.questions is not None, "there are questions"
        return teacher_of(data.questions, data.training.slots_ND, data.layout, seed=self.config.seed)

    @property
    def learns(self) -> bool:
        """Whether the language model learns something of this domain."""
        return self.data.labelled or (self.data.questions is not None and self.data.questions.pairs > 0)


# ---- stage 1 ----------------------------------------------------------------------------------------------------


def learn_codes(
    data: TaskData, config: ModelConfig, *, device: str | None = None, checkpoint: Path | None = None
) -> SlotCoder:
    """Stage 1: learn codes from all training records; the several processes of one job share what the first learns."""
    settings, training = config.tokenizer_config, data.training
    x_ND, groups_N, labels_N = training.slots_ND, training.groups_N, training.record_labels_N
    if len(x_ND) > MAX_ROWS:  # a uniform sample of the records
        keys_N = np.random.default_rng(settings.seed).random(len(x_ND))
        rows = np.sort(np.argpartition(keys_N, MAX_ROWS)[:MAX_ROWS])
        x_ND = x_ND[rows]
        groups_N, labels_N = (None if of_N is None else of_N[rows] for of_N in (groups_N, labels_N))
    # task-aware codes stop on what they say about the label, which is measured on a part that the coder holds out
    validation_ND = None if config.task_aware else data.validation.slots_ND
    layout = data.layout
    work = stage_folder(
        checkpoint,
        "codes",
        lambda: {
            "data": identity(x_ND, groups_N, labels_N, validation_ND),
            "slots": layout.slots,
            "settings": settings.model_dump_json(),
            "task_aware": config.task_aware,
            "device": device,
        },
    )
    kind = "task-aware codes" if config.task_aware else "codes"
    what = f"stage 1 of 4: learning {kind} of {len(x_ND):,} records: {layout.width} slots become "
    once = f"; {', '.join(layout.profile.fields)} once per sequence" if layout.static_D.any() else ""

    def make() -> SlotCoder:
        return SlotCoder(settings, device=device).fit(
            x_ND,
            layout,
            labels_N=labels_N if config.task_aware else None,
            groups_N=groups_N,
            validation_ND=validation_ND,
            checkpoint=work / "tokenizer.checkpoint" if work else None,
        )

    loops = 1 + config.task_aware + bool(once)
    with stage("codes", f"{what}{settings.levels} of {settings.entries}{once}", loops=loops):
        folder = work / "coder" if work else None
        with first_process_makes(folder, cpu=device == "cpu"):
            if folder is None:
                return make()
            if is_first() and not _is_coder(folder):
                coder = make()
                with replacing(folder, ours=_is_coder) as temporary:
                    save_coder(coder, temporary)
        return load_coder(folder, device=device)


def _is_coder(folder: Path) -> bool:
    return (folder / "network.safetensors").is_file()


# ---- stage 2 ----------------------------------------------------------------------------------------------------


def align(
    data: TaskData,
    config: ModelConfig,
    classifier: Classifier,
    coder: SlotCoder,
    codes_NK: NDArray[Any],
    before: Mapping[str, object],
    *,
    checkpoint: Path | None = None,
) -> History:
    """Stage 2: align codes and words, where the config asks for it.

    The backbone may have aligned the codes of other domains `before`.
    """
    backbone = classifier.backbone
    settings = config.align_config(len(data.training.sequences), backbone.device.type)
    if settings is None:
        skipped = "alignment skipped (helps with few labels, needs a GPU); force it with `align: default`"
        with stage("align", f"stage 2 of 4: {skipped}"):
            return History()
    phrases, x_ND = data.phrases, data.training.slots_ND
    work = stage_folder(
        checkpoint,
        "align",
        lambda: {
            "codes": coder.identity,
            "records": identity(x_ND, data.validation.slots_ND),
            "words": asdict(phrases),
            "backbone": (config.backbone, config.kept_layers, config.start, config.seed),
            "settings": settings.model_dump_json(),
            "device": backbone.device,
            "before": before,
        },
    )
    finished = work / "aligned.pt" if work else None
    with stage("align", f"stage 2 of 4: aligning codes and words on {len(x_ND):,} records"):
        if (restored := classifier.restore(finished)) is not None:
            return restored
        history = align_language_model(
            backbone,
            AlignmentExamples(phrases, backbone.tokenizer, classifier.ids),
            x_ND,
            codes_NK,
            settings,
            checkpoint=work / "align.checkpoint" if work else None,
        )
        classifier.keep(finished, history)
    return history


# ---- stage 3 ----------------------------------------------------------------------------------------------------


def to_learn(begun: Begun) -> ToLearn:
    """What the language model learns of a domain, as prompts: the label, questions in words, or both."""
    data, classifier, parts = begun.data, begun.classifier, []
    if (questions := data.questions) is not None and questions.pairs:
        codes, teacher, seed = (begun.codes_NK, begun.held_NK), begun.question_teacher, begun.config.seed
        parts.append(questions_to_learn(classifier, data.prompt, questions, *codes, teacher, seed=seed))
    if data.labelled:
        own_codes = begun.given.coder is None or begun.given.own_coder
        learned = lesson_of(data, begun.config, begun.coder, begun.codes_NK, own_codes=own_codes)
        validation, labels_S = begun.validation, data.validation.labels_S
        if data.stopping is not None:
            validation, labels_S = validation.select(data.stopping), labels_S[data.stopping]
        prompts, answers = classifier.prompts, classifier.writer.answers
        training = Questions(prompts(learned.sequences), learned.labels_S, answers, learned.classes_SQ)
        parts.append(ToLearn([training], [Questions(prompts(validation), labels_S, answers)]))
    return reduce(ToLearn.followed_by, reversed(parts))


def tune(
    domains: Sequence[Begun], backbone: Backbone, config: ModelConfig, work: Path | None, *, frozen: int = 0
) -> History:
    """Stage 3: learn to answer; the weights that do best on the validation sequences stay.

    With several domains it is one fine-tuning on what all of them learn. The rows of tokens below `frozen` are not
    among those of the codes.
    """
    learning = [own for own in domains if own.learns]
    if not learning:
        with stage("tune", f"stage 3 of 4: {_not_learned(domains)}"):
            return History()
    domains = learning
    settings, classifier = config.tune_config, domains[0].classifier
    millions = backbone.model.num_parameters() / 1e6
    steps = sum(settings.total_steps(examples_of(own.data, own.config)) for own in domains)
    learned = "; ".join(_what_is_learned(own.data) for own in domains)
    title = (
        f"stage 3 of 4: fine-tuning {backbone.name} ({millions:.0f} M parameters) on {learned}, at most {steps:,} steps"
    )
    finished = work / "tuned.pt" if work else None
    with stage("tune", title):
        if (restored := classifier.restore(finished)) is not None:
            return restored
        together, settings = learned_together([to_learn(own) for own in domains], settings)
        rows = sorted({row for own in domains for row in own.classifier.ids.all if row >= frozen})
        history = tune_language_model(
            backbone, rows, together, settings, checkpoint=work / "tune.checkpoint" if work else None
        )
        classifier.keep(finished, history)
    return history


def _not_learned(domains: Sequence[Begun]) -> str:
    """Why there is no fine-tuning, and how to get one."""
    asked = [questions.config.pairs for own in domains if (questions := own.data.questions) is not None]
    why = "`pairs: 0` under `questions:`" if 0 in asked else "no GPU; force it with `pairs: 20000` under `questions:`"
    answers = "questions are answered from the fields; the language model only embeds unseen questions"
    return f"no fine-tuning ({why}): {answers}"


def _what_is_learned(data: TaskData) -> str:
    sequences = f"{len(data.training.sequences):,} sequences"
    if data.questions is None or not data.questions.pairs:
        return sequences
    questions = f"{len(data.questions.trained):,} questions about {len(data.questions.training):,} histories"
    return f"{sequences} and {questions}" if data.labelled else questions


def calibrate_questions(fitted: Fitted, begun: Begun) -> Fitted:
    """Decide how questions in words are answered, then calibrate and measure them, on validation histories."""
    data, questions = begun.data, begun.data.questions
    assert questions is not None, "there are questions"
    texts, validation = [question.text for question in questions.questions], questions.validation
    does, loops = ("calibrating", 1) if questions.pairs else ("learning", 2)
    with stage("questions", f"{does} the answers to {len(texts):,} questions", loops=loops):
        fitted = replace(fitted, book=book_of(questions, data.prompt, begun.question_teacher))
        asker = fitted.asker(validation.histories, data.validation.slots_ND, texts)
        scored = score_questions(validation, questions, asker, seed=fitted.config.seed, title="answering questions")
        assert fitted.book is not None
        fitted = replace(fitted, book=calibrated(fitted.book, questions, scored))
    # without a label, the first question is what the model answers by default
    return fitted if data.labelled else fitted.answering(texts[int(questions.trained[0])])


def with_trees(fitted: Fitted, data: TaskData, validation: Sequences) -> Fitted:
    """Trees answer beside the language model, which has read the validation sequences as codes."""
    with stage("beside", "fitting boosted trees to combine with the language model", loops=1):
        trees = label_trees_of(data, fitted.config)
        if trees is None:
            return fitted
        if len(validation):
            share = best_share(
                fitted.classifier.logits(validation),
                trees.logits(data.validation.slots, data.layout),
                data.validation.labels_S,
                prior_shift(data.trained_shares, fitted.shares),
            )
            trees = trees.model_copy(update={"share": share})
            note(f"answers combine the language model (weight {share:.1f}) and the trees (the rest)")
    return fitted.with_trees(trees)


def calibrate(
    fitted: Fitted,
    slots: Sequences,
    codes: Sequences,
    labels_S: NDArray[np.int64],
    trained_shares: tuple[float, ...],
    numbers_S: NDArray[np.float64] | None = None,
) -> Fitted:
    """Probabilities and decisions for the population, from validation sequences as slots and as codes."""
    logits_SQ = fitted.answerer.logits(slots, codes) if len(codes) else np.zeros((0, len(fitted.classes)))
    calibration = Calibration.fit(
        logits_SQ,
        labels_S,
        positive=fitted.positive,
        decision=fitted.decision,
        shift=prior_shift(trained_shares, fitted.shares),
    )
    fitted = replace(fitted, calibration=calibration)
    if not len(codes):
        return fitted
    p_SQ = fitted.calibration.probabilities(logits_SQ)
    known_S: NDArray[Any] = labels_S
    if fitted.buckets is not None and numbers_S is not None:
        known_S, buckets = numbers_S, fitted.buckets.conformal(p_SQ, numbers_S)
        fitted = replace(fitted, buckets=buckets)
        if buckets.margin is None:
            warn(f"{len(codes)} validation sequences are too few to calibrate how often the interval covers the number")
    return replace(fitted, validation=fitted.evaluation(codes, p_SQ, known_S))


# ---- stage 4 ----------------------------------------------------------------------------------------------------


def learn_to_explain(data: TaskData, fitted: Fitted, work: Path | None = None) -> Fitted:
    """Stage 4: what explanations need, from the training sequences and the model's own answers."""
    training, config = data.training, fitted.config
    if (settings := config.explanations_config) is not None:
        title = f"stage 4 of 4: learning to explain the answers to {len(training.sequences):,} sequences"

        def look_alikes() -> LookAlikes:
            everyone = population = population_of(data, fitted.shares, settings.seed)
            if config.balance == "all":  # in a balanced world, those who were left out do not occur
                population = population_of(data, fitted.shares, settings.seed, others=False)
            model = fitted.masked_model()
            return LookAlikes.fit(fitted.coder, model, training.slots, population, everyone, settings)

        with stage("explain", title, loops=2):
            learned = _once(LookAlikes, "look_alikes", look_alikes, settings, fitted, work)
        fitted = replace(fitted, look_alikes=learned)
    if (masks := config.rationale_config) is not None:

        def extractor() -> MaskExplainer:
            return MaskExplainer.fit(fitted.coder, training.slots, fitted.masked_model(), masks)

        with stage("masks", "stage 4 of 4: learning the paper's masks", loops=1 + 3 * ROUNDS[masks.recipe]):
            explainer = _once(MaskExplainer, "rationale", extractor, masks, fitted, work)
        fitted = replace(fitted, explainer=explainer)
    return fitted


def _once(
    kind: type[Learned],
    name: str,
    learn: Callable[[], Learned],
    settings: StageSettings,
    fitted: Fitted,
    work: Path | None,
) -> Learned:
    """What an earlier run has learned, from its file in the checkpoint folder; otherwise it is learned, and stored."""
    depends_on = {
        "settings": settings.model_dump_json(),
        "calibration": fitted.calibration,
        "trees": fitted.config.grows_trees,
    }
    folder = stage_folder(work, f"explain-{name}", lambda: depends_on)
    if folder is None:
        return learn()
    path = folder / f"{name}.safetensors"
    if path.is_file():
        return kind.load(fitted.coder, path)
    learned = learn()
    learned.save(path)
    return learned


def population_of(
    data: TaskData, shares: tuple[float, ...], seed: int, *, others: bool = True
) -> tuple[Sequences, NDArray[np.int64]]:
    """Training sequences as they occur, in random order, and their class numbers.

    With `others`, sequences that have no label or were left out for the balance of the classes belong to them. Where
    they are not known, some classes are thinned out until the classes have their shares again.
    """
    part, rng = data.training, np.random.default_rng((seed, 14))
    sequences, labels_S = part.sequences, part.labels_S
    if others and part.others is not None and part.other_labels_S is not None:
        sequences = sequences.followed_by(part.others)
        labels_S = np.concatenate([labels_S, part.other_labels_S])
        chosen = np.arange(len(sequences))
    else:
        weight_Q = np.array(shares) / np.maximum(data.trained_shares, 1e-9)
        chosen = np.flatnonzero(rng.random(len(labels_S)) < (weight_Q / weight_Q.max())[labels_S])
    chosen = rng.permutation(chosen)
    drawn = sequences.select(chosen)
    return replace(drawn.with_values(part.slots_ND[drawn.rows]), ids=None, labels=None, ends=None), labels_S[chosen]
