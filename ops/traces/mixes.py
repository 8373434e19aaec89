"""Mixes of requests: classes with their shares, lengths and deadlines. Pure; randomness is a parameter."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from msgspec import structs

from ops.traces.trace import Request
from shared.wire.messages import Bucket
from shared.wire.topics import bucket_of_length

_MAX_OUTPUT_TOKENS: Final = 160  # the product's default
_MAX_PROMPT_TOKENS: Final = 1_024
_SPREAD: Final = (30, 400)
_SPREAD_OUTPUT_TOKENS: Final = 48
_SHOWN_TOKENS: Final = 25
_SHOWN_VARIATION: Final = 0.28

Draw = Callable[[Random, float], Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The two deadlines, from the arrival; and what is asked, by a shop's mix: how many parts of all requests each
    bucket has, and how much longer prompts and answers are."""

    first_token_ms: int
    deadline_ms: int
    parts: tuple[float, float, float] = (7, 2, 1)
    prompts_times: float = 1.0
    answers_times: float = 1.0


# The product's profiles (`REPLYLINE_PROMISE__PROFILE`).
PROFILES: Final = {
    "cpu": Promise(first_token_ms=3_000, deadline_ms=15_000),
    "gpu": Promise(first_token_ms=200, deadline_ms=1_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthClass:
    """Requests of one bucket, `parts` of all parts. Lengths are log-normal with these means and the relative deviation
    `variation`."""

    bucket: Bucket
    parts: float
    prompt_tokens: int
    output_tokens: int
    promise: Promise
    variation: float = 0.4

    def draw(self, random: Random, arrival_ms: float) -> Request:
        return Request(
            arrival_ms=arrival_ms,
            bucket=self.bucket,
            prompt_tokens=log_normal(random, self.prompt_tokens, self.variation, _MAX_PROMPT_TOKENS),
            output_tokens=log_normal(random, self.output_tokens, self.variation, _MAX_OUTPUT_TOKENS),
            max_output_tokens=_MAX_OUTPUT_TOKENS,
            first_token_ms=self.promise.first_token_ms,
            deadline_ms=self.promise.deadline_ms,
        )


def mixture(*classes: LengthClass) -> Draw:
    """Return a mix in which each request's class is drawn according to its parts."""
    parts = [of.parts for of in classes]

    def draw(random: Random, arrival_ms: float) -> Request:
        return random.choices(classes, parts)[0].draw(random, arrival_ms)

    return draw


def bimodal() -> Draw:
    """Five short requests per long one. Both deadlines are the same: only a complete answer in time counts."""
    soon, later = (Promise(first_token_ms=ms, deadline_ms=ms) for ms in (3_000, 6_000))
    return mixture(
        LengthClass(bucket="short", parts=5, prompt_tokens=60, output_tokens=32, promise=soon),
        LengthClass(bucket="long", parts=1, prompt_tokens=400, output_tokens=96, promise=later),
    )


SHOP: Final[tuple[tuple[Bucket, int, int], ...]] = (("short", 60, 32), ("medium", 160, 48), ("long", 400, 96))
"""A shop's buckets with the mean tokens of a prompt and of an answer."""


def shop(promise: Promise) -> Draw:
    """Seven short, two medium, one long, unless the promise says otherwise."""
    return mixture(
        *(
            LengthClass(
                bucket=bucket,
                parts=parts,
                prompt_tokens=round(prompt * promise.prompts_times),
                output_tokens=round(output * promise.answers_times),
                promise=promise,
            )
            for parts, (bucket, prompt, output) in zip(promise.parts, SHOP, strict=True)
            if parts > 0
        )
    )


def heavy(promise: Promise) -> Draw:
    """Pareto lengths (shape 1.5): many short prompts and answers, and a few very long ones."""

    def draw(random: Random, arrival_ms: float) -> Request:
        prompt_tokens = min(_MAX_PROMPT_TOKENS, round(24 * random.paretovariate(1.5)))
        return Request(
            arrival_ms=arrival_ms,
            bucket=bucket_of_length(prompt_tokens),
            prompt_tokens=prompt_tokens,
            output_tokens=min(_MAX_OUTPUT_TOKENS, round(16 * random.paretovariate(1.5))),
            max_output_tokens=_MAX_OUTPUT_TOKENS,
            first_token_ms=promise.first_token_ms,
            deadline_ms=promise.deadline_ms,
        )

    return draw


def spread(promise: Promise) -> Draw:
    """Prompts of 30 to 400 tokens with log-uniform lengths, in the product's buckets."""

    def draw(random: Random, arrival_ms: float) -> Request:
        prompt_tokens = round(math.exp(random.uniform(math.log(_SPREAD[0]), math.log(_SPREAD[1]))))
        return Request(
            arrival_ms=arrival_ms,
            bucket=bucket_of_length(prompt_tokens),
            prompt_tokens=prompt_tokens,
            output_tokens=log_normal(random, _SPREAD_OUTPUT_TOKENS, 0.4, _MAX_OUTPUT_TOKENS),
            max_output_tokens=_MAX_OUTPUT_TOKENS,
            first_token_ms=promise.first_token_ms,
            deadline_ms=promise.deadline_ms,
        )

    return draw


def held(requests: Iterable[Request], random: Random) -> tuple[Request, ...]:
    """Return the requests with the number of the token at which the first text is shown, unless it is set. The guard
    shows whole sentences: after 24 tokens in the median, 38 in 95 and 44 in 99 of a hundred answers of a shop."""
    return tuple(
        request
        if request.shown_tokens is not None
        else structs.replace(
            request, shown_tokens=log_normal(random, _SHOWN_TOKENS, _SHOWN_VARIATION, request.output_tokens)
        )
        for request in requests
    )


def log_normal(random: Random, mean: float, variation: float, limit: int) -> int:
    """Return a random integer with that mean, from 1 to `limit`. `variation` is the standard deviation relative to the
    mean."""
    variance = math.log1p(variation**2)
    drawn = random.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))
    return max(1, min(limit, round(drawn)))
