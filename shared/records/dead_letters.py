"""Dead letters: records that could not be decoded or served, stored with the reason and their origin.

A dead letter has the record's key, value and headers, and in addition `dead-letter-reason` (a code),
`dead-letter-detail` (one line) and `dead-letter-origin` (`topic/partition/offset`). It is a CloudEvent even if the
record was not. A record that is too large with these headers, or that aiokafka could not read, is stored without its
value and its own headers, and `dead-letter-left-out` says so: it remains at its origin for that topic's retention.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, Record
from shared.process.clock import monotonic_s
from shared.records.deliveries import MAX_DELIVERIES
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.faults import caught
from shared.telemetry.logs import get_logger
from shared.wire.cloud_events import letter_headers
from shared.wire.topics import DEAD_DETAIL, DEAD_LEFT_OUT, DEAD_ORIGIN, DEAD_REASON, TopicNames

POISON: Final = "poison"
_DETAIL_CHARS: Final = 500
_KEY_BYTES: Final = 1_024
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


class Letters(Protocol):
    """Stores records that cannot be served; a shadow worker's implementation drops them."""

    async def put(self, record: Record, error: ProtocolError) -> None:
        """Return when the record may be marked as done."""


@dataclass(slots=True)
class DeadLetters:
    """Writes dead letters. A record is not done before Kafka has acknowledged its letter."""

    producer: Producer
    topics: TopicNames
    source: str
    _outage: Availability = field(default_factory=lambda: Availability("kafka dead letters"))

    async def put(self, record: Record, error: ProtocolError) -> None:
        """Write a letter, and return when Kafka has acknowledged it.

        Retries without end, at first 0.2 s and later up to 5 s apart, and logs the cause once a minute.
        """
        pause_s = _FIRST_PAUSE_S
        with metrics.dead_letters_waiting.track_inprogress():
            while not await self._written(record, error):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        metrics.dead_letters.labels(error.code).inc()
        get_logger().warning("dead_letter", origin=origin_of(record), reason=error.code)

    async def _written(self, record: Record, error: ProtocolError) -> bool:
        try:
            try:
                await self.producer.publish(letter_of(self.topics, record, error, source=self.source))
            except (ProtocolError, TypeError, ValueError):  # too large, or headers that aiokafka does not accept
                await self.producer.publish(letter_of(self.topics, record, error, source=self.source, whole=False))
        except (BrokerUnavailable, ProtocolError) as failure:
            self._outage.report_down(str(failure), monotonic_s())
            return False
        except Exception as fault:  # noqa: BLE001 - counted and logged; the letter is written again
            caught("record", fault, origin=origin_of(record))
            return False
        return True


def own_fault(error: Exception) -> ProtocolError:
    """Return the error to send for an internal fault. It names only the exception's class, since its text may quote
    the record."""
    return ProtocolError(
        "internal",
        f"{type(error).__name__}, an internal fault of Replyline; see its log",
        kind="server_error",
        retriable=True,
    )


def poison() -> ProtocolError:
    """Return the error for a record that has reached the maximum number of deliveries."""
    return ProtocolError(
        POISON,
        f"{MAX_DELIVERIES} processes in a row ended while they processed it, the last while it processed only this "
        "record; see the ends of their logs",
        kind="server_error",
    )


def origin_of(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"


def letter_of(topics: TopicNames, record: Record, error: ProtocolError, *, source: str, whole: bool = True) -> Outgoing:
    """Return the dead letter for a record.

    Args:
        topics: for the name of the dead letters' topic.
        record: the record that was not served.
        error: the reason.
        source: the CloudEvent source of the letter.
        whole: False to leave out the value and the record's own headers, which may be too large.
    """
    headers = partial(letter_headers, origin=origin_of(record), source=source)
    why = {
        DEAD_REASON: error.code.encode(),
        DEAD_DETAIL: str(error)[:_DETAIL_CHARS].encode(errors="backslashreplace"),
        DEAD_ORIGIN: origin_of(record).encode(),
    }
    if record.unreadable:
        return Outgoing(topics.dead_letters, b"", headers=headers({**why, DEAD_LEFT_OUT: b"unreadable"}))
    # aiokafka does not write a record that has neither key nor value
    value = record.value if record.key is not None else record.value or b""
    if whole:
        own = {name: header for name, header in record.headers.items() if name != DEAD_LEFT_OUT}
        return Outgoing(topics.dead_letters, value, key=record.key, headers=headers(own | why))
    key = record.key if record.key is None or len(record.key) <= _KEY_BYTES else None
    size = f"{len(record.value or b'')} bytes".encode()
    return Outgoing(topics.dead_letters, b"", key=key, headers=headers({**why, DEAD_LEFT_OUT: size}))
