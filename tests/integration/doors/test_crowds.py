"""Thousands of clients that hold a connection, reconnect together, connect silently, or do not read: all others are
served.

docs/reliability.md, rows 9, 12 and 17. `pytest --reliability FILE` runs the full crowds.
"""

import asyncio
import json
import math
import random
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from gateway.destination.memory_watch import SHED_AT, MemoryLevel
from gateway.frontends.sockets import serve_sockets
from ops.measure.quantiles import percentile
from ops.measure.usage import raise_file_limit, rss_bytes
from shared.client.telling import ConnectFailed
from shared.settings.gateway import GatewaySettings
from tests.integration.support.crowds import KNOCKS, Crowd, DeafClient, Heard, Visitor, crowd, knock, ports_held
from tests.integration.support.scripted_replier import Script, answering
from tests.support.reliability import Reliability
from tests.support.system import Page, Service, System, eventually
from tests.support.wire import Client

FILES: Final = 12_000
SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
FEW_FILES: Final = 256
KIB: Final = 1_024
MIB: Final = 1_048_576
MESSAGE_BYTES: Final = 65_536
MESSAGES_PER_MINUTE: Final = 100
SHORT: Final = Script(deltas=4, chars=40, every_s=0.1)
# Four of them exceed what is buffered for a client that does not read: `gateway.buffer_close_bytes`, 256 KiB.
LONG: Final = Script(deltas=7, chars=6_000, every_s=0.1)


pytestmark = pytest.mark.system(workers=0, gateways=0, promise__first_token_ms=20_000, promise__deadline_ms=60_000)


@pytest_asyncio.fixture(scope="module", autouse=True)
async def _answers(system: System) -> AsyncIterator[None]:
    raise_file_limit(FILES)
    async with answering(system):
        yield


@pytest_asyncio.fixture(scope="module")
async def gateway(system: System, reliability: Reliability) -> Service:
    """A gateway with its default limits; in the ordinary suite with shorter timeouts. It is started with a low limit of
    open files, so that it must raise the limit itself.
    """
    impatient = {} if reliability.whole else {"gateway__hello_timeout_s": 4, "gateway__slow_consumer_s": 1}
    with few_files():
        service = system.gateway(**impatient)
    return await service.ready()


