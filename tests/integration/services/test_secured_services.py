"""The rights listed in docs/security.md suffice, and no others are granted, on a Kafka and a Redis that require
authentication.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from io import StringIO
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest
import pytest_asyncio
from redis import Redis
from redis.exceptions import NoPermissionError
from rich.console import Console

from ops.lifecycle.learn.copies import read_forgotten
from ops.operate.recording.file import read_recording
from ops.operate.recording.options import RecordOptions
from ops.operate.recording.record import record
from ops.stack.processes import free_port
from shared.conversation.history import History
from shared.errors import BrokerUnavailable
from shared.kafka import Outgoing, Producer, create_topics, describe_topics, group_lag, scan, why_unreachable
from shared.kafka.broker.administration import committed_offsets
from shared.process.clock import wire_unix_ms
from shared.records.log_readers import erasure_records
from shared.redis.client import blocking_redis
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS
from tests.integration.support.kv_stores import TENANT
from tests.integration.support.redis_use import use_as_gateway, use_as_worker
from tests.support.certificates import Authority
from tests.support.secured import DOCUMENT, PARTITIONS, Secured, secured_services
from tests.support.system import Service, System, eventually
from tests.support.wire import Client

QUESTION: Final = "How do I return an item that I do not like?"
# A client's credentials, and the test's own.
_NOT_COUNTED: Final = {"auth", "hello", "acl", "config", "info", "client", "script|flush"}


@pytest_asyncio.fixture(scope="module")
async def secured(unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    async with secured_services(tmp_path_factory.mktemp("secured"), unique("s") + ".") as services:
        yield services


# --- everything works with the documented rights


async def test_gateway_and_worker_work_with_the_documented_rights(secured: Secured) -> None:
    """The gateway starts with a wrong password, reports it in one line, and connects once its password file
    is right.
    """
    system = secured.system()
    common = {"kafka__reply_topics": "chat.replies,chat.replies.*,elsewhere", "worker__fake_decode_ms_per_step": 5}
    file = secured.password_file("gateway")
    file.write_text("a wrong one")
    try:
        worker = system.worker(**secured.environment("worker"), **common)
        gateway = system.gateway(**secured.environment("gateway"), **common, quotas__tenant_per_minute=1_000)
        why = await eventually(lambda: why_kept_out(gateway), limit_s=60)
        assert "rejects user 'gateway' with this password (SCRAM-SHA-512): check REPLYLINE_KAFKA__USERNAME" in why
        file.write_text(secured.passwords["gateway"])
        await worker.ready()
        await gateway.ready()
        assert len([line for line in gateway.logged("unavailable") if "kafka" in line["what"]]) == 1
        await converse(gateway)
        await serve_others(system)
        await eventually(system.committed)
        async with system.reading("chat.replies") as replies:
            await replies.until(lambda record: msgpack.unpackb(record.value).get("origin") == "gateway")
        for topic, kind in (("chat.cancels", "chat.cancel"), ("chat.erasures", "chat.erase")):
            async with system.reading(topic) as tap:  # each is sent along with the client's events
                await tap.until(lambda record: msgpack.unpackb(record.value)["type"] == kind)  # noqa: B023
        await eventually(lambda: gateway.logged("worker_found"))
    finally:
        file.write_text(secured.passwords["gateway"])
        system.stop()
    for service in (gateway, worker):
        said = service.log.read_text()
        assert not [password for password in secured.passwords.values() if password in said]
    unauthorized = [line for line in worker.logged() + gateway.logged() if "ACLs" in str(line)]
    assert [line["event"] for line in unauthorized] == ["reply_undeliverable"]
    with secured.redis.admin() as admin:
        assert denied(admin) == []


async def why_kept_out(service: Service) -> str | None:
    page = await service.get("/ready")
    if page is None or b"rejects user" not in page.body:
        return None
    why: str = json.loads(page.body)["missing"]["kafka"]
    return why


async def converse(gateway: Service) -> None:
    """Ask, cancel, erase."""
    async with Client.connect(gateway.ws) as client:
        for _ in range(2):
            answer = await client.ask(QUESTION, max_output_tokens=5)
            assert answer.outcome == ("incomplete", "max_output_tokens", "model")
        name = await client.text_of(event := await client.create(QUESTION, max_output_tokens=2_000))
        await client.send({"type": "response.cancel", "response_id": name})
        assert (await client.answer(event)).response["status"] == "cancelled"
        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")


async def serve_others(system: System) -> None:
    """Serve another service's requests: one through the inbox, an invalid one in each topic, and one whose answer would
    go to a topic that the worker may not write; nothing waits for that one.
    """
    asks = {"type": "chat.request", "session_id": "s", "input": QUESTION, "max_output_tokens": 2}
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        refused = asks | {"id": "refused", "reply_topic": system.topic("elsewhere")}
        await system.produce("chat.requests.short", msgpack.packb(refused), partition=0)
        await system.produce("chat.requests.short", b"\xc1", partition=0)
        await system.produce("chat.requests", b"\xc1", partition=0)
        await system.produce("chat.requests", msgpack.packb(asks | {"id": "routed"}), partition=0)
        for topic in ("chat.requests", "chat.requests.short"):
            origin = f"{system.topic(topic)}/0/".encode()
            await letters.until(lambda record, origin=origin: origin in dict(record.headers)["dead-letter-origin"])
        await replies.until(lambda record: msgpack.unpackb(record.value)["type"] == "chat.done")


async def test_redis_users_have_exactly_the_commands_they_use(secured: Secured, unique: Callable[[str], str]) -> None:
    """No used command is denied, none is granted that no code of that process calls, and no other process's key is
    accessible.
    """
    session = SessionKey(TENANT, unique("s"))
    uses: dict[str, Callable[[], Awaitable[None]]] = {
        "gateway": lambda: use_as_gateway(secured, session),
        "worker": lambda: use_as_worker(secured, session),
    }
    for user, use in uses.items():
        with secured.redis.admin() as admin:
            admin.script_flush()
            admin.execute_command("CONFIG RESETSTAT")
            await use()
            assert denied(admin) == []
            assert used(admin) == granted(user) - _NOT_COUNTED
    for user, key in (("gateway", session.redis_key("kv")), ("gateway", "other"), ("worker", "replyline:quota:1")):
        client = blocking_redis(secured.redis_settings(user), timeout_ms=2_000)
        with pytest.raises(NoPermissionError):
            client.get(key)
        client.close()


def denied(admin: Redis) -> list[str]:
    """Return the denied requests of authenticated users, apart from redis-py's introduction."""
    log: Any = admin.acl_log()
    admin.acl_log_reset()
    return [entry["object"] for entry in log if entry["reason"] != "auth" and entry["object"] != "client|setinfo"]


