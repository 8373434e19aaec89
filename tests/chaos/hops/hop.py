"""Where a network's fault is put."""

from enum import StrEnum


class Hop(StrEnum):
    """Between whom: clients and gateways; gateways, workers and Kafka; gateways, workers and Redis."""

    CLIENT = "client"
    KAFKA = "kafka"
    REDIS = "redis"
