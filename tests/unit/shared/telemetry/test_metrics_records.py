"""Metrics of records: series that alerts need start at 0, and dead letters are counted apart from dropped records."""

import asyncio
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client import REGISTRY

from shared.kafka import Record
from shared.records.log_readers import read_erasures, read_reports
from shared.telemetry import metrics
from shared.wire.messages import HandoffReason
from tests.support.hostile.poison_records import POISON
from workers.intake.cancels import read_cancels
from workers.request.recent_answers import RecentCancels

DOCUMENT = Path(__file__).parents[4] / "docs" / "dead-letters.md"


def ignored(what: str) -> float:
    found = REGISTRY.get_sample_value("replyline_records_ignored_total", {"what": what})
    assert found is not None
    return found


def dead_letters() -> float:
    return sum(sample.value for sample in metrics.dead_letters.collect()[0].samples if sample.name.endswith("_total"))


def test_every_dead_letter_reason_is_exported_before_the_first_one() -> None:
    """These are the documented reasons; the alert needs a rise from 0, not a series that begins."""
    table = DOCUMENT.read_text().partition("| reason |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE))
    assert set(metrics.DEAD_LETTER_REASONS) == explained
    assert {poison.reason for poison in POISON.values()} <= explained
    assert all((reason,) in metrics.dead_letters._metrics for reason in explained)


def test_every_handoff_outcome_is_exported_before_the_first_one() -> None:
    wanted = set(product(get_args(HandoffReason), ("created", "open", "failed", "limited")))
    assert metrics.handoffs._metrics.keys() == wanted


@dataclass
class OnceReader:
    """Returns one batch, then ends."""

    values: list[bytes]
    was_read: bool = False

    async def start(self) -> None:
        pass

    async def read(self) -> list[Record]:
        if self.was_read:
            raise asyncio.CancelledError
        self.was_read = True
        return [Record("chat.any", 0, offset, b"k", value) for offset, value in enumerate(self.values)]


@pytest.mark.parametrize("what", ["report", "cancel", "erasure"])
async def test_an_unreadable_record_that_is_not_stored_is_no_dead_letter(what: str) -> None:
    """`replyline dlq list` would not show it."""
    reader: Any = OnceReader([b"", b"\xc1"])
    before, letters = ignored(what), dead_letters()
    reading = {
        "report": lambda: read_reports(reader, lambda *_: None),
        "cancel": lambda: read_cancels(
            reader,
            partitions=lambda: None,
            answered=set,
            cancel=lambda _: True,
            cancelled=RecentCancels(),
            adopt=lambda _: None,
        ),
        "erasure": lambda: read_erasures(reader, lambda *_: None),
    }
    with pytest.raises(asyncio.CancelledError):
        await reading[what]()
    assert ignored(what) == before + 2
    assert dead_letters() == letters
