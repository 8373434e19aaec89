"""The world's Kafka and Redis answer as real ones do (docs/testing.md): the same random programs, step by step."""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import fakeredis
import pytest
import redis

from gateway.access.quotas import _TAKE
from ops.stack.kafka_broker import KafkaBroker
from shared.conversation.history import _APPEND, _ERASE
from shared.conversation.session_value import _REMOVE
from shared.kafka import create_topics
from shared.settings.kafka import KafkaSettings
from tests.integration.support.kafka_program import PARTITIONS, Program, topic_of

ROOT: Final = Path(__file__).parents[3]
SEEDS: Final = range(1, 13)
COMMANDS: Final = 400


def in_the_world(seeds: range) -> list[Any]:
    command = [sys.executable, "-m", "tests.integration.support.kafka_program", *map(str, seeds)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(570)
async def test_the_worlds_kafka_answers_as_apache_kafka_does(kafka_broker: KafkaBroker) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap)
    await create_topics(settings, {topic_of(seed): PARTITIONS for seed in SEEDS})
    expected = await asyncio.to_thread(in_the_world, SEEDS)
    for seed, world in zip(SEEDS, expected, strict=True):
        real = await Program(seed, kafka_broker.bootstrap).run()
        assert json.loads(json.dumps(real)) == world, f"seed {seed}"


def steps(chance: random.Random) -> list[list[Any]]:
    """Commands as the product sends them, on a few keys; times are hours, so that none passes meanwhile."""
    keys = [f"k{number}" for number in range(4)]
    lists = [f"l{number}" for number in range(3)]
    made: list[list[Any]] = []
    for number in range(COMMANDS):
        key, queue, value = chance.choice(keys), chance.choice(lists), str(chance.randrange(5_000))
        made.append(
            chance.choice(
                [
                    ["EVAL", _APPEND, 2, queue, key, f"turn {number}", value, -8, 3_600],
                    ["EVAL", _ERASE, 3, key, queue, f"{queue}:kv", value, 3_600],
                    ["EVAL", _REMOVE, 1, key, value],
                    ["EVAL", _TAKE, 1, f"q{number % 5}", 60_000_000, 5_000_000, 25_000_000],
                    ["LRANGE", queue, -8, -1],
                    ["GET", key],
                    ["EXISTS", key, queue],
                    ["SET", key, value, "EX", 3_600],
                    ["SET", key, value, "NX"],
                    ["MGET", *keys],
                    ["DEL", key],
                    ["TTL", queue],
                    ["RPUSH", key, value],
                    ["EXPIRE", queue, 7_200],
                ]
            )
        )
    return made


def told(client: "redis.Redis[Any]", step: list[Any]) -> Any:
    """Return the answer, and of a quota's whether it is overdrawn: for how long, the clocks say."""
    try:
        answer = client.execute_command(*step)
        return answer[0] if step[1] == _TAKE else answer
    except redis.ResponseError as error:
        return str(error).split()[0]


@pytest.mark.parametrize("seed", range(5))
def test_the_worlds_redis_answers_as_redis_server_does(redis_server: Any, seed: int) -> None:
    real, fake = redis.Redis.from_url(f"{redis_server.url}"), fakeredis.FakeRedis(version=(7,))
    real.flushdb()
    for number, step in enumerate(steps(random.Random(seed))):
        assert told(fake, step) == told(real, step), f"step {number}: {step}"
