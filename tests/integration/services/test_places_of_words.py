"""Each place that stores a customer's words or digest has a row in docs/security.md and is tested here: the product
writes the words, the conversation is erased, and a search finds nothing.
"""

import gzip
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from msgspec.structs import replace
from redis import Redis

from ops.lifecycle.learn import commands
from ops.lifecycle.learn.copies import export, remove_forgotten
from ops.lifecycle.learn.entries import add_lesson
from ops.lifecycle.learn.lessons import Lesson
from ops.operate.recording.recorder import Recorder
from shared.conversation.history import History
from shared.conversation.journal import JOURNAL_KEYS, Journal, Journalled
from shared.conversation.session_value import SessionValue
from shared.conversation.turn import Turn
from shared.faq.entries import PACKAGED_PATH
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.settings.redis import RedisSettings
from shared.wire.messages import ChatRequest, Consent, SessionDelete
from shared.wire.session_key import SessionKey, SessionPart
from shared.wire.topics import TopicNames
from tests.support.fakes.gateways import Edge, done, quiet
from tests.support.fakes.kv_workers import TALK, Workers
from tests.support.samples.recordings import written
from tests.support.samples.request_defaults import DEFAULTS
from tests.unit.gateway.serving.test_gateway_erasure import START, asks, name_of
from tests.unit.ops.operate.recording.test_recorder import record
from tests.unit.workers.kv.test_disk import files, tier
from workers.kv.host import ENTRY_BYTES

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "security.md").read_text()
WORDS: Final = "my parrot is called Zebulon"
DAY_MS: Final = 86_400_000
TOPICS: Final = TopicNames()


@dataclass
class Bench:
    """One customer's conversation, and the places that it may be stored in."""

    folder: Path
    redis: RedisSettings
    session: SessionKey
    patch: pytest.MonkeyPatch

    def forgotten(self) -> dict[str, int]:
        return {self.session.digest: int(wire_unix_ms())}

    def faq(self) -> Path:
        folder = self.folder / "faq"
        folder.mkdir()
        shutil.copy(PACKAGED_PATH, folder)
        lesson = Lesson(
            entry="learned-1",
            language="en",
            question=f"What if {WORDS}?",
            answer="Nice.",
            people=(self.session.digest,),
            by="ann",
            confirmed_unix_ms=int(wire_unix_ms()),
        )
        add_lesson(folder, lesson)
        for n in range(9):
            people = (SessionKey("demo", f"other-{n}").digest,)
            add_lesson(folder, replace(lesson, entry=f"l-{n}", question=f"{n} {n}?", people=people))
        return folder

    def holds(self, *folders: Path) -> bool:
        texts = [file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()]
        return any(each.encode() in text for text in texts for each in (WORDS, self.session.digest))


Place = Callable[[Bench], Awaitable[None]]


def of_redis(*keys: SessionPart) -> Place:
    async def walk(bench: Bench) -> None:
        history, admin = History(bench.redis, kv=bench.redis), Redis.from_url(bench.redis.url)
        for key in keys:
            admin.set(bench.session.redis_key(key), WORDS)
        await history.delete(bench.session, generation=5)
        left = {key: admin.get(key) for key in admin.scan_iter(match=f"*{bench.session.session_id}*")}
        assert left == {bench.session.redis_key("erased").encode(): b"5"}
        await history.close()

    return walk


async def the_withdrawn_consent(bench: Bench) -> None:
    """The mark has a time and nothing else."""
    values, admin = SessionValue(bench.redis, "bad_answers"), Redis.from_url(bench.redis.url)
    await values.withdraw(bench.session, 7, asked=True)
    assert admin.get(bench.session.redis_key("withdrawn")) == b"7"
    assert 0 < admin.pttl(bench.session.redis_key("withdrawn")) <= DAY_MS
    await values.close()


async def the_quotas(_: Bench) -> None:
    """Quota names are digests, and each expires."""
    code = (ROOT / "gateway" / "access" / "quotas.py").read_text()
    assert "replyline:quota:{{{_digest(tenant)}}}:{_digest(name)}" in code
    assert "'PX'" in code


async def the_taken_numbers(bench: Bench) -> None:
    """They are numbers and random names."""
    history, admin = History(bench.redis), Redis.from_url(bench.redis.url)
    turn = Turn(request_id="r", user=WORDS, output_text="Hello.", source="model")
    assert await history.take(
        bench.session, turn, Journalled(session_id=bench.session.session_id, turn=turn, epoch="e", sequence=7)
    )
    await history.delete(bench.session, generation=5)
    assert admin.hgetall(bench.session.redis_key("taken")) == {b"e": b"7"}
    assert 0 < admin.pttl(bench.session.redis_key("taken")) <= 31 * DAY_MS
    await history.close()


