"""The wings of a gateway's process: its doors, what serves its clients, and what it holds of Kafka and of Redis. Each
of these closes all of its own, whatever fails."""
