"""The base of every group of settings, and the check of an address over HTTP: pure."""

from typing import Any, get_origin
from urllib.parse import urlsplit

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


def check_http_url(url: str, *, example: str, key_file: str) -> None:
    """Raise `ValueError` for what is no address over HTTP, or holds a password."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.query or parts.fragment:
        raise ValueError(f"write http:// or https://, a host and a path, as in {example}")
    if "@" in parts.netloc:
        raise ValueError(f"a key does not belong into an address; put it into the file of {key_file}")
