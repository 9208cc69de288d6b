"""The settings of a model, and the task file: a table, who the entity is, what the label is, and what else differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import ConfigDict, model_validator
from pydantic import Field as Setting

from tefm.base.errors import SettingsError, did_you_mean
from tefm.base.settings import Settings, StageSettings
from tefm.codes.config import TokenizerConfig
from tefm.language.config import AlignConfig, Start, TuneConfig
from tefm.language.prompts import Prompt, Style, positive_class
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.rationale.config import RationaleConfig
from tefm.records.schema import Schema, TextLoader

Stage = TypeVar("Stage", bound=StageSettings)

#: Blocks that are kept when `layers` is not given: of SmolLM2 the first six did better than all thirty
#: (docs/results/prediction.md); other backbones stay whole.
KEPT_LAYERS = {SMOLLM2: 6}
#: With `align: auto`, codes and words are aligned below this many training sequences, where it was measured to pay,
#: and on a GPU only: on two CPU cores it takes many hours.
ALIGN_BELOW = 1_000


class ModelConfig(Settings):
    """The settings of a model, stage by stage.

    >>> ModelConfig(prompt="mortality").kept_layers
    6
    """

    # sequences
    #: this many consecutive records are a sequence; None: the records of an entity
    window: int | None = Setting(default=None, ge=1)
    #: the label of nothing special: a sequence has its first label that is another one
    background: str | None = None
    #: keep as many sequences of every class as the rarest has: for training, or wherever labels are looked at
    balance: Literal["none", "train", "all"] = "none"

    # stage 1
    #: settings of the tokenizer
    codes: dict[str, Any] = Setting(default_factory=dict)
    task_aware: bool = True

    # the backbone
    backbone: str = SMOLLM2
    #: the first blocks that are kept
    layers: int | None = Setting(default=None, ge=1)
    start: Start = "codebook"

    # stage 2: a preset, settings, `none`, or `auto` where it was measured to pay
    align: Literal["auto", "none", "default", "paper"] | dict[str, Any] = "auto"

    # stage 3
    #: the name of a preset, or settings of a `Prompt`
    prompt: str | dict[str, Any] = "generic"
    style: Style = "compact"
    #: of two classes, the one that is asked for
    positive: str | None = None
    tune: dict[str, Any] = Setting(default_factory=dict)
    #: copies of each training sequence of which only a random part is kept, learned from beside it in as many steps
    masked_copies: int = Setting(default=1, ge=0)
    #: `text` reads the serialised records with the same question and training: the baseline
    inputs: Literal["codes", "text"] = "codes"
    #: with `inputs: text`, so many tokens of a sequence at most; the last ones stay
    text_limit: int | None = Setting(default=None, ge=1)

    # stage 4: a preset, settings, or `none` for a model that predicts only
    rationale: Literal["none", "default", "paper"] | dict[str, Any] = "default"
    seed: int = 0

    @model_validator(mode="after")
    def _checked_early(self) -> ModelConfig:
        """Settings of later stages are checked before the first one takes its time."""
        try:
            self.tokenizer_config  # noqa: B018
            self.tune_config  # noqa: B018
            self.align_config(0, "cuda")
            self.rationale_config  # noqa: B018
        except SettingsError as error:
            raise ValueError(f"{error.problem} → {error.remedy or 'see the stage settings'}") from error
        return self

    @property
    def kept_layers(self) -> int | None:
        return self.layers if self.layers is not None else KEPT_LAYERS.get(self.backbone)

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        return _stage(TokenizerConfig, {"seed": self.seed, **self.codes})

    @property
    def tune_config(self) -> TuneConfig:
        config = _stage(TuneConfig, {"seed": self.seed, **self.tune})
        copies = self.masked_copies if self.inputs == "codes" else 0
        return config.model_copy(update={"epochs": config.epochs / (1 + copies)})

    def align_config(self, sequences: int, device: str) -> AlignConfig | None:
        """The settings of stage 2, or None where it is left out."""
        if isinstance(self.align, dict):
            return _stage(AlignConfig, {"seed": self.seed, **self.align})
        if self.align == "none" or (self.align == "auto" and (sequences >= ALIGN_BELOW or device == "cpu")):
            return None
        return AlignConfig.preset("default" if self.align == "auto" else self.align, seed=self.seed)

    @property
    def rationale_config(self) -> RationaleConfig | None:
        """The settings of stage 4, or None where it is left out: text has no slots to keep."""
        if self.rationale == "none" or self.inputs == "text":
            return None
        chosen = {"preset": self.rationale} if isinstance(self.rationale, str) else self.rationale
        return _stage(RationaleConfig, {"seed": self.seed, **chosen})

    def positive_number(self, classes: Sequence[str], counts: Sequence[int]) -> int:
        """The number of the class that is asked for; of more than two, the last."""
        if self.positive is not None and self.positive not in classes:
            remedy = did_you_mean(self.positive, classes)
            raise SettingsError("the positive class does not exist", value=self.positive, remedy=remedy)
        if self.positive is None and len(classes) > 2:
            return len(classes) - 1
        return list(classes).index(self.positive or positive_class(classes, counts))

    def prompt_for(self, classes: Sequence[str], positive: int, schema: Schema) -> Prompt:
        """The prompt of a task with these classes."""
        given = {"preset": self.prompt} if isinstance(self.prompt, str) else self.prompt
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
            **_without(given, "preset", "style"),
        )


def _stage(config: type[Stage], settings: dict[str, Any]) -> Stage:
    """The config of a stage out of its settings, of which one may be the name of a preset."""
    return config.preset(settings.get("preset", "default"), **_without(settings, "preset"))


def _without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


class Split(Settings):
    """How sequences are divided into train, validation and test."""

    by: Literal["random", "time"] = "random"
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    seed: int = 0


class Task(Settings):
    """One YAML file per task; paths in it are relative to it.

    >>> task = Task.from_yaml("{table: stays.csv, entity: patient, label: died, prompt: {preset: mortality}}")
    >>> task.table, task.split.shares, task.model.prompt
    ('stays.csv', (0.8, 0.1, 0.1), {'preset': 'mortality'})
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, protected_namespaces=())

    table: str
    query: str | None = None
    #: a schema file, or the schema itself; inferred from the table and the roles below when left out
    given_schema: str | dict[str, Any] | None = Setting(default=None, alias="schema")
    entity: str | None = None
    time: str | None = None
    label: str | None = None
    split: Split = Split()
    model: ModelConfig = ModelConfig()

    @classmethod
    def load(cls, path: str | Path) -> Task:
        path = Path(path)
        if not path.is_file():
            raise SettingsError(
                "there is no task file here",
                file=path,
                remedy="write one: table, entity, time, label, and what else differs from the defaults",
            )
        return cls.from_yaml(path.read_text(encoding="utf-8"), folder=path.parent, file=path)

    @classmethod
    def from_yaml(cls, text: str, *, folder: Path | None = None, file: Path | None = None) -> Task:
        """A task out of YAML text; settings that are not the task's own are the model's."""
        try:
            body = yaml.load(text, TextLoader)  # a class called `yes` is no truth value
        except yaml.YAMLError as error:
            raise SettingsError(f"this is no valid YAML: {error}", file=file, remedy="mend the line") from error
        if not isinstance(body, dict):
            raise SettingsError("a task is a mapping", file=file, remedy="write `table: PATH`, and what else differs")
        own = ("table", "query", "schema", "entity", "time", "label", "split")
        known = (*own, *ModelConfig.model_fields)
        # a misspelled name comes first: it explains the one that is missing
        for name in body:
            if name not in known:
                raise SettingsError(f"there is no setting {name!r}", file=file, remedy=did_you_mean(str(name), known))
        if body.get("table") is None:
            raise SettingsError("a task names its table", file=file, remedy="write `table: PATH`")
        try:
            model = ModelConfig.checked(_without(body, *own))
            task = cls.checked({name: value for name, value in body.items() if name in own} | {"model": model})
        except SettingsError as error:
            raise SettingsError(error.problem, file=file, value=error.value, remedy=error.remedy) from error
        return task if folder is None else task.relative_to(folder)

    def relative_to(self, folder: Path) -> Task:
        """The same task with its files looked for in `folder`."""
        update: dict[str, Any] = {"table": str(folder / self.table)}
        if isinstance(self.given_schema, str):
            update["given_schema"] = str(folder / self.given_schema)
        elif self.given_schema is not None:
            schema = Schema.from_yaml(yaml.safe_dump(self.given_schema)).relative_to(folder)
            update["given_schema"] = yaml.safe_load(schema.to_yaml())
        return self.model_copy(update=update)

    def schema_for(self, table: Any) -> Schema:
        """The schema of the task: as given, or inferred."""
        from tefm.records.infer import infer_schema

        if self.given_schema is None:
            return infer_schema(table, entity=self.entity, time=self.time, label=self.label)
        if isinstance(self.given_schema, str):
            schema = Schema.load(self.given_schema)
        else:
            schema = Schema.from_yaml(yaml.safe_dump(self.given_schema))
        roles = {name: value for name in ("entity", "time", "label") if (value := getattr(self, name)) is not None}
        # read again, so that a role that is also a field is refused: a label among the fields would be the answer
        return Schema.from_yaml(schema.model_copy(update=roles).to_yaml()) if roles else schema
