"""Edges and their centre under the faults of a seed: the link is cut, answers are lost, and processes and Redis restart
with their earlier state. History, journal, erasures and the door are the product's code; the link and Kafka belong to
this module.

At the end the link is restored and everything is sent. The test then requires that the centre holds each turn once, no
turn that was erased after its question was asked, and every other turn that an edge still had.
"""

import random
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

import fakeredis
import msgspec

from gateway.doors.edge.door import EdgeDoor
from gateway.serving.erasing import Erasing
from shared.conversation.erasure_log import Missed
from shared.conversation.history import History
from shared.conversation.journal import Journal, Journalled
from shared.conversation.turn import Turn, decode_turn
from shared.process.clock import wire_unix_ms
from shared.redis import client as redis_client
from shared.settings.redis import RedisSettings
from shared.wire.messages import Erase
from shared.wire.session_key import SessionKey
from workers.edge.centre_pages import CentreAway
from workers.edge.link_time import LinkTime
from workers.edge.sync import Sync

TENANT: Final = "demo"
STEPS: Final = 60
_SESSIONS: Final = ("a", "b", "c")
_CLOCKS_AHEAD_MS: Final = (0, 0, -500, 500)  # of edges; a question is asked each millisecond
_decode: Final = msgspec.json.Decoder(list[Journalled]).decode
_ACTS: Final = (
    *("ask", "ask", "ask", "ask", "ask-centre", "send", "send", "look"),
    *("erase", "erase-centre", "restart-gateway", "restart-edge", "lose-marks", "backup", "restore", "twin"),
)


@dataclass(slots=True)
class _Asked:
    """A question, when it was asked, and whether its site had yet to learn of an erasure of its conversation."""

    at: int
    session: str
    unaware: bool
    sites: set[int] = field(default_factory=set)


class _Site:
    """One Redis, and the processes that use it."""

    def __init__(self, *, edge: bool) -> None:
        self.server = fakeredis.FakeServer(version=(7,))
        self.redis = fakeredis.FakeRedis(server=self.server)
        self._is_edge = edge
        self.ahead_ms = 0
        self.start()

    def start(self) -> None:
        made, redis_client.async_redis = redis_client.async_redis, self._client
        try:
            settings = RedisSettings(timeout_ms=10_000)
            self.history = History(settings, journal_of=TENANT if self._is_edge else None)
            self.journal = Journal(settings)
        finally:
            redis_client.async_redis = made

    def _client(self, *_: Any, **__: Any) -> Any:
        return fakeredis.FakeAsyncRedis(server=self.server)

    def stored(self, session: str) -> list[str]:
        values: Any = self.redis.lrange(SessionKey(TENANT, session).redis_key("turns"), 0, -1)
        return [decode_turn(value).request_id for value in values]

    def dump(self) -> dict[Any, Any]:
        return {key: self.redis.dump(key) for key in self.redis.keys("*")}

    def restore(self, dumped: dict[Any, Any]) -> None:
        self.redis.flushall()
        for key, value in dumped.items():
            self.redis.restore(key, 0, value)


