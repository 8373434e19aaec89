"""The world's Kafka and Redis answer like real ones (docs/testing.md): the same random programs, step by step."""

import asyncio
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import fakeredis
import pytest
import redis
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from fakeredis._socket._base import BaseFakeSocket
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

from gateway.access.quotas import _TAKE
from ops.stack.kafka_broker import KafkaBroker
from shared.conversation.history import _APPEND, _ERASE
from shared.conversation.session_value import _PUT, _REMOVE
from shared.kafka import create_topics
from shared.settings.kafka import KafkaSettings
from tests.integration.support.kafka_program import PARTITIONS, Program, topic_of
from tests.world.redis import Redis, runtime_of
from workers.kv.store import ASK_SESSION, ASK_SHARED, OPEN

ROOT: Final = Path(__file__).parents[3]
PROGRAMS: Final = 250
AT_ONCE: Final = 24
FREELY_LED: Final = 3
"""The number of programs in which the brokers may choose unlike leaders each time."""
SETTLE_S: Final = {1: 0.1, 2: 0.4, 3: 1.5}
"""How long an answer may take, by attempt."""
COMMANDS: Final = 400


def in_the_world(seeds: range) -> dict[int, Any]:
    command = [sys.executable, "-m", "tests.integration.support.kafka_program", *map(str, seeds)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(seeds, map(json.loads, done.stdout.splitlines()), strict=True))


