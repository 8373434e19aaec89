"""Settings of logs, traces and rollouts."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from shared.hosts import WEB, check_url
from shared.settings.gateway import WebhookSettings
from shared.settings.group import SettingsGroup

_PATH = "/v1/traces"  # the path that OTLP over HTTP defines


class LogSettings(SettingsGroup):
    """Log lines, written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level that is logged")


class TracingSettings(SettingsGroup):
    """Export of one trace for each request to an OTLP/HTTP endpoint (needs the extra `tracing` of pyproject.toml)."""

    endpoint: str = Field("", description="trace endpoint, as http://tempo:4318 (empty: no traces)")
    ratio: float = Field(
        0.01,
        ge=0,
        le=1,
        description=(
            "share of successful answers whose trace is exported, 0 to 1; every other answer's trace is exported"
        ),
    )

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, endpoint: str) -> str:
        """Check the endpoint and add OTLP's default path if it has none."""
        if not endpoint:
            return endpoint
        login = "set headers with OTEL_EXPORTER_OTLP_HEADERS"
        check_url(endpoint, WEB, base=True, form="http://host:4318", login=login)
        return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _PATH


class RolloutSettings(WebhookSettings):
    """What the rollout controller (`replyline rollout run`) queries, and where it posts rollout events."""

    group = "rollout"

    prometheus_url: str = Field(
        "", description="Prometheus that `rollout start --query` queries, as http://host:9090 (empty: none)"
    )

    @field_validator("prometheus_url")
    @classmethod
    def _is_a_prometheus(cls, url: str) -> str:
        if url:
            check_url(url, WEB, base=True, form="http://host:9090", login="name a Prometheus that asks for none")
        return url
