"""The world: booted once, then it runs and judges the plan of one seed."""

import asyncio
import gc
import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from shared.wire.topics import TopicNames
from tests.chaos.ledger.requests import Breach, Ledger, Line, Question
from tests.chaos.ledger.shipped import Shipped
from tests.chaos.ledger.verdict import Verdict, judge
from tests.world import throws
from tests.world.admissions import judge_breakers, watch
from tests.world.customers import Shopper
from tests.world.kafka.broker import Kafka
from tests.world.oracles import Oracles, kafka_ails, redis_ails
from tests.world.plan import CANARY, ELASTIC, SEAMS, Act, Ask, Fault, Plan
from tests.world.processes import (
    PARTITIONS,
    STEP_LIMIT_S,
    WORKERS,
    Kind,
    Process,
    port_of,
)
from tests.world.recording import Recording, oracle_of
from tests.world.redis import Redis
from tests.world.services import Services, text_of
from tests.world.strikes import Strikes
from tests.world.telling import struck, tell
from tests.world.tokens import Issuer
from tests.world.virtual.loop import EPOCH_S, START_S, DeadlockError, VirtualLoop
from tests.world.virtual.machine import install
from tests.world.virtual.node import NODE
from workers.serving.watchdog import LEAVE_S

GATEWAYS: Final = 2
_BOOT_S: Final = 60.0
_READY: Final = ("gateway_ready", "worker_ready")
_LOOK_S: Final = 0.25
_READ_AGAIN_S: Final = 6.0  # every poller has read its process's state within this time (`machine._poll_seldom`)
_AFTER_S: Final = 40.0
_SETTLE_S: Final = 0.5
_THAWED_S: Final = 1.0  # a frozen process has read its backlog within this time
_LEFT_OUT: Final = ("event", "level", "trace_id")  # fields of a log line
_LEFT_S: Final = 1.0  # a hanging process has left within this time
_BESIDE: Final = (WORKERS, CANARY, *ELASTIC)
_KNOWN_S: Final = 3.0  # every gateway knows the canary's worker within this time
_MUTE: Final = ("never retrieved", "Unclosed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a plan. `broken` counts the breaches by invariant, `story` describes them."""

    plan: Plan
    broken: dict[str, int]
    story: str
    trace: str
    facts: dict[str, int] = field(default_factory=dict)


class World:
    """Call `boot`, then `run` once."""

    def __init__(self) -> None:
        self.loop = loop = VirtualLoop(random.Random(0))
        loop.set_exception_handler(self._unhandled)
        names = TopicNames()
        topics = names.all(request_partitions=PARTITIONS, reply_partitions=8)
        named = (*topics, *names.of_lane("canary", request_partitions=PARTITIONS))
        self._kafka = Kafka(loop, topics, {name: names.config(name, min_in_sync=2) for name in named})
        self._redis = Redis(loop)
        self._oracles = Oracles(self._kafka, self._redis)
        self._recording = Recording()
        self._redis.watch(lambda command, args: self._recording.ran(command, args, self._unix_ms(loop.now)))
        self._kafka.groups.committed = self._oracles.committed
        self._kafka.retaining = self._oracles.retaining
        self._logs: list[Line] = []
        self._ready = 0
        self._start_s = 0.0
        self._plan: Plan | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self._issuer = Issuer(loop)
        self._entropy = install(loop, self._kafka, self._redis, self._issuer, self._hear)
        watch(self._oracles)
        self._processes: dict[tuple[Kind, int], Process] = {}
        self._ledger = Ledger()
        self._strikes = Strikes(loop, self._kafka, self._redis, self._issuer, self._process, WORKERS)
        self._strikes.threw = self._oracles.threw
        throws.install(sorted({*SEAMS["gateway"], *SEAMS["worker"]}), self._strikes.entered, self._strikes.throws)
        self._customers = loop.node("customers")
        self._services = Services(loop)

    def boot(self) -> None:
        """Start every process and wait until all are ready."""
        self.loop.run_until_complete(self.loop.start(self.loop.world, self._boot()))
        gc.disable()  # each fork ends soon, and a collected coroutine would run its `finally`

    def run(self, plan: Plan) -> Outcome:
        """Run a plan; the seed decides all that the plan leaves open."""
        for name, owner in (("loop", self.loop), ("kafka", self._kafka), ("redis", self._redis)):
            owner.chance.seed(f"{plan.seed}/{name}")
        self._entropy.reseed(plan.seed)
        joins = any(fault.kind == "join-worker" for fault in plan.faults)  # with another prompt
        self._ledger = Ledger(versions=plan.canary or redis_ails(plan) or joins)
        self.loop.trace, self._plan, self._oracles.plan = self._trace, plan, plan
        self._kafka.calls = self._redis.calls = self._strikes.calls
        try:
            self.loop.run_until_complete(self.loop.start(self.loop.world, self._run(plan)))
        except DeadlockError as error:
            self._oracles.breach("DEADLOCK", str(error))
        return self._judge(plan)

    # --- boot

    async def _boot(self) -> None:
        for number in range(GATEWAYS):
            self._process("gateway", number).start()
        for number in range(WORKERS):
            self._process("worker", number).start()
        await self._services.start()
        groups = self._kafka.groups.by_name
        until_s = self.loop.now + _BOOT_S
        while self._ready < GATEWAYS + WORKERS or len(groups) < 2 or any(g.state != "Stable" for g in groups.values()):
            if self.loop.now > until_s:
                raise DeadlockError(f"not ready: {self._logs[-5:]} {dict(self._oracles.found)}")
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_READ_AGAIN_S)

    def _process(self, kind: Kind, number: int) -> Process:
        """Return a gateway or worker. Numbers beyond the last start over, except those of the joining worker and of the
        canary."""
        count = GATEWAYS if kind == "gateway" else WORKERS
        key = (kind, number if kind == "worker" and number in _BESIDE else number % count)
        if key not in self._processes:
            self._processes[key] = Process(
                self.loop, *key, lambda why: self._oracles.breach("CRASHED", why), self._oracles.died
            )
        return self._processes[key]

    # --- a plan

    async def _run(self, plan: Plan) -> None:
        chance = random.Random(f"{plan.seed}/customers")

        def door() -> tuple[str, str]:
            number = chance.randrange(GATEWAYS)
            return f"gateway-{number}", f"ws://127.0.0.1:{port_of(number)}/ws"

        shared = (self._ledger, door, chance, self._oracles, self._issuer)
        shoppers = {name: Shopper(name, *shared) for name in plan.customers}
        self._strikes.shoppers = [*shoppers.values()]
        if plan.canary:
            await self._open_canary()
        await self.loop.start(self._customers, self._shop(plan, shoppers))
        self._start_s = self.loop.now
        self._strikes.plan(plan.faults)
        self._oracles.clock_off_ms = max((abs(f.for_s) * 1e3 for f in plan.faults if f.kind == "clock"), default=0.0)
        self._services.plan(plan.records)
        await self._until_settled(plan)

    async def _open_canary(self) -> None:
        """Wait until the canary receives questions."""
        self._strikes.open_canary()
        ready = self._ready + 1
        while self._ready < ready:  # noqa: ASYNC110 - polls a log
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_KNOWN_S)

    async def _shop(self, plan: Plan, shoppers: dict[str, Shopper]) -> None:
        """Connect all customers, and let them act."""
        for shopper in shoppers.values():
            self.loop.create_task(shopper.run())
        for shopper in shoppers.values():
            await shopper.online.wait()
        base_s = self.loop.now
        for number, ask in enumerate(plan.asks):
            shopper, event_id = shoppers[ask.customer], f"ask-{number}"
            self.loop.call_at(base_s + ask.at_s, shopper.ask, _question(number, event_id, ask))
            if ask.cancel_after_s is not None:
                self.loop.call_at(base_s + ask.at_s + ask.cancel_after_s, shopper.cancel, event_id)
        for act in plan.acts:
            self.loop.call_at(base_s + act.at_s, shoppers[act.customer].act, act.what)

    async def _until_settled(self, plan: Plan) -> None:
        """Wait until each customer has its answers, or no further answer can come."""
        rows: tuple[Ask | Act | Fault, ...] = (*plan.asks, *plan.acts, *plan.faults, *plan.records)
        quiet_s = self.loop.now + max((row.at_s for row in rows), default=0.0)
        if any(fault.kind.startswith("hang-") for fault in plan.faults):
            quiet_s += STEP_LIMIT_S + LEAVE_S + _LEFT_S
        last_s = quiet_s + _AFTER_S
        while self.loop.now < last_s:
            await asyncio.sleep(_LOOK_S)
            if self.loop.now > quiet_s and self._is_settled():
                break
        await asyncio.sleep(_SETTLE_S)

    def _is_settled(self) -> bool:
        """Return whether no customer waits for an answer and no process is frozen, which may still have to read an
        erasure."""
        thawed_s = self.loop.now - _THAWED_S
        return not (
            self._ledger.num_open
            or self._oracles.unserved(self._services.request_ids)
            or any(node.alive and node.frozen_until_s > thawed_s for node in self.loop.nodes)
        )

    # --- what is found

    def _judge(self, plan: Plan) -> Outcome:
        rights = self._rights(plan)
        verdict = judge(self._ledger, rights)
        if plan.canary:
            self._oracles.judge_revisions(self._ledger, rights)
        for shopper in self._strikes.shoppers:
            shopper.judge(rights)
        for node in self.loop.nodes:
            if node.alive and node.admission is not None:
                judge_breakers(node.admission, self._oracles)
        self._oracles.judge(plan, self._ledger, self._services.request_ids)
        thrown = bool(self._oracles.thrown)
        if thrown:  # an exception may refuse one client so (HARMED)
            verdict.broken[Breach.FAULT].clear()
        if thrown or kafka_ails(plan):  # an adopted question that cannot be read in time is answered "busy", correctly
            wrong = verdict.broken[Breach.WRONG_TEXT]
            wrong[:] = [found for found in wrong if not found[0].ends or found[0].ends[0][1].source != "busy"]
        broken = Counter({name: len(found) for name, found in self._oracles.found.items()})
        broken.update({breach.name: verdict.count(breach) for breach in Breach if verdict.count(breach)})
        for page in self._ledger.pages.values():
            for line in page.lines:
                self._digest.update(f"{line.at_s:.9f} {line.what}".encode())
        if plan.asks and not verdict.accepted:
            broken["NOTHING"] = 1  # was accepted, so nothing was shown
        facts = {
            "callbacks": self.loop.handled,
            "rebalances": self._kafka.groups.num_rebalances,
            "passed on": sum(": passed_on " in line.what for line in self._logs),
            "by the canary": self._oracles.num_by_canary,
            "lost": sum(log.num_lost for log in self._kafka.logs.values()),
            **verdict.endings,
        }
        told = self._tell(plan, verdict) if broken else ""
        return Outcome(plan, dict(broken), told, self._digest.hexdigest(), facts)

    def _rights(self, plan: Plan) -> Shipped:
        """Return the oracle of the texts that workers and gateways may have sent."""
        away = [
            (self._unix_ms(at_s), self._unix_ms(at_s + fault.for_s))
            for at_s, fault in self._strikes.done
            if fault.kind.startswith("redis-")
        ]
        recorded = self._recording.recorded(self._oracles.requests(), self._oracles.ends(), away)
        joined = ("worker", WORKERS) in self._processes
        return oracle_of(self._ledger, recorded, canary=plan.canary, joined=joined)

    @staticmethod
    def _unix_ms(now_s: float) -> float:
        return (EPOCH_S + now_s - START_S) * 1_000

    def _tell(self, plan: Plan, verdict: Verdict) -> str:
        """Return a page about the breaches."""
        found = [(name, what) for name, every in self._oracles.found.items() for what in every]
        found += [(Breach.FOREIGN.name, line.what) for line in self._ledger.strays]
        for breach, guilty in verdict.broken.items():
            found += [(breach.name, f"{page.question.event_id}: {what}") for page, what in guilty]
        system = [*self._logs, *(Line(at_s, struck(fault, plan)) for at_s, fault in self._strikes.done)]
        return tell(plan, found, self._ledger, verdict.guilty, system, self._start_s)

    def _hear(self, process: str, said: dict[str, Any]) -> None:
        self._recording.logged(process, said, self._unix_ms(self.loop.now))
        if said.get("event") in _READY:
            self._ready += 1
            NODE.get(self.loop.world).serves = True
        if self._plan is not None and process.startswith("worker"):
            self._oracles.answered(said)
        if said["level"] == "error":
            self._oracles.faulted(process, said)
        words = [f"{key}={value}" for key, value in said.items() if key not in _LEFT_OUT and value not in (None, False)]
        self._logs.append(Line(self.loop.now, f"{process}: {said.get('event')} {' '.join(words)}"))

    def _trace(self, *what: Any) -> None:
        self._digest.update(f"{self.loop.now:.9f} {what}".encode())

    def _unhandled(self, _: Any, context: dict[str, Any]) -> None:
        said = f"{NODE.get(self.loop.world).name}: {context.get('message')} {context.get('exception')!r}"
        if not any(mute in said for mute in _MUTE):
            self._oracles.breach("UNHANDLED", said)


def _question(number: int, event_id: str, ask: Ask) -> Question:
    return Question(
        event_id=event_id,
        session=ask.customer,
        text=text_of(number, ask),
        temperature=1.0,
        max_output_tokens=ask.tokens,
        first_token_ms=ask.soft_ms,
        deadline_ms=ask.hard_ms,
    )
