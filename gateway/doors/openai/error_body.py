"""Refusals as OpenAI's clients read them: pure."""

from typing import Any

from shared.wire.outcome import ErrorDetail


def error_body(error: ErrorDetail) -> dict[str, Any]:
    shown = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": shown}
