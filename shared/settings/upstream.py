"""The settings of another server as a worker's engine."""

from pydantic import Field, field_validator

from shared.settings.addresses import check_http_url
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
            check_http_url(url, example="http://127.0.0.1:8000/v1", key_file="upstream.key_file")
        if len(set(urls)) < len(urls):
            raise ValueError("an address stands there twice; leave one out")
        return tuple([url.rstrip("/") for url in urls])
