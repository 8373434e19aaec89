"""Post what happens to a rollout to the operator's address, signed (Standard Webhooks).

They follow from the registry's records, which name those that were taken: the leader after one that dies posts the
others of the last hour. One that was taken as its leader died is posted again under its id.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from gateway.outbound.signed_webhook import SignedWebhook
from ops.lifecycle.rollout.records import POSTED, Rollout
from shared.process.clock import wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.versions.registry import Noted
from shared.wire.codec import json_encode

_LASTS_MS: Final = 60_000
_MOST_PENDING: Final = 32


class Notice(msgspec.Struct, frozen=True):
    """An event of a rollout, in the registry's `epoch`."""

    kind: str
    unix_ms: int
    epoch: int
    reason: str
    numbers: dict[str, float]


def notices(rollout: Rollout, now_unix_ms: float, *, is_frozen: bool) -> Iterator[Notice]:
    """Return the rollout's events so far; a pause, a wait for an approval and a freeze once they last a minute.
    `is_frozen` is the decision of now; the notes may be older."""
    share = 0.0
    for move in rollout.own_moves:
        if (rule := move.state.rule) is not None and rule.share != share:
            kind = "started" if not share else "promoted" if rule.share > share else "stepped_down"
            share = rule.share
            yield Notice(kind, move.unix_ms, move.epoch, move.reason, move.numbers)
    epoch = rollout.moves[rollout.num_moves - 1].epoch if rollout.moves else 0
    if (ended := rollout.ended) is not None:
        yield Notice(rollout.outcome, ended.unix_ms, epoch, ended.reason, ended.numbers)
        return
    kind = "paused" if rollout.held else "awaits_approval" if rollout.paused else "freeze" if is_frozen else ""
    if rollout.begun and (rollout.paused or kind == rollout.judged):
        since = max([rollout.own_moves[-1].unix_ms, *(note.unix_ms for note in rollout.notes if note.kind == kind)])
        if now_unix_ms >= since + _LASTS_MS:
            reason = rollout.paused or rollout.judgements[-1].reason
            yield Notice("frozen" if kind == "freeze" else kind, since, epoch, reason, {})


@dataclass(slots=True)
class Notices:
    """The leader's notices, each posted by its own task; none without an address. `taken` are records to write."""

    webhook: SignedWebhook
    taken: list[Noted] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _posting: Tasks = field(default_factory=lambda: Tasks(task_failed))

    def observe(self, rollout: Rollout | None, *, is_frozen: bool = False) -> None:
        """Begin to post what is new, without waiting for the receiver."""
        settings, now = self.webhook.settings, wire_unix_ms()
        if rollout is None or not settings.webhook_url:
            return
        self._known |= {note.reason for note in rollout.notes if note.kind == POSTED}
        about = {"rollout": rollout.id, "version": rollout.plan.version, "champion": rollout.plan.champion}
        for notice in notices(rollout, now, is_frozen=is_frozen):
            event_id = f"{rollout.id}-{notice.kind}-{notice.unix_ms}"
            if event_id in self._known or not 0 <= now - notice.unix_ms < settings.webhook_give_up_s * 1_000:
                continue
            self._known.add(event_id)
            if len(self._posting) < _MOST_PENDING:
                created = datetime.fromtimestamp(notice.unix_ms / 1_000, UTC).isoformat(timespec="milliseconds")
                data = about | msgspec.to_builtins(notice)
                body = json_encode({"type": f"rollout.{notice.kind}", "timestamp": created, "data": data})
                self._posting.start(self._post(rollout.id, event_id, body, notice.unix_ms), event_id)
            else:
                metrics.rollout_notices.labels("dropped").inc()
                get_logger().error("webhook_dropped", rollout=event_id, pending=_MOST_PENDING)

    async def _post(self, rollout: str, event_id: str, body: bytes, created_unix_ms: int) -> None:
        if await self.webhook.deliver(event_id, body, created_unix_ms):
            self.taken.append(Noted(rollout=rollout, kind=POSTED, reason=event_id, unix_ms=round(wire_unix_ms())))

    async def stand_by(self) -> None:
        """Stop posting: the next leader posts the rest."""
        await self._posting.cancel()
        self._known.clear()
