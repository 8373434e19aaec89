"""The names are those of OpenTelemetry's own package in the version that the schema's address names."""

import re
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, messaging_attributes
from opentelemetry.semconv.attributes import error_attributes, service_attributes
from opentelemetry.semconv.schemas import Schemas

from shared.tracing import conventions as tracing_conventions

OURS = {name: value for name, value in vars(tracing_conventions).items() if name.isupper()}


def _names(module: Any) -> dict[str, str]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


THEIRS = {
    **_names(gen_ai_attributes),
    **_names(messaging_attributes),
    **_names(error_attributes),
    **_names(service_attributes),
    "SERVICE_INSTANCE_ID": "service.instance.id",  # in development in that package
}


@pytest.mark.parametrize("name", sorted(OURS.keys() - {"VERSION", "SCHEMA_URL"}))
def test_a_name_is_in_the_conventions_or_has_our_prefix(name: str) -> None:
    value = OURS[name]
    if value.startswith("replyline."):
        assert re.fullmatch(r"replyline\.[a-z_]+", value)
    else:
        assert THEIRS[name] == value


def test_the_schema_was_published() -> None:
    assert OURS["SCHEMA_URL"] in {schema.value for schema in Schemas}
