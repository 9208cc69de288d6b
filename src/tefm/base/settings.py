"""What all configs share: frozen, validated where they enter, with an error that names the setting."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tefm.base.errors import SettingsError, did_you_mean

#: The defaults, or what the paper says.
Preset = Literal["default", "paper"]
#: What each preset changes; `default` changes nothing, and needs no saying.
Presets = dict[str, dict[str, Any]]


class Settings(BaseModel):
    """The base of every config."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def checked(cls, settings: dict[str, Any]) -> Self:
        """A config out of plain values, with an error that names the setting."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            # a misspelled name comes first: it explains the one that is missing
            found = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
            name = ".".join(str(part) for part in found["loc"])
            if found["type"] == "extra_forbidden":
                remedy = did_you_mean(str(found["loc"][-1]), cls.model_fields) if len(found["loc"]) == 1 else None
                raise SettingsError(f"there is no setting {name!r}", remedy=remedy) from error
            if not name:
                problem, _, remedy = found["msg"].removeprefix("Value error, ").partition(" → ")
                raise SettingsError(problem, remedy=remedy or None) from error
            raise SettingsError(f"setting {name!r}: {found['msg']}", value=found["input"]) from error


class StageSettings(Settings):
    """The base of the configs that have named sets of settings beside their defaults.

    >>> class Oven(StageSettings):
    ...     degrees: int = 180
    ...     minutes: int = 20
    ...     PRESETS: ClassVar[Presets] = {"paper": {"degrees": 200}}
    >>> Oven.preset("paper", minutes=5)
    Oven(degrees=200, minutes=5)
    """

    PRESETS: ClassVar[Presets] = {}

    @classmethod
    def preset(cls, name: Preset, **changes: Any) -> Self:
        """A named set of settings, with changes on top."""
        presets: Presets = {"default": {}, **cls.PRESETS}
        if name not in presets:
            raise SettingsError("there is no such preset", value=name, remedy=f"one of: {', '.join(presets)}")
        return cls.checked({**presets[name], **changes})
