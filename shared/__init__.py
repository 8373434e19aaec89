"""The contract between gateway and workers: wire formats, topics, deadlines, errors, settings, and thin clients for
Kafka, Redis, logs and metrics. This package imports neither `gateway` nor `workers`.
"""

import os

# ONNX Runtime sends telemetry to its vendor unless this variable is set before it is imported (its docs/Privacy.md).
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
