"""Apply the faults at their time, or at the next call of the process that triggers them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from shared.errors import ProtocolError
from shared.versions.registry import encode_entry, key_of
from shared.versions.state import Alias, Move, Rule, State
from shared.wire.codec import decode_request, msgpack_encode
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Timings, Usage
from shared.wire.topics import TopicNames
from tests.world.customers import Shopper
from tests.world.kafka.broker import BROKERS, Kafka
from tests.world.plan import CANARY, ELASTIC, Fault
from tests.world.processes import CANARY_REVISION, PARTITIONS, Kind, Process
from tests.world.redis import Redis
from tests.world.throws import ThrownError
from tests.world.tokens import Issuer
from tests.world.virtual.loop import VirtualLoop
from tests.world.virtual.node import Node
from workers.engine.fake import FAKE_REVISION

_GROWN: Final = 12
_SLOW_S: Final = 0.08  # a round trip within an answer's grace period


class Strikes:
    """The faults of a plan. `processes` has the running processes of a kind, `join` starts another worker."""

    def __init__(
        self,
        loop: VirtualLoop,
        kafka: Kafka,
        redis: Redis,
        issuer: Issuer,
        process: Callable[[Kind, int], Process],
        joined: int,
    ) -> None:
        self._loop, self._kafka, self._redis, self._issuer = loop, kafka, redis, issuer
        self._process, self._joined = process, joined
        self._aimed: list[Fault] = []
        self.throws: dict[Fault, set[str]] = {}
        self.threw: Callable[[Node, Fault], None] = lambda *_: None
        self.shoppers: Sequence[Shopper] = ()
        self.done: list[tuple[float, Fault]] = []

    def plan(self, faults: Sequence[Fault]) -> None:
        """Apply each fault at its time, counted from this call."""
        for fault in faults:
            if fault.nth:
                self._loop.after(fault.at_s, self.throws.setdefault, fault, set())
            else:
                self._loop.after(fault.at_s, self._aimed.append if fault.call else self.strike, fault)

    def calls(self, node: Node, call: str) -> None:
        """Apply the faults that this call triggers."""
        for fault in self._aimed:
            if fault.call == call and self._victim(fault).node is node:
                self._aimed.remove(fault)
                self.strike(fault)
                return

    def entered(self, node: Node, call: str, method: str) -> None:
        """Throw if a fault targets this part, unless the process is still starting."""
        for fault, methods in self.throws.items() if node.serves else ():
            if fault.call == call and self._victim(fault).node is node:
                methods.add(method)
                if len(methods) >= fault.nth or ":" + method in call:
                    del self.throws[fault]
                    self.strike(replace(fault, call=f"{call}.{method}"))
                    self.threw(node, fault)
                    raise ThrownError

    def _victim(self, fault: Fault) -> Process:
        kind: Kind = "gateway" if fault.kind.endswith("gateway") else "worker"
        return self._process(kind, fault.target)

    def strike(self, fault: Fault) -> None:
        """Apply the fault immediately."""
        self.done.append((self._loop.now, fault))
        self._loop.trace("fault", fault.kind, fault.target)
        where, _, what = fault.kind.partition("-")
        if where == "redis":
            self._strike_redis(what, fault.for_s)
        elif fault.kind.endswith(("gateway", "worker")):
            self._strike_process(fault)
        elif fault.kind in ("cut", "half-open", "slow-net"):
            self._strike_network(fault)
        elif fault.kind == "keys-rotate":
            self._issuer.rotate()
        elif fault.kind == "keys-away":
            self._issuer.away_until_s = self._loop.now + fault.for_s
        elif fault.kind == "forge":
            self._forge()
        elif fault.kind == "clock":
            node = self._process("worker" if fault.target % 2 else "gateway", fault.target // 2).node
            if node is not None:
                node.wall_off_s = fault.for_s
        else:
            self._strike_kafka(fault)

    def _strike_redis(self, what: str, seconds: float) -> None:
        if what == "evict":
            self._redis.evict()
        elif what == "garble":
            self._redis.garble()
        else:
            self._redis.ail(what, seconds)

    def _strike_process(self, fault: Fault) -> None:
        victim = self._victim(fault)
        match fault.kind.partition("-")[0]:
            case "kill":
                # The call has been sent, and no process remains to receive its answer.
                self._loop.after(0.0, victim.kill, fault.for_s) if fault.call else victim.kill(fault.for_s)
            case "stop":
                victim.ask_to_stop()
            case "freeze":
                victim.freeze(fault.for_s)
            case "hang":
                victim.hang()
            case "spoil":
                victim.spoil()
            case "enter":
                victim.start()
            case "leave":
                victim.leave(None if fault.target in ELASTIC else fault.for_s)
            case "join":
                self._process("worker", self._joined).start()

    def _strike_kafka(self, fault: Fault) -> None:
        kafka, now, broker = self._kafka, self._loop.now, fault.target % BROKERS
        match fault.kind:
            case "broker-down":
                if kafka.up[broker]:
                    kafka.stop(broker)
                    self._loop.after(fault.for_s, kafka.start, broker)
            case "move-leaders":
                kafka.move_leaders()
            case "slow-broker":
                kafka.slow_until_s[broker] = now + fault.for_s
            case "slow-acks":
                kafka.acks_slow_until_s = now + fault.for_s
            case "stale-metadata":
                kafka.tell_stale(fault.for_s)
                kafka.move_leaders()
            case "grow-replies":
                kafka.grow("chat.replies", _GROWN)
            case "retention":
                kafka.retain(fault.for_s)
            case "rollback":
                self._move(State(epoch=2, aliases={"champion": FAKE_REVISION}))

    def open_canary(self) -> None:
        """Start the canary's worker and route half of the conversations to it."""
        for topic, count in TopicNames().of_lane("canary", request_partitions=PARTITIONS).items():
            self._kafka.grow(topic, count)
        aliases: dict[Alias, str] = {"champion": FAKE_REVISION, "canary": CANARY_REVISION}
        self._move(State(epoch=1, aliases=aliases, rule=Rule(salt="canary", share=0.5)))
        self._process("worker", CANARY).start()

    def _move(self, state: State) -> None:
        """Write a move of the registry; a second move to the same epoch has no effect."""
        move = Move(state=state, author="operator", reason="canary", unix_ms=1)
        self._kafka.write(TopicNames().versions, 0, encode_entry(move), key_of(move, str(self._loop.now)))

    def _forge(self) -> None:
        """Write an end with another conversation's text under the id of an open request."""
        records = [record for log in self._kafka.log("chat.requests.short") for record in log.records(0, log.high)]
        try:
            request = decode_request(max(records, key=lambda record: record.timestamp).value)
        except (ValueError, ProtocolError):
            return  # no record, or an invalid one
        forged = ReplyDone(
            request_id=request.id,
            session_id="another",
            attempt=9,
            status="completed",
            reason="stop",
            source="model",
            output_text="forged",
            usage=Usage(input_tokens=1, output_tokens=1),
            timings=Timings(),
        )
        self._kafka.write(request.reply_topic or "chat.replies", request.reply_partition or 0, msgpack_encode(forged))

    def _strike_network(self, fault: Fault) -> None:
        shopper = self.shoppers[fault.target % len(self.shoppers)]
        if fault.kind == "cut":
            self._loop.call_soon(shopper.cut)
            return
        pipe = shopper.pipe()
        if pipe is None:
            return
        if fault.kind == "slow-net":
            pipe.slow_by_s = pipe.peer.slow_by_s = _SLOW_S
        else:
            pipe.be_silent()
            shopper.silence()
            self._loop.after(fault.for_s, shopper.cut)
