"""Settings of logs, traces and rollouts."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from shared.hosts import check_host
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
        url = urlsplit(endpoint)
        try:
            usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("write the trace endpoint as http://host:4318")
        if url.username is not None or url.query or url.fragment:
            raise ValueError("remove user, query and fragment; set headers with OTEL_EXPORTER_OTLP_HEADERS")
        check_host(url.hostname)
        return endpoint if url.path.strip("/") else endpoint.rstrip("/") + _PATH


class RolloutSettings(WebhookSettings):
    """What the rollout controller (`replyline rollout run`) queries, and where it posts rollout events."""

    group = "rollout"

    prometheus_url: str = Field(
        "", description="Prometheus that `rollout start --query` queries, as http://host:9090 (empty: none)"
    )
