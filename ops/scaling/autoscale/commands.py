"""`replyline autoscale`: how many workers a pool should have, decided by what is asked."""

import asyncio
from typing import Annotated

import typer

from ops.command_line import settings_of
from ops.operate.letters import when
from ops.operate.listing import duration_ms, show_table
from ops.scaling.autoscale.options import RunOptions
from shared.errors import ProtocolError
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.sockets.listening import ListenAddress
from shared.wire.scaling import ScalingRecord
from shared.wire.topics import BUCKETS


def run(options: RunOptions) -> None:
    """Decide the size of a pool until Ctrl-C. Run two: one leads, and the other takes over if the first one ends."""
    from shared.process.lifetime import run_until_signal

    settings = settings_of("autoscale")
    _check(options)
    raise typer.Exit(run_until_signal(lambda stop: _serve(settings, options, stop)))


def status(
    since: Annotated[str, typer.Option(help="changes of this time: 30s, 15m, 2h, 7d")] = "24h",
) -> None:
    """Say what each pool has, what it should have and why, and how that has changed."""
    records = asyncio.run(_records(settings_of("autoscale"), duration_ms(since)))
    newest = {record.pool: record for record in records}
    if not newest:
        typer.echo(f"nothing was decided in {since}; run: replyline autoscale run")
        return
    titles = ("pool", "wanted", "found", "asked", "expected", "decided", "why")
    show_table(titles, [_row(record) for record in newest.values()], folds={"why"})
    changes = [
        [when(each.unix_ms), each.pool, str(each.wanted), each.reason] for each in records if each.kind == "change"
    ]
    typer.echo("")
    show_table(("changed", "pool", "wanted", "why"), changes[-20:], folds={"why"})


def _row(record: ScalingRecord) -> list[str]:
    asked, expected = (("-" if work is None else f"{work:.2f}") for work in (record.asked, record.expected))
    return [record.pool, str(record.wanted), str(record.found), asked, expected, when(record.unix_ms), record.reason]


async def _records(settings: Settings, since_ms: int) -> list[ScalingRecord]:
    from shared.kafka import scan
    from shared.wire.codec import decode_scaling

    since = int(wire_unix_ms()) - since_ms
    records: list[ScalingRecord] = []
    async for kept in scan(settings.kafka, settings.kafka.topics.scaling, since_unix_ms=since):
        try:
            records.append(decode_scaling(kept.record.value or b""))
        except ProtocolError:
            continue
    return records


def _check(options: RunOptions) -> None:
    """Raise `typer.BadParameter` for options that do not go together."""
    if options.least > options.most:
        raise typer.BadParameter(f"--min {options.least}: write at most --max {options.most}")
    if options.local and options.deletion_cost:
        raise typer.BadParameter("--local starts processes, --deletion-cost is for pods; write one of them")
    if options.carries is not None and options.costs is not None:
        raise typer.BadParameter("--carries and --costs both say what a worker carries; write one of them")
    if options.variants is not None:
        names = options.variants.split(",")
        if options.pool not in names or len(set(names)) < max(len(names), 2):
            wish = f"write two pools or more, each once, --pool {options.pool} among them"
            raise typer.BadParameter(f"--variants {options.variants}: {wish}")
    if strange := set(options.buckets.split(",")) - set(BUCKETS):
        raise typer.BadParameter(
            f"--buckets {options.buckets}: {min(strange)!r} is no bucket; write some of {','.join(BUCKETS)}"
        )


async def _serve(settings: Settings, options: RunOptions, stop: asyncio.Event) -> None:
    """Run an autoscaler with its page of metrics until `stop`. Raises `ListenError`."""
    from ops.scaling.autoscale.building import build

    autoscaler = build(settings, options)
    address = ListenAddress(options.host, options.port, "--metrics-host", "--metrics-port")
    async with autoscaler.leadership.status(address):
        await autoscaler.run(stop)
