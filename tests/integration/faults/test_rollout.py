"""A rollout on real Kafka: controllers are killed, restart, and meet others' moves. The test writes the observations
and reports of gateways and workers.
"""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from ops.lifecycle.rollout.plan import GROUP
from ops.lifecycle.rollout.records import Rollout, newest
from ops.operate.leader import Lease, lease_of
from ops.stack.kafka_broker import KafkaBroker
from shared.kafka import Outgoing, Producer, create_topics
from shared.process.clock import now_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.versions.log import VersionsLog
from shared.versions.registry import Added, Checked, Registry
from shared.versions.state import Move, State
from shared.versions.version import Version
from shared.wire.codec import msgpack_encode
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.reports import Observation, WorkerReport
from shared.wire.scaling import DemandReport
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS
from tests.support.system import eventually
from tests.support.typed_pages import ALL, ROOT

pytestmark = pytest.mark.timeout(300)  # some twenty processes start, one after the other

OLD, NEW = (Version(name=name, model="shop", model_revision=name, manifest_sha256=name) for name in ("old", "new"))
LANES: tuple[Lane, ...] = (CHAMPION, "canary", "control")
PLAN = ("--steps", "1,10,50", "--min-answers", "10", "--min-s", "0", "--warmup", "0", "--classes", "short")


@dataclass(slots=True)
class Bench:
    """A registry of two versions, the old one champion, and its controllers."""

    kafka: KafkaSettings
    log: VersionsLog
    producer: Producer
    controllers: list[asyncio.subprocess.Process] = field(default_factory=list)
    loaded: dict[Lane, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(LANES, (OLD.id, NEW.id)))
    number: int = 0

    @property
    def registry(self) -> Registry:
        return self.log.registry

    async def type(self, *arguments: str) -> asyncio.subprocess.Process:
        env = {
            **os.environ,
            "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "REPLYLINE_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
            "REPLYLINE_KAFKA__SESSION_TIMEOUT_MS": "2000",
        }
        return await asyncio.create_subprocess_exec(sys.executable, "-m", "ops.cli", "rollout", *arguments, env=env)

    async def line(self, text: str, cwd: Path) -> tuple[int, str]:
        """Type a line of a page as it is; return its exit status, and what it printed."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("REPLYLINE_")} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "400",
            "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "REPLYLINE_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
        }
        pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        bash = await asyncio.create_subprocess_exec("bash", "-ec", text, cwd=cwd, env=env, stdout=pipe, stderr=out)
        screen = (await bash.communicate())[0].decode()
        assert bash.returncode is not None
        return bash.returncode, screen

    async def typed(self, *arguments: str, status: int = 0) -> None:
        assert await (await self.type(*arguments)).wait() == status

    async def control(self) -> asyncio.subprocess.Process:
        """Start a controller."""
        self.controllers.append(await self.type("run", "--metrics-port", "0"))
        return self.controllers[-1]

    async def kill(self) -> None:
        for each in self.controllers:
            with contextlib.suppress(ProcessLookupError):
                each.kill()
            await each.wait()
        self.controllers.clear()

    async def report(self) -> None:
        """Report like three workers and a gateway, until cancelled."""
        topics = self.kafka.topics
        while True:
            now = round(now_unix_ms())
            reports = [
                WorkerReport(worker_id=lane, unix_ms=now, buckets=BUCKETS, slots=8, lane=lane, revisions=revisions)
                for lane, revisions in self.loaded.items()
            ]
            epoch = self.registry.state_at(now).epoch
            gateway = DemandReport(gateway_id="g", unix_ms=now, since_unix_ms=0, epoch=epoch, rung="champion")
            for topic, name, said in [
                *((topics.workers, each.lane, each) for each in reports),
                (topics.demand, "g", gateway),
            ]:
                record = Outgoing(topic, msgpack_encode(said), key=name.encode(), partition=BROADCAST_PARTITION)
                await self.producer.publish(record)
            await asyncio.sleep(0.5)

    async def write(self, entry: Added | Checked | Move) -> bool:
        return await self.log.append(self.producer, self.kafka.topics.versions, entry)

    async def move(self, **changes: object) -> bool:
        """Write an operator's move."""
        await self.log.catch_up()
        values = {name: getattr(self.registry.state, name) for name in ("aliases", "rule", "rung")} | changes
        state = State(epoch=self.registry.state.epoch + 1, **values)
        return await self.write(Move(state=state, author="ann", reason="by hand", unix_ms=round(now_unix_ms())))

    async def answer(self, times: int, *, bad: bool = False, by: str = NEW.id) -> None:
        """Write this many answers of each side, as gateways do, each side's a second apart."""
        await self.log.catch_up()
        lanes: dict[Lane, str] = {"canary": by, "control": OLD.id}
        for _ in range(times):
            for lane, revision in lanes.items():
                self.number += 1
                seen = Observation(
                    response_id=f"r{self.number}",
                    conversation=f"c{self.number}",
                    lane=lane,
                    revision=revision,
                    answered_by=revision,
                    epoch=self.registry.state.epoch,
                    unix_ms=round(now_unix_ms()) + 500 * self.number,
                    bucket="short",
                    failed=bad and lane == "canary",
                )
                topic = self.kafka.topics.observations
                await self.producer.publish(Outgoing(topic, msgpack_encode(seen), partition=BROADCAST_PARTITION))

    async def rollout(self) -> Rollout:
        await self.log.catch_up()
        found = newest(self.registry)
        assert found is not None
        return found

    async def until_epoch(self, epoch: int) -> None:
        async def reached() -> bool:
            await self.log.catch_up()
            return self.registry.state.epoch >= epoch

        await eventually(reached, limit_s=90)

    async def until_ended(self) -> Rollout:
        async def ended() -> bool:
            return (await self.rollout()).ended is not None

        await eventually(ended, limit_s=90)
        return await self.rollout()


