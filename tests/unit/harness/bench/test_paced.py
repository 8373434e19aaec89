"""As many streams run as a load asks for, and a delta carries its due time through whatever joins it to others."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.client import dialogue
from tests.bench.gateway.bare_websocket import HELLO
from tests.bench.gateway.paced import DELTA_CHARS, Pool, delta_text, lateness_ms

TIMES = st.floats(min_value=0, max_value=1e8)


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


@given(dues_s=st.lists(TIMES, max_size=5), later_s=st.floats(min_value=0, max_value=10))
def test_joined_deltas_are_each_late_by_their_own_time(dues_s: list[float], later_s: float) -> None:
    """A gateway that merges deltas does not hide how late the first of them is; each is sixty characters."""
    now_s, texts = max(dues_s, default=0.0) + later_s, list(map(delta_text, dues_s))
    assert {len(text) for text in texts} <= {DELTA_CHARS}
    late = lateness_ms("".join(texts), now_s)
    assert late == pytest.approx([(now_s - due_s) * 1_000 for due_s in dues_s], abs=0.01)
