"""Fetch sessions (KIP-227) for aiokafka.

In a session a request names only the partitions that changed since the last one, and the broker returns only those with
new records. aiokafka names all partitions of a consumer in each request; a worker has 72.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.fetch import FetchRequest, FetchRequestStruct

_SINCE: Final = 7  # first version of the fetch API with sessions
_LAST_EPOCH: Final = 2**31 - 1
# FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH: the broker dropped the session or expects another epoch.
_LOST: Final = (70, 71)

_Partition = tuple[str, int]
_Asked = Mapping[_Partition, tuple[int, int]]
"""Fetch offset and maximum bytes by partition."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A session's state at the broker.

    Attributes:
        id: the session's id; 0 without a session.
        epoch: the next request's epoch. At 0 that request names all partitions and replaces the session `id` with a new
            one.
        asked: the partitions that the broker knows from earlier requests.
    """

    id: int = 0
    epoch: int = 0
    asked: _Asked = field(default_factory=dict)

    def after(self, session_id: int, asked: _Asked) -> "_Session":
        """Return the state after an answered request. A broker that has no room for a session returns the id 0."""
        epoch = self.epoch % _LAST_EPOCH + 1 if session_id else 0
        return _Session(session_id, epoch, asked)


class _SessionFetch(FetchRequest):  # type: ignore[misc]
    """A fetch request that names only the changes of its session, or everything if the broker does not support
    sessions."""

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
    """The sessions of one consumer, one for each broker. `send` wraps the `send` of the consumer's client."""

    def __init__(self, send: Callable[..., Awaitable[Any]]) -> None:
        self._send = send
        self._sessions: dict[int, _Session] = {}

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Send a request to a broker; a fetch is sent within the broker's session."""
        if not isinstance(request, FetchRequest):
            return await self._send(node_id, request, **options)
        session = self._sessions.get(node_id, _Session())
        # Without an answer it is unknown whether the broker has seen this request, so the next one starts a new
        # session.
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
    """Make a consumer fetch with sessions; call it before the consumer starts. aiokafka has no public name for its
    client."""
    client = consumer._client  # noqa: SLF001
    client.send = FetchSessions(client.send).send
    return consumer


def _by_topic(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, list[Any]]]:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for topic, row in rows:
        topics[topic].append(row)
    return list(topics.items())
