"""Tell from an error of aiokafka whether a record will ever be written."""

from typing import Final

from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from shared.errors import BrokerUnavailable, ProtocolError, ReplylineError
from shared.kafka.broker.refusals import unauthorized
from shared.settings.kafka import KafkaSettings
from shared.telemetry.logs import get_logger

REFUSALS: Final = (MessageSizeTooLargeError, RecordListTooLargeError, TopicAuthorizationFailedError)
"""The broker's last word on a record, as long as nobody changes its settings."""


class Verdict:
    """One of each producer."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._own_topics = settings.topics.all(request_partitions=1, reply_partitions=1).keys()
        self._logged: set[str] = set()

    def __call__(self, topic: str, error: BaseException) -> ReplylineError:
        """Return the error of a record that was not queued or not acknowledged: `ProtocolError` where it never will be,
        else `BrokerUnavailable`."""
        match error:
            case ReplylineError():
                return error
            case TopicAuthorizationFailedError():
                return self._unauthorized(topic, error)
            case MessageSizeTooLargeError() | RecordListTooLargeError():
                return ProtocolError("record_too_large", f"{topic} takes no record of this size: {error}")
            case _:
                return BrokerUnavailable(f"cannot write to {topic}: {error!r}")

    def _unauthorized(self, topic: str, error: KafkaError) -> ReplylineError:
        """Return the error of a topic that we may not write to. To a topic of our own its operator will let us write:
        nothing is given up meanwhile. To another's nobody can be answered."""
        cause = unauthorized(error, self._settings, "write to")
        if topic not in self._own_topics:
            return ProtocolError("topic_not_authorized", cause)
        if topic not in self._logged:
            self._logged.add(topic)
            get_logger().error("topic_not_authorized", topic=topic, cause=cause)
        return BrokerUnavailable(cause)
