"""Compute how much of each part a rate of questions needs. Pure; a measured number names its source."""

import math
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ops.scaling.plan.worker_rate import Mix

# Given, about twice what docs/measured.md has of one gateway on a core, so that an older CPU suffices.
_CPU_S_PER_DELTA: Final = 3.8e-5
_CPU_S_PER_REQUEST: Final = 2e-3
_CORE: Final = 0.6  # of one core; the rest is for bursts
_CONNECTION_BYTES: Final = 15.3 * 1024
_RECORD_BYTES: Final = 400.0
_PROMPT_BYTES_PER_TOKEN: Final = 5.0
_BROKER_BYTES_PER_S: Final = 50e6  # given, not measured: a modest disk and network
_REPLICAS: Final = 3
_MIB: Final = 2**20


class Demand(Struct, frozen=True, kw_only=True):
    """`per_s`: questions at the peak, before headroom. `chats`: customers connected. `kept`: conversations in Redis."""

    per_s: float
    chats: int
    kept: float


class Prices(Struct, frozen=True, kw_only=True):
    """The price of an hour of each part, in any one currency; None: not given."""

    worker: float | None = None
    gateway: float | None = None
    broker: float | None = None
    redis_gib: float | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """The planned number of each part. `partitions` are those of each request topic. `redis_mib`: None without a
    prepared model, which says how much a conversation needs. The rates include the headroom."""

    workers: int
    partitions: int
    gateways: int
    gateway_mib: float
    brokers: int
    redis_mib: float | None
    cost_per_hour: float | None
    questions_per_s: float
    deltas_per_s: float
    kafka_mb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The inputs of a plan. `worker_per_s`: the rate of one worker. `headroom`: the share of all capacity that is free
    at the peak. `session_bytes`: the size of a conversation in Redis; None: not known."""

    demand: Demand
    mix: Mix
    worker_per_s: float
    headroom: float
    reply_interval_ms: float
    max_connections: int
    session_bytes: float | None
    prices: Prices

    def at(self, per_s: float) -> tuple[Plan, int]:
        """Return the plan for this rate of questions, and the number of customers connected at that rate."""
        times = per_s / self.demand.per_s
        return self.plan(times), round(self.demand.chats * times)

    def plan(self, times: float = 1.0) -> Plan:
        """Return how many of each part `times` the demand needs."""
        mix, sized_for = self.mix, 1.0 / (1.0 - self.headroom)
        chats = round(self.demand.chats * times)
        per_s = self.demand.per_s * times * sized_for
        workers = max(1, math.ceil(per_s / self.worker_per_s - 1e-9))
        # The text between an answer's first and last delta is sent once an interval.
        deltas_per_s = per_s * min(mix.output_tokens, 2 + 1_000 * mix.service_s / max(self.reply_interval_ms, 1.0))
        gateways = max(
            math.ceil((deltas_per_s * _CPU_S_PER_DELTA + per_s * _CPU_S_PER_REQUEST) / _CORE),
            math.ceil(chats * sized_for / self.max_connections),
            2 if workers > 1 else 1,
        )
        record_bytes = 2 * _RECORD_BYTES + mix.prompt_tokens * _PROMPT_BYTES_PER_TOKEN
        bytes_per_s = per_s * record_bytes + deltas_per_s * _RECORD_BYTES
        replicas = _REPLICAS if workers > 1 else 1
        brokers = max(replicas, math.ceil(bytes_per_s * replicas / _BROKER_BYTES_PER_S))
        kept = self.demand.kept * times * sized_for
        redis_mib = None if self.session_bytes is None else kept * self.session_bytes / _MIB
        return Plan(
            workers=workers,
            # Twice as many workers can then be started without a change of the topics.
            partitions=2 * workers if workers > 1 else 4,
            gateways=gateways,
            gateway_mib=chats / gateways * _CONNECTION_BYTES / _MIB,
            brokers=brokers,
            redis_mib=redis_mib,
            cost_per_hour=_cost(workers, gateways, brokers, redis_mib, self.prices),
            questions_per_s=per_s,
            deltas_per_s=deltas_per_s,
            kafka_mb_per_s=bytes_per_s / 1e6,
        )


def _cost(workers: int, gateways: int, brokers: int, redis_mib: float | None, prices: Prices) -> float | None:
    parts = (
        (prices.worker, workers),
        (prices.gateway, gateways),
        (prices.broker, brokers),
        (prices.redis_gib, None if redis_mib is None else redis_mib / 1024),
    )
    told = [price * count for price, count in parts if price is not None and count is not None]
    return sum(told) if told else None
