"""The options of `replyline autoscale run`."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from ops.paths import FILE_TO_READ, to_read
from shared.wire.lanes import CHAMPION, Lane
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
    variants: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="the lane's pools, cheapest first: each is for what those before cannot carry"
        ),
    ] = None
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
        str | None,
        typer.Option(
            metavar="cpu|gpu|FILE",
            callback=to_read(names=("cpu", "gpu")),
            help="as of replyline plan (none: a CPU's, as fast as the workers report)",
        ),
    ] = None
    carries: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.0, help="share of a second that a worker may be asked, in place of --costs"),
    ] = None
    calendar: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=FILE_TO_READ, help="the promotions that you know of")
    ] = None
    local: Annotated[bool, typer.Option("--local", help="start and end the workers on this machine")] = False
    deletion_cost: Annotated[
        bool, typer.Option("--deletion-cost", help="in a pod: have Kubernetes end the least busy pods first")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide and log; publish, start and end nothing")] = False
    host: Annotated[str, typer.Option("--metrics-host", help="address of /metrics, /health and /ready")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--metrics-port", min=0, max=65_535, help="its port (0: a free one)")] = 8084