def used(admin: Redis) -> set[str]:
    commands: Any = admin.info("commandstats")
    names = {name.removeprefix("cmdstat_") for name in commands}
    return {name for name in names if not {name, name.partition("|")[0]} & _NOT_COUNTED}


def granted(user: str) -> set[str]:
    """Return the rights that the documents grant."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"ACL SETUSER {user} ")]
    assert len(lines) == 1
    return {word[1:] for word in lines[0].split() if word.startswith("+")}


# --- and nothing else


async def test_the_gateway_cannot_read_requests(secured: Secured) -> None:
    kafka = secured.kafka("gateway")
    with pytest.raises(
        BrokerUnavailable, match=r"do not allow user 'gateway' to read the topic .*chat\.requests\.short"
    ):
        [kept async for kept in scan(kafka, kafka.topics.requests("short"))]


async def test_the_worker_cannot_read_answers_or_write_requests(secured: Secured) -> None:
    kafka = secured.kafka("worker")
    with pytest.raises(BrokerUnavailable, match=r"do not allow user 'worker' to read the topic .*chat\.replies"):
        [kept async for kept in scan(kafka, kafka.topics.replies)]
    producer = Producer(kafka, client_id="test")
    await producer.start()
    for topic in (kafka.topics.requests("short"), kafka.topics.inbox):
        with pytest.raises(BrokerUnavailable, match=rf"do not allow user 'worker' to write to the topic {topic}"):
            await producer.publish(Outgoing(topic, b"forged", key=b"demo/s"))
        await eventually(lambda: producer.connected)
    await producer.stop()


async def test_the_recorder_reads_passing_requests_and_changes_nothing(secured: Secured, tmp_path: Path) -> None:
    """With its own rights it records requests, and removes the words of a conversation erased at the same time; it may
    not read or join any group.
    """
    kafka, system, path = secured.kafka("recorder"), secured.system(), tmp_path / "a.replay"
    told = StringIO()
    options = RecordOptions(path=path, minutes=1, requests=2)
    settings = Settings.model_validate({"kafka": kafka, "worker": {"engine": "fake"}})
    task = asyncio.create_task(record(options, settings, asyncio.Event(), Console(file=told, width=500)))
    await eventually(lambda: task.done() or "recording" in told.getvalue())
    asks = {"type": "chat.request", "id": "recorded", "session_id": "s", "input": QUESTION, "max_output_tokens": 2}
    asks |= {"tenant": TENANT, "consent": {"training": True}}
    await system.produce("chat.requests.short", msgpack.packb(asks), partition=0)
    partial = path.with_name(path.name + ".partial")
    await eventually(lambda: [each.text for each in read_recording(partial).asked] == [QUESTION])
    await publish_erasure(secured.kafka("gateway"), SessionKey(TENANT, "s"))
    await eventually(lambda: [each.text for each in read_recording(partial).asked] == [None])
    await system.produce("chat.requests.short", msgpack.packb(asks | {"session_id": "another"}), partition=0)
    await asyncio.wait_for(task, 30)
    recording = read_recording(path)
    assert [each.text for each in recording.asked] == [None, QUESTION]
    with pytest.raises(BrokerUnavailable, match=r"cannot read what .*workers has committed"):
        await committed_offsets(kafka, kafka.workers_group, [(kafka.topics.requests("short"), 0)])


async def publish_erasure(kafka: KafkaSettings, session: SessionKey) -> None:
    producer = Producer(kafka, client_id="test")
    await producer.start()
    for each in erasure_records(kafka.topics, session, int(wire_unix_ms())):
        await producer.publish(each)
    await producer.stop()


async def test_learn_reads_erasures_of_any_age_as_the_operator(secured: Secured) -> None:
    session, kafka = SessionKey(TENANT, "erased"), secured.operator()
    await publish_erasure(secured.kafka("gateway"), session)
    assert session.digest in await read_forgotten(kafka)


async def test_the_operator_sees_waiting_requests(secured: Secured) -> None:
    """With the calls of `replyline diagnose`."""
    kafka = secured.operator()
    topics = [kafka.topics.requests(bucket) for bucket in BUCKETS]
    assert (await group_lag(kafka, kafka.workers_group, topics)).keys() == set(topics)


@pytest.mark.parametrize("user", ["gateway", "worker", "recorder"])
async def test_no_process_may_create_topics(secured: Secured, user: str) -> None:
    kafka = secured.kafka(user)
    topic = f"{secured.prefix}chat.replies.new"
    with pytest.raises(
        BrokerUnavailable, match=rf"do not allow user '{user}' to create the topic {topic}: see replyline"
    ):
        await create_topics(kafka, {topic: PARTITIONS})


# --- a refused client learns why


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"password": "wrong"}, ["user 'gateway'", "SCRAM-SHA-512", "REPLYLINE_KAFKA__PASSWORD_FILE"]),
        ({"username": "nobody"}, ["user 'nobody'", "check REPLYLINE_KAFKA__USERNAME"]),
        (
            {"sasl_mechanism": "SCRAM-SHA-256"},
            ["does not support SCRAM-SHA-256", "check REPLYLINE_KAFKA__SASL_MECHANISM"],
        ),
        ({"tls_ca": None}, ["certificate that is not trusted", "check REPLYLINE_KAFKA__TLS_CA"]),
        ({"host": "localhost"}, ["certificate that is not trusted", "localhost", "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"]),
        (
            {"security": "ssl", "username": None, "password_file": None},
            ["closes the connection", "check REPLYLINE_KAFKA__SECURITY=ssl"],
        ),
        (
            {"security": "sasl_plaintext", "tls_ca": None},
            ["closes the connection", "check REPLYLINE_KAFKA__SECURITY=sasl_plaintext"],
        ),
        ({"listener": "plaintext"}, ["closes the TLS handshake", "check REPLYLINE_KAFKA__SECURITY=sasl_ssl"]),
        ({"listener": "plaintext", "security": "sasl_plaintext", "tls_ca": None}, ["does not expect a login"]),
        (
            {"listener": "tls", "security": "ssl", "username": None, "password_file": None},
            ["rejects this process's certificate", "check REPLYLINE_KAFKA__TLS_CERT"],
        ),
    ],
)
async def test_a_brokers_refusal_is_one_line_with_what_to_check(
    secured: Secured, changed: dict[str, Any], words: list[str]
) -> None:
    ports = {"sasl": secured.sasl_port, "plaintext": secured.broker.port, "tls": secured.tls_port}
    changed = {"host": "127.0.0.1", "listener": "sasl"} | changed
    address = f"{changed.pop('host')}:{ports[changed.pop('listener')]}"
    with pytest.raises(BrokerUnavailable) as caught:
        await describe_topics(secured.kafka("gateway", bootstrap_servers=address, **changed))
    told = str(caught.value)
    assert all(word in told for word in [address, *words]), told
    assert "no Kafka" not in told
    assert "\n" not in told


async def test_another_authority_is_not_trusted(secured: Secured) -> None:
    another = Authority(secured.folder, "another").ca
    with pytest.raises(BrokerUnavailable, match=r"certificate that is not trusted .*check REPLYLINE_KAFKA__TLS_CA"):
        await describe_topics(secured.kafka("gateway", tls_ca=another))
    assert "check REPLYLINE_REDIS__TLS_CA" in await why_redis_is_missing(
        secured.redis_settings("gateway", tls_ca=another)
    )


async def test_redis_refusals_name_what_to_check_and_no_password(secured: Secured) -> None:
    url = f"rediss://gateway:wr0ng@127.0.0.1:{secured.redis.port}/0"
    told = await why_redis_is_missing(secured.redis_settings("gateway", url=url, password_file=None))
    assert f"no Redis at rediss://gateway:***@127.0.0.1:{secured.redis.port}/0: " in told
    assert "check the user in REPLYLINE_REDIS__URL, and REPLYLINE_REDIS__PASSWORD_FILE" in told


async def why_redis_is_missing(settings: RedisSettings) -> str:
    history = History(settings)
    awaiting = asyncio.create_task(history.await_first_answer())
    why = await eventually(lambda: (told := history.missing()) and "no answer yet" not in told and told)
    awaiting.cancel()
    await asyncio.gather(awaiting, return_exceptions=True)
    await history.close()
    return str(why)


async def test_a_silent_server_is_reported_and_an_open_one_is_not(secured: Secured) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    why = await why_unreachable(secured.kafka("gateway", bootstrap_servers=nobody))
    assert why is not None
    assert why.startswith(f"no Kafka at {nobody}: ")
    both = f"{nobody},127.0.0.1:{secured.sasl_port}"
    assert await why_unreachable(secured.kafka("gateway", bootstrap_servers=both)) is None


async def test_the_doctor_reports_refusals_without_a_password(secured: Secured) -> None:
    """Run as typed, with a wrong password for each service and with the right ones."""
    wrong = secured.password_file("nobody")
    wrong.write_text("wr0ng")
    right = secured.environment("gateway")
    told = []
    for files in ({}, {"kafka__password_file": wrong, "redis__password_file": wrong}):
        env = {f"REPLYLINE_{name}".upper(): str(value) for name, value in (right | files).items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops.cli", "doctor"),
            env={**os.environ, "COLUMNS": "1000", **env},
            stdout=asyncio.subprocess.PIPE,
        )
        told.append((await process.communicate())[0].decode())
    refusals = ("rejects user 'gateway'", "check the user in REPLYLINE_REDIS__URL, and REPLYLINE_REDIS__PASSWORD_FILE")
    assert [[refusal in out for refusal in refusals] for out in told] == [[False, False], [True, True]]
    assert "wr0ng" not in told[1]


async def test_commands_end_with_one_line_and_status_1(secured: Secured) -> None:
    settings = secured.environment("worker") | {"kafka__password_file": secured.password_file("gateway")}
    env = {f"REPLYLINE_{name}".upper(): str(value) for name, value in settings.items()}

    async def typed(*command: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ops.cli", *command, env={**os.environ, **env}, stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()
        return process.returncode, err.decode()

    for status, told in await asyncio.gather(typed("topics", "describe"), typed("dlq", "list")):
        assert status == 1
        (line,) = told.splitlines()
        assert line.startswith(f"replyline: Kafka at 127.0.0.1:{secured.sasl_port} rejects user 'worker'")
