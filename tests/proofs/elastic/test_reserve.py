"""Slots kept for long requests, while a crowd asks short ones: who gets the model's answer in time."""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Final

from tests.proofs.elastic.conftest import Note
from tests.support.system import MakeSystem, Service, eventually
from tests.support.wire import Client

SHARES: Final = {"without": 0.0, "with": 0.2}
SLOTS, TOKENS, STEP_MS, LOAD = 10, 16, 50, 1.5
RATE: Final = LOAD * SLOTS * 1_000 / (TOKENS * STEP_MS)
LONG_SHARE: Final = 0.1
ROUND_S: Final = 20.0
ASKED: Final = {"max_output_tokens": TOKENS, "first_token_ms": 2_000, "deadline_ms": 3_000}
SETTINGS: Final = {
    "worker__slots": SLOTS,
    "worker__fake_decode_ms_per_step": STEP_MS,
    "gateway__messages_per_minute": 1_000_000,
}
TEXTS: Final = {"short": "How do I return an item?", "long": "Where is my parcel? " * 30}


async def test_long_ones_answered_by_the_model_live(new_system: MakeSystem, note: Note, whole: bool) -> None:
    """The same questions by turns at a worker that keeps a fifth of its slots for long ones, and at one that keeps
    none."""
    gateways: dict[str, Service] = {}
    for name, share in SHARES.items():
        system = await new_system(**SETTINGS, worker__long_slots_share=share)
        gateways[name] = system.gateway()
        await asyncio.gather(gateways[name].ready(), system.worker().ready())
        await eventually(partial(_knows_a_worker, gateways[name]))
    chance, rounds = random.Random(1), 9 if whole else 3
    in_time: dict[str, Counter[str]] = {name: Counter() for name in SHARES}
    for number in range(rounds):
        for name in chance.sample(sorted(SHARES), 2):
            in_time[name] += await _round(gateways[name], number)
    asked = Counter[str]()
    for number in range(rounds):
        asked += Counter(_lengths(number))
    for length in TEXTS:
        without, kept = (in_time[name][length] / asked[length] for name in SHARES)
        note(
            f"reserve, live: {length} ones by the model in time, {LOAD:g} times what {SLOTS} slots can do",
            f"{kept:.2f} with a fifth kept for long ones, {without:.2f} without, of {asked[length]} a side",
            "more than without" if length == "long" else "",
            holds=length != "long" or kept > without,
        )


def _lengths(seed: int) -> list[str]:
    return random.Random(seed).choices(("long", "short"), (LONG_SHARE, 1 - LONG_SHARE), k=round(RATE * ROUND_S))


async def _round(gateway: Service, seed: int) -> Counter[str]:
    """Ask for a while; return how many of each length the model has answered in time. Each asks for itself."""
    chance, lengths = random.Random(seed), _lengths(seed)
    answers = []
    for length in lengths:
        answers.append(asyncio.create_task(_ask(gateway, TEXTS[length])))
        await asyncio.sleep(chance.expovariate(RATE))
    sources = await asyncio.gather(*answers)
    return Counter(length for length, source in zip(lengths, sources, strict=True) if source == "model")


async def _ask(gateway: Service, text: str) -> str:
    async with Client.connect(gateway.ws) as client:
        return str((await client.ask(text, **ASKED)).response["source"])


async def _knows_a_worker(gateway: Service) -> bool:
    return await gateway.metric("replyline_gateway_workers") == 1
