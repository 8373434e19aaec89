"""The settings of logs, traces and rollouts."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from shared.settings.gateway import WebhookSettings
from shared.settings.group import Group

_PATH = "/v1/traces"  # OTLP over HTTP names it


class LogSettings(Group):
    """The lines that a process writes to its standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level that is logged")


class TracingSettings(Group):
    """One trace a request, to a store that takes OTLP over HTTP (the extra `tracing` of pyproject.toml)."""

    endpoint: str = Field("", description="trace store, as http://tempo:4318 (empty: no traces)")
    ratio: float = Field(
        0.01,
        ge=0,
        le=1,
        description="share of the traces of answers that went well that is kept, 0 to 1; of all others each is kept",
    )

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, endpoint: str) -> str:
        """With its path: the one that OTLP names, where none is given."""
        if not endpoint:
            return endpoint
        url = urlsplit(endpoint)
        try:
            usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("write the trace store's address as http://host:4318")
        if url.username is not None or url.query or url.fragment:
            raise ValueError("leave out user, query and fragment; headers are given in OTEL_EXPORTER_OTLP_HEADERS")
        return endpoint if url.path.strip("/") else endpoint.rstrip("/") + _PATH


class RolloutSettings(WebhookSettings):
    """What a controller of rollouts (`replyline rollout run`) asks, and where it posts what happens to a rollout."""

    group = "rollout"

    prometheus_url: str = Field(
        "", description="Prometheus of `rollout start --query`, as http://host:9090 (empty: none)"
    )
