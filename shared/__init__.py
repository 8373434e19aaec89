"""The contract between the edge and the workers: wire, topics, deadline, errors, settings, and the thin shells over
Kafka, Redis, logs and metrics. It imports neither of them."""
