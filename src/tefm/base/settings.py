"""The base of all configs: frozen, validated on input, with errors that name the setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from tefm.base.errors import SettingsError, TefmError, did_you_mean

#: The defaults, or the paper's settings.
Preset = Literal["default", "paper"]
#: What each preset changes; `default` changes nothing and is not listed.
Presets = dict[str, dict[str, Any]]


class Retired(NamedTuple):
    """A setting of earlier versions: its default, which is harmless, and what to use instead of another value."""

    default: Any
    instead: str


def retired(instead: str, **defaults: Any) -> dict[str, Retired]:
    """Settings of earlier versions with the same remedy."""
    return {name: Retired(default, instead) for name, default in defaults.items()}


class Settings(BaseModel):
    """The base of every config."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    #: settings of earlier versions, which a stored config may still hold
    RETIRED: ClassVar[Mapping[str, Retired]] = {}
    #: what an invalid setting raises
    ERROR: ClassVar[type[TefmError]] = SettingsError

    @classmethod
    def without_retired(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that an earlier version may have stored, without those that are retired."""
        return {name: value for name, value in settings.items() if name not in cls.RETIRED}

    @classmethod
    def stored(cls, settings: dict[str, Any]) -> Self:
        """A config from what an earlier version may have stored."""
        return cls.checked(cls.without_retired(settings))

    @classmethod
    def checked(cls, settings: dict[str, Any], *, file: str | Path | None = None, column: str | None = None) -> Self:
        """A config from plain values; an invalid one raises an error that names the setting."""
        for name, (default, instead) in cls.RETIRED.items():
            if settings.get(name, default) != default:
                raise SettingsError(
                    f"the setting {name!r} was removed", file=file, value=settings[name], remedy=instead
                )
        try:
            return cls.model_validate(cls.without_retired(settings) if cls.RETIRED else settings)
        except ValidationError as error:
            details, name = first_error(error)
            remedy: str | None
            if details["type"] == "extra_forbidden":
                known = cls._names_beside(details["loc"])
                problem, remedy = f"unknown setting {name!r}", did_you_mean(str(details["loc"][-1]), known)
            elif details["type"] == "missing":
                problem, remedy = f"the setting {name!r} is missing", f"write `{details['loc'][-1]}: …`"
            elif name and details["type"] != "value_error":
                problem, remedy = f"not a valid value for the setting {name!r}", details["msg"]
            else:  # a validator in this package puts the remedy after an arrow
                problem, _, remedy = details["msg"].removeprefix("Value error, ").partition(" → ")
                problem = f"setting {name!r}: {problem}" if name else problem
            value = details["input"] if isinstance(details["input"], str | int | float) else None
            raise cls.ERROR(problem, file=file, column=column, value=value, remedy=remedy or None) from error

    @classmethod
    def _names_beside(cls, place: tuple[int | str, ...]) -> list[str]:
        """The settings of the config that a misspelled one is in."""
        field = cls.model_fields.get(str(place[0])) if len(place) > 1 else None
        parts = [] if field is None else [field.annotation, *get_args(field.annotation)]
        inside = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), cls)
        return list(inside.model_fields)


def first_error(error: ValidationError) -> tuple[ErrorDetails, str]:
    """The details to report, and the name of the setting (empty for a check of the whole config).

    A misspelled name comes first, because it explains a missing one.
    """
    details = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
    return details, ".".join(str(part) for part in details["loc"])


class StageSettings(Settings):
    """The base of the configs that have presets: named sets of settings besides the defaults.

    What only the paper's preset changes is one setting, `recipe`.

    >>> class Oven(StageSettings):
    ...     degrees: int = 180
    ...     minutes: int = 20
    ...     PRESETS: ClassVar[Presets] = {"paper": {"degrees": 200}}
    >>> Oven.preset("paper", minutes=5)
    Oven(degrees=200, minutes=5)
    """

    PRESETS: ClassVar[Presets] = {}
    #: the retired settings that what was learned depends on, with the paper's values: together they are its recipe
    PAPERS: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def without_retired(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What an earlier version stored as single settings becomes `recipe: paper` where it is the paper's."""
        kept = super().without_retired(settings)
        told = {name: settings[name] for name in cls.PAPERS if name in settings}
        if cls.PAPERS and told == cls.PAPERS:
            return {**kept, "recipe": "paper"}
        odd = {name: value for name, value in told.items() if value != cls.RETIRED[name].default}
        if odd and "preset" not in settings:
            remedy = "use it with the version of tefm that fitted it, or fit it again"
            raise SettingsError(f"the setting {min(odd)!r} was removed", value=odd[min(odd)], remedy=remedy)
        return kept

    @classmethod
    def preset(cls, name: Preset, **changes: Any) -> Self:
        """The settings of a preset, with changes on top."""
        presets: Presets = {"default": {}, **cls.PRESETS}
        if name not in presets:
            raise SettingsError("not a valid preset", value=name, remedy=f"choose one of: {', '.join(presets)}")
        return cls.checked({**presets[name], **changes})
