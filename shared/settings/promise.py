"""Settings of a request's deadlines and limits."""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from shared.settings.group import SettingsGroup

_NOT_SET: Final = (None, 0, "", "0")  # use the profile's value; the environment supplies text


def _number(given: Any) -> int:
    """Return the number, or 0 for an invalid or negative value, which the field's own validation then rejects."""
    try:
        return max(0, int(given))
    except (TypeError, ValueError):
        return 0


class PromiseSettings(SettingsGroup):
    """When an answer is due.

    The profile sets the deadlines that are not set: `gpu` 200 ms and 1 s, `cpu` 3 s and 15 s. The first-token deadline
    is never later than the deadline of the whole answer.
    """

    profile: Literal["cpu", "gpu"] = Field(
        "cpu",
        description=(
            "default deadlines: gpu 200 and 1000 ms, cpu 3000 and 15000 ms; a deadline that is set takes precedence"
        ),
    )
    first_token_ms: int = Field(
        0,
        ge=0,
        le=600_000,
        description="first-token deadline in ms; the FAQ answers if no text was sent before it (0: the profile's)",
    )
    deadline_ms: int = Field(
        0,
        ge=0,
        le=600_000,
        description="deadline of the whole answer in ms; the answer is cut at it (0: the profile's)",
    )
    max_deadline_ms: int = Field(
        120_000, ge=1, le=3_600_000, description="longest deadline that a client may ask for, in ms"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_profile(cls, values: Any) -> Any:
        if isinstance(values, dict):
            soft, hard = (200, 1_000) if values.get("profile") == "gpu" else (3_000, 15_000)
            values = {**values}
            if values.get("deadline_ms") in _NOT_SET:
                values["deadline_ms"] = hard
            if values.get("first_token_ms") in _NOT_SET:
                values["first_token_ms"] = min(soft, _number(values["deadline_ms"]) or soft)
        return values

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.first_token_ms > self.deadline_ms:
            raise ValueError(f"first_token_ms={self.first_token_ms} is above deadline_ms={self.deadline_ms}; lower it")
        if self.deadline_ms > self.max_deadline_ms:
            raise ValueError(
                f"deadline_ms={self.deadline_ms} is above max_deadline_ms={self.max_deadline_ms}; raise it"
            )
        return self


class LimitSettings(SettingsGroup):
    """Limits for what a request may ask."""

    max_input_tokens: int = Field(
        1_024, ge=1, le=1_000_000, description="maximum input tokens; a longer input is rejected"
    )
    max_output_tokens: int = Field(
        512, ge=1, le=1_000_000, description="maximum output tokens that a request may ask for"
    )
    default_output_tokens: int = Field(
        160, ge=1, le=1_000_000, description="output tokens of a request that does not name a number"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.default_output_tokens > self.max_output_tokens:
            raise ValueError(
                f"default_output_tokens={self.default_output_tokens} is above "
                f"max_output_tokens={self.max_output_tokens}"
            )
        return self
