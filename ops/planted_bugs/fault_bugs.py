"""Bugs by which a fault in one item harms others, or ends without a word."""

from typing import Final

from ops.planted_bugs.bug import Bug

FAULT_BUGS: Final = (
    Bug(
        "one faulty answer at its deadline takes the others of the batch",
        "gateway/gateway.py",
        "                if ending.error is not None:\n",
        "                if ending.error is not None:\n                    raise ending.error\n",
        ("tests/unit/test_gateway_faults.py",),
    ),
    Bug(
        "a fault in what is done beside leaves an answer without its end",
        "gateway/endings.py",
        "        if working.error is not None:\n            self.fail(entry)\n",
        "",
        ("tests/unit/test_gateway_faults.py",),
    ),
    Bug(
        "a fault in one end takes the others that were told with it",
        "workers/worker.py",
        "            if hearing.error is not None and isinstance(item, Ended):\n",
        "            if hearing.error is not None:\n                raise hearing.error\n            if False:\n",
        ("tests/unit/test_worker_faults.py",),
    ),
    Bug(
        "a fault in one answer's text ends those that are written beside it",
        "workers/engine_loop.py",
        "                self._give_up(event.sequence.request_id, error)\n",
        "                raise\n",
        ("tests/unit/test_worker_faults.py",),
    ),
    Bug(
        "a prompt goes on from KV that could not be imported",
        "workers/engine_step.py",
        "                spoiled.add(item.slot)\n",
        "                pass\n",
        ("tests/unit/test_worker_faults.py",),
    ),
    Bug(
        "an end that cannot be encoded is never told",
        "workers/reply_publisher.py",
        "            if isinstance(message, ReplyDelta):\n                return _refused",
        "            if True:\n                return _refused",
        ("tests/unit/test_reply_publisher.py",),
    ),
    Bug(
        "an answer that is taken out ends after the next step",
        "workers/engine_loop.py",
        "        if self._news:\n            self._tell_all()  # a step may take long\n",
        "",
        ("tests/unit/test_worker.py",),
    ),
    Bug(
        "a worker's report waits for its interval whatever changes",
        "workers/capacity.py",
        "(_LEAST_S if is_news else self.interval_s)",
        "self.interval_s",
        ("tests/unit/test_capacity_reports.py",),
    ),
    Bug(
        "a record is done though its dead letter does not stand",
        "shared/deadletters.py",
        "            while not await self._written(record, error):\n",
        "            while not await self._written(record, error) and False:\n",
        ("tests/unit/test_intake_refusals.py", "tests/unit/test_router.py"),
    ),
    Bug(
        "who is refused by a worker is never told",
        "workers/intake.py",
        "        told = None if request is None else self._refuse(request, error)\n",
        "        told = None\n",
        ("tests/unit/test_intake_refusals.py",),
    ),
    Bug(
        "who is refused by the router is never told",
        "gateway/router.py",
        "        telling = [] if request is None else [self._refuse(request, error)]\n",
        "        telling: list[asyncio.Task[None]] = []\n",
        ("tests/unit/test_router.py",),
    ),
    Bug(
        "a record that ends its worker is delivered without end",
        "shared/deliveries.py",
        "        before = found.after_a_death(end) if found.held else found\n",
        "        before = found\n",
        ("tests/unit/test_deliveries.py", "tests/unit/test_commits.py"),
    ),
    Bug(
        "suspected records are worked on together",
        "shared/deliveries.py",
        "            if self._alone is not None:\n                return False\n",
        "",
        ("tests/unit/test_deliveries.py", "tests/unit/test_commits.py"),
    ),
    Bug(
        "a record is worked on before its delivery is noted",
        "shared/commits.py",
        "                if self._deliveries.is_noted(partition, offset):\n",
        "                if True:\n",
        ("tests/unit/test_commits.py",),
    ),
    Bug(
        "a rebalance counts as a worker's death",
        "shared/commits.py",
        "        notes = self._notes(() if self._reader.is_moving else None)\n",
        "        notes = self._notes(None)\n",
        ("tests/unit/test_commits.py",),
    ),
    Bug(
        "a record that has ended three workers is served a fourth time",
        "workers/intake.py",
        "            if request is None or number > MOST:\n",
        "            if request is None:\n",
        ("tests/unit/test_intake_refusals.py",),
    ),
)
