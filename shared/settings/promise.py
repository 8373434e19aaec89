"""The settings of what a request is promised, and of what it may ask for."""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from shared.settings.group import Group

_NOT_SET: Final = (None, 0, "", "0")  # by profile; the environment hands out text


def _number(given: Any) -> int:
    """0 where it is none above 0: that is refused with its own words."""
    try:
        return max(0, int(given))
    except (TypeError, ValueError):
        return 0


class PromiseSettings(Group):
    """When an answer is due. The profile sets what is not set: `gpu` 200 ms and 1 s, `cpu` 3 s and 15 s, the soft one
    never beyond the hard one."""

    profile: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="gpu or cpu: sets the two deadlines that are not set, to 200 and 1000 ms or 3000 and 15000 ms",
    )
    first_token_ms: int = Field(
        0,
        ge=0,
        le=600_000,
        description="first-token deadline in ms; without text at this deadline the FAQ answers (0: by profile)",
    )
    deadline_ms: int = Field(
        0, ge=0, le=600_000, description="deadline of the whole answer in ms; then it is cut (0: by profile)"
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


class LimitSettings(Group):
    """The bounds of what a request may ask for."""

    max_input_tokens: int = Field(
        1_024, ge=1, le=1_000_000, description="longest input, in tokens; a longer one is refused"
    )
    max_output_tokens: int = Field(512, ge=1, le=1_000_000, description="most output tokens that a request may ask for")
    default_output_tokens: int = Field(
        160, ge=1, le=1_000_000, description="output tokens of a request that does not say"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.default_output_tokens > self.max_output_tokens:
            raise ValueError(
                f"default_output_tokens={self.default_output_tokens} is above "
                f"max_output_tokens={self.max_output_tokens}"
            )
        return self
