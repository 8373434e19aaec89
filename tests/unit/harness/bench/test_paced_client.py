"""As many streams run as a load asks for, whatever became of the connections of the one before."""

from collections.abc import Callable
from typing import Any

import pytest

from ops.client import dialogue
from tests.bench.gateway.bare_websocket import HELLO
from tests.bench.gateway.paced import Pool


class Wires:
    """Stands for the server: it greets each connection, and can cut them."""

    def __init__(self) -> None:
        self.cut: list[Callable[[str], None]] = []
        self.asked: list[int] = []

    async def connect(
        self, _: str, *, on_frame: Callable[[bytes, float], None], on_lost: Callable[[str], None], **__: Any
    ) -> Any:
        number = len(self.cut)
        self.cut.append(on_lost)
        self.asked.append(-1)  # the greeting is no question
        wires = self

        class One:
            def send(self, _: bytes) -> None:
                wires.asked[number] += 1
                if not wires.asked[number]:
                    on_frame(HELLO, 0.0)

            def close(self) -> None:
                """Nothing is open."""

        return One()


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Wires:
    made = Wires()
    monkeypatch.setattr(dialogue, "Wire", made)
    return made


async def test_a_lost_connection_makes_room_for_another(wires: Wires) -> None:
    """Its stream counts as failed once; the next load has all of its streams."""
    pool = Pool("ws://x")
    await pool.stream(3, spread_s=0)
    wires.cut[1]("gone")
    assert (pool.tally.failures, pool.num_streaming) == (1, 2)
    await pool.stream(4, spread_s=0)
    assert pool.num_streaming == 4
    assert wires.asked == [1, 1, 1, 1, 1], "whoever streams is not asked again"


async def test_a_smaller_load_lets_the_others_end(wires: Wires) -> None:
    pool = Pool("ws://x")
    await pool.stream(3, spread_s=0)
    wires.cut[0]("gone")
    await pool.stream(1, spread_s=0)
    assert (pool.num_streaming, wires.asked) == (1, [1, 1, 1])
    await pool.stream(2, spread_s=0)
    assert (pool.num_streaming, wires.asked) == (2, [1, 1, 1])
