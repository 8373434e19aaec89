"""`replyline dlq replay` says of each letter what became of it, and puts none back twice."""

from typing import Any

import pytest
import typer

from ops.operate import dlq
from ops.operate.letters import Letter, Origin
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing
from shared.settings import load_settings

LANES, LANES_TOPIC = 99, "chat.requests.canary.short"


def letter(offset: int) -> Letter:
    return Letter(
        partition=0,
        offset=offset,
        written_unix_ms=1,
        reason="internal",
        detail="",
        origin=Origin(LANES_TOPIC if offset == LANES else "chat.requests.short", 2, offset),
        left_out=None,
        tries=1,
        key=b"demo/s1",
        value=b"%d" % offset,
        headers={},
    )


class FailingProducer:
    """Fails to write the given records."""

    def __init__(self, failing: dict[bytes, Exception]) -> None:
        self.failing = failing
        self.written: list[bytes | None] = []

    async def start(self) -> None:
        """Nothing is opened."""

    async def stop(self) -> None:
        """Nothing is open."""

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        if record.value in self.failing:
            raise self.failing[record.value]
        self.written.append(record.value)
        return 2, 0


def replay(
    monkeypatch: pytest.MonkeyPatch, *numbers: str, failing: dict[bytes, Exception]
) -> tuple[int, FailingProducer]:
    """The exit status, and what was written."""

    async def read(settings: Any, partition: int, offset: int) -> Letter:
        return letter(offset)

    producer = FailingProducer(failing)
    monkeypatch.setattr(dlq, "_letter", read)
    monkeypatch.setattr(dlq, "settings_of", lambda _: load_settings())
    monkeypatch.setattr(dlq, "Producer", lambda *_, **__: producer)
    with pytest.raises(typer.Exit) as ended:
        dlq.replay(list(numbers))
    return ended.value.exit_code, producer


def test_one_that_is_named_twice_is_put_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    status, producer = replay(monkeypatch, "17", "0/17", "18", "17", failing={})
    assert (status, producer.written) == (0, [b"17", b"18"])


def test_one_that_fails_says_so_and_the_others_are_put_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing: dict[bytes, Exception] = {
        b"17": ProtocolError("record_too_large", "too large"),
        b"18": BrokerUnavailable("no answer in time"),
    }
    status, producer = replay(monkeypatch, "17", "18", "19", failing=failing)
    told = capsys.readouterr()
    assert (status, producer.written) == (1, [b"19"])
    assert told.out == "19: put back to chat.requests.short, partition 2, try 2\n"
    assert told.err.splitlines() == [
        "replyline: 17: not put back: too large",
        "replyline: 18: not acknowledged: no answer in time; it may have been written",
    ]


def test_one_of_a_lane_is_put_back_into_that_lane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, producer = replay(monkeypatch, str(LANES), failing={})
    assert (status, producer.written) == (0, [b"99"])
    assert LANES_TOPIC in capsys.readouterr().out


@pytest.mark.parametrize("command", ["show", "replay"])
def test_a_number_that_names_no_letter_is_bad_input(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def read(*_: Any) -> None: ...

    monkeypatch.setattr(dlq, "_letter", read)
    monkeypatch.setattr(dlq, "settings_of", lambda _: load_settings())
    monkeypatch.setattr(dlq, "Producer", lambda *_, **__: FailingProducer({}))
    with pytest.raises(typer.Exit) as ended:
        dlq.show("2/17") if command == "show" else dlq.replay(["2/17"])
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == "replyline: 2/17: no such dead letter; see: replyline dlq list\n"
