"""The registry is what its log says, for any reader."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable, ModelError
from shared.kafka import Outgoing, Record
from shared.versions.log import VersionsLog, apply_record
from shared.versions.registry import Added, Checked, Noted, Registry, Unreadable, decode_entry, encode_entry, key_of
from shared.versions.state import Move, Rule, State
from shared.versions.version import Version

VERSION = Version(name="shop-2", model="smollm2", model_revision="f" * 64, manifest_sha256="a" * 64)


def move(epoch: int, author: str = "ann") -> Move:
    return Move(state=State(epoch=epoch, aliases={"champion": author}), author=author, reason="test", unix_ms=1)


def newer(**fields: Any) -> bytes:
    """Return the move of epoch 2 as another release could write it."""
    written = msgspec.msgpack.decode(encode_entry(move(2)))
    state = written["state"] | fields.pop("state", {})
    return msgspec.msgpack.encode(written | fields | {"state": state})


def test_the_first_of_two_moves_of_one_epoch_counts() -> None:
    registry = Registry()
    assert [registry.apply(move(1, author)) for author in ("ann", "bob")] == [True, False]
    assert registry.state.aliases == {"champion": "ann"}
    assert registry.apply(move(2, "bob"))


@pytest.mark.parametrize(("written_ms", "held"), [(50, 1), (150, 2)])
def test_an_unreadable_move_may_have_cancelled_a_scheduled_one(written_ms: int, held: int) -> None:
    registry = Registry()
    later = Move(state=State(epoch=2, effective_unix_ms=100), author="ann", reason="test", unix_ms=1)
    unreadable = newer(state={"epoch": 3, "rung": "another"}, unix_ms=written_ms)
    for entry in (move(1), later, decode_entry(unreadable)):
        assert registry.apply(entry)
    assert [registry.state_at(now).epoch for now in (99, 100, 10_000)] == [1, held, held]
    assert registry.apply(move(4))
    assert registry.state_at(10_000).epoch == 4


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["ann", "bob"])), max_size=30))
def test_every_reader_computes_the_same_state(moves: list[tuple[int, str]]) -> None:
    registry, again = Registry(), Registry()
    counted = [each for each in (move(*found) for found in moves) if registry.apply(each)]
    assert [each.epoch for each in counted] == list(range(1, len(counted) + 1))
    for each in counted:
        again.apply(decode_entry(encode_entry(each)))
    assert again == registry


def test_a_lane_closes_at_the_moment_its_version_is_removed() -> None:
    registry = Registry()
    states = [
        State(epoch=1, aliases={"champion": "a"}),
        State(epoch=2, aliases={"champion": "a", "canary": "b"}, rule=Rule(salt="s", share=0.1, control=True)),
        State(epoch=3, aliases={"champion": "a"}, effective_unix_ms=100),
    ]
    seen = []
    for state in states:
        registry.apply(Move(state=state, author="ann", reason="test", unix_ms=1))
        seen.append([registry.closed(lane, 99) for lane in ("canary", "control", "light")])
    assert seen == [[False] * 3] * 3, "a lane that never had a version has not lost it"
    assert [registry.closed(lane, 100) for lane in ("canary", "control", "light")] == [True, True, False]


def test_a_version_gets_traffic_only_after_it_was_added_and_checked() -> None:
    registry = Registry()
    assert "replyline versions add" in (registry.why_not(VERSION.id) or "")
    registry.apply(Added(version=VERSION, author="ann"))
    assert "replyline versions check" in (registry.why_not(VERSION.id) or "")
    registry.apply(Checked(revision=VERSION.id, author="ann", unix_ms=1, failures=("golden prompts: 2 of 8",)))
    assert "golden prompts: 2 of 8" in (registry.why_not(VERSION.id) or "")
    registry.apply(Checked(revision=VERSION.id, author="ann", unix_ms=2))
    assert registry.why_not(VERSION.id) is None
    assert registry.find("shop-2") == registry.find(VERSION.id) == VERSION


def checked(size: int, *failures: str, whole: bool) -> Checked:
    numbers = {"en_right": 1.0, "en_right.n": float(size), "golden": 1.0}
    return Checked(revision=VERSION.id, author="a", unix_ms=1, failures=failures, numbers=numbers, whole=whole)


FAILED, WHOLE = checked(190, "en_right", whole=True), checked(190, whole=True)
QUICK, QUICK_FAILED, ONE = checked(24, whole=False), checked(24, "zh_right", whole=False), checked(1, whole=False)
NO_FILES = Checked(revision=VERSION.id, author="a", unix_ms=1, failures=("truncated",))


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ([WHOLE], None),
        ([FAILED, ONE], "failed its check"),
        ([FAILED, QUICK, ONE], "failed its check"),
        ([FAILED, NO_FILES, ONE], "failed its check"),
        ([FAILED, NO_FILES, checked(20, whole=True)], "failed its check"),
        ([FAILED, QUICK_FAILED, checked(24, whole=True)], "failed its check"),
        ([FAILED, NO_FILES, WHOLE], None),
        ([NO_FILES, checked(20, whole=True)], None),
        ([FAILED, WHOLE], None),
        ([QUICK], "has passed 24 of the questions, not the whole set; run: replyline versions check"),
        ([WHOLE, QUICK], None),
        ([WHOLE, QUICK_FAILED], "failed its check"),
        ([WHOLE, QUICK_FAILED, ONE], "failed its check"),
        ([WHOLE, QUICK_FAILED, QUICK], "not the whole set"),
        ([WHOLE, QUICK_FAILED, WHOLE], None),
        ([checked(190, whole=False)], "not the whole set"),
        ([FAILED, checked(190, whole=False)], "failed its check"),
        ([FAILED, checked(300, whole=False)], "failed its check"),
        ([NO_FILES, QUICK], "failed its check"),
        ([checked(300, whole=False), WHOLE], None),
        ([checked(300, "zh_right", whole=False), WHOLE], "failed its check"),
    ],
)
def test_only_the_whole_set_passes_the_gate_and_a_failure_stays_until_as_many_questions_pass(
    checks: list[Checked], told: str | None
) -> None:
    registry = Registry()
    registry.apply(Added(version=VERSION, author="ann"))
    for check in checks:
        registry.apply(decode_entry(encode_entry(check)))
    why_not = registry.why_not(VERSION.id)
    assert why_not is None if told is None else told in (why_not or "")


def asked(digest: str, *failures: str, of: Version = VERSION, size: int = 60, whole: bool = True) -> Checked:
    """Return a check by the set of a digest."""
    numbers = {"en_right": 1.0, "en_right.n": float(size)}
    common = {"revision": of.id, "author": "a", "unix_ms": 1, "numbers": numbers, "whole": whole}
    return Checked(**common, failures=failures, questions_sha256=digest)


OLD = msgspec.structs.replace(VERSION, name="old", manifest_sha256="f" * 64)
OF_CHAMPION = asked("easy", of=OLD)


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ([asked("hard", "wrong"), asked("easy")], "failed its check: wrong; this counts until it passes the same"),
        ([asked("hard", "wrong"), asked("easy", size=900)], "failed its check"),
        ([asked("hard", "wrong"), asked("easy", "bad"), asked("easy")], "failed its check: wrong"),
        ([asked("hard", "wrong"), asked("easy", "bad"), asked("hard")], "failed its check: bad"),
        ([asked("hard", "wrong"), asked("easy", "bad"), asked("hard"), asked("easy")], None),
        ([asked("hard", "wrong"), asked("hard")], None),
        ([OF_CHAMPION, asked("hard", "wrong"), asked("easy")], None),
        ([OF_CHAMPION, asked("hard", "wrong", size=61), asked("easy")], "failed its check"),
        ([asked("easy", "it too", of=OLD), asked("hard", "wrong"), asked("easy")], "failed its check"),
        ([asked("hard", of=OLD), asked("easy", of=OLD, whole=False), asked("hard", "wrong"), asked("easy")], "failed"),
        ([asked("mine", "wrong", whole=False), asked("easy")], None),
    ],
)
def test_a_failure_is_lifted_by_the_same_questions_or_by_those_that_the_champion_has_passed(
    checks: list[Checked], told: str | None
) -> None:
    registry = Registry()
    for version in (VERSION, OLD):
        registry.apply(Added(version=version, author="ann"))
    registry.apply(Move(state=State(epoch=1, aliases={"champion": OLD.id}), author="ann", reason="", unix_ms=0))
    for check in checks:
        registry.apply(decode_entry(encode_entry(check)))
    why_not = registry.why_not(VERSION.id)
    assert why_not is None if told is None else told in (why_not or "")


def test_a_unique_prefix_of_an_id_names_its_version() -> None:
    registry = Registry()
    registry.apply(Added(version=VERSION, author="ann"))
    assert registry.find(VERSION.id[:6]) == VERSION
    assert registry.find(VERSION.id[:5]) is None
    registry.versions[VERSION.id[:6] + "0" * 26] = registry.versions[VERSION.id]
    assert registry.find(VERSION.id[:6]) is None
    assert registry.find(VERSION.id[:7]) == VERSION


def test_another_document_is_another_version() -> None:
    assert msgspec.structs.replace(VERSION, system_prompt="Be brief.").id != VERSION.id


def test_no_two_records_share_a_key() -> None:
    entry = move(1)
    assert key_of(entry, "1") != key_of(entry, "2")


@given(st.lists(st.integers(0, 10), max_size=8), st.integers(0, 12))
def test_a_state_applies_from_its_time_until_a_later_move_replaces_it(times: list[int], now: int) -> None:
    registry = Registry()
    for epoch, effective in enumerate(times, 1):
        state = State(epoch=epoch, effective_unix_ms=effective)
        assert registry.apply(Move(state=state, author="ann", reason="test", unix_ms=0))
    come = [epoch for epoch, effective in enumerate(times, 1) if effective <= now]
    assert registry.state_at(now).epoch == max(come, default=0)


def test_a_note_round_trips_with_a_plan_and_without() -> None:
    for plan in ({}, {"plan": msgspec.Raw(msgspec.msgpack.encode({"steps": [1, 10]}))}):
        note = Noted(rollout="r", kind="hold", reason="test", unix_ms=1, numbers={"e": 1.5}, **plan)
        assert bytes(decode_entry(encode_entry(note)).plan) == bytes(note.plan)


UNREADABLE: list[tuple[str, bytes | None]] = [
    ("another lane", newer(state={"aliases": {"champion": "a", "edge-cpu": "x"}})),
    ("another rung", newer(state={"rung": "edge"})),
    ("another rule", newer(state={"rule": {"kind": "weights", "of": [1, 2]}})),
    ("another state", newer(state={"aliases": [["champion", "a"]]})),
    ("other fields", newer(author=["ann", "bob"])),
    ("another form", b"\xff\x00 a form of its own"),
    ("nothing", b""),
    ("deleted", None),
]


@pytest.mark.parametrize("value", [value for _, value in UNREADABLE], ids=[name for name, _ in UNREADABLE])
def test_an_unreadable_move_uses_up_its_epoch_and_the_next_one_applies(value: bytes | None) -> None:
    registry = Registry()
    for epoch, each in enumerate((encode_entry(move(1)), value, encode_entry(move(3, "bob"))), 1):
        key = key_of(move(epoch), "nonce")
        apply_record(registry, Record("chat.versions", 0, epoch, key, each))
        assert registry.epoch == epoch
        assert (registry.blocked is None) == (epoch != 2)
        assert registry.state.aliases == {"champion": "bob" if epoch == 3 else "ann"}
    assert not registry.apply(Unreadable(epoch=3)), "that epoch has had its move"


def test_an_unreadable_move_is_logged_once_and_only_while_it_is_the_newest() -> None:
    """A start long after it was passed over logs no error."""
    told, late = VersionsLog(None), VersionsLog(None)  # type: ignore[arg-type]
    with capture_logs() as lines:
        for epoch, value in enumerate((encode_entry(move(1)), b"\xff", encode_entry(move(3))), 1):
            for log in (told, late):
                apply_record(log.registry, Record("chat.versions", 0, epoch, key_of(move(epoch), "nonce"), value))
            told.report()
            told.report()
        late.report()
    events = [(line["event"], line["epoch"]) for line in lines]
    assert events == [
        ("versions_changed", 1),
        ("version_unreadable", 2),
        ("versions_changed", 3),
        ("versions_changed", 3),
    ]


async def test_a_move_written_after_a_corrupt_record_applies_for_each_reader() -> None:
    corrupt = Record("chat.versions", 0, 0, key_of(move(1), "nonce"), b"\xff")
    records = [corrupt]

    class Topic:
        """A log with one reader and one producer."""

        read_to = 0

        async def publish(self, record: Outgoing) -> None:
            records.append(Record("chat.versions", 0, len(records), record.key, record.value))

        async def end(self) -> int:
            return len(records)

        async def next_offset(self) -> int:
            return self.read_to

        async def read(self, **_: object) -> list[Record]:
            found, self.read_to = records[self.read_to :], len(records)
            return found

    topic: Any = Topic()
    log = VersionsLog(topic)
    await log.catch_up()
    assert log.registry.blocked is not None
    assert await log.append(topic, "chat.versions", move(2), over=1)
    assert (log.registry.blocked, log.registry.state.epoch) == (None, 2)


async def test_no_state_of_the_past_holds_while_the_log_is_read() -> None:
    """A gateway answers already; Kafka fails once in the middle, and it reads from the beginning again."""
    moves, seen, failures = [move(epoch) for epoch in (1, 2, 3)], set[int](), [BrokerUnavailable("gone")]

    class Topic:
        """A log whose reads return one record each."""

        at = 0

        async def start(self) -> None: ...

        def seek(self, offset: int) -> None:
            self.at = offset

        async def end(self) -> int:
            return len(moves)

        async def next_offset(self) -> int:
            seen.add(log.registry.state_at(math.inf).epoch)
            return self.at

        async def read(self, **_: object) -> list[Record]:
            if self.at == 2 and failures:
                raise failures.pop()
            self.at += 1
            return [Record("chat.versions", 0, self.at - 1, b"k", encode_entry(moves[self.at - 1]))]

    topic: Any = Topic()
    log = VersionsLog(topic)
    with pytest.raises(BrokerUnavailable):
        await log.start()
    await log.start()
    assert seen == {0}
    assert log.registry.state.epoch == 3


async def test_no_move_is_written_after_an_unreadable_one() -> None:
    unused: Any = None
    log = VersionsLog(unused, Registry(unreadable=1))
    with pytest.raises(ModelError, match=r"epoch 1 cannot be read here.*--over-epoch 1; nothing was changed"):
        await log.append(unused, "chat.versions", move(2))
    with pytest.raises(ModelError, match="epoch 1 cannot be read here"):
        await log.append(unused, "chat.versions", move(2), over=2)


def test_a_process_that_does_not_read_notes_stores_none() -> None:
    registry = Registry(keeps_notes=False)
    registry.apply(Noted(rollout="r", kind="hold", reason="test", unix_ms=1))
    assert registry.notes == []
