"""After each fetch the broker's session contains the full fetch request, even if earlier fetches were lost."""

import asyncio
from types import SimpleNamespace
from typing import Any

from aiokafka.protocol.fetch import FetchRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kafka.reading.fetch_sessions import FetchSessions
from tests.unit.examples import examples

SESSION_LOST = 70
Asked = dict[tuple[str, int], tuple[int, int]]
ASKED = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.tuples(st.integers(0, 3), st.just(9)))
FETCHES = st.lists(
    st.tuples(st.sampled_from(["well", "well", "lost", "unanswered", "full", "unread"]), ASKED), max_size=12
)


class Broker:
    """Keeps one fetch session as KIP-227 defines it; `version` is the newest fetch that it supports."""

    def __init__(self, version: int = 11) -> None:
        self.fails = "well"
        self.asked: Asked = {}
        self._version = version
        self._id = self._made = self._epoch = 0

    async def send(self, node_id: int, request: Any, *, group: str) -> Any:
        assert (node_id, group) == (1, "default")
        made = request.prepare({1: (4, self._version)})
        if self.fails == "unread":
            raise ConnectionError
        rows = {(topic, row[0]): (row[-3 if made.API_VERSION > 6 else 1], row[-1]) for topic, row in self._rows(made)}
        error = self._take(made, rows)
        if self.fails == "unanswered":
            raise ConnectionError
        return SimpleNamespace(API_VERSION=made.API_VERSION, error_code=error, session_id=self._id, topics=[])

    def _rows(self, made: Any) -> list[tuple[str, Any]]:
        return [(topic, row) for topic, rows in made.topics for row in rows]

    def _take(self, made: Any, rows: Asked) -> int:
        if made.API_VERSION < 7:
            self.asked = rows
            return 0
        if self.fails == "lost":
            self._id = 0
        if made.session_epoch:
            if (made.session_id, made.session_epoch) != (self._id, self._epoch):
                return SESSION_LOST
            for topic, numbers in made.forgotten_topics_data:
                for number in numbers:
                    del self.asked[topic, number]
            self.asked |= rows
            self._epoch += 1
            return 0
        assert made.forgotten_topics_data == []
        self.asked, self._epoch, self._made = rows, 1, self._made + 1
        self._id = 0 if self.fails == "full" else self._made
        return 0


def whole(asked: Asked) -> FetchRequest:
    topics: dict[str, list[tuple[int, int, int]]] = {}
    for (topic, number), row in asked.items():
        topics.setdefault(topic, []).append((number, *row))
    return FetchRequest(500, 1, 1_000, 0, list(topics.items()), rack_id="here")


@given(fetches=FETCHES, version=st.sampled_from([4, 11]))
@settings(max_examples=examples(500))
def test_the_broker_reads_the_partitions_of_the_full_fetch(fetches: list[tuple[str, Asked]], version: int) -> None:
    async def run() -> None:
        broker = Broker(version)
        sessions = FetchSessions(broker.send)
        for broker.fails, asked in fetches:
            try:
                response = await sessions.send(1, whole(asked), group="default")
            except ConnectionError:
                continue
            assert not response.error_code
            assert broker.asked == asked

    asyncio.run(run())


async def test_a_fetch_names_only_changed_and_removed_partitions() -> None:
    seen: list[Any] = []

    async def send(_: int, request: Any) -> Any:
        seen.append(request.prepare({1: (4, 11)}))
        return SimpleNamespace(API_VERSION=11, error_code=0, session_id=7, topics=[])

    sessions = FetchSessions(send)
    await sessions.send(1, whole({("a", 0): (5, 9), ("a", 1): (0, 9), ("b", 0): (0, 9)}))
    await sessions.send(1, whole({("a", 0): (6, 9), ("a", 1): (0, 9)}))
    first, second = seen
    assert (first.session_id, first.session_epoch, len(first.topics)) == (0, 0, 2)
    assert (second.session_id, second.session_epoch, second.rack_id) == (7, 1, "here")
    assert second.topics == [("a", [(0, -1, 6, -1, 9)])]
    assert second.forgotten_topics_data == [("b", [0])]
