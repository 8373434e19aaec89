"""The base class of every group of settings. Pure."""

from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class SettingsGroup(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _split_lists(cls, value: Any, info: ValidationInfo) -> Any:
        """Split a comma-separated string, as environment variables have it, into a tuple."""
        field = cls.model_fields[info.field_name or ""]
        if value == "" and field.default is None:
            return None
        if get_origin(field.annotation) is tuple and isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
