"""The settings of tracing."""

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from shared.settings.group import Group

_PATH = "/v1/traces"  # OTLP over HTTP names it


class TracingSettings(Group):
    """One trace a request, to a store that takes OTLP over HTTP (the extra `tracing` of pyproject.toml)."""

    endpoint: str = Field("", description="where traces are sent: http://tempo:4318 (empty: none are made)")
    service_name: str = Field(
        "replyline", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$", description="shown as …-gateway and …-worker"
    )
    ratio: float = Field(0.01, ge=0, le=1, description="share of the traces kept of what went well; else all are")
    slow_ms: int = Field(0, ge=0, le=3_600_000, description="what took as long is kept (0: half of its deadline)")
    timeout_ms: int = Field(5_000, ge=10, le=60_000, description="sending a batch takes no longer, tries included")

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
