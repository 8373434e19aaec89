"""The settings of edges, and of the centre that they ask (docs/edge.md)."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from shared.settings.credential_files import PasswordFile
from shared.settings.group import Group


class EdgeSettings(Group):
    """`signed_faq` is set at the centre; the others at an edge, by `replyline edge`."""

    signed_faq: Path | None = Field(
        None, description="the FAQ as edges get it, at the gateways of a centre (`replyline faq sign`; empty: none)"
    )
    centre: str = Field("", description="address of the centre's gateways: wss://host/ws (empty: this is no edge)")
    centre_http: str = Field("", description="address of their HTTP port (empty: the centre's host, over https)")
    token_file: PasswordFile | None = Field(None, description="file with the edge's token; read at each connection")
    trusted_keys: Path | None = Field(
        None, description="folder of public keys (*.pem), of which one must have signed the centre's FAQ"
    )
    poll_s: float = Field(1.0, gt=0, le=60, description="seconds between two looks at the centre's FAQ and erasures")
    quote: bool = Field(
        False, description="true: an entry that fits surely is given in its own words; false: the light model words it"
    )

    @field_validator("centre")
    @classmethod
    def _is_a_socket(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in {"ws", "wss"} or not urlsplit(url).hostname):
            raise ValueError(f"{url} is no gateway's address; write wss://host/ws")
        return url

    @field_validator("centre_http")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            raise ValueError(f"{url} is no address over HTTP; write https://host")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        missing = [name for name in ("token_file", "trusted_keys") if getattr(self, name) is None]
        if self.centre and missing:
            raise ValueError(f"an edge needs edge.{' and edge.'.join(missing)} beside edge.centre")
        return self

    @property
    def http_url(self) -> str:
        """Return the address that the centre's FAQ is at."""
        if self.centre_http:
            return self.centre_http
        parts = urlsplit(self.centre)
        return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"
