"""Bugs that a small system does not show: partitions that wander, cancels and estimates of the wrong worker."""

from typing import Final

from ops.planted_bugs.bug import Bug

SCALE_BUGS: Final = (
    Bug(
        "partitions wander whenever a worker joins",
        "shared/assignment.py",
        "        if name is not None and left[name] > 0:\n",
        "        if name is not None and left[name] > 10**9:\n",
        ("tests/unit/test_assignment.py", "tests/unit/test_assignor.py"),
    ),
    Bug(
        "a member forgets what it was given",
        "shared/kafka/assignor.py",
        "msgspec.msgpack.encode(self._held)",
        "msgspec.msgpack.encode(_Held(0, {}))",
        ("tests/unit/test_assignor.py",),
    ),
    Bug(
        "who was away takes its partitions back from those that have them",
        "shared/assignment.py",
        "key=lambda item: (item[1].round, item[0])",
        "key=lambda item: (-item[1].round, item[0])",
        ("tests/unit/test_assignment.py", "tests/unit/test_assignor.py"),
    ),
    Bug(
        "a group that has settled tells another thing whenever one joins again",
        "shared/kafka/assignor.py",
        "newest if same else newest + 1",
        "newest + 1",
        ("tests/unit/test_assignor.py",),
    ),
    Bug(
        "every worker reads every cancel",
        "shared/topic_layout.py",
        "    return {number % num_cancel_partitions for number in request_partitions}\n",
        "    return set(range(num_cancel_partitions))\n",
        ("tests/unit/test_topic_layout.py",),
    ),
    Bug(
        "an answer whose partition has moved cannot be cancelled",
        "workers/cancels.py",
        "{*held, *answered()}",
        "held",
        ("tests/unit/test_reading_cancels.py",),
    ),
    Bug(
        "while a group shares out anew no cancel is read",
        "workers/cancels.py",
        "if (held := partitions()) is not None:\n",
        "if (held := partitions() or frozenset()) is not None:\n",
        ("tests/unit/test_reading_cancels.py",),
    ),
    Bug(
        "a cancel misses the worker that has its request",
        "gateway/request_publisher.py",
        "place = self.producer.partition_of(topic, key)",
        "place = BROADCAST_PARTITION",
        ("tests/unit/test_gateway.py",),
    ),
    Bug(
        "cancels are forgotten in the rush that made them",
        "workers/recent_cancels.py",
        "_CAPACITY: Final = 1_000_000\n",
        "_CAPACITY: Final = 10_000\n",
        ("tests/unit/test_recent_cancels.py",),
    ),
    Bug(
        "the soonest of all workers admits for the one that gets the request",
        "gateway/capacity.py",
        "self._readers.get((bucket, partition)) if partition is not None else None",
        "None",
        ("tests/unit/test_capacity.py", "tests/unit/test_admission.py"),
    ),
    Bug(
        "what was sent counts with no worker",
        "gateway/capacity.py",
        "        reader.sent(bucket, now_unix_ms)\n        self._changed",
        "        self._changed",
        ("tests/unit/test_capacity.py",),
    ),
    Bug(
        "the worker does not tell an answer where its client is",
        "workers/worker.py",
        "elif not job.leaving and adopt.created_unix_ms in job.targets.values():",
        "elif job.leaving:",
        ("tests/unit/test_worker_asked_again.py",),
    ),
)
