"""What all configs share: frozen, validated where they enter, with an error that names the setting."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tefm.errors import SettingsError, did_you_mean

Config = TypeVar("Config", bound="Settings")


class Settings(BaseModel):
    """The base of every config."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def checked(cls: type[Config], settings: dict[str, Any]) -> Config:
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
