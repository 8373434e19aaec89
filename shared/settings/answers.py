"""Settings that decide which source answers a question and how the answer's facts are checked (docs/answers.md)."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from shared.settings.group import SettingsGroup

AnswerPolicy = Literal["grounded", "model"]


class AnswerSettings(SettingsGroup):
    """Who answers a question, given how well the FAQ covers it, and what goes into the prompt."""

    policy: AnswerPolicy = Field(
        "grounded",
        description=(
            "grounded: the model answers if the FAQ supports the question, else the FAQ answers, else a person; "
            "model: the model answers every question"
        ),
    )
    guard: bool = Field(
        True, description="true: a sentence with a figure that no source supports is replaced by the FAQ's own text"
    )
    confident_score: float | None = Field(
        None,
        ge=0,
        le=1,
        description="minimum sureness at which an FAQ entry answers, 0 to 1 (empty: the fitted threshold)",
    )
    weak_score: float | None = Field(
        None,
        ge=0,
        le=1,
        description=(
            "minimum FAQ score at which an entry is quoted, 0 to 1 (empty: what off-topic questions do not reach in "
            "this FAQ)"
        ),
    )
    contact_en: str | None = Field(
        None,
        max_length=500,
        description="line under \"I don't know\" in English, such as the help page's address and opening hours",
    )
    contact_zh: str | None = Field(None, max_length=500, description="the same line in Chinese")
    history_tokens: int = Field(1_024, ge=0, le=1_048_576, description="maximum tokens of earlier turns in a prompt")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        weak, confident = self.weak_score, self.confident_score
        if weak is not None and confident is not None and weak > confident:
            raise ValueError(
                f"weak_score={weak:g} is above confident_score={confident:g}: an entry good enough for the model would "
                "be too weak to be quoted; lower weak_score"
            )
        return self


class FaqSettings(SettingsGroup):
    """The FAQ: the source of fallback answers and of the entries in the model's prompt."""

    path: Path | None = Field(None, description="FAQ file, or folder of FAQ files (empty: the demo shop's FAQ)")
    embeddings_dir: Path | None = Field(
        None,
        description=(
            "folder of an ONNX sentence-embedding model, which workers also use to search the FAQ (empty: search by "
            "terms only)"
        ),
    )
    embeddings_missing: Literal["refuse", "terms"] = Field(
        "refuse",
        description=(
            "if embeddings_dir does not exist: refuse (do not start) or terms (search by terms only, and log a warning)"
        ),
    )
    stale_s: float = Field(
        0,
        ge=0,
        description=(
            "an edge stops answering from its FAQ this many seconds after the centre last confirmed it (0: not an edge)"
        ),
    )
