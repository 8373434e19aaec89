"""One process of `replyline bench produce`: records to Kafka as fast as it can, or at a rate; its order on stdin.

It prints one line of JSON. librdkafka does it: aiokafka makes 35,000 to 40,000 records a second on a core.
"""

import resource
import signal
import sys
import time
from collections import Counter
from typing import Final

import msgspec
from confluent_kafka import Producer

from shared.process.clock import now_unix_ms
from shared.wire.topics import CE_ID
from tests.bench.produce.order import Order, Produced
from tests.bench.produce.records import Template, request_id, session_id

# Records between two looks at the clock, and how old their times may be.
_BATCH: Final = 500
_RENEW_S: Final = 0.25
_POLL_S: Final = 0.02
_SHORTEST_POLL_S: Final = 0.0005
_FLUSH_S: Final = 60.0


class ProducerProcess:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._producer = Producer({**order.config, "on_delivery": self._undelivered})
        self._stopped = False
        self._sent = 0
        self._value_bytes = 0
        self._by_bucket: Counter[str] = Counter()
        self._failed = 0
        self._error = ""
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> Produced:
        """Until the time is over, all is written, or SIGTERM; then wait until all is acknowledged."""
        order = self._order
        time.sleep(max(0.0, order.start_s - time.monotonic()))
        start_s, cpu_s = time.monotonic(), _cpu_s()
        templates, made_s = order.stock.templates(now_unix_ms()), start_s
        while not self._stopped and self._sent < order.requests:
            now_s = time.monotonic()
            if now_s - start_s >= order.seconds:
                break
            if now_s - made_s > _RENEW_S:
                templates, made_s = order.stock.templates(now_unix_ms()), now_s
            due = self._due(now_s - start_s)
            if due > self._sent:
                self._write(templates, min(due, self._sent + _BATCH))
                self._producer.poll(0)
            else:
                self._producer.poll(_SHORTEST_POLL_S)
        left = self._producer.flush(_FLUSH_S)
        return Produced(
            sent=self._sent,
            failed=self._failed,
            unacknowledged=left,
            value_bytes=self._value_bytes,
            by_bucket=dict(self._by_bucket),
            start_s=start_s,
            end_s=time.monotonic(),
            cpu_s=_cpu_s() - cpu_s,
            error=self._error,
        )

    def _due(self, elapsed_s: float) -> int:
        """How many are to have been written by now."""
        most, rate = self._order.requests, self._order.rate
        return most if rate is None else min(most, int(elapsed_s * rate) + 1)

    def _write(self, templates: list[Template], until: int) -> None:
        produce, sessions, run = self._producer.produce, self._order.sessions, self._order.run
        for number in range(self._sent, until):
            template = templates[number % len(templates)]
            name, session = request_id(run, number), session_id(number % sessions)
            value, key = template.value(name, session), template.key(session)
            headers: list[tuple[str, str | bytes | None]] = [(CE_ID, name), *template.headers]
            while True:
                try:
                    produce(template.topic, value, key, headers=headers)
                    break
                except BufferError:  # the broker is the slower one
                    self._producer.poll(_POLL_S)
                    if self._stopped:
                        return
            self._by_bucket[template.bucket] += 1
            self._value_bytes += len(value)
            self._sent = number + 1

    def _undelivered(self, error: object, _message: object) -> None:
        self._failed += 1
        self._error = self._error or str(error)

    def _stop(self, *_: object) -> None:
        self._stopped = True


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(ProducerProcess(order).run()) + b"\n")


if __name__ == "__main__":
    main()
