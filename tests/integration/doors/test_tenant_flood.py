"""One tenant asks fifty times as often as any other and more than the workers can answer, or one client repeats another
request as often as it can: other tenants are not affected.

docs/reliability.md, row 11. `pytest --reliability FILE` runs the whole.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgpack
import pytest
import pytest_asyncio

from gateway.access.charges import COSTS_UNITS
from ops.measure.quantiles import percentile
from shared.settings.gateway import QuotaSettings
from tests.integration.support.crowds import Heard, Visitor
from tests.integration.support.floods import FLOODS, Flood, Nuisance
from tests.support.reliability import Reliability
from tests.support.system import Service, System
from tests.support.tokens import SECRET, token

OTHERS: Final = tuple(f"shop{number}" for number in range(9))
ASKS_PER_S: Final = 1.0
TIMES: Final = 50
# A connection may have at most 32 open answers: the flood asks that many in four seconds, which is its deadline.
FLOOD_CONNECTIONS: Final = 8
# Eight slots, 13 ms a step: some 38 answers of this length a second.
ANSWER_TOKENS: Final = 16
# The nine others ask 540 times a minute.
ADDRESS_PER_MINUTE: Final = 600
NUISANCE: Final = "127.0.0.66"


pytestmark = pytest.mark.system(
    # One where a tenant may ask without limit, and one with the default limits; the other tenants share an address.
    gateways=({"quotas__subject_per_minute": 0}, {"quotas__address_per_minute": ADDRESS_PER_MINUTE}),
    auth__mode="token",
    auth__secret_file=SECRET,
    worker__slots=8,
    worker__fake_decode_ms_per_step=13,
    worker__system_prompt="",
    worker__grounding_entries=0,
    worker__history_turns=0,
    gateway__messages_per_minute=100_000,
    gateway__max_inflight_per_connection=32,
    promise__first_token_ms=2_000,
    promise__deadline_ms=4_000,
)


@pytest.fixture(scope="module")
def metered(gateways: list[Service]) -> Service:
    return gateways[1]


def token_of(tenant: str) -> str:
    return token(tenant=tenant, exp=int(time.time()) + 600)


@asynccontextmanager
async def visiting(gateway: Service, tenants: dict[str, int]) -> AsyncIterator[dict[str, list[Visitor]]]:
    """Open this many connections for each tenant."""
    visitors = {tenant: [Visitor() for _ in range(number)] for tenant, number in tenants.items()}
    for tenant, each in visitors.items():
        for visitor in each:
            await visitor.open(gateway.ws, token=token_of(tenant))
    yield visitors
    for each in visitors.values():
        for visitor in each:
            visitor.close()


@pytest_asyncio.fixture
async def shops(gateway: Service) -> AsyncIterator[dict[str, list[Visitor]]]:
    """One connection per tenant; the flood has as many as it needs."""
    async with visiting(gateway, {**dict.fromkeys(OTHERS, 1), "flood": FLOOD_CONNECTIONS}) as visitors:
        yield visitors


async def ask_steadily(visitors: list[Visitor], *, per_s: float, seconds: float, rng: random.Random) -> list[Heard]:
    """Open loop: send each question at its own time, answered or not, over the connections in turn. Send late ones
    immediately, so that their number is the same on any machine.
    """
    begun_s, due_s, asked = time.monotonic(), 0.0, list[asyncio.Task[Heard]]()
    while (due_s := due_s + rng.expovariate(per_s)) < seconds:
        await asyncio.sleep(begun_s + due_s - time.monotonic())
        question = f"Where is parcel {len(asked)}?"
        visitor = visitors[len(asked) % len(visitors)]
        asked.append(asyncio.create_task(visitor.ask(question, max_output_tokens=ANSWER_TOKENS)))
    return await asyncio.gather(*asked)


async def ask_all(visitors: dict[str, list[Visitor]], *, seconds: float, rng: random.Random) -> list[Heard]:
    """Return what the other tenants, which ask now and then, receive."""
    lists = await asyncio.gather(
        *(ask_steadily(visitors[tenant], per_s=ASKS_PER_S, seconds=seconds, rng=rng) for tenant in OTHERS)
    )
    return [heard for each in lists for heard in each]


def p99_ms(heard: list[Heard]) -> float:
    return percentile(sorted(each.took_s for each in heard), 0.99) * 1_000


@pytest.mark.promise(11)
async def test_one_tenants_flood_does_not_affect_others(
    gateway: Service, shops: dict[str, list[Visitor]], reliability: Reliability
) -> None:
    """No other tenant is refused, and the flood gets the remaining capacity. In the full run hardly any other tenant
    gets a fallback or waits much longer.
    """
    seconds, rng = reliability.amount(60, part=2), random.Random(11)
    alone = await ask_all(shops, seconds=seconds if reliability.whole else 0.5, rng=rng)
    flood = asyncio.create_task(
        ask_steadily(shops["flood"], per_s=TIMES * ASKS_PER_S, seconds=seconds, rng=random.Random(50))
    )
    beside = await ask_all(shops, seconds=seconds, rng=rng)
    flooded = await flood
    by_model = sum(each.source == "model" for each in flooded)
    not_by_model = [each for each in beside if each.source != "model"]
    refused = sum(each.error is not None for each in not_by_model)
    assert 0 < by_model < len(flooded), "the flood is more than the workers can answer, and gets the remaining capacity"
    assert await gateway.metric("replyline_gateway_fallbacks_total", reason="share") > 0
    figure = (
        f"{refused} of the others' {len(beside)} refused, {len(not_by_model) - refused} answered by the fallback"
        f"{''.join(_why(gateway, not_by_model))}, beside {len(flooded)} of the flood, of which {by_model} had the "
        "model's answer"
    )
    holds = not refused and all(each.whole for each in beside)
    if reliability.whole:
        holds = holds and len(not_by_model) <= len(beside) // 100
        ratio = p99_ms(beside) / p99_ms(alone)
        figure += f"; p99 {p99_ms(alone):.0f} → {p99_ms(beside):.0f} ms (×{ratio:.2f})"
        holds = holds and ratio <= 1.5
    reliability.found(
        figure=figure,
        target="others: 0 refusals, p99 ≤ 1.5×",
        holds=holds,
    )


@pytest.mark.promise(11)
@pytest.mark.parametrize("flood", FLOODS)
async def test_one_clients_flood_of_any_request_does_not_affect_others(
    system: System, metered: Service, flood: Flood, reliability: Reliability
) -> None:
    """No more of its requests are served than it may have in a minute."""
    seconds, rng = reliability.amount(30, part=2), random.Random(11)
    tenant = f"flood-{flood}"
    nuisance = Nuisance(metered, flood, address=NUISANCE, token=lambda: token_of(tenant))
    async with visiting(metered, dict.fromkeys(OTHERS, 1)) as shops:
        alone = await ask_all(shops, seconds=seconds if reliability.whole else 0.5, rng=rng)
        flooding = asyncio.create_task(nuisance.run(seconds, random.Random(50)))
        beside = await ask_all(shops, seconds=seconds, rng=rng)
        await flooding
    done, most = await done_of(system, flood, tenant, nuisance), allowed(flood, seconds)
    refused = sum(each.error is not None for each in beside)
    figure = (
        f"{refused} of the others' {len(beside)} refused beside {nuisance.sent} times {flood} in {seconds} s, of which "
        f"{done} were done"
    )
    holds = not refused and all(each.whole for each in beside) and done <= most
    if reliability.whole:
        ratio = p99_ms(beside) / p99_ms(alone)
        figure += f"; p99 {p99_ms(alone):.0f} → {p99_ms(beside):.0f} ms (×{ratio:.2f})"
        holds = holds and ratio <= 1.5
    reliability.found(
        figure=figure,
        target=f"others: 0 refusals, p99 ≤ 1.5×; done ≤ {most:.0f}",
        holds=holds,
    )


async def done_of(system: System, flood: Flood, tenant: str, nuisance: Nuisance) -> int:
    """Return how often the request was carried out, counted in Kafka if it is written there."""
    match flood:
        case "delete":
            return await written(system, "chat.cancels", tenant)
        case "handoff":
            return await written(system, "chat.handoffs", tenant)
        case "feedback":
            return nuisance.heard["unknown_response"]
        case "resume":
            return nuisance.heard["session.created"]
        case "token":
            return nuisance.heard["unauthorized"]


async def written(system: System, topic: str, tenant: str) -> int:
    async with system.reading(topic) as tap:
        return sum(msgpack.unpackb(record.value).get("tenant") == tenant for record in await tap.to_the_end())


def allowed(flood: Flood, seconds: float) -> float:
    """Return what its subject or address may have immediately and as refill, plus one second for the transfer."""
    quotas = QuotaSettings()
    per_minute = ADDRESS_PER_MINUTE if flood == "token" else quotas.subject_per_minute
    return per_minute / COSTS_UNITS[flood] * (1 + (seconds + 1) / 60) + 1


def _why(gateway: Service, heard: list[Heard]) -> list[str]:
    """Return the reason of each fallback, from the gateway's log."""
    by_id = {line["request_id"]: line for line in gateway.logged("answered")}
    lines = [by_id[each.response_id] for each in heard if each.response_id is not None]
    return [f" ({line['fallback']} after {line['total_ms']:.0f} ms)" for line in lines]
