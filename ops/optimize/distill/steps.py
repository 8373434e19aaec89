"""What a training is made from, and what each of its steps tells. Pure."""

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct


class Recipe(Struct, frozen=True, kw_only=True):
    """All that decides what is learned, beside the lessons and the models. `data` is the examples' digest, `models`
    the digest of the student's and the teacher's.

    A step learns from `batch_tokens` tokens, padding included. The gradient's norm is cut to `clip`.
    """

    data: str
    models: tuple[str, ...]
    loss: Literal["cross-entropy", "kl"]
    rank: int = 8
    alpha: float = 16.0
    learning_rate: float = 1e-3
    warmup_share: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    epochs: int = 1
    batch_tokens: int = 2_560
    max_length: int = 512
    dtype: Literal["bf16", "fp32"] = "bf16"
    seed: int = 1

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Step(Struct, frozen=True, kw_only=True):
    """What one step tells: a line of the log. `tokens` are the answers', by which the loss is the mean; `agreement` is
    the share of them that the student finds likeliest itself."""

    step: int
    loss: float
    agreement: float
    learning_rate: float
    gradient_norm: float
    tokens: int
