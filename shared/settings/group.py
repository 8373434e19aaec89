"""The base class of every group of settings, and a check for HTTP addresses. Pure."""

from typing import Any, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from shared.hosts import check_host


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


def check_http_url(url: str, *, example: str, key_file: str) -> None:
    """Raise `ValueError` for a URL that is not HTTP or contains a password.

    Args:
        url: the URL to check.
        example: a correct URL, for the message.
        key_file: the setting that a password belongs to, for the message.
    """
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.query or parts.fragment:
        raise ValueError(f"write http:// or https://, a host and a path, as in {example}")
    if "@" in parts.netloc:
        raise ValueError(f"a URL must not contain a key; put it into the file of {key_file}")
    check_host(parts.hostname)
