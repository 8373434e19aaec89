"""Other services: they write requests, and some invalid records, to the inbox."""

from collections.abc import Sequence
from typing import Final

from shared.kafka import Outgoing, Producer
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames
from tests.chaos.ledger.questions import OPENINGS
from tests.world.plan import Ask
from tests.world.processes import settings_of
from tests.world.tokens import TENANTS
from tests.world.virtual.loop import VirtualLoop
from tests.world.virtual.machine import POISON

_TOPICS = TopicNames()
_BESIDE_ASKS: Final = 100
_SYMBOLS: Final = 0x2600  # of Unicode; a search of the FAQ leaves them out


def text_of(number: int, ask: Ask) -> str:
    """Return the text of a world's question of this number, unlike every other; the model answers most of them."""
    opening = OPENINGS[0 if ask.what == "poison" else number % len(OPENINGS)]
    return f"{opening} {chr(_SYMBOLS + number)}{POISON if ask.what == 'poison' else ''}"


class Services:
    """The services' own producer."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop, self._node = loop, loop.node("services")
        self.request_ids: list[str] = []
        """Of what is a request."""

    async def start(self) -> None:
        """Connect."""
        self._producer = Producer(settings_of("gateway", 0).kafka, client_id="services")
        await self._loop.start(self._node, self._producer.start())

    def plan(self, records: Sequence[Ask]) -> None:
        """Write each record at its time, counted from this call."""
        for number, record in enumerate(records):
            request_id = f"srv_{number:024x}"
            if record.what != "garbage":
                self.request_ids.append(request_id)
            self._loop.after(record.at_s, self._produce, request_id, number, record, node=self._node)

    def _produce(self, request_id: str, number: int, record: Ask) -> None:
        now, tenant = int(self._loop.world.wall_s() * 1_000), TENANTS[record.session % 2]
        request = ChatRequest(
            id=request_id,
            session_id=f"service-{record.session}",
            input=text_of(_BESIDE_ASKS + number, record),
            tenant=tenant,
            max_output_tokens=record.tokens,
            created_unix_ms=now,
            deadline_unix_ms=now + record.hard_ms,
            reply_topic=_TOPICS.external_replies,
        )
        topic, value, key = _TOPICS.inbox, msgpack_encode(request), SessionKey(tenant, request.session_id).record_key
        if record.what == "garbage":
            topic, value = (_TOPICS.requests("short") if record.tokens % 2 else topic), b"garbage"
        self._loop.create_task(self._published(Outgoing(topic, value, key=key)))

    async def _published(self, record: Outgoing) -> None:
        await self._producer.publish(record)
