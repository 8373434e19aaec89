"""The autoscaler on real Kafka: its leader is killed, the broker restarts, gateways fall silent. The test writes the
reports of gateways and workers.
"""

import asyncio
import math
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import Child, free_port
from shared.errors import BrokerUnavailable
from shared.kafka import Outgoing, Producer, create_topics, scan
from shared.process.clock import wire_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.wire.codec import decode_scaling, msgpack_encode
from shared.wire.scaling import BucketDemand, DemandReport, ScalingRecord
from shared.wire.topics import BROADCAST_PARTITION
from tests.support.builders.gateway import report
from tests.support.system import MakeSystem, Service, eventually

pytestmark = pytest.mark.timeout(300)

CLI = (sys.executable, "-m", "ops.cli")
WANTED = "replyline_wanted_workers"


@dataclass(slots=True)
class Bench:
    """Reports of a gateway that has asked `work` machine seconds a second for a minute and continues, and of one
    worker.
    """

    kafka: KafkaSettings
    producer: Producer
    folder: Path
    work: float = 1.1
    speaks: bool = True
    worker: bool = True
    since: int = field(default_factory=lambda: int(wire_unix_ms()) - 60_000)
    runs: list[Service] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "REPLYLINE_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
            "REPLYLINE_KAFKA__SESSION_TIMEOUT_MS": "3000",
        }

    async def report(self) -> None:
        """Report until cancelled, skipping while the broker is away."""
        while True:
            now = int(wire_unix_ms())
            asked = BucketDemand(requests=(now - self.since) // 10, work_ms=(now - self.since) * self.work)
            demand = DemandReport(
                gateway_id="g", unix_ms=now, since_unix_ms=self.since, asked={"champion": {"short": asked}}
            )
            found = report("w-1-a", unix_ms=now, service_ms=11.0)
            topics = self.kafka.topics
            with suppress(BrokerUnavailable):
                if self.worker:
                    await self.send(topics.workers, "w-1-a", msgpack_encode(found))
                if self.speaks:
                    await self.send(topics.demand, "g", msgpack_encode(demand))
            await asyncio.sleep(0.3)

    async def send(self, topic: str, key: str, value: bytes) -> None:
        await self.producer.publish(Outgoing(topic, value, key=key.encode(), partition=BROADCAST_PARTITION))

    def run(self, *options: str, env: dict[str, str] | None = None) -> Service:
        at = f"127.0.0.1:{free_port()}"
        argv = [*CLI, "autoscale", "run", "--carries", "0.5", "--max", "6", *options, "--metrics-port", at[10:]]
        env = env or self.environment
        log = self.folder / f"autoscale-{len(self.runs)}.log"
        self.runs.append(Service(child=Child.start(argv, env=env, log=log), address=at, operators=at, log=log))
        return self.runs[-1]

    async def status(self) -> str:
        """Return what `replyline autoscale status` prints."""
        typed = await asyncio.create_subprocess_exec(
            *(*CLI, "autoscale", "status"), env=os.environ | self.environment, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await typed.communicate()
        assert typed.returncode == 0
        return out.decode()

    async def records(self) -> list[ScalingRecord]:
        found = [each.record.value async for each in scan(self.kafka, self.kafka.topics.scaling)]
        return [decode_scaling(value) for value in found if value is not None]

    async def wants(self, workers: int, *services: Service) -> Service:
        """Wait until one of them leads and wants this many."""

        async def leader() -> Service | None:
            pages = [(await each.get("/metrics"), each) for each in services]
            line = f'{WANTED}{{pool="main"}} {workers}.0'
            return next((each for page, each in pages if page and line in page.body.decode()), None)

        found: Service = await eventually(leader, limit_s=60)
        return found


@pytest_asyncio.fixture
async def bench(own_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Bench]:
    kafka = KafkaSettings(bootstrap_servers=own_broker.bootstrap, topic_prefix=topic_prefix)
    await create_topics(kafka, kafka.topics.all(request_partitions=4, reply_partitions=1))
    made = Bench(kafka, Producer(kafka, client_id="bench"), tmp_path)
    await made.producer.start()
    reporting = asyncio.create_task(made.report())
    yield made
    reporting.cancel()
    for each in made.runs:
        each.child.stop(timeout_s=20)
    await made.producer.stop()


async def test_the_last_decision_survives_a_killed_leader_silence_and_a_broker_restart(
    bench: Bench, own_broker: KafkaBroker
) -> None:
    """Only one change is written after the start: from the existing worker to three."""
    dry = bench.run("--dry-run")
    await eventually(lambda: [line for line in dry.logged("wanted") if line["workers"] == 3])
    assert await bench.records() == []
    assert WANTED + "{" not in str(await dry.get("/metrics"))

    both = bench.run(), bench.run()
    leader = await bench.wants(3, *both)
    [stands_by] = [each for each in both if each is not leader]
    assert WANTED + "{" not in str(await stands_by.get("/metrics")), "a standby shows no size"
    leader.child.kill()
    assert await bench.wants(3, stands_by) is stands_by

    bench.speaks = False
    await eventually(lambda: _is_unknown(stands_by))
    assert await stands_by.metric(WANTED) == 3
    await asyncio.to_thread(own_broker.restart)
    bench.speaks = True
    await eventually(lambda: _is_known(stands_by), limit_s=90)
    assert await bench.wants(3, stands_by) is stands_by
    records = [record for record in await bench.records() if record.wanted != 1]
    assert [record.wanted for record in records if record.kind == "change"] == [3]
    assert "1.10 s of work a second asked" in records[0].reason
    assert "3 wanted: 1.10 s of work a second asked" in await bench.status()

    bench.work *= 10
    await bench.wants(4, stands_by)  # the topics have as many partitions
    assert await stands_by.stop() == 0


async def test_local_workers_start_as_wanted_and_end_with_the_command(bench: Bench, make_system: MakeSystem) -> None:
    """They are real workers, which report themselves."""
    system = await make_system(broker=bench.kafka.bootstrap_servers)
    bench.worker, bench.work = False, 0.7
    local = bench.run("--local", "--min", "0", env=system.environment(kafka__topic_prefix=bench.kafka.topic_prefix))
    await eventually(lambda: len(local.logged("worker_ready")) >= 2, limit_s=90)
    await eventually(lambda: _found(local))
    pids = [line["pid"] for line in local.logged("worker_started")]
    local.child.signal(signal.SIGINT)
    assert await local.ended() == 0
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def _found(service: Service) -> bool:
    return await service.metric("replyline_found_workers") == 2


async def _is_unknown(service: Service) -> bool:
    return math.isnan(await service.metric("replyline_asked_work"))


async def _is_known(service: Service) -> bool:
    return await service.metric("replyline_asked_work") > 1
