"""The contract between the edge and the workers: wire, topics, deadline, errors, settings, and the thin shells over
Kafka, Redis, logs and metrics. It imports neither of them."""

import os

# ONNX Runtime reports to its maker unless it was told before it is imported (its docs/Privacy.md).
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
