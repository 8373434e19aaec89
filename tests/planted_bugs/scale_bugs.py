"""Bugs that a small system does not show: partitions that wander, cancels and estimates of the wrong worker."""

from typing import Final

from tests.planted_bugs.bug import Bug

SCALE_BUGS: Final = (
    Bug(
        "partitions wander whenever a worker joins",
        "shared/wire/assignment.py",
        "        if name is not None and left[name] > 0:\n",
        "        if name is not None and left[name] > 10**9:\n",
        ("tests/unit/shared/wire/test_assignment.py", "tests/unit/shared/kafka/reading/test_assignor.py"),
    ),
    Bug(
        "a member forgets what it was given",
        "shared/kafka/reading/assignor.py",
        "msgspec.msgpack.encode(self._held)",
        "msgspec.msgpack.encode(_Held(0, {}))",
        ("tests/unit/shared/kafka/reading/test_assignor.py",),
    ),
    Bug(
        "who was away takes its partitions back from those that have them",
        "shared/wire/assignment.py",
        "key=lambda item: (item[1].round, item[0])",
        "key=lambda item: (-item[1].round, item[0])",
        ("tests/unit/shared/wire/test_assignment.py", "tests/unit/shared/kafka/reading/test_assignor.py"),
    ),
    Bug(
        "a group that has settled tells another thing whenever one joins again",
        "shared/kafka/reading/assignor.py",
        "newest if same else newest + 1",
        "newest + 1",
        ("tests/unit/shared/kafka/reading/test_assignor.py",),
    ),
    Bug(
        "every worker reads every cancel",
        "shared/wire/topic_layout.py",
        "    return {number % num_cancel_partitions for number in request_partitions}\n",
        "    return set(range(num_cancel_partitions))\n",
        ("tests/unit/shared/wire/test_topic_layout.py",),
    ),
    Bug(
        "an answer whose partition has moved cannot be cancelled",
        "workers/intake/cancels.py",
        "{*held, *answered()}",
        "held",
        ("tests/unit/workers/intake/test_reading_cancels.py",),
    ),
    Bug(
        "while a group shares out anew no cancel is read",
        "workers/intake/cancels.py",
        "if (held := partitions()) is not None:\n",
        "if (held := partitions() or frozenset()) is not None:\n",
        ("tests/unit/workers/intake/test_reading_cancels.py",),
    ),
    Bug(
        "a cancel misses the worker that has its request",
        "gateway/kafka/request_publisher.py",
        "place = self.producer.partition_of(topic, key)",
        "place = BROADCAST_PARTITION",
        ("tests/unit/gateway/serving/test_gateway.py",),
    ),
    Bug(
        "cancels are forgotten in the rush that made them",
        "workers/request/recent_cancels.py",
        "_CAPACITY: Final = 1_000_000\n",
        "_CAPACITY: Final = 10_000\n",
        ("tests/unit/workers/request/test_recent_cancels.py",),
    ),
    Bug(
        "the soonest of all workers admits for the one that gets the request",
        "gateway/admission/fleet.py",
        "self._readers.get((bucket, partition)) if partition is not None else None",
        "None",
        ("tests/unit/gateway/admission/test_fleet.py", "tests/unit/gateway/admission/test_control.py"),
    ),
    Bug(
        "what was sent counts with no worker",
        "gateway/admission/fleet.py",
        "        reader.sent(bucket, now_unix_ms)\n        self._changed",
        "        self._changed",
        ("tests/unit/gateway/admission/test_fleet.py",),
    ),
    Bug(
        "the worker does not tell an answer where its client is",
        "workers/serving/worker.py",
        "elif not job.leaving and adopt.created_unix_ms in job.targets.values():",
        "elif job.leaving:",
        ("tests/unit/workers/serving/test_worker_asked_again.py",),
    ),
)
