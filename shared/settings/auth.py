"""Settings for who may ask: tokens and their keys."""

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from shared.hosts import WEB, check_url
from shared.settings.group import SettingsGroup

Algorithm = Literal["HS256", "RS256", "ES256", "EdDSA"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)

MIN_SECRET_BYTES: Final = 32  # RFC 7518, 3.2: no shorter than the hash


def check_secret(secret: bytes) -> None:
    """Raise `ValueError` for a secret that is too short to be safe."""
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(
            f"{len(secret)} bytes are too few for a secret: {MIN_SECRET_BYTES} at least (openssl rand -base64 48)"
        )


def read_secret(path: Path) -> bytes:
    """Return the file's bytes without a trailing line end.

    Raises:
        ValueError: the file cannot be read.
    """
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ValueError(f"{error.strerror}; name a readable file that contains the secret") from None


def _holds_a_secret(path: Path) -> Path:
    check_secret(read_secret(path))
    return path


SecretFile = Annotated[Path, AfterValidator(_holds_a_secret)]
"""The path of a file that contains only a secret."""


class AuthSettings(SettingsGroup):
    """Client authentication. Tokens are JSON Web Tokens with `iss`, `aud`, `exp`, `sub` and `tenant`."""

    mode: Literal["anonymous", "token"] | None = Field(
        None,
        description=(
            "anonymous: clients need no token and belong to REPLYLINE_TENANT; token: clients need a token (empty: "
            "token if secret_file or jwks is set)"
        ),
    )
    secret_file: SecretFile | None = Field(
        None,
        description="file with the HS256 secret that signs tokens, at least 32 bytes; a trailing line end is ignored",
    )
    jwks: str | None = Field(
        None, description="public keys that verify tokens (RS256, ES256, EdDSA): a JWKS file, or its https:// URL"
    )
    issuer: str = Field("replyline", min_length=1, description="required `iss` claim of a token")
    audience: str = Field(
        "replyline", min_length=1, description="required `aud` claim of a token, alone or among others"
    )
    revoked: Path | None = Field(
        None, description="file of revoked tokens, read every second (`replyline token --revoke`; empty: none)"
    )

    @field_validator("jwks")
    @classmethod
    def _jwks_is_safe_to_read(cls, source: str | None) -> str | None:
        if source is None or "://" not in source:
            return source
        login = "name a URL that asks for none, or a file"
        url = check_url(source, WEB, form="https://host/path, or a file's path", login=login)
        if url.scheme != "https" and not is_loopback(url.hostname or ""):
            raise ValueError("keys fetched over http:// could be replaced on the way: use https://")
        return source

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode == "token" and not self.has_keys:
            raise ValueError("auth.mode=token needs a key that verifies tokens; set auth.secret_file or auth.jwks")
        if self.mode == "anonymous" and self.has_keys:
            raise ValueError(
                "auth.mode=anonymous verifies no tokens; unset it, or unset auth.secret_file and auth.jwks"
            )
        return self

    @property
    def has_keys(self) -> bool:
        return self.secret_file is not None or self.jwks is not None

    @property
    def decided_mode(self) -> Literal["anonymous", "token"] | None:
        """Return `token` if a key is set, else the configured mode; None if neither is set."""
        return "token" if self.has_keys else self.mode

    def secret_bytes(self) -> bytes | None:
        """Return the HS256 secret, or None."""
        return read_secret(self.secret_file) if self.secret_file is not None else None


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
