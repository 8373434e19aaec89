"""Kafka clients for the rest of Replyline. Only this package imports aiokafka."""

from shared.kafka.broker.administration import (
    committed_note,
    create_topics,
    describe_topics,
    group_lag,
    grow_topics,
    more_partitions_command,
)
from shared.kafka.broker.connection import patch_closed_transports
from shared.kafka.broker.records import Outgoing, Record
from shared.kafka.broker.refusals import broker_addresses, why_unreachable
from shared.kafka.layout import Copies, await_lane, await_layout
from shared.kafka.producer import Producer, acknowledged
from shared.kafka.reading.group_reader import GroupReader
from shared.kafka.reading.reader import LogReader, PartitionReader, read_on
from shared.kafka.reading.scan import TimedRecord, read_at, scan, tail
from shared.kafka.watch import KafkaWatch

__all__ = [
    "Copies",
    "GroupReader",
    "KafkaWatch",
    "LogReader",
    "Outgoing",
    "PartitionReader",
    "Producer",
    "Record",
    "TimedRecord",
    "acknowledged",
    "await_lane",
    "await_layout",
    "broker_addresses",
    "committed_note",
    "create_topics",
    "describe_topics",
    "group_lag",
    "grow_topics",
    "more_partitions_command",
    "read_at",
    "read_on",
    "scan",
    "tail",
    "why_unreachable",
]

patch_closed_transports()