async def the_journal(bench: Bench) -> None:
    """What stays is the erasure, for the centre."""
    history, journal = History(bench.redis, journal_of=bench.session.tenant), Journal(bench.redis)
    Redis.from_url(bench.redis.url).delete(*JOURNAL_KEYS)
    turn = Turn(request_id="r", user=WORDS, output_text="Hello.", source="model")
    assert await history.append(bench.session, turn, journal=True)
    assert WORDS.encode() in b"".join(await journal.first(1))
    await history.delete(bench.session, generation=5)
    (left,) = await journal.first(1)
    assert b'"erased":5' in left
    assert WORDS.encode() not in left
    await journal.drop([left])
    assert await journal.size() == (0, 0)
    await journal.close()
    await history.close()


async def a_workers_memory(_: Bench) -> None:
    workers = Workers()
    worker = workers.start()
    await worker.turn(TALK)
    worker.cache.erase(SessionKey("t", "a"), workers.redis.erase(SessionKey("t", "a")))
    assert workers.redis.of() == {}
    assert (await worker.restored([*TALK, 30])).computed <= 8, "the shop's own words"
    workers.close()


async def a_workers_disk(bench: Bench) -> None:
    workers = Workers()
    worker = workers.start(host_bytes=ENTRY_BYTES, disk=tier(bench.folder))
    await worker.turn(TALK, session="s1")
    before = files(bench.folder)
    worker.cache.erase(SessionKey("t", "s1"), 2**40)
    assert 0 < len(files(bench.folder)) < len(before)
    workers.close()


async def a_gateway(_: Bench) -> None:
    edge = Edge()
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([done(name_of("e"), WORDS)])
    await client.say(SessionDelete())
    await quiet()
    assert edge.gateway.inflight.find(SessionKey("demo", "s"), "e") is None
    assert len(edge.serving.people.answers) == 0


async def the_faq(bench: Bench) -> None:
    faq = bench.faq()
    assert bench.holds(faq)
    remove_forgotten(faq, (), bench.forgotten())
    assert not bench.holds(faq)
    export(faq, bench.folder / "out")
    names = {file.name for file in faq.iterdir() if file.name not in {PACKAGED_PATH.name, ".lessons.lock"}}
    assert names <= set(re.findall(r"`([\w.]+)`", row_of("the FAQ's folder"))), "a file without a row"


async def an_export(bench: Bench) -> None:
    faq, out = bench.faq(), bench.folder / "out"
    export(faq, out)
    assert bench.holds(out)
    remove_forgotten(faq, (), bench.forgotten())
    assert WORDS not in "".join(file.read_text() for file in out.iterdir())
    assert {file.name for file in out.iterdir()} <= set(re.findall(r"`([\w.]+)`", row_of("an export")))


async def adapters(bench: Bench) -> None:
    """They stay, and are named."""

    async def registry(_: object) -> Any:
        return type("R", (), {"versions": {"v1": added}})

    version = type("V", (), {"name": "adapter", "trained_on": (bench.session.digest,)})
    added = type("A", (), {"version": version})
    bench.patch.setattr(commands, "read_registry", registry)
    assert await commands._versions(Settings(), bench.forgotten()) == ["version v1 (adapter) was trained on it"]


async def a_recording(bench: Bench) -> None:
    recorder = Recorder(defaults=DEFAULTS, count=len, key=b"k" * 32)
    tenant, name = bench.session.tenant, bench.session.session_id
    asked = ChatRequest(id="r", tenant=tenant, session_id=name, input=WORDS, consent=Consent(training=True))
    entry = recorder.asked(record(asked, wire_unix_ms()), "short", 0)
    assert entry is not None
    path = bench.folder / "a.replay"
    written(path, [entry])
    remove_forgotten(None, [path], {bench.session.digest: 2**42})
    data = gzip.decompress(path.read_bytes())
    assert WORDS.encode() not in data
    assert bench.session.digest.encode() not in data


def of_kafka(*topics: str, kept_ms: int | None) -> Place:
    """Kafka erases no record early: the retention in the row is the topic's own."""

    async def walk(_: Bench) -> None:
        for topic in topics:
            config = TOPICS.config(topic)
            if kept_ms is None:
                assert config["cleanup.policy"] == "compact"
            else:
                assert config.get("retention.ms") == str(kept_ms), topic

    return walk


