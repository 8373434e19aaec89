"""The Redis stores that the suites here share."""

from kv_stores import bench, make_bench, own_redis

__all__ = ["bench", "make_bench", "own_redis"]
