"""Conversations of tenants that ask unevenly, placed by the workers' slack and by the hash alone."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Final

import pytest

from ops.traces.costs import CPU
from ops.virtual_worker.experiment import Experiment
from shared.kafka.producer import partition_of
from shared.settings import Settings
from shared.wire.session_key import SessionKey
from tests.proofs.elastic.conftest import Note
from tests.proofs.elastic.placing import placed_simulator, zipf_trace
from tests.support.system import MakeSystem, Service, eventually
from tests.support.wire import Client

WORKERS, LOAD, TENANTS = 4, 0.9, 200
EXPONENTS: Final = (0.0, 1.0, 1.2, 1.4)
TARGET: Final = 1.2
SEEDS: Final = 4
SECONDS: Final = 60.0


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_in_time_of_hashing_alone_simulated(exponent: float, note: Note) -> None:
    by_slack, by_hash, asked = map(sum, zip(*(_in_time(exponent, seed) for seed in range(1, SEEDS + 1)), strict=True))
    ratio = by_slack / by_hash
    assert ratio > 1
    note(
        f"hot and cold, simulated: {TENANTS} tenants by Zipf {exponent:g}, {WORKERS} workers at {LOAD:g}",
        f"in time {by_slack / asked:.3f} by slack, {by_hash / asked:.3f} by hash: {ratio:.2f}×",
        f"≥ {TARGET}× of hashing alone",
        holds=ratio >= TARGET,
    )


def _in_time(exponent: float, seed: int) -> Sequence[int]:
    experiment = Experiment(
        slots=16,
        seconds=SECONDS,
        seed=seed,
        costs=CPU,
        settings=Settings(),
    )
    trace = zipf_trace(experiment, workers=WORKERS, load=LOAD, tenants=TENANTS, exponent=exponent)
    slack, by_hash = (
        placed_simulator(experiment, trace, workers=WORKERS, by_slack=each).run() for each in (True, False)
    )
    return slack, by_hash, len(trace.requests)


# --- live, with scripted engines

SLOTS, TOKENS, STEP_MS = 4, 16, 50
RATE: Final = LOAD * WORKERS * SLOTS * 1_000 / (TOKENS * STEP_MS)
ASKED: Final = {"max_output_tokens": TOKENS, "first_token_ms": 1_000, "deadline_ms": 3_000}
ROUND_S: Final = 20.0
_PARTITIONS: Final = 24
LIVE_TENANTS, LIVE_EXPONENT = 40, 1.2
SETTINGS: Final = {
    "worker__slots": SLOTS,
    "worker__fake_decode_ms_per_step": STEP_MS,
    "kafka__request_partitions": _PARTITIONS,
    "gateway__max_inflight_per_connection": 32,
    "gateway__messages_per_minute": 1_000_000,
}


async def test_in_time_of_hashing_alone_live(new_system: MakeSystem, note: Note, whole: bool) -> None:
    """The same questions by turns at a gateway that goes by the slack and at one that goes by the hash."""
    system = await new_system(**SETTINGS)
    gateways = {
        by: system.gateway(gateway__reply_partition=number, gateway__placement=by)
        for number, by in enumerate(("slack", "hash"))
    }
    workers = [system.worker() for _ in range(WORKERS)]
    await asyncio.gather(*(each.ready() for each in (*gateways.values(), *workers)))
    await _knows_all(*gateways.values())
    chance, in_time = random.Random(1), dict.fromkeys(gateways, 0)
    for number in range(12 if whole else 4):
        homes = [chance.randrange(_PARTITIONS) for _ in range(LIVE_TENANTS)]
        for by in chance.sample(sorted(gateways), 2):
            in_time[by] += await _round(gateways[by], homes, number, f"{by}{number}")
    ratio = in_time["slack"] / in_time["hash"]
    note(
        f"hot and cold, live: {LIVE_TENANTS} conversations by Zipf {LIVE_EXPONENT:g}, {WORKERS} workers at {LOAD:g}",
        f"{in_time['slack']} answers in time by slack, {in_time['hash']} by hash: {ratio:.2f}×",
        f"≥ {TARGET}× of hashing alone",
        holds=ratio >= TARGET,
    )


async def _round(gateway: Service, homes: Sequence[int], seed: int, name: str) -> int:
    """Ask for a while, each conversation over a separate connection; return how many answers came in time."""
    chance = random.Random(seed)
    often = [(number + 1) ** -LIVE_EXPONENT for number in range(LIVE_TENANTS)]
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client.connect(gateway.ws, session_id=_at(home, f"{name}-{number}")))
            for number, home in enumerate(homes)
        ]
        answers = []
        for [client] in (chance.choices(clients, often) for _ in range(round(RATE * ROUND_S))):
            answers.append(asyncio.create_task(client.ask("How do I return an item?", **ASKED)))
            await asyncio.sleep(chance.expovariate(RATE))
        return sum([(await each).response["source"] == "model" for each in answers])


def _at(home: int, name: str) -> str:
    """Return a session's id whose key's hash is of that partition."""
    names = (f"{name}-{number}" for number in count())
    return next(each for each in names if partition_of(SessionKey("demo", each).record_key, _PARTITIONS) == home)


async def _knows_all(*gateways: Service) -> None:
    async def known() -> bool:
        return all([await each.metric("replyline_gateway_workers") == WORKERS for each in gateways])

    await eventually(known)