def shown_by(test: str) -> Place:
    """Another test covers it."""

    async def walk(_: Bench) -> None:
        path, name = test.split("::")
        assert re.search(rf"def {name}\(", (ROOT / "tests" / path).read_text())

    return walk


PLACES: Final[dict[str, Place]] = {
    "Redis: `turns`, `kv`": of_redis("turns", "kv"),
    "Redis: `handoff`, `running`, `place`": of_redis("handoff", "running", "place"),
    "Redis: `bad_answers`": of_redis("bad_answers"),
    "Redis: `withdrawn`": the_withdrawn_consent,
    "Redis: `quota`": the_quotas,
    "Redis: `taken`": the_taken_numbers,
    "an edge's Redis: `journal`": the_journal,
    "a worker": a_workers_memory,
    "a worker's disk": a_workers_disk,
    "a gateway": a_gateway,
    "the customer's browser": shown_by(
        "browser/test_widget_answers.py::test_a_new_chat_erases_the_old_one_at_the_server_and_starts_an_empty_session"
    ),
    "the FAQ's folder: `learned.json`, `lessons.jsonl`, `exports.txt`": the_faq,
    "an export: `train.jsonl`, `judge.jsonl`, `people.txt`": an_export,
    "adapters, versions": adapters,
    "a [recording](measured.md#recording-traffic)": a_recording,
    "Kafka: `chat.requests*`, `chat.replies*`, `chat.posts`": of_kafka(
        TOPICS.inbox, TOPICS.requests("short"), TOPICS.replies, TOPICS.external_replies, TOPICS.posts, kept_ms=900_000
    ),
    "Kafka: `chat.dead-letters`": of_kafka(TOPICS.dead_letters, kept_ms=7 * DAY_MS),
    "Kafka: `chat.handoffs`": of_kafka(TOPICS.handoffs, kept_ms=7 * DAY_MS),
    "Kafka: `chat.people`": of_kafka(TOPICS.people, kept_ms=DAY_MS),
    "Kafka: `chat.cancels`": of_kafka(TOPICS.cancels, kept_ms=7 * DAY_MS),
    "Kafka: `chat.erasures`": of_kafka(TOPICS.erasures, kept_ms=32 * DAY_MS),
    "Kafka: `chat.observations`": of_kafka(TOPICS.observations, kept_ms=14 * DAY_MS),
    "Kafka: `chat.forgotten`": of_kafka(TOPICS.forgotten, kept_ms=None),
    "logs, traces": shown_by("integration/doors/test_privacy.py::test_no_personal_data_appears_where_operators_look"),
}
NOTHING_OF_A_CUSTOMER: Final = {TOPICS.workers, TOPICS.demand, TOPICS.scaling}


def rows() -> list[str]:
    table = PAGE[PAGE.index("**How long it stays**") :].split("\n\n")[1]
    return table.splitlines()[2:]


def row_of(place: str) -> str:
    return next(row for row in rows() if row.startswith(f"| {place}"))


@pytest_asyncio.fixture
async def bench(redis_server: Any, unique: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    redis = RedisSettings(url=redis_server.url, timeout_ms=10_000)
    return Bench(tmp_path, redis, SessionKey("demo", unique("session")), monkeypatch)


def test_each_place_has_a_row_and_each_row_is_tested() -> None:
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows()] == list(PLACES)


@pytest.mark.parametrize("place", PLACES)
async def test_after_an_erasure_only_the_remains_named_in_the_row_are_found(bench: Bench, place: str) -> None:
    await PLACES[place](bench)


@pytest.mark.parametrize("topic", [*TOPICS.all(request_partitions=1, reply_partitions=1)])
def test_each_topic_has_a_row_or_contains_no_customer_data(topic: str) -> None:
    named = re.findall(r"`(chat\.[\w.-]+)(\*?)`", "\n".join(rows()))
    covered = any(topic == name or (star and topic.startswith(name)) for name, star in named)
    assert covered != (topic in NOTHING_OF_A_CUSTOMER)


def test_each_redis_key_has_a_row() -> None:
    keys = set(re.findall(r"replyline:\{\*\}:(\w+)", PAGE)) | set(re.findall(r"replyline:(\w+):\*", PAGE))
    named = set(re.findall(r"`(\w+)`", "\n".join(row for row in rows() if "Redis: " in row)))
    assert keys <= named
