"""Kafka as the rest of Replyline sees it: the only package that imports aiokafka."""

from shared.kafka.administration import create_topics, describe_topics
from shared.kafka.connection import report_outages
from shared.kafka.log_reader import LogReader
from shared.kafka.producer import Producer
from shared.kafka.readers import GroupReader, PartitionReader
from shared.kafka.records import Outgoing, Record
from shared.kafka.scan import Kept, read_at, scan

__all__ = [
    "GroupReader",
    "Kept",
    "LogReader",
    "Outgoing",
    "PartitionReader",
    "Producer",
    "Record",
    "create_topics",
    "describe_topics",
    "read_at",
    "report_outages",
    "scan",
]
