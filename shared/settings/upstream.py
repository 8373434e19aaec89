"""The settings of another server as a worker's engine."""

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from shared.settings.credential_files import PasswordFile
from shared.settings.group import Group


class UpstreamSettings(Group):
    """The OpenAI-compatible servers that compute with `worker.engine=upstream`. Each gets `worker.slots` requests at a
    time, of `worker.max_length` tokens at most."""

    url: tuple[str, ...] = Field((), description="base addresses, comma-separated: http://127.0.0.1:8000/v1")
    model: str = Field("", description="the model's name there (empty: the first that each lists)")
    key_file: PasswordFile | None = Field(None, description="file with the API key; the line's end does not belong")
    priority: bool = Field(
        False, description="send deadlines as `priority`, for vLLM with --scheduling-policy priority: earliest first"
    )
    silence_ms: int = Field(10_000, ge=100, le=600_000, description="a stream from which so long nothing comes ends")

    @field_validator("url")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            try:
                parts = urlsplit(url)
                whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
            except ValueError:
                whole = False
            if not whole or parts.query or parts.fragment:
                raise ValueError("write http:// or https://, a host and the API's path: http://127.0.0.1:8000/v1")
            if "@" in parts.netloc:
                raise ValueError("a key does not belong into an address; put it into the file of upstream.key_file")
        if len(set(urls)) < len(urls):
            raise ValueError("an address stands there twice; leave one out")
        return tuple([url.rstrip("/") for url in urls])
