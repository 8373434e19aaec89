"""Fetch by sessions (KIP-227): a request names only the partitions that changed since the last one, and the broker
answers only for those with new records. aiokafka names all partitions of a consumer each time: a worker has 72."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.fetch import FetchRequest, FetchRequestStruct

_SINCE: Final = 7  # the first version of a fetch that knows sessions
_LAST_EPOCH: Final = 2**31 - 1
# FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH: the broker has forgotten the session, or means another.
_LOST: Final = (70, 71)

_Partition = tuple[str, int]
_Asked = Mapping[_Partition, tuple[int, int]]
"""From which offset on a partition is read, and how many bytes at most."""


@dataclass(frozen=True, slots=True)
class _Session:
    """What a broker knows: `asked` is what the requests until now have named. `epoch` is the next request's: at 0 it
    names all, and begins a session in the place of the one with this `id`."""

    id: int = 0
    epoch: int = 0
    asked: _Asked = field(default_factory=dict)

    def after(self, session_id: int, asked: _Asked) -> "_Session":
        """Return it after a request that was answered. A broker without room for a session gives it the id 0."""
        epoch = self.epoch % _LAST_EPOCH + 1 if session_id else 0
        return _Session(session_id, epoch, asked)


class _SessionFetch(FetchRequest):  # type: ignore[misc]
    """A fetch as its session needs it; the whole one for a broker that knows no sessions."""

    def __init__(self, whole: FetchRequest, session: _Session) -> None:
        self._whole = whole
        self._session = session
        self.asked: _Asked = {
            (topic, number): (offset, max_bytes) for topic, rows in whole.topics for number, offset, max_bytes in rows
        }

    def build(self, request_struct_class: type[FetchRequestStruct]) -> FetchRequestStruct:
        if request_struct_class.API_VERSION < _SINCE:
            return self._whole.build(request_struct_class)
        session, request = self._session, copy(self._whole)
        if session.epoch:
            changed = {key: row for key, row in self.asked.items() if session.asked.get(key) != row}
            request._topics = _by_topic((topic, (number, *row)) for (topic, number), row in changed.items())  # noqa: SLF001
        made: Any = request.build(request_struct_class)
        made.session_id, made.session_epoch = session.id, session.epoch
        if session.epoch:
            made.forgotten_topics_data = _by_topic(key for key in session.asked if key not in self.asked)
        return cast(FetchRequestStruct, made)


class FetchSessions:
    """The sessions of one consumer, one with each broker. `send` is its client's."""

    def __init__(self, send: Callable[..., Awaitable[Any]]) -> None:
        self._send = send
        self._sessions: dict[int, _Session] = {}

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Send a request to a broker, a fetch in its session."""
        if not isinstance(request, FetchRequest):
            return await self._send(node_id, request, **options)
        session = self._sessions.get(node_id, _Session())
        # Where no answer comes nobody knows whether the broker has read this one: the next begins another session.
        self._sessions[node_id] = _Session(session.id)
        fetch = _SessionFetch(request, session)
        response = await self._send(node_id, fetch, **options)
        if response.API_VERSION < _SINCE:
            return response
        if response.error_code in _LOST:
            self._sessions[node_id] = _Session()
            return await self.send(node_id, request, **options)
        if not response.error_code:
            self._sessions[node_id] = session.after(response.session_id, fetch.asked)
        return response


def fetch_by_sessions(consumer: AIOKafkaConsumer) -> AIOKafkaConsumer:
    """Have a consumer that has not been started fetch by sessions. aiokafka has no public name for its client."""
    client = consumer._client  # noqa: SLF001
    client.send = FetchSessions(client.send).send
    return consumer


def _by_topic(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, list[Any]]]:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for topic, row in rows:
        topics[topic].append(row)
    return list(topics.items())
