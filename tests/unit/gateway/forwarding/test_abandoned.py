"""Kafka is asked about a lane without workers, ever less often while nothing waits in it."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.forwarding.abandoned import AbandonedLanes
from shared.errors import BrokerUnavailable
from shared.process.tasks import Tasks
from shared.settings import Settings
from shared.wire.lanes import Lane


class Watched:
    """Looks twice a second for some time; `asked_s` is when Kafka was asked about the lane."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.asked_s = 0.0, list[float]()
        self.abandoned: set[Lane] = {"light"}
        self.waiting = 0
        self.away = False
        self.joined = 0
        admissions: Any = SimpleNamespace(abandoned=lambda: set(self.abandoned))
        producer: Any = None
        self.lanes = AbandonedLanes(settings=Settings(), producer=producer, admissions=admissions, source="g")
        monkeypatch.setattr("gateway.forwarding.abandoned.group_lag", self._lag)
        monkeypatch.setattr(AbandonedLanes, "_join", self._join)

    async def _lag(self, *_: object) -> dict[str, int]:
        self.asked_s.append(self.now_s)
        if self.away:
            raise BrokerUnavailable("away")
        return {"topic": self.waiting}

    async def _join(self, *_: object) -> None:
        self.joined += 1

    async def look(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.5)):
            await self.lanes._look(self.now_s, Tasks())
            self.now_s += 0.5


async def test_a_lane_in_which_nothing_waits_is_asked_about_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    await watched.look(300)
    assert watched.asked_s == [0, 5, 15, 35, 75, 135, 195, 255]
    assert not watched.joined


async def test_a_lane_is_asked_about_soon_after_its_workers_are_gone_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    await watched.look(100)
    watched.abandoned = set()
    await watched.look(1)
    watched.abandoned, watched.asked_s, watched.waiting = {"light"}, [], 3
    await watched.look(0.5)
    assert (watched.asked_s, watched.joined) == ([101.0], 1)


async def test_a_lane_is_asked_about_again_soon_while_kafka_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.away = True
    await watched.look(21)
    assert watched.asked_s == [0, 5, 10, 15, 20]