@contextmanager
def few_files() -> Iterator[None]:
    """Lower the limit of open files for processes started inside."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def num_held(gateway: Service) -> float:
    return await gateway.metric("replyline_gateway_connections")


def p99_ms(seconds: list[float]) -> float:
    return percentile(sorted(seconds), 0.99) * 1_000


# --- memory


async def test_near_its_memory_budget_a_gateway_sheds_and_then_refuses(system: System, gateway: Service) -> None:
    """First, buffers of clients that do not read are dropped and the fallback answers; then no client or question is
    accepted, and answers in flight continue.
    """
    resident_mib = rss_bytes(gateway.child.process.pid) / MIB  # of a gateway without earlier clients
    budget_mib = math.ceil((resident_mib + 6) / SHED_AT)
    tight = await system.gateway(gateway__reply_partition=2, gateway__memory_budget_mib=budget_mib).ready()
    async with Client.connect(tight.ws) as client, crowd(tight, 1) as people:
        begun = await client.create(Script(deltas=600, chars=10, every_s=0.05).question)
        deaf = await DeafClient.connect(tight)
        for number in range(3):
            await deaf.send(type="response.create", event_id=f"e{number}", input=LONG.question)
        await client.text_of(begun)

        assert (await eventually(lambda: _shed(people, tight), limit_s=30)).source in {"faq", "busy"}
        await eventually(lambda: _has_closed(tight, "4008", 1))

        response, heard, page = await eventually(lambda: _refused(people, tight), limit_s=30)
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
        assert heard.error == "memory_full"
        assert list(json.loads(page.body)["missing"]) == ["memory"]
        await client.of_type("response.output_text.delta", since=len(client.events))
        await client.send({"type": "response.cancel", "target_event_id": begun})
        assert (await client.answer(begun)).outcome == ("cancelled", "client", "model")
    deaf.close()
    assert await tight.metric("replyline_gateway_refused_total", code="no_memory") > 0
    assert {line["now"] for line in tight.logged("memory")} >= {"shedding", "refusing"}


async def _shed(people: Crowd, gateway: Service) -> Heard | None:
    """Return what a client receives from a gateway short of memory; None if the gateway had freed some before."""
    await _fill(people, gateway, MemoryLevel.SHEDDING)
    heard = await people.visitors[0].ask(SHORT.question)
    return heard if await gateway.metric("replyline_gateway_fallbacks_total", reason="memory") else None


async def _refused(people: Crowd, gateway: Service) -> tuple[Response, Heard, Page] | None:
    """Return what a new client, a connected one and a probe receive from a gateway without free memory;
    None as above.
    """
    await _fill(people, gateway, MemoryLevel.REFUSING)
    try:
        await (await connect(gateway.ws, proxy=None)).close()
    except InvalidStatus as refusal:
        heard, page = await people.visitors[0].ask(SHORT.question), await gateway.get("/ready")
        return (refusal.response, heard, page) if heard.error and page and page.status == 503 else None
    return None


async def _fill(people: Crowd, gateway: Service, level: MemoryLevel) -> None:
    """Add clients until the gateway reports this much memory."""
    async with asyncio.timeout(30):
        while await gateway.metric("replyline_gateway_guards", what="memory") < level:
            with suppress(ConnectFailed):
                await people.grow(len(people.visitors) + 60)
            await asyncio.sleep(0.3)


async def _has_closed(gateway: Service, code: str, count: int) -> bool:
    return await gateway.metric("replyline_gateway_closes_total", code=code) == count


# --- row 9


@pytest.mark.promise(9)
async def test_idle_connections_are_held_and_still_answered(gateway: Service, reliability: Reliability) -> None:
    """None is lost, each costs little memory, and clients that ask after the wait are answered. The first hundred are a
    warm-up.
    """
    count, hold_s = reliability.amount(5_000, part=400), reliability.amount(600, part=1)
    async with crowd(gateway, 100) as people:
        await asyncio.sleep(1)
        before = rss_bytes(gateway.child.process.pid)
        await people.grow(count)
        await asyncio.sleep(hold_s)
        kib_each = (rss_bytes(gateway.child.process.pid) - before) / KIB / (count - 100)
        held, lost = await num_held(gateway), people.num_lost
        asked = [await visitor.ask(SHORT.question) for visitor in people.visitors[:: count // 10]]
    reliability.found(
        figure=f"{held:.0f} of {count} held for {hold_s} s, {lost} dropped, {kib_each:.1f} KiB each",
        target="5,000 for 10 min, 0 drops, ≤ 25 KiB each",
        holds=held == count and not lost and kib_each <= 25 and all(heard.whole for heard in asked),
    )


@pytest.mark.promise(9)
async def test_a_restarted_gateway_gets_its_clients_back(system: System, reliability: Reliability) -> None:
    """Each client learns when to reconnect; one that is refused backs off with full jitter, like the widget."""
    count, rng = reliability.amount(2_000, part=200), random.Random(9)
    gateway = await system.gateway(gateway__reply_partition=1).ready()
    async with crowd(gateway, count) as people:
        back = [asyncio.create_task(visitor.come_back(gateway.ws, rng)) for visitor in people.visitors]
        began = time.monotonic()
        assert await gateway.stop(signal.SIGTERM) == 0
        port = gateway.address.rpartition(":")[2]
        system.gateway(gateway__reply_partition=1, gateway__port=port)
        async with asyncio.timeout(60):
            last_s = max(await asyncio.gather(*back)) - began
    reliability.found(
        figure=f"{count} of {count} back {last_s:.1f} s after the gateway was told to restart",
        target="2,000 reconnect in ≤ 10 s",
        holds=last_s <= 10 or not reliability.whole,  # the start time of a process depends on the machine
    )


async def test_a_busy_gateway_refuses_no_connection() -> None:
    """All clients that connect while it cannot accept are connected later: none has to retry after a second."""
    count = min(1_000, int(SOMAXCONN.read_text()))
    async with await serve_sockets(lambda _: asyncio.sleep(0), GatewaySettings(host="127.0.0.1", port=0)) as server:
        address = server.sockets[0].getsockname()
        with ExitStack() as stack:  # nothing is awaited here: the server does not run
            knocking = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
            for sock in knocking:
                sock.setblocking(False)
                sock.connect_ex(address)
            assert sum(_is_connected(sock) for sock in knocking) == count


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


# --- row 17


@pytest.mark.promise(17)
async def test_half_open_connections_are_closed_without_delaying_others(
    gateway: Service, reliability: Reliability
) -> None:
    """There are five kinds; only upgraded ones count as connections, and a new client is accepted next to them:
    immediately, unless the machine is full of other tests.
    """
    count = reliability.amount(500, part=50)
    await eventually(lambda: _is_held(gateway, 0))  # clients of earlier tests
    knocking = [asyncio.create_task(knock(gateway, KNOCKS[number % len(KNOCKS)])) for number in range(count)]
    await eventually(lambda: _is_held(gateway, count // len(KNOCKS)))
    visitor = Visitor()
    began = time.monotonic()
    await visitor.open(gateway.ws)
    entered_s, heard = time.monotonic() - began, await visitor.ask(SHORT.question)
    visitor.close()
    closed_s = sorted(await asyncio.gather(*knocking))
    await eventually(lambda: _is_held(gateway, 0))
    reliability.found(
        figure=f"{count} closed, the last after {closed_s[-1]:.1f} s; "
        f"a new client was in after {entered_s * 1_000:.0f} ms",
        target="500 half-open closed ≤ 10 s",
        holds=closed_s[-1] <= 10 and heard.whole and (entered_s < 1 or not reliability.whole),
    )


async def _is_held(gateway: Service, count: float) -> bool:
    return await num_held(gateway) == count


@pytest.mark.promise(17)
async def test_a_message_one_byte_too_long_closes_with_1009(gateway: Service, reliability: Reliability) -> None:
    async with Client.connect(gateway.ws) as client:
        await client.send_raw("x" * MESSAGE_BYTES)
        whole = (await client.error())["code"]
        await client.send_raw("x" * (MESSAGE_BYTES + 1))
        code = await client.closed()
    reliability.found(
        figure=f"the one is read ({whole}), the other closes with {code}",
        target="65,537 B → 1009",
        holds=(whole, code) == ("bad_json", 1009),
    )


@pytest.mark.promise(17)
async def test_as_many_messages_pass_as_the_rate_allows(gateway: Service, reliability: Reliability) -> None:
    """`session.start` is one of them; units refilled during the test are counted."""
    async with Client.connect(gateway.ws) as client:
        began = time.monotonic()
        for _ in range(3 * MESSAGES_PER_MINUTE):
            await client.send({"type": "response.cancel", "response_id": "none"})
        await eventually(lambda: client.count("error") == 3 * MESSAGES_PER_MINUTE)
        given_back = (time.monotonic() - began) * MESSAGES_PER_MINUTE / 60
    codes = [event["error"]["code"] for event in client.events if event["type"] == "error"]
    passed = 1 + codes.count("unknown_response")
    reliability.found(
        figure=f"{passed} passed, {given_back:.1f} were given back meanwhile",
        target="rate limit exact ± 1",
        holds=MESSAGES_PER_MINUTE - 1 <= passed <= MESSAGES_PER_MINUTE + given_back + 1,
    )


# --- row 12


@dataclass(slots=True)
class _Watch:
    """Watches a gateway's memory and the clients that do not read, every tenth of a second. `gone_s`: from a client's
    first question until the gateway closed its connection, by the client's port.
    """

    gateway: Service
    began_s: dict[int, float] = field(default_factory=dict)
    gone_s: dict[int, float] = field(default_factory=dict)
    grown_bytes: int = 0

    async def run(self) -> None:
        pid = self.gateway.child.process.pid
        before = rss_bytes(pid)
        while True:
            await asyncio.sleep(0.1)
            self.grown_bytes = max(self.grown_bytes, rss_bytes(pid) - before)
            held, now = await asyncio.to_thread(ports_held, self.gateway), time.monotonic()
            for port in self.began_s.keys() - self.gone_s.keys() - held:
                self.gone_s[port] = now - self.began_s[port]

    @property
    def all_gone(self) -> bool:
        return self.gone_s.keys() == self.began_s.keys()


@dataclass(frozen=True, slots=True)
class _Round:
    """Latencies of the other clients alone, and next to clients that do not read."""

    calm: list[Heard]
    beside: list[Heard]
    watch: _Watch

    @property
    def p99_ms(self) -> tuple[float, float]:
        calm, beside = (p99_ms([each.took_s for each in heard]) for heard in (self.calm, self.beside))
        return calm, beside

    @property
    def p99_ratio(self) -> float:
        calm, beside = self.p99_ms
        return beside / calm


@pytest.mark.promise(12)
async def test_a_client_that_does_not_read_is_closed_and_costs_others_nothing(
    gateway: Service, reliability: Reliability
) -> None:
    """A tenth of the connections ask for long answers, one client after the other, and read none; all others ask as
    before. A p99 of so few answers is noisy: the full run has three rounds of each, in turn.
    """
    count, spread_s = reliability.amount(1_000, part=100), reliability.amount(20, part=2)
    num_slow, rng = count // 10, random.Random(12)
    rounds: list[_Round] = []
    async with crowd(gateway, count - num_slow) as people:
        closed_before = await gateway.metric("replyline_gateway_closes_total", code="4008")
        for _ in range(3 if reliability.whole else 1):
            calm, _ = await _beside(gateway, people, [], spread_s, rng)
            async with AsyncExitStack() as sockets:
                deaf = [await DeafClient.connect(gateway) for _ in range(num_slow)]
                for client in deaf:
                    sockets.callback(client.close)
                rounds.append(_Round(calm, *await _beside(gateway, people, deaf, spread_s, rng)))
        closed = await gateway.metric("replyline_gateway_closes_total", code="4008") - closed_before
        lost = people.num_lost
    last_s = max(gone_s for each in rounds for gone_s in each.watch.gone_s.values())
    grown_mib = max(each.watch.grown_bytes for each in rounds) / MIB
    heard = [answer for each in rounds for answer in each.beside]
    whole = sum(answer.whole for answer in heard)
    middle = sorted(rounds, key=lambda each: each.p99_ratio)[len(rounds) // 2]
    before_ms, beside_ms = middle.p99_ms
    all_slow = num_slow * len(rounds)
    told = (
        f"; the others' p99 {before_ms:.0f} → {beside_ms:.0f} ms ({middle.p99_ratio - 1:+.0%}), "
        f"the median of {', '.join(f'{each.p99_ratio - 1:+.0%}' for each in rounds)}"
    )
    reliability.found(
        figure=f"{closed:.0f} of {all_slow} closed with 4008, the slowest gone {last_s:.1f} s after it first asked, "
        f"RSS +{grown_mib:.1f} MiB; {whole} of {len(heard)} other answers whole{told if reliability.whole else ''}",
        target="100 of 1,000: RSS growth ≤ 64 MiB; closed 4008 ≤ 10 s; others' p99 ≤ +10 %",
        holds=closed == all_slow
        and last_s <= 10
        and grown_mib <= 64
        and whole == len(heard)
        and not lost
        and (middle.p99_ratio <= 1.1 or not reliability.whole),
    )


async def _beside(
    gateway: Service, people: Crowd, deaf: Sequence[DeafClient], spread_s: float, rng: random.Random
) -> tuple[list[Heard], _Watch]:
    """Return the latencies of the other clients, two answers each, while clients that do not read start asking in the
    first quarter of that time and until these are gone.
    """
    watch = _Watch(gateway)
    watching = asyncio.create_task(watch.run())
    asking = [asyncio.create_task(people.ask_each(SHORT.question, within_s=spread_s, rng=rng)) for _ in range(2)]
    for client in deaf:
        watch.began_s[client.port] = time.monotonic()
        for number in range(4):
            await client.send(type="response.create", event_id=f"e{number}", input=LONG.question)
        await asyncio.sleep(spread_s / 4 / len(deaf))
    heard = [each for answers in asking for each in await answers]
    await eventually(lambda: watch.all_gone, limit_s=30)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return heard, watch
