"""Settings of an edge and of the centre that it asks (docs/edge.md)."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from shared.hosts import SOCKETS, WEB, check_url
from shared.settings.auth import is_loopback
from shared.settings.credential_files import PasswordFile
from shared.settings.group import SettingsGroup


def _check_private(url: str, schemes: tuple[str, str], form: str, *, base: bool) -> None:
    """Raise `ValueError` for a wrong URL, or one off this machine that would get the edge's token in plain text."""
    login, secure = "put the token into the file of edge.token_file", schemes[1]
    parts = check_url(url, schemes, form=form, base=base, login=login)
    if parts.scheme != secure and not is_loopback(parts.hostname or ""):
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
        if url:
            _check_private(url, SOCKETS, "wss://host/ws", base=False)
        return url

    @field_validator("centre_http")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if url:
            _check_private(url, WEB, "https://host", base=True)
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
