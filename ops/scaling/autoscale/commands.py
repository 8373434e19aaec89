"""`replyline autoscale`: how many workers a pool should have, decided by what is asked."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from ops.command_line import settings_of
from ops.operate.letters import when
from ops.operate.listing import duration_ms, show_table
from shared.errors import ProtocolError
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.sockets.listening import ListenAddress
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.scaling import ScalingRecord
from shared.wire.topics import BUCKETS


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline autoscale run`."""

    pool: Annotated[str, typer.Option(metavar="NAME", help="the pool's name, in the metrics and in chat.scaling")] = (
        "main"
    )
    lane: Annotated[Lane, typer.Option(help="the lane of its workers")] = CHAMPION
    buckets: Annotated[str, typer.Option(help="the lengths that its workers serve")] = ",".join(BUCKETS)
    least: Annotated[int, typer.Option("--min", min=0, max=10_000, help="workers at least")] = 1
    most: Annotated[
        int, typer.Option("--max", min=1, max=10_000, help="workers at most; never more than a topic has partitions")
    ] = 100
    standby: Annotated[int, typer.Option(min=0, max=1_000, help="workers more than the work needs, for a burst")] = 0
    attainment: Annotated[float, typer.Option(min=0.5, max=0.9999, help="share to be answered whole in time")] = 0.96
    stabilisation_s: Annotated[
        float,
        typer.Option("--stabilisation-s", min=0, max=86_400, help="s for which fewer must be enough before a shrink"),
    ] = 900.0
    cold_start_s: Annotated[
        float,
        typer.Option("--cold-start-s", min=0, max=3_600, help="until a wanted worker serves; then it is measured"),
    ] = 60.0
    costs: Annotated[
        str | None, typer.Option(help="as of replyline plan (none: a CPU's, as fast as the workers report)")
    ] = None
    carries: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.0, help="share of a second that a worker may be asked, in place of --costs"),
    ] = None
    forecast: Annotated[str, typer.Option(help="the model, as of replyline forecast")] = ""
    calendar: Annotated[Path | None, typer.Option(metavar="FILE", help="the promotions that you know of")] = None
    local: Annotated[bool, typer.Option("--local", help="start and end the workers on this machine")] = False
    deletion_cost: Annotated[
        bool, typer.Option("--deletion-cost", help="in a pod: have Kubernetes end the least busy pods first")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide and log; publish, start and end nothing")] = False
    host: Annotated[str, typer.Option("--metrics-host", help="address of /metrics, /health and /ready")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--metrics-port", min=0, max=65_535, help="its port (0: a free one)")] = 8084


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
    return sorted(records, key=lambda record: record.unix_ms)


def _check(options: RunOptions) -> None:
    """Raise `typer.BadParameter` for options that do not go together."""
    if options.least > options.most:
        raise typer.BadParameter(f"--min {options.least} is more than --max {options.most}")
    if options.local and options.deletion_cost:
        raise typer.BadParameter("--local starts processes, --deletion-cost is for pods: give one of them")
    if options.carries is not None and options.costs is not None:
        raise typer.BadParameter("--carries and --costs both say what a worker carries: give one of them")
    if strange := set(options.buckets.split(",")) - set(BUCKETS):
        raise typer.BadParameter(f"--buckets {min(strange)!r}: write some of {','.join(BUCKETS)}")


async def _serve(settings: Settings, options: RunOptions, stop: asyncio.Event) -> None:
    """Run an autoscaler with its page of metrics until `stop`. Raises `ListenError`."""
    from ops.scaling.autoscale.building import build
    from shared.telemetry.status import serve_status

    autoscaler = build(settings, options)
    address = ListenAddress(options.host, options.port, "--metrics-host", "--metrics-port")
    async with await serve_status(address, autoscaler.leadership.readiness()):
        await autoscaler.run(stop)
