"""The registry on real Kafka: two concurrent authors, and a version from its key pair to its customers and back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest_asyncio
from typer.testing import CliRunner, Result

from ops import cli
from ops.lifecycle.versions import moves
from ops.lifecycle.versions.writer import MoveLost, RegistryWriter, read_registry
from ops.stack.kafka_broker import KafkaBroker
from shared.kafka import Outgoing, Producer, create_topics
from shared.process.clock import wire_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.versions.log import VersionsLog
from shared.versions.registry import Added, Checked
from shared.versions.version import Version
from shared.wire.codec import msgpack_encode
from shared.wire.reports import WorkerReport
from shared.wire.topics import BROADCAST_PARTITION
from tests.support.builders.versions import write_folder

QUESTIONS = "".join(
    f'{{"id": "greets-{number}", "language": "en", "kind": "small_talk", "split": "dev", "question": "{text}"}}\n'
    for number, text in enumerate("hello " * times for times in range(1, 61))
)


@pytest_asyncio.fixture
async def kafka(kafka_broker: KafkaBroker, topic_prefix: str) -> KafkaSettings:
    """A separate registry."""
    settings = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap, topic_prefix=topic_prefix)
    await create_topics(settings, settings.topics.all(request_partitions=1, reply_partitions=1))
    return settings


async def test_one_of_two_concurrent_authors_wins_and_the_other_learns_who(kafka: KafkaSettings) -> None:
    async with RegistryWriter.opened(kafka, "ann") as ann, RegistryWriter.opened(kafka, "bob") as bob:
        for epoch in range(1, 6):
            rungs = zip((ann, bob), ("light", "faq"), strict=True)
            tries = [writer.move(moves.hold(writer.registry, rung, 0), f"to {rung}") for writer, rung in rungs]  # type: ignore[arg-type]
            first, second = await asyncio.gather(*tries, return_exceptions=True)
            [lost] = [each for each in (first, second) if isinstance(each, MoveLost)]
            winner = "bob" if lost is first else "ann"
            assert f"epoch {epoch} was made by {winner}" in str(lost)
            assert "replyline versions log" in str(lost)
            await asyncio.gather(ann.log.catch_up(), bob.log.catch_up())
            assert ann.registry == bob.registry == await read_registry(kafka)
            assert ann.registry.moves[-1].author == winner


@asynccontextmanager
async def worker(kafka: KafkaSettings, name: str, *, loads: bool = True) -> AsyncIterator[None]:
    """Report like a worker of the champion's lane, loading what the registry says."""
    log, producer = VersionsLog.of(kafka, client_id=name), Producer(kafka, client_id=name)
    await producer.start()

    async def report() -> None:
        while True:
            state = log.registry.state
            wanted = (state.aliases.get("champion", "0" * 12), *(state.loading.values() if loads else ()))
            told = WorkerReport(worker_id=name, unix_ms=0, buckets=("short",), slots=1, revisions=wanted)
            record = partial(Outgoing, key=name.encode(), partition=BROADCAST_PARTITION)
            await producer.publish(record(kafka.topics.workers, msgpack_encode(told)))
            await asyncio.sleep(0.3)

    tasks = [asyncio.create_task(log.watch()), asyncio.create_task(report())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.stop()
        await producer.stop()


async def test_a_version_is_signed_added_checked_used_and_rolled_back(kafka: KafkaSettings, tmp_path: Path) -> None:
    """A version that was not checked, or that a worker does not load, gets no traffic, and one line says what to type.
    A manipulated store fails the check.
    """
    (tmp_path / "whole.jsonl").write_text(QUESTIONS)
    (tmp_path / "one.jsonl").write_text(QUESTIONS.splitlines()[0])
    env = {
        "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "REPLYLINE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "REPLYLINE_MODEL__VERSIONS_DIR": str(tmp_path / "store"),
        "REPLYLINE_MODEL__QUESTIONS": str(tmp_path / "whole.jsonl"),
        "REPLYLINE_MODEL__TRUSTED_KEYS": str(tmp_path / "trusted"),
        "REPLYLINE_WORKER__ENGINE": "fake",
    }

    async def versions(*arguments: str, fails: str = "") -> Result:
        """Type a command; a failing one says so in one line with these words."""
        done = await asyncio.to_thread(CliRunner().invoke, cli.app, ["versions", *arguments], env=env)
        told = done.stderr.rstrip() or str(done.exception or "")
        assert (done.exit_code != 0, "\n" in told, fails in told) == (bool(fails), False, True), (done, told)
        return done

    (tmp_path / "trusted").mkdir()
    await versions("keygen", str(tmp_path / "private"), str(tmp_path / "trusted" / "shop.pem"))
    ids = []
    for name in ("one", "two", "three"):
        write_folder(tmp_path / name)
        await versions("add", str(tmp_path / name), fails="unsigned")
        signed = ("--key", str(tmp_path / "private"))
        ids.append((await versions("add", str(tmp_path / name), "--name", name, *signed)).stdout.split(":")[0])
    await versions("use", "one", fails=f"replyline versions check {ids[0]}")
    part = await versions("check", "one", "--questions", str(tmp_path / "one.jsonl"))
    assert "has passed 1 of the questions, not the whole set" in part.stdout
    await versions("use", "one", fails="not the whole set; run: replyline versions check")
    checked = await versions("check", ids[0][:8])
    assert "golden: 1\nsmall_talk_right: 1\n" in checked.stdout
    async with RegistryWriter.opened(kafka, None) as writer:
        await writer.write(Checked(revision=ids[1], author="ann", unix_ms=0))
    (tmp_path / "store" / ids[2] / "tokenizer.json").unlink()
    await versions("check", "three", fails="truncated")
    await versions("use", "three", fails="failed its check")

    async with worker(kafka, "quick"):
        assert "1 of 1 worker" in (await versions("use", "one", "--reason", "first")).stdout
        async with worker(kafka, "stuck", loads=False):
            await versions("use", "two", "--wait-s", "4", fails="stuck")
        await versions("use", "two", "--reason", "better", "--author", "ann")
    assert dict((await read_registry(kafka)).state.aliases) == {"champion": ids[1], "previous": ids[0]}
    async with worker(kafka, "quick"):
        done = await versions("rollback", "--reason", "worse")
    assert f"{ids[0]} is loaded and served at once by 1 of 1 worker of champion: quick\n" in done.stdout
    assert dict((await read_registry(kafka)).state.aliases) == {"champion": ids[0], "previous": ids[1]}
    await versions("rung", "light")
    log = (await versions("log")).stdout.splitlines()
    assert [line.split()[0] for line in log] == ["epoch", *"12345678"]
    assert "ann" in log[6]
    assert f"champion {ids[0][:12]} → {ids[1][:12]}" in log[6]
    assert "workers=1" in log[6]
    await versions("rollback", fails="--again")
    await versions("rollback", "--again")
    await versions("close", "--lane", "light", fails="has no version")
    await versions("rung", "auto", "--author", "rollout r", fails="give your name")
    await versions("unload")
    assert dict((await read_registry(kafka)).state.aliases) == {"champion": ids[1], "previous": ids[0]}


async def test_the_ladder_is_held_beside_a_waiting_move_by_one_record(kafka: KafkaSettings) -> None:
    env = {
        "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "REPLYLINE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
    }
    version = Version(name="shop", model="m", model_revision="r", manifest_sha256="a" * 64)
    async with RegistryWriter.opened(kafka, "ann") as ann:
        await ann.write(Added(version=version, author="ann"))
        await ann.write(Checked(revision=version.id, author="ann", unix_ms=0))
        at_unix_ms = round(wire_unix_ms()) + 600_000
        await ann.move(moves.use(ann.registry, "shop", "champion", 0, at_unix_ms), "at night")
    told = (("faq", "epoch 2: rung auto → faq\n"), ("faq", "nothing changes"), ("auto", "epoch 3: rung faq → auto\n"))
    for rung, says in told:
        done = await asyncio.to_thread(CliRunner().invoke, cli.app, ["versions", "rung", rung], env=env)
        assert says in done.stdout
    registry = await read_registry(kafka)
    assert [move.epoch for move in registry.moves] == [1, 2, 3]
    waiting = registry.waiting(wire_unix_ms())
    assert waiting is not None
    assert (waiting.state.aliases, waiting.state.effective_unix_ms) == ({"champion": version.id}, at_unix_ms)
    assert [move.reason for move in registry.moves[1:]] == ["by hand; still waits: at night (by ann)"] * 2
