"""A rollout's plan, as its first record in the registry keeps it. Pure."""

import math
from itertools import pairwise
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from shared.versions.state import Share
from shared.wire.fields import Count, Revision
from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS, OBSERVATIONS_MS

GROUP: Final = "replyline-rollout"
"""The consumer group of the controllers, one of which leads."""
LONGEST_MS: Final = OBSERVATIONS_MS - 86_400_000
"""A rollout ends before its first observations are deleted: a new controller reads all of them again."""


class Plan(Struct, frozen=True, kw_only=True):
    """A canary `version` gets growing shares of the `champion`'s conversations.

    The rollout goes up a step once each class (a bucket of `classes`) has `min_answers` answers of each side and
    `min_s` seconds in it.
    With `control` as many conversations go to the champion's version on workers started alike; without, the canary is
    held to the `tolerated` share of bad answers alone. Each side's first `warmup` answers are cold and count nowhere.
    A rollout whose canary is not worse than by `margin` is rolled back with a probability of at most `alpha`. An `ab`
    is a comparison: it stays at its one step for `min_s` and `min_answers`, then both are left as they were.

    With a `query` (PromQL) it is rolled back once that has a value above `at_most`. With `approve` it takes no further
    step until a person approves of the one that it is on.
    A rollout that reaches no new step for `progress_s` after `min_s` ends.

    Observations count from `offset` of their topic on, and from `epoch` of the registry, that of the first move."""

    version: Revision
    champion: Revision
    steps: Annotated[tuple[Share, ...], Meta(min_length=1)]
    classes: Annotated[tuple[Bucket, ...], Meta(min_length=1)] = BUCKETS
    min_answers: Count = 50
    min_s: Annotated[float, Meta(ge=0.0, le=604_800.0)] = 60.0
    control: bool = True
    ab: bool = False
    warmup: Count = 3
    alpha: Annotated[float, Meta(gt=0.0, le=0.2)] = 0.05
    margin: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.02
    tolerated: Share = 0.05
    progress_s: Annotated[float, Meta(ge=0.0, le=31_536_000.0)] = 86_400.0
    query: str | None = None
    at_most: Annotated[float, Meta(ge=-1e12, le=1e12)] = 0.0
    approve: bool = False
    salt: str = ""
    offset: Count = 0
    epoch: Count = 0


_decode: Final = msgspec.msgpack.Decoder(Plan).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def pack(plan: Plan) -> msgspec.Raw:
    return msgspec.Raw(_encode(plan))


def unpack(raw: msgspec.Raw) -> Plan:
    """Read a plan. Raises `msgspec.MsgspecError` if no rollout can be judged by it."""
    plan = _decode(raw)
    if not (math.isfinite(plan.min_s) and all(sooner < later for sooner, later in pairwise((0.0, *plan.steps)))):
        raise msgspec.ValidationError("its steps do not grow, or take no finite time")
    return plan


def steps_of(text: str, *, control: bool) -> tuple[float, ...]:
    """Return the shares that "1,10,50" names in percent. Raises ValueError, with the remedy."""
    try:
        percents = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--steps {text}: write percentages, as 1,10,50") from None
    most = 50 if control else 100
    if any(not 0 < percent <= most for percent in percents):
        beside = " beside a control of the same size" if control else ""
        raise ValueError(f"--steps {text}: each step must be above 0 and at most {most}{beside}")
    if any(later <= earlier for earlier, later in pairwise(percents)):
        raise ValueError(f"--steps {text}: each step must be larger than the one before it")
    return tuple(percent / 100 for percent in percents)


def classes_of(text: str) -> tuple[Bucket, ...]:
    """Return the classes that "short,long" names. Raises ValueError, with the remedy."""
    names = text.split(",")
    if unknown := [name for name in names if name not in BUCKETS]:
        raise ValueError(f"--classes {text}: {unknown[0]!r} is no class; write some of {','.join(BUCKETS)}")
    return tuple(bucket for bucket in BUCKETS if bucket in names)