async def differing(world: Mapping[int, Any], bootstrap: str, attempt: int) -> dict[int, Any]:
    """Return a broker's answers for the programs in which they differ. The programs run in parallel, each with its own
    topic and group.
    """
    topics = {topic_of(seed, attempt): PARTITIONS for seed in world}
    await create_topics(KafkaSettings(bootstrap_servers=bootstrap), topics)
    admin, places = AIOKafkaAdminClient(bootstrap_servers=bootstrap), asyncio.Semaphore(AT_ONCE // attempt**2)

    async def delete(place: TopicPartition, offset: int) -> None:
        await admin.delete_records({place: RecordsToDelete(offset)})

    async def seen(seed: int) -> Any:
        async with places:
            _, told = world[seed]
            times: Any = {"settle_s": SETTLE_S[attempt], "awaited": told}
            program = Program(seed, topic_of(seed, attempt), bootstrap, delete, **times)
            return json.loads(json.dumps([await program.run(), program.group.told]))

    await admin.start()
    try:
        real = dict(zip(world, await asyncio.gather(*map(seen, world)), strict=True))
    finally:
        await admin.close()
    return {seed: real[seed] for seed in world if real[seed] != world[seed]}


def until_another_leads(real: Any, world: Any) -> tuple[list[Any], list[Any]]:
    """Return the answers of both up to the step in which the brokers chose unlike leaders, as each may."""
    (real, _), (world, _) = real, world
    looks = zip((looks for *_, looks in real), (looks for *_, looks in world), strict=True)
    steps = next((number for number, (one, other) in enumerate(looks, 1) if one != other), len(real))
    return [step[:2] for step in real[:steps]], [step[:2] for step in world[:steps]]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_the_worlds_kafka_answers_like_apache_kafka(kafka_broker: KafkaBroker) -> None:
    """A program with an answer that came too late for its step is run again, with more time."""
    world = await asyncio.to_thread(in_the_world, range(1, PROGRAMS + 1))
    for attempt in SETTLE_S:
        real = await differing(world, kafka_broker.bootstrap, attempt)
        world = {seed: world[seed] for seed in real}
    assert len(real) <= FREELY_LED
    for seed in real:
        answers, expected = until_another_leads(real[seed], world[seed])
        assert answers == expected, f"program {seed}"


def steps(chance: random.Random) -> list[list[Any]]:
    """Commands as the product sends them, on a few keys; names in small letters are not commands."""
    made: list[list[Any]] = []
    for number in range(COMMANDS):
        key, queue = f"k{chance.randrange(4)}", f"l{chance.randrange(3)}"
        kv, value = f"{queue}:kv", str(chance.randrange(5_000))
        fields = [chance.choice("abcdefgh") * chance.choice((1, 1, 5, 9)) for _ in range(chance.randint(1, 4))]
        limits = (7_200, 30, 5, 6)  # as in workers/kv/store.py
        opened = [["EVAL", OPEN, 1, kv, *fields], ["HSET", kv, *chain.from_iterable((name, value) for name in fields)]]
        choices = [
            ["EVAL", _APPEND, 2, queue, key, f"turn {number}", value, -8, 3_600],
            ["EVAL", _ERASE, 3, key, queue, kv, value, 3_600],
            ["EVAL", _PUT, 2, f"{queue}:care", key, value, chance.randrange(5_000), 3_600_000],
            ["EVAL", _REMOVE, 1, chance.choice((key, f"{queue}:care")), value],
            ["EVAL", _TAKE, 1, f"q{number % 5}", 60_000_000, 5_000_000, 25_000_000],
            ["EVAL", ASK_SESSION, 1, chance.choice((kv, kv, kv, key)), *limits],
            ["EVAL", ASK_SHARED, 4, "k0", "k1", "k2", queue, *limits],
            ["together", *opened, ["EXPIRE", kv, 7_200]],
            ["HSET", kv, fields[0], value * chance.choice((1, 10))],
            ["HMGET", kv, *fields],
            ["HDEL", kv, *fields],
            ["LRANGE", queue, -8, -1],
            ["GET", key],
            ["EXISTS", key, queue],
            ["SET", key, value, "EX", 3_600],
            ["SET", key, value, "EX", 3_600, "NX"],
            ["SET", key, value, "PX", 5],
            ["MGET", "k0", "k1", "k2"],
            ["DEL", key, kv],
            ["TTL", chance.choice((queue, key, kv))],
            ["RPUSH", key, value],
            ["EXPIRE", queue, 7_200],
        ]
        made += [chance.choice(choices)]
        made += [["sleep"]] if "PX" in made[-1] else []
        if number % 40 == 0:
            made.append([chance.choice(("well", "well", "readonly", "full"))])
    return [*made, ["well"]]


class Real:
    """redis-server and its faults."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)
        self.client.flushdb()
        (self._policy,) = self.client.config_get("maxmemory-policy").values()
        self.client.config_set("maxmemory-policy", "noeviction")

    def become(self, mode: str) -> None:
        self.client.replicaof(*(("127.0.0.1", "1") if mode == "readonly" else ("NO", "ONE")))
        self.client.config_set("maxmemory", "1" if mode == "full" else "0")

    def restore(self) -> None:
        self.become("well")
        self.client.config_set("maxmemory-policy", self._policy)


class Worlds:
    """The world's Redis and its faults."""

    def __init__(self) -> None:
        self._redis = Redis(SimpleNamespace(now=0.0))  # type: ignore[arg-type]
        self.client = fakeredis.FakeRedis(server=self._redis.server)

    def become(self, mode: str) -> None:
        self._redis.ail(mode if mode != "well" else "", math.inf)


def told(client: "redis.Redis[Any]", step: list[Any]) -> Any:
    """Return the answer or the kind of error; for a quota whether it is overdrawn and for how long."""
    try:
        if step[0] == "together":
            pipeline = client.pipeline()
            for command in step[1:]:
                pipeline.execute_command(*command)
            return pipeline.execute()
        answer = client.execute_command(*step)
    except redis.ResponseError as error:
        return type(error).__name__, str(error).split()[0]
    if step[0] == "TTL":
        return round(answer, -2)
    return answer[0] if step[1] == _TAKE else answer


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_the_worlds_redis_answers_like_redis_server(
    redis_server: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for replaced in ("_run_command", "_name_to_func"):  # by the world's time
        monkeypatch.setattr(BaseFakeSocket, replaced, getattr(BaseFakeSocket, replaced))
    monkeypatch.setattr(ScriptingCommandsMixin, "_get_server_runtime", runtime_of)
    servers = Real(redis_server.url), Worlds()
    try:
        for number, step in enumerate(steps(random.Random(seed))):
            match step:
                case ["sleep"]:
                    time.sleep(0.02)
                case [mode]:
                    for server in servers:
                        server.become(mode)
                case _:
                    real, world = (told(server.client, step) for server in servers)
                    assert world == real, f"step {number}: {step}"
    finally:
        servers[0].restore()
