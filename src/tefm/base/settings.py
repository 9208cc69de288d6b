"""The base of all configs: frozen, validated on input, with errors that name the setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from tefm.base.errors import SettingsError, did_you_mean

#: The defaults, or the paper's settings.
Preset = Literal["default", "paper"]
#: What each preset changes; `default` changes nothing and is not listed.
Presets = dict[str, dict[str, Any]]


class Retired(NamedTuple):
    """A setting of earlier versions: its default, which is harmless, and what to use instead of another value."""

    default: Any
    instead: str


class Settings(BaseModel):
    """The base of every config."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    #: settings of earlier versions, which a stored config may still hold
    RETIRED: ClassVar[Mapping[str, Retired]] = {}

    @classmethod
    def without_retired(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that an earlier version may have stored, without those that are retired."""
        return {name: value for name, value in settings.items() if name not in cls.RETIRED}

    @classmethod
    def stored(cls, settings: dict[str, Any]) -> Self:
        """A config from what an earlier version may have stored."""
        return cls.checked(cls.without_retired(settings))

    @classmethod
    def checked(cls, settings: dict[str, Any]) -> Self:
        """A config from plain values; an invalid one raises an error that names the setting."""
        for name, (default, instead) in cls.RETIRED.items():
            if settings.get(name, default) != default:
                raise SettingsError(f"there is no setting {name!r} any more", value=settings[name], remedy=instead)
        try:
            return cls.model_validate(cls.without_retired(settings) if cls.RETIRED else settings)
        except ValidationError as error:
            details, name = first_error(error)
            if details["type"] == "extra_forbidden":
                path = details["loc"]
                remedy = did_you_mean(str(path[-1]), cls.model_fields) if len(path) == 1 else None
                raise SettingsError(f"there is no setting {name!r}", remedy=remedy) from error
            if not name:
                problem, remedy = problem_and_remedy(details)
                raise SettingsError(problem, remedy=remedy) from error
            raise SettingsError(f"setting {name!r}: {details['msg']}", value=details["input"]) from error


def first_error(error: ValidationError) -> tuple[ErrorDetails, str]:
    """The details to report, and the name of the setting (empty for a check of the whole config).

    A misspelled name comes first, because it explains a missing one.
    """
    details = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
    return details, ".".join(str(part) for part in details["loc"])


def problem_and_remedy(details: ErrorDetails) -> tuple[str, str | None]:
    """The message of a validator in this package, which puts the remedy after an arrow."""
    problem, _, remedy = details["msg"].removeprefix("Value error, ").partition(" → ")
    return problem, remedy or None


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
            raise SettingsError(f"there is no setting {min(odd)!r} any more", value=odd[min(odd)], remedy=remedy)
        return kept

    @classmethod
    def preset(cls, name: Preset, **changes: Any) -> Self:
        """The settings of a preset, with changes on top."""
        presets: Presets = {"default": {}, **cls.PRESETS}
        if name not in presets:
            raise SettingsError("not a valid preset", value=name, remedy=f"choose one of: {', '.join(presets)}")
        return cls.checked({**presets[name], **changes})
