"""`replyline dlq`: list dead letters and replay them (docs/dead-letters.md)."""

import asyncio
import sys
from collections import deque
from typing import Annotated

import typer

from ops.command_line import settings_of
from ops.operate.letters import (
    Letter,
    as_json,
    letter_of,
    number_of,
    page,
    parse_number,
    put_back,
    refusal,
    row,
)
from ops.operate.listing import duration_ms, say, show_table, unknown
from shared.errors import BrokerUnavailable, ReplylineError
from shared.kafka import Producer, read_at, scan
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.wire.lanes import LANES
from shared.wire.topics import BUCKETS, TopicNames

dlq_app = typer.Typer(
    help="List and replay dead letters: records that could not be decoded or served.", no_args_is_help=True
)

_COLUMNS = ("number", "when", "reason", "origin", "key", "tries")

Numbers = Annotated[list[str], typer.Argument(metavar="NUMBER...", help="numbers as shown by `list`")]


@dlq_app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="show only this many of the newest")] = 50,
    since: Annotated[str | None, typer.Option(help="show none older than this: 30s, 15m, 2h, 7d")] = None,
    reason: Annotated[str | None, typer.Option(help="show only this reason, for example invalid_record")] = None,
    as_lines: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List what was set aside, when, why, and where it came from. Customers' texts are never printed."""
    since_unix_ms = None if since is None else now_unix_ms() - duration_ms(since)
    letters = asyncio.run(_newest(settings_of("dlq"), limit, since_unix_ms, reason))
    if as_lines:
        for letter in letters:
            sys.stdout.write(as_json(row(letter)) + "\n")
        return
    if not letters:
        sys.stdout.write("no dead letters\n")
        return
    told = [row(letter) | {"origin": str(letter.origin or "unknown")} for letter in letters]
    cells = [[str(each[title] or "") for title in _COLUMNS] for each in told]
    show_table(_COLUMNS, cells, folds={"reason", "origin", "key"})


@dlq_app.command()
def show(
    number: Annotated[str, typer.Argument(help="number as shown by `list`")],
    text: Annotated[bool, typer.Option("--text", help="also print the customer's text, unchanged")] = False,
) -> None:
    """Print one dead letter as JSON: its headers and its value. Of the customer's text only the length is printed."""
    letter = asyncio.run(_letter(settings_of("dlq"), *_place(number)))
    if letter is None:
        raise typer.Exit(unknown(f"{number}: no such dead letter; see: replyline dlq list"))
    sys.stdout.write(as_json(page(letter, text=text), indent=2) + "\n")


@dlq_app.command()
def replay(
    numbers: Numbers,
    force: Annotated[
        bool, typer.Option("--force", help="also replay malformed records and those whose deadline has passed")
    ] = False,
) -> None:
    """Put records back into their topics, byte for byte. A record that was served already is served twice."""
    places = list(dict.fromkeys(_place(number) for number in numbers))
    raise typer.Exit(asyncio.run(_replay(settings_of("dlq"), places, force=force)))


async def _newest(settings: Settings, limit: int, since_unix_ms: float | None, reason: str | None) -> list[Letter]:
    """Return the newest letters in the order in which they were written."""
    kafka = settings.kafka
    newest: deque[Letter] = deque(maxlen=limit)
    records = scan(
        kafka,
        kafka.topics.dead_letters,
        since_unix_ms=None if since_unix_ms is None else max(0, int(since_unix_ms)),
        newest=limit if reason is None else None,
    )
    async for kept in records:
        letter = letter_of(kept)
        if reason in {None, letter.reason}:
            newest.append(letter)
    return sorted(newest, key=lambda letter: (letter.written_unix_ms, letter.partition, letter.offset))


async def _letter(settings: Settings, partition: int, offset: int) -> Letter | None:
    kept = await read_at(settings.kafka, settings.kafka.topics.dead_letters, partition, offset)
    return None if kept is None else letter_of(kept)


async def _replay(settings: Settings, places: list[tuple[int, int]], *, force: bool) -> int:
    """Put records back. Return 0 if all were put back, 2 if a number names no letter, otherwise 1."""
    letters = [await _letter(settings, *place) for place in places]
    producer = Producer(settings.kafka, client_id="replyline-dlq")
    await producer.start()
    try:
        outcomes = [
            await _put_back(producer, settings.kafka.topics, place, letter, force=force)
            for place, letter in zip(places, letters, strict=True)
        ]
    finally:
        await producer.stop()
    return max(outcomes)


async def _put_back(
    producer: Producer, topics: TopicNames, place: tuple[int, int], letter: Letter | None, *, force: bool
) -> int:
    if letter is None:
        return unknown(f"{number_of(*place)}: no such dead letter; see: replyline dlq list")
    request_topics = {topics.inbox, *(topics.requests(bucket, lane) for lane in LANES for bucket in BUCKETS)}
    why_not = refusal(letter, request_topics, now_unix_ms(), force=force)
    if why_not is not None or letter.origin is None:
        return say(f"{letter.number}: not put back: {why_not}")
    try:
        await producer.publish(put_back(letter, letter.origin))
    except BrokerUnavailable as error:
        return say(f"{letter.number}: not acknowledged: {error}; it may have been written")
    except ReplylineError as error:
        return say(f"{letter.number}: not put back: {error}")
    place_now = f"{letter.origin.topic}, partition {letter.origin.partition}"
    sys.stdout.write(f"{letter.number}: put back to {place_now}, try {letter.tries + 1}\n")
    return 0


def _place(number: str) -> tuple[int, int]:
    place = parse_number(number)
    if place is None:
        raise typer.BadParameter(f"{number}: is not the number of a dead letter; write 17, or 2/17 for partition 2")
    return place