@pytest_asyncio.fixture
async def bench(kafka_broker: KafkaBroker, topic_prefix: str) -> AsyncIterator[Bench]:
    kafka = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap, topic_prefix=topic_prefix)
    await create_topics(kafka, kafka.topics.all(request_partitions=1, reply_partitions=1))
    made = Bench(kafka, VersionsLog.of(kafka, client_id="bench", keeps_notes=True), Producer(kafka, client_id="bench"))
    await made.log.start()
    await made.producer.start()
    for version in (OLD, NEW):
        await made.write(Added(version=version, author="ann"))
        await made.write(Checked(revision=version.id, author="ann", unix_ms=1))
    await made.move(aliases={"champion": OLD.id})
    reporting = asyncio.create_task(made.report())
    yield made
    reporting.cancel()
    await made.kill()
    await made.producer.stop()
    await made.log.stop()


async def test_a_controller_killed_at_every_step_is_followed_by_one_that_continues(bench: Bench) -> None:
    await bench.typed("start", "new", *PLAN)
    for _ in ("10 %", "50 %"):
        await bench.answer(10)
        epoch = bench.registry.state.epoch
        await bench.control()
        await bench.until_epoch(epoch + 1)
        await bench.kill()
    await bench.answer(10)
    await bench.control()
    await bench.until_epoch(5)
    await bench.kill()
    await bench.control()
    rollout = await bench.until_ended()
    *rules, loading, _ = [move.state for move in rollout.moves]
    assert [state.rule and state.rule.shares for state in rules] == [{"short": 0.01}, {"short": 0.1}, {"short": 0.5}]
    assert len({state.rule and state.rule.salt for state in rules}) == 1
    assert loading.loading == {"champion": NEW.id}
    assert rollout.outcome == "finished"
    assert bench.registry.state.aliases == {"champion": NEW.id, "previous": OLD.id}
    assert [move.author for move in rollout.moves] == [rollout.author] * 5


async def test_a_successor_adds_its_evidence_to_that_of_a_killed_controller(bench: Bench, tmp_path: Path) -> None:
    await bench.typed("start", "new", *PLAN)
    await bench.control()
    await bench.answer(3, bad=True)
    await asyncio.sleep(3)  # it has read these, and they are too few
    assert (await bench.rollout()).ended is None
    await bench.kill()
    await bench.answer(3, bad=True)
    await asyncio.gather(bench.control(), bench.control())
    rollout = await bench.until_ended()
    assert rollout.outcome == "rolled_back"
    assert bench.registry.state.aliases == {"champion": OLD.id}
    assert [move.numbers.get("answers_canary") for move in rollout.moves] == [0, 6]
    await bench.typed("report", "--html", str(tmp_path / "rollout.html"))
    assert "6 of 6" in (tmp_path / "rollout.html").read_text()


async def test_a_version_that_a_worker_lacks_gets_no_customers(bench: Bench) -> None:
    """The remedy for a missing folder is typed on its machine; no worker is left loading."""
    bench.loaded["control"] = (NEW.id,)
    await bench.typed("start", "new", *PLAN, status=1)
    bench.loaded["control"], bench.loaded["canary"] = (OLD.id,), (OLD.id,)
    await bench.typed("start", "new", *PLAN, "--wait-s", "4", status=1)
    await bench.log.catch_up()
    assert newest(bench.registry) is None
    assert (bench.registry.state.rule, bench.registry.state.loading) == (None, {})


