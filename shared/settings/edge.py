"""Settings of an edge and of the centre that it asks (docs/edge.md)."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from shared.hosts import check_host
from shared.settings.auth import is_loopback
from shared.settings.credential_files import PasswordFile
from shared.settings.group import SettingsGroup


def _check_private(url: str, secure: str) -> None:
    """Raise `ValueError` for a wrong host, or one off this machine that would get the edge's token in plain text."""
    parts = urlsplit(url)
    check_host(parts.hostname)
    if parts.scheme not in {"", secure} and not is_loopback(parts.hostname or ""):
        raise ValueError(
            f"{url} would carry the edge's token and every conversation in plain text; write {secure}://{parts.netloc}"
        )


class EdgeSettings(SettingsGroup):
    """Only `signed_faq` is set at the centre. The other settings are set at an edge, by `replyline edge`."""

    signed_faq: Path | None = Field(
        None,
        description=(
            "signed FAQ that the centre's gateways serve to edges (`replyline faq sign`; empty: none is served)"
        ),
    )
    centre: str = Field(
        "", description="URL of the centre's gateways: wss://host/ws (empty: this process is not an edge)"
    )
    centre_http: str = Field(
        "", description="base URL of the centre's HTTP port (empty: https at the host of edge.centre)"
    )
    token_file: PasswordFile | None = Field(None, description="file with the edge's token; read at each connection")
    trusted_keys: Path | None = Field(
        None, description="folder of public keys (*.pem); the centre's FAQ must be signed by one of them"
    )
    poll_s: float = Field(1.0, gt=0, le=60, description="seconds between two polls of the centre's FAQ and erasures")
    quote: bool = Field(
        False,
        description=(
            "true: an entry that fits with certainty is quoted word for word; false: the light model rephrases it"
        ),
    )

    @field_validator("centre")
    @classmethod
    def _is_a_socket(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in {"ws", "wss"} or not urlsplit(url).hostname):
            raise ValueError(f"{url} is not a gateway's address; write wss://host/ws")
        _check_private(url, "wss")
        return url

    @field_validator("centre_http")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            raise ValueError(f"{url} is not an HTTP address; write https://host")
        _check_private(url, "https")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        missing = [name for name in ("token_file", "trusted_keys") if getattr(self, name) is None]
        if self.centre and missing:
            raise ValueError(f"an edge needs edge.{' and edge.'.join(missing)} as well as edge.centre")
        return self

    @property
    def http_url(self) -> str:
        """Return the base URL from which the centre serves its FAQ."""
        if self.centre_http:
            return self.centre_http
        parts = urlsplit(self.centre)
        return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"
