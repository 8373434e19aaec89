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
        description="grounded: the model where the FAQ bears it out, else the FAQ, else a person; model: always it",
    )
    guard: bool = Field(True, description="a sentence with a figure that nothing bears out gives way to the FAQ's own")
    confident_score: float | None = Field(
        None, ge=0, le=1, description="from this score of an entry on the model answers by it (empty: the fitted one)"
    )
    weak_score: float | None = Field(
        None, ge=0, le=1, description='from this one on the entry is shown beside "I am not sure" (empty: fitted)'
    )
    history_tokens: int = Field(1_024, ge=0, le=1_048_576, description="of the earlier turns in a prompt, at most")

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

    path: Path | None = Field(None, description="the FAQ's file, or folder of files (none: the demo shop's)")
    embeddings_dir: Path | None = Field(
        None, description="folder with an ONNX sentence-embedding model, searched by too in the worker (none: by terms)"
    )
    embeddings_missing: Literal["refuse", "terms"] = Field(
        "refuse", description="where that folder is not there. refuse: do not start; terms: search by these, as logged"
    )
