"""The grounds of answers, and how their words are watched (docs/answers.md)."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from shared.settings.group import Group

AnswerPolicy = Literal["grounded", "model"]


class AnswerSettings(Group):
    """The choice of who answers a question, by what the FAQ has of it, and of what goes into the prompt."""

    policy: AnswerPolicy = Field(
        "grounded",
        description="grounded: the model answers where the FAQ supports it, else the FAQ, else a person; "
        "model: always the model",
    )
    guard: bool = Field(
        True, description="true: a sentence with a figure that no source supports is replaced by the FAQ's own"
    )
    confident_score: float | None = Field(
        None, ge=0, le=1, description="FAQ score from which the model answers, 0 to 1 (empty: the fitted one)"
    )
    weak_score: float | None = Field(
        None,
        ge=0,
        le=1,
        description='FAQ score from which an entry is shown with "I am not sure", 0 to 1 (empty: the fitted one)',
    )
    history_tokens: int = Field(1_024, ge=0, le=1_048_576, description="most tokens of earlier turns in a prompt")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        weak, confident = self.weak_score, self.confident_score
        if weak is not None and confident is not None and weak > confident:
            raise ValueError(
                f"weak_score={weak:g} is above confident_score={confident:g}: what fits surely would not even be shown "
                "where it may fit; lower it"
            )
        return self


class FaqSettings(Group):
    """The fallback, and what grounds the model."""

    path: Path | None = Field(None, description="FAQ file, or folder of FAQ files (empty: the demo shop's)")
    embeddings_dir: Path | None = Field(
        None,
        description="folder of an ONNX sentence-embedding model that workers search the FAQ by too (empty: terms only)",
    )
    embeddings_missing: Literal["refuse", "terms"] = Field(
        "refuse",
        description="where embeddings_dir is not there: refuse (do not start) or terms (search by terms only, "
        "and log it)",
    )
    stale_s: float = Field(
        0,
        ge=0,
        description="seconds for which an edge answers from an FAQ that the centre has not confirmed (0: no edge's)",
    )
