"""Kafka as its clients see it, at the level of aiokafka's requests: the real aiokafka runs above, and no bytes are
framed."""
