"""The settings that say who may ask."""

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from shared.settings.group import Group

Algorithm = Literal["HS256", "RS256", "ES256", "EdDSA"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)

MIN_SECRET_BYTES: Final = 32  # RFC 7518, 3.2: no shorter than the hash


def check_secret(secret: bytes) -> None:
    """Raise `ValueError` for a secret that is easily guessed."""
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(
            f"{len(secret)} bytes are too few for a secret: {MIN_SECRET_BYTES} at least (openssl rand -base64 48)"
        )


def read_secret(path: Path) -> bytes:
    """Return what the file holds; its last line end does not belong. Raises `ValueError`."""
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ValueError(f"{error.strerror}; name a readable file that holds the secret") from None


def _holds_a_secret(path: Path) -> Path:
    check_secret(read_secret(path))
    return path


SecretFile = Annotated[Path, AfterValidator(_holds_a_secret)]
"""A file that holds a secret, and nothing else."""


class AuthSettings(Group):
    """The access of clients. Tokens are JSON Web Tokens with `iss`, `aud`, `exp`, `sub` and `tenant`."""

    mode: Literal["anonymous", "token"] | None = Field(
        None,
        description="anonymous: anyone may ask, as REPLYLINE_TENANT; token: with a token (empty: token where "
        "secret_file or jwks is set)",
    )
    secret_file: SecretFile | None = Field(
        None,
        description="file with the HS256 secret that signs tokens, 32 bytes at least; a line end is not part of it",
    )
    jwks: str | None = Field(
        None, description="public keys of tokens (RS256, ES256, EdDSA): a JWKS file, or its https:// URL"
    )
    issuer: str = Field("replyline", min_length=1, description="`iss` that a token must have")
    audience: str = Field("replyline", min_length=1, description="`aud` that a token must have, alone or among others")

    @field_validator("jwks")
    @classmethod
    def _jwks_is_safe_to_read(cls, source: str | None) -> str | None:
        if source is None or "://" not in source:
            return source
        url = urlsplit(source)
        if not url.hostname or url.username is not None:
            raise ValueError("name a host, and no user or password")
        if url.scheme != "https" and not (url.scheme == "http" and _is_loopback(url.hostname)):
            raise ValueError("keys from elsewhere are only as good as the way to them: use https://")
        return source

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode == "token" and not self.has_keys:
            raise ValueError("auth.mode=token has no key to check them with; set auth.secret_file or auth.jwks")
        if self.mode == "anonymous" and self.has_keys:
            raise ValueError("auth.mode=anonymous checks no tokens; unset it, or auth.secret_file and auth.jwks")
        return self

    @property
    def has_keys(self) -> bool:
        return self.secret_file is not None or self.jwks is not None

    @property
    def decided_mode(self) -> Literal["anonymous", "token"] | None:
        """Return `token` if there are keys, else the mode; None if no setting says who may ask."""
        return "token" if self.has_keys else self.mode

    def secret_bytes(self) -> bytes | None:
        """Return the HS256 secret, or None."""
        return read_secret(self.secret_file) if self.secret_file is not None else None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
