"""`python -m tests.bench.fleet.round_robin`: a worker whose group shares out its partitions as aiokafka does by
default.

Only for measuring what the sticky assignment is worth (`tests.bench.fleet.join`): aiokafka's own assignor, round robin,
and a heartbeat four times in a session's time."""

import sys
from typing import Any

from shared.kafka.reading import readers


def share_out_by_default() -> None:
    """Of every group that this process joins from now on."""
    module: Any = readers
    consumer = module.AIOKafkaConsumer

    def without_our_assignor(*topics: str, **options: Any) -> Any:
        options.pop("partition_assignment_strategy", None)
        return consumer(*topics, **options)

    module.AIOKafkaConsumer = without_our_assignor
    module._heartbeat_ms = lambda session_timeout_ms: session_timeout_ms // 4


if __name__ == "__main__":
    from workers.__main__ import main

    share_out_by_default()
    sys.exit(main())
