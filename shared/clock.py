"""The one place that reads the clock for the shells. Cores are given `now_unix_ms`."""

import time


def now_unix_ms() -> float:
    """Unix time in milliseconds: what absolute deadlines are compared with, on every machine."""
    return time.time() * 1_000.0
