"""The base of every group of settings."""

from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _split_lists(cls, value: Any, info: ValidationInfo) -> Any:
        """Split lists: in the environment they are comma-separated."""
        field = cls.model_fields[info.field_name or ""]
        if value == "" and field.default is None:
            return None
        if get_origin(field.annotation) is tuple and isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
