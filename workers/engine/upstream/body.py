"""The request to an upstream: an OpenAI chat completion with fields that every server accepts. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from workers.engine import Sampling

# llama-server's seeds have 32 bits, OpenAI's 64 with a sign
_SEED_BITS: Final = 0x7FFF_FFFF


class ChatMessage(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = True


class _Body(Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    messages: Sequence[ChatMessage]
    max_tokens: int
    temperature: float
    top_p: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    priority: int | None = None
    stream: Literal[True]
    stream_options: _StreamOptions


def chat_body(
    *,
    model: str,
    messages: Sequence[ChatMessage],
    max_tokens: int,
    sampling: Sampling,
    stop: Sequence[str] = (),
    priority: int | None = None,
) -> bytes:
    """Return the body as JSON.

    `priority` (vLLM; the lowest is first) is left out if None. So is a `top_p` that has no effect, since TGI rejects 1
    and other servers reject 0.
    """
    greedy = sampling.temperature == 0 or sampling.top_p == 0
    return msgspec.json.encode(
        _Body(
            model=model,
            messages=messages,
            max_tokens=max_tokens,
            temperature=0.0 if greedy else sampling.temperature,
            top_p=None if greedy or sampling.top_p == 1 else sampling.top_p,
            seed=sampling.seed & _SEED_BITS,
            stop=stop,
            priority=priority,
            stream=True,
            stream_options=_StreamOptions(),
        )
    )


def trial_body(model: str, messages: Sequence[ChatMessage]) -> bytes:
    """Return a request for one token that uses each field of real requests."""
    return chat_body(model=model, messages=messages, max_tokens=1, sampling=Sampling())
