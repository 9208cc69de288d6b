"""`ModelConfig`: the settings of a model, stage by stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.errors import SettingsError, did_you_mean
from tefm.base.settings import Retired, Settings, StageSettings
from tefm.codes.config import TokenizerConfig
from tefm.language.config import AlignConfig, Start, TuneConfig
from tefm.language.prompts import Prompt, Style, positive_class
from tefm.language.shortening import CODE_TOKENS
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.questions.config import QuestionsConfig
from tefm.rationale.config import LookAlikeConfig, RationaleConfig
from tefm.scoring.decision import Decision
from tefm.tables.schema import Schema

Stage = TypeVar("Stage", bound=StageSettings)

#: First blocks that are used when `layers` is not given: on task-aware codes, six of SmolLM2's thirty score as well as
#: all of them (docs/results/prediction.md), at a fifth of the time. Other backbones stay whole.
KEPT_LAYERS = {SMOLLM2: 6}
#: `decision: auto` looks for the best F1 of the positive class where one of two classes has a smaller share than this:
#: the most probable class is then the other one for nearly everybody.
RARE_SHARE = 0.2
#: What `quick: true` shortens, unless it is set: the figures still mean something, but a whole fit does better.
QUICK_CODES: dict[str, Any] = {"steps": 600}
QUICK_TUNE: dict[str, Any] = {"steps": 60, "checks": 4}
QUICK_QUESTIONS: dict[str, Any] = {"histories": 4_000, "pairs": 0, "scored": 100}
#: With `quick: true`, sequences that are trained on at most; a quarter as many are validated on.
QUICK_SEQUENCES = 2_000
#: What is said about the figures of such a fit.
QUICK_REMARK = "quick fit: a sample of the training sequences and short training; a first look only"
#: `align: auto` aligns codes and words with fewer training sequences than this, where it helps (docs/results/curve.md),
#: and on a GPU only: it takes hours on two CPU cores.
ALIGN_BELOW = 1_000


class ModelConfig(Settings):
    """The settings of a model, stage by stage.

    >>> ModelConfig(prompt="mortality").kept_layers
    6
    """

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "inputs": Retired("codes", "leave it out: a model reads codes"),
        "text_limit": Retired(None, "leave it out: a model reads codes"),
        "masked_copies": Retired(None, "leave it out: a model learns from masked copies where it has a `rationale`"),
    }

    # sequences
    #: how many consecutive records make a sequence; None: the records of an entity do
    window: int | None = Setting(default=None, ge=1)
    #: the background class, e.g. BENIGN: the label of a sequence is the first one that differs from it
    background: str | None = None
    #: keep as many sequences of every class as the rarest has: for training, or for evaluation too
    balance: Literal["none", "train", "all"] = "none"

    # stage 1
    #: settings of the tokenizer
    codes: dict[str, Any] = Setting(default_factory=dict)
    task_aware: bool = True

    # the backbone
    backbone: str = SMOLLM2
    #: the first transformer blocks that are used
    layers: int | None = Setting(default=None, ge=1)
    start: Start = "codebook"

    # stage 2: a preset, settings, `none`, or `auto`: with few labels and a GPU
    align: Literal["auto", "none", "default", "paper"] | dict[str, Any] = "auto"

    # stage 3
    #: the name of a preset, or settings of a `Prompt`
    prompt: str | dict[str, Any] = "generic"
    style: Style = "compact"
    #: of two classes, the one that AUROC and the threshold are about
    positive: str | None = None
    #: what predictions should be good at, or `{cost: {class: cost of missing it}}`
    decision: Literal["auto", "accuracy", "f1", "balanced"] | dict[str, dict[str, float]] = "auto"
    tune: dict[str, Any] = Setting(default_factory=dict)
    #: what answers beside the language model: `trees` on the fields, with the share that does best on validation
    beside: Literal["auto", "trees", "none"] = "auto"

    # stage 4: settings, or `none` for a model that only predicts
    explanations: Literal["none", "default"] | dict[str, Any] = "default"
    #: the paper's masks in addition: a preset, settings, or `none`
    rationale: Literal["none", "default", "paper"] | dict[str, Any] = "none"
    #: questions in words, beside the label or instead of it: entries, or settings of `QuestionsConfig`
    questions: list[dict[str, Any]] | dict[str, Any] | None = None
    #: a first look: fewer steps, a sample of the training sequences, no explanations unless they are set
    quick: bool = False
    #: the same model on any number of cores: one thread, and only algorithms whose results do not vary; slower
    deterministic: bool = False
    seed: int = 0

    @model_validator(mode="after")
    def _checked_early(self) -> ModelConfig:
        """Settings of all stages are checked before the first one starts."""
        try:
            self.tokenizer_config  # noqa: B018
            self.tune_config  # noqa: B018
            self.align_config(0, "cuda")
            self.explanations_config  # noqa: B018
            self.rationale_config  # noqa: B018
            self._costs  # noqa: B018
            self.questions_config  # noqa: B018
        except SettingsError as error:
            raise ValueError(f"{error.problem} → {error.remedy or 'see the stage settings'}") from error
        return self

    @classmethod
    def stored(cls, settings: dict[str, Any]) -> ModelConfig:
        """A config from what an earlier version may have stored; how a stage was trained no longer matters."""
        known = {
            name: stage.without_retired(settings[name])
            for name, stage in (
                ("codes", TokenizerConfig),
                ("tune", TuneConfig),
                ("align", AlignConfig),
                ("explanations", LookAlikeConfig),
                ("rationale", RationaleConfig),
            )
            if isinstance(settings.get(name), dict)
        }
        if settings.get("questions") is not None:
            known["questions"] = QuestionsConfig.as_stored(settings["questions"])
        return super().stored({"beside": "none", **settings, **known})  # an early version had no trees

    @property
    def grows_trees(self) -> bool:
        """Whether trees answer too; by default not where the paper's masks are learned, which trees never saw."""
        return self.beside == "trees" or (self.beside == "auto" and self.rationale == "none")

    @property
    def reads(self) -> str:
        """What answers are made from, in words: `codes`, or `codes and trees`."""
        return "codes and trees" if self.grows_trees else "codes"

    @property
    def title(self) -> str:
        """What the model is called beside others."""
        return f"TEFM ({self.reads})"

    @property
    def kept_layers(self) -> int | None:
        return self.layers if self.layers is not None else KEPT_LAYERS.get(self.backbone)

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        return self._stage(TokenizerConfig, self.codes, QUICK_CODES)

    @property
    def tune_config(self) -> TuneConfig:
        return self._stage(TuneConfig, self.tune, QUICK_TUNE)

    def align_config(self, sequences: int, device: str) -> AlignConfig | None:
        """The settings of stage 2, or None where it is skipped."""
        if self.align == "none" or (self.align == "auto" and (sequences >= ALIGN_BELOW or device == "cpu")):
            return None
        return self._stage(AlignConfig, "default" if self.align == "auto" else self.align)

    @property
    def explanations_config(self) -> LookAlikeConfig | None:
        """The settings of stage 4, or None where it is skipped."""
        if self.explanations == "none" or (self.quick and self.explanations == "default"):
            return None
        return self._stage(LookAlikeConfig, self.explanations)

    @property
    def rationale_config(self) -> RationaleConfig | None:
        """The settings of the paper's masks, or None where they are not learned."""
        return None if self.rationale == "none" else self._stage(RationaleConfig, self.rationale)

    @property
    def questions_config(self) -> QuestionsConfig | None:
        """The questions in words, or None where there are none."""
        if self.questions is None:
            return None
        config = QuestionsConfig.of(self.questions)
        if self.quick:
            given = self.questions if isinstance(self.questions, dict) else {}
            config = config.model_copy(update=without_names(QUICK_QUESTIONS, *given))
        return config

    def _stage(self, config: type[Stage], given: str | dict[str, Any], quick: Mapping[str, Any] | None = None) -> Stage:
        """The config of a stage from the name of a preset, or settings, whose `preset` names what they start from."""
        named = {"preset": given} if isinstance(given, str) else given
        settings = {"seed": self.seed, **(quick if self.quick and quick else {}), **named}
        return config.preset(settings.get("preset", "default"), **without_names(settings, "preset"))

    @property
    def copies(self) -> int:
        """How many masked copies of a training sequence the language model learns from."""
        return 1 if self.rationale_config is not None else 0

    def positive_number(self, classes: Sequence[str], counts: Sequence[int]) -> int:
        """The number of the positive class; of more than two classes, the last."""
        if self.positive is not None and self.positive not in classes:
            remedy = did_you_mean(self.positive, classes)
            raise SettingsError("the positive class does not exist", value=self.positive, remedy=remedy)
        if self.positive is None and len(classes) > 2:
            return len(classes) - 1
        return list(classes).index(self.positive or positive_class(classes, counts))

    @property
    def _costs(self) -> dict[str, float] | None:
        """The costs of missing each class, where decisions are made by cost."""
        if isinstance(self.decision, str):
            return None
        costs = self.decision.get("cost", {})
        if set(self.decision) != {"cost"} or len(costs) < 2 or not all(0 < cost < math.inf for cost in costs.values()):
            raise SettingsError(
                "decision: a mapping gives the cost of missing each class, above 0",
                remedy="for example decision: {cost: {died: 20, survived: 1}}",
            )
        return costs

    def decision_for(self, classes: Sequence[str], shares: Sequence[float]) -> Decision:
        """How to decide between these classes, which have these shares in the population."""
        if (costs := self._costs) is not None:
            if set(costs) != set(classes):
                odd = sorted(set(costs) ^ set(classes))[0]
                problem = "the costs are not those of the classes of the label"
                raise SettingsError(problem, value=odd, remedy=f"give a cost for each of {', '.join(classes)}")
            return Decision("cost", tuple(float(costs[name]) for name in classes))
        if self.decision == "auto":
            return Decision("f1" if len(classes) == 2 and min(shares) < RARE_SHARE else "accuracy")
        return Decision(self.decision)  # type: ignore[arg-type]  # a mapping is of costs

    def prompt_for(self, classes: Sequence[str], positive: int, schema: Schema) -> Prompt:
        """The prompt of a task with these classes."""
        given = {"preset": self.prompt} if isinstance(self.prompt, str) else self.prompt
        given = {"code_tokens": CODE_TOKENS, **given, "text_budgets": schema.text_budgets}
        if "message" in given:
            return Prompt.checked(given)
        two = len(classes) == 2
        return Prompt.preset(
            str(given.get("preset", "generic")),
            given.get("style", self.style),  # type: ignore[arg-type]  # checked there
            positive=classes[positive] if two else None,
            negative=classes[1 - positive] if two else None,
            label=str(schema.label),
            record=schema.record,
            **without_names(given, "preset", "style"),
        )


def without_names(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}
