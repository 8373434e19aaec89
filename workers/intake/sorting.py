"""Sort records by their headers: skip them, answer them without decoding, or park them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.kafka import Record
from shared.process.clock import wire_unix_ms
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.records.processor import RecordProcessor
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from workers.intake.triage import Late, Triage, TriageDecision
from workers.request.open_answers import OpenAnswers

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """Sorts records. `park` stores those that are to begin."""

    triage: Triage
    offsets: OffsetTracker
    answers: OpenAnswers
    processor: RecordProcessor
    park: Callable[[Record], None]

    def sort(self, records: Sequence[Record]) -> None:
        """Skip records that are too late, done or under way; park the rest."""
        now, skipped = wire_unix_ms(), 0
        for record in records:
            try:
                skipped += self._sort_one(record, now)
            except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
                self.offsets.open(*record.origin)
                self.processor.start(record, error)
        if skipped:
            log.info("expired_skipped", records=skipped)

    def _sort_one(self, record: Record, now: float) -> bool:
        """Sort a record; return whether it is skipped."""
        fate = self.triage.classify(record.headers, record.key, now)
        if fate is TriageDecision.SKIP:
            self.offsets.skip(*record.origin)
        elif not self.offsets.open(*record.origin):
            return False
        elif isinstance(fate, Late):
            self.answer_unread(fate, record.origin)
        else:
            self.park(record)
        return fate is TriageDecision.SKIP

    def answer_unread(self, late: Late, origin: tuple[Partition, int]) -> None:
        self.offsets.claim(*origin)
        if self.answers.unread.answer((late.topic, late.partition), late.done, origin):
            metrics.infer.labels(late.done.status, late.done.reason).inc()
            metrics.outcomes.labels("missed").inc()
