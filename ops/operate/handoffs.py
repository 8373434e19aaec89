"""`replyline handoffs`: list the customers who wait for a person, and mark hand-offs as resolved."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import typer

from ops.command_line import settings_of
from ops.operate.letters import as_json, printable, when
from ops.operate.listing import duration_ms, say, show_table, unknown
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.handoffs import Handoff, decode_handoff
from shared.errors import ProtocolError, StoreUnavailable
from shared.kafka import TimedRecord, scan, tail
from shared.process.clock import now_unix_ms
from shared.settings import Settings

handoffs_app = typer.Typer(help="List customers who wait for a person.", no_args_is_help=True)

_COLUMNS: Final = ("when", "id", "reason", "language", "open", "tenant", "session")

Lines = Annotated[
    bool, typer.Option("--json", help="print one JSON object per line, with the transcript's key and the answers")
]


@handoffs_app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="show only this many of the newest")] = 50,
    since: Annotated[str | None, typer.Option(help="show none older than this: 30s, 15m, 2h, 7d")] = None,
    as_lines: Lines = False,
) -> None:
    """List who asked for a person, when and why, and whether they still wait. Customers' texts are never printed."""
    since_unix_ms = None if since is None else now_unix_ms() - duration_ms(since)
    settings = settings_of("handoffs")
    rows = asyncio.run(_newest(settings, limit, since_unix_ms))
    if as_lines:
        for row in rows:
            sys.stdout.write(as_json(row) + "\n")
        return
    if not rows:
        sys.stdout.write("no customer has asked for a person\n")
        return
    show_table(_COLUMNS, [[str(row[title]) for title in _COLUMNS] for row in rows], folds={"tenant", "session"})


@handoffs_app.command()
def follow(as_lines: Lines = False) -> None:
    """Print each new hand-off until Ctrl-C."""

    def tell(row: dict[str, Any]) -> None:
        line = as_json(row) if as_lines else "  ".join(printable(str(row[title])) for title in _COLUMNS)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    try:
        asyncio.run(_follow(settings_of("handoffs"), tell))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@handoffs_app.command()
def resolve(
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="ids as shown by `list`, or their beginning")],
) -> None:
    """Mark hand-offs as resolved: the customer may ask for a person again."""
    if not all(map(_stem, names)):
        raise typer.BadParameter("NAMES has a blank one; write each as `replyline handoffs list` shows it")
    raise typer.Exit(asyncio.run(_resolve(settings_of("handoffs"), names)))


async def _newest(settings: Settings, limit: int, since_unix_ms: float | None) -> list[dict[str, Any]]:
    since = None if since_unix_ms is None else max(0, int(since_unix_ms))
    records = scan(settings.kafka, settings.kafka.topics.handoffs, since_unix_ms=since, newest=limit)
    found = deque([handoff async for handoff in _handoffs(records)], maxlen=limit)
    async with _store(settings) as is_open:
        return [row(handoff, await is_open(handoff)) for handoff in found]


async def _follow(settings: Settings, tell: Callable[[dict[str, Any]], None]) -> None:
    async with _store(settings) as is_open:
        async for handoff in _handoffs(tail(settings.kafka, settings.kafka.topics.handoffs)):
            tell(row(handoff, await is_open(handoff)))


async def _resolve(settings: Settings, names: list[str]) -> int:
    """Resolve hand-offs. Return 0 if all were open, 2 if a name does not name exactly one, otherwise 1."""
    recorded = [each async for each in _handoffs(scan(settings.kafka, settings.kafka.topics.handoffs))]
    store = HandoffStore(settings.redis)
    try:
        return max([await _resolve_one(store, name, recorded) for name in names])
    finally:
        await store.close()


async def _resolve_one(store: HandoffStore, name: str, recorded: list[Handoff]) -> int:
    found = {each.id: each for each in recorded if _stem(each.id).startswith(_stem(name))}
    if len(found) != 1:
        told = "no such hand-off" if not found else f"{len(found)} ids begin with this; write more of it"
        return unknown(f"{name}: {told}; see: replyline handoffs list")
    [handoff] = found.values()
    try:
        if not await store.remove(handoff):
            return say(f"{handoff.id}: is not open: resolved, erased with its conversation, or its time has passed")
    except StoreUnavailable as error:
        return say(f"{handoff.id}: not resolved: {error}")
    sys.stdout.write(f"{handoff.id}: resolved\n")
    return 0


async def _handoffs(records: AsyncIterator[TimedRecord]) -> AsyncIterator[Handoff]:
    """Yield the hand-offs in the order of their records, each id once: delivery is at least once. Other records are
    skipped."""
    seen: set[str] = set()
    async for kept in records:
        try:
            handoff = decode_handoff(kept.record.value)
        except ProtocolError:
            continue
        if handoff.id not in seen:
            seen.add(handoff.id)
            yield handoff


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Callable[[Handoff], Awaitable[str]]]:
    """Provide a function that returns whether a hand-off is open: yes, no, or unknown if Redis does not answer."""
    store = HandoffStore(settings.redis)

    async def is_open(handoff: Handoff) -> str:
        try:
            kept = await store.find(handoff.session)
        except StoreUnavailable:
            return "unknown"
        return "yes" if kept is not None and kept.id == handoff.id else "no"

    try:
        yield is_open
    finally:
        await store.close()


def row(handoff: Handoff, is_open: str) -> dict[str, Any]:
    """Return one row of the list."""
    return {
        "when": when(handoff.created_unix_ms),
        "id": handoff.id,
        "reason": handoff.reason,
        "language": handoff.language,
        "open": is_open,
        "tenant": handoff.tenant,
        "session": handoff.session_id,
        "transcript": handoff.transcript,
        "response_ids": list(handoff.response_ids),
    }


def _stem(name: str) -> str:
    return name.removeprefix("handoff_")
