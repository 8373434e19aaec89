"""`replyline handoffs resolve` says of each name what became of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer

from ops.operate import handoffs
from shared.conversation.handoffs import Handoff
from shared.errors import StoreUnavailable
from shared.kafka import Record, TimedRecord
from shared.settings import Settings, load_settings
from shared.wire.codec import msgpack_encode
from shared.wire.session_key import SessionKey


def waits(name: str) -> Handoff:
    return Handoff(
        id=f"handoff_{name}",
        tenant="demo",
        session_id=name,
        reason="requested",
        language="en",
        created_unix_ms=1,
        transcript=SessionKey("demo", name).redis_key("turns"),
    )


class Redis:
    """A Redis with these hand-offs, which is away when one of `fails` is resolved."""

    def __init__(self, *names: str, fails: str = "") -> None:
        self.open = {name: waits(name) for name in names}
        self.fails = fails

    async def remove(self, handoff: Handoff) -> bool:
        if handoff.session_id == self.fails:
            raise StoreUnavailable("Redis is away")
        return self.open.pop(handoff.session_id, None) is not None

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a topic in which three wait, two of which begin alike."""

    async def scan(*_: Any) -> AsyncIterator[TimedRecord]:
        for offset, name in enumerate(("aa1", "aa2", "bb")):
            record = Record(
                topic="t", partition=0, offset=offset, key=None, value=msgpack_encode(waits(name)), headers={}
            )
            yield TimedRecord(record, 1)

    monkeypatch.setattr(handoffs, "scan", scan)
    return load_settings()


async def resolve(settings: Settings, redis: Redis, monkeypatch: pytest.MonkeyPatch, *names: str) -> int:
    monkeypatch.setattr(handoffs, "HandoffStore", lambda _: redis)
    return await handoffs._resolve(settings, list(names))


async def test_where_redis_goes_away_each_name_says_whether_it_was_resolved(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    redis = Redis("aa1", "aa2", "bb", fails="aa2")
    assert await resolve(settings, redis, monkeypatch, "handoff_aa1", "aa2", "b") == 1
    told = capsys.readouterr()
    assert told.out == "handoff_aa1: resolved\nhandoff_bb: resolved\n"
    assert told.err == "replyline: handoff_aa2: not resolved: Redis is away\n"
    assert list(redis.open) == ["aa2"]


async def test_a_name_that_begins_two_or_none_resolves_none(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    redis = Redis("aa1", "aa2", "bb")
    assert await resolve(settings, redis, monkeypatch, "aa", "c", "bb") == 2
    assert list(redis.open) == ["aa1", "aa2"]
    assert [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "replyline: aa: 2 ids begin with this",
        "replyline: c: no such hand-off",
    ]


@pytest.mark.parametrize("empty", ["", "handoff_"])
def test_an_empty_name_is_bad_input(empty: str) -> None:
    """A shell gives it for a variable that is not set; every hand-off begins so."""
    with pytest.raises(typer.BadParameter, match="NAMES has a blank one"):
        handoffs.resolve(["aa1", empty])