async def test_a_worker_that_loses_its_version_stops_the_share_from_growing(bench: Bench) -> None:
    await bench.typed("start", "new", *PLAN)
    bench.loaded["canary"] = (OLD.id,)
    await bench.answer(10)
    await bench.control()

    async def frozen() -> bool:
        return "has not loaded" in (await bench.rollout()).notes[-1].reason

    await eventually(frozen, limit_s=90)
    assert (await bench.rollout()).judged == "freeze"
    epoch = bench.registry.state.epoch
    bench.loaded["canary"] = (NEW.id,)
    await bench.until_epoch(epoch + 1)


async def test_an_operators_move_ends_a_rollout_that_no_second_one_may_join(bench: Bench) -> None:
    await bench.typed("start", "new", *PLAN)
    await bench.typed("start", "new", *PLAN, status=2)  # one at a time
    assert await bench.move(aliases={"champion": NEW.id, "previous": OLD.id}, rule=None)
    await bench.control()
    ended = (await bench.until_ended()).ended
    assert ended is not None
    assert ended.reason == "ann moved the registry: by hand"


async def test_an_operator_pauses_and_stops_a_rollout_without_a_controller(bench: Bench) -> None:
    await bench.typed("start", "new", *PLAN)
    await bench.typed("pause", "--reason", "a sale")
    assert "a sale" in ((await bench.rollout()).paused or "")
    await bench.typed("status")
    await bench.typed("stop")
    rollout = await bench.rollout()
    assert rollout.outcome == "stopped"
    assert (bench.registry.state.rule, bench.registry.state.aliases) == (None, {"champion": OLD.id})


async def test_the_controller_that_leads_is_known_until_it_leaves(bench: Bench) -> None:
    """One that was killed is known by the age of its last sign."""

    async def lease() -> Lease | None:
        return await lease_of(bench.kafka, topic=bench.kafka.topics.observations, group=GROUP)

    async def led() -> bool:
        found = await lease()
        return found is not None and found.holder.endswith(f":{bench.controllers[-1].pid}")

    assert await lease() is None
    first = await bench.control()
    await eventually(led, limit_s=60)
    first.terminate()
    await first.wait()
    assert await lease() is None
    await bench.control()
    await eventually(led, limit_s=60)
    await bench.kill()
    last = await lease()
    assert last is not None
    assert last.holds(last.unix_ms + 10_000)
    assert not last.holds(last.unix_ms + 20_000)


async def test_the_pages_rollout_is_typed_and_its_runbook_once_it_is_rolled_back(bench: Bench, tmp_path: Path) -> None:
    """docs/lifecycle.md's block but for `simulate`, which takes minutes, and `run`, which `control` types; then each
    command of the runbook RolloutRolledBack, and of its page's table."""
    [block] = [each for each in ALL if each.key == "docs/lifecycle.md: replyline rollout start"]
    lines = [line for line in block.text.splitlines() if not re.match("replyline rollout (run|simulate)", line)]
    assert [line.split()[2] for line in lines] == ["start", "status", "report"]
    shop = Version(name="shop-3", model="shop", model_revision="3", manifest_sha256="3")
    await bench.write(Added(version=shop, author="ann"))
    await bench.write(Checked(revision=shop.id, author="ann", unix_ms=1))
    bench.loaded = dict.fromkeys(LANES, (OLD.id, shop.id))
    screens = []
    for line in lines:
        status, screen = await bench.line(line, tmp_path)
        assert status == 0, screen
        screens.append(screen)
    assert "no controller is running; type: replyline rollout run" in screens[1]
    await bench.control()
    await bench.answer(12, bad=True, by=shop.id)
    await bench.until_ended()
    page = (ROOT / "docs" / "runbooks" / "rollouts.md").read_text()
    table, section = page.split("## RolloutRolledBack")[0], page.split("## RolloutRolledBack")[1].split("## ")[0]
    commands = re.findall(r"`(replyline [^`]+)`", table + section)
    assert [command.split()[2] for command in commands] == ["status", "report", "stop", "status"]
    for command in commands:
        status, screen = await bench.line(command, tmp_path)
        if command.endswith("stop"):
            assert (status, "has ended: worse than its control" in screen) == (2, True), screen
        else:
            assert status == 0, screen
    assert "rolled_back: worse than its control: " in screen, "the status names the metric and both sides' shares"
    assert re.search(r"100.0% of the canary's and 0.0% of the control's", screen)
    assert (tmp_path / "report.html").exists()