class EdgeWorld:
    """Run one seed with `run`, which returns the broken invariants."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._now, self._base_ms = count(1), int(wire_unix_ms()) - 1_000_000
        self._centre, self._topic = _Site(edge=False), list[Erase]()
        self._edges: list[_Site] = []
        self._syncs: list[Sync] = []
        self._asked: dict[str, _Asked] = {}
        self._erased: list[tuple[str, int, int]] = []
        self._reached: set[tuple[str, int]] = set()
        self._unknown: list[set[str]] = []
        self._backups: dict[int, dict[Any, Any]] = {}
        self._whole_link = False
        self._start_gateway()
        self._add_edge()

    # --- what runs

    def _start_gateway(self) -> None:
        """Start a gateway of the centre that has loaded the topic's records."""
        anything: Any = SimpleNamespace(
            erase=self._publish, open_before=lambda *_: [], forget_before=lambda *_: None, forget=lambda *_: None
        )
        self._erasing = Erasing(
            history=self._centre.history,
            publisher=anything,
            inflight=anything,
            answering=anything,
            people=anything,
            beside=anything,
        )
        self._erasing.log.begin_at(len(self._topic))
        self._erasing.log.load(enumerate(self._topic), 0)
        unused: Any = None
        self._door = EdgeDoor(http=unused, signed=None, faq=unused, history=self._centre.history, erasing=self._erasing)

    async def _publish(self, key: SessionKey, generation: int) -> None:
        erase = Erase(tenant=TENANT, session_id=key.session_id, generation=generation)
        self._topic.append(erase)
        self._erasing.apply(erase, len(self._topic) - 1)

    def _add_edge(self, dumped: dict[Any, Any] | None = None) -> None:
        edge = _Site(edge=True)
        edge.ahead_ms = self._chance.choice(_CLOCKS_AHEAD_MS)
        edge.restore(dumped or {})
        pages: Any = SimpleNamespace(
            add=self._receive, erasures=self._tell_erasures, reconnect=lambda: None, faq=lambda _: None
        )

        async def erase(session_id: str, generation: int) -> None:
            session = SessionKey(TENANT, session_id)
            if (await edge.history.generation(session) or 0) < generation:
                await edge.history.delete(session, generation=generation, journal=False)

        async def forget_all() -> None:
            await edge.history.forget_all(TENANT)

        files: Any = None
        sync = Sync(
            pages=pages,
            files=files,
            journal=edge.journal,
            time=LinkTime(),
            poll_s=1,
            erase=erase,
            forget_all=forget_all,
        )
        self._edges.append(edge)
        self._syncs.append(sync)
        self._unknown.append(set(_SESSIONS))

    # --- the link

    async def _receive(self, body: bytes, _limit_s: float) -> None:
        """Deliver a body whole, in part or not at all, and possibly lose the answer."""
        entries = _decode(body)
        comes = len(entries) if self._whole_link else self._chance.randint(0, len(entries))
        for entry in entries[:comes]:
            await self._door._take(SessionKey(TENANT, entry.session_id), entry)
            if entry.erased is not None:
                self._reached.add((entry.session_id, entry.erased))
        if comes < len(entries) or not (self._whole_link or self._chance.random() < 0.5):
            raise CentreAway("cut")

    async def _tell_erasures(self, after: int | None) -> tuple[Missed, float]:
        if not self._whole_link and self._chance.random() < 0.5:
            raise CentreAway("cut")
        return self._erasing.log.since(after, TENANT), 10.0

    # --- what happens

    async def run(self) -> list[str]:
        for _ in range(STEPS):
            await self._act(self._chance.choice(_ACTS), self._chance.randrange(len(self._edges)))
        self._whole_link = True
        for _ in range(3):
            for number in range(len(self._edges)):
                await self._look(number)
                await self._send(number)
        return self._broken()

    async def _act(self, what: str, number: int) -> None:
        edge, session, at = self._edges[number], self._chance.choice(_SESSIONS), next(self._now)
        self._strike(what, number)
        match what:
            case "ask":
                await self._ask(edge, number, session, at)
            case "ask-centre":
                await self._ask(self._centre, -1, session, at)
            case "send":
                await self._send(number)
            case "look":
                await self._look(number)
            case "erase" | "erase-centre":
                await self._erase(edge if what == "erase" else self._centre, session, at)

    def _strike(self, what: str, number: int) -> None:
        """Apply one of the seed's faults."""
        edge = self._edges[number]
        match what:
            case "restart-gateway":
                self._centre.start()
                self._start_gateway()
            case "restart-edge":
                edge.start()
                self._syncs[number].journal = edge.journal
            case "lose-marks":
                for key in self._centre.redis.keys("*:erased"):
                    self._centre.redis.delete(key)
            case "backup":
                self._backups[number] = edge.dump()
            case "restore" if number in self._backups:
                edge.restore(self._backups[number])
                self._unknown[number] = set(_SESSIONS)
                for asked in self._asked.values():
                    asked.sites.discard(number)
            case "twin" if number in self._backups and len(self._edges) < 3:
                self._add_edge(self._backups[number])

    async def _erase(self, site: _Site, session: str, at: int) -> None:
        key = SessionKey(TENANT, session)
        known = self._erasing.log.generation(key) if site is self._centre else 0
        least = max(known + 1, self._base_ms + at + site.ahead_ms)
        generation = await site.history.delete(key, generation=least)
        if site is self._centre:
            await self._publish(key, generation)
            self._reached.add((session, generation))
        self._erased.append((session, at, generation))
        for unknown in self._unknown:
            unknown.add(session)

    async def _ask(self, site: _Site, number: int, session: str, at: int) -> None:
        key, name = SessionKey(TENANT, session), f"r{at}"
        unaware = number >= 0 and session in self._unknown[number]
        unaware = unaware or (number < 0 and any(session in unknown for unknown in self._unknown))
        self._asked[name] = _Asked(at, session, unaware, {number})
        turn = Turn(
            request_id=name,
            user="What?",
            output_text="That.",
            source="faq",
            asked_unix_ms=self._base_ms + at + site.ahead_ms,
            generation=await site.history.generation(key) or 0,
        )
        assert await site.history.append(key, turn, journal=True)

    async def _send(self, number: int) -> None:
        self._syncs[number].link.up.set()
        await self._syncs[number].push()

    async def _look(self, number: int) -> None:
        sync = self._syncs[number]
        try:
            asked = await sync._ask()
        except CentreAway:
            return
        await sync.receive_erasures(asked.missed, asked.after)
        if not await self._edges[number].journal.first(1):
            self._unknown[number] = {of for of, _, generation in self._erased if (of, generation) not in self._reached}

    # --- what is found

    def _broken(self) -> list[str]:
        found: list[str] = []
        for session in _SESSIONS:
            stored = self._centre.stored(session)
            found += [f"doubled: {name}" for name in {*stored} if stored.count(name) > 1]
            # An edge that restarts from older data may have lost an erasure that no other site had received.
            told = [at for of, at, generation in self._erased if (of, generation) in self._reached and of == session]
            last = max(told, default=0)
            found += [f"came back: {name}" for name in stored if self._asked[name].at < last]
            for name, asked in self._asked.items():
                if asked.session == session and asked.at > last and not asked.unaware and asked.sites:
                    found += [f"lost: {name}"] if name not in stored else []
        for number, edge in enumerate(self._edges):
            found += [f"not sent by edge {number}"] if edge.redis.llen("replyline:journal") else []
        return found
