"""The programs of `replyline bench` that measure a fleet: workers that come and go, and what decides at its size."""

from typing import Annotated

import typer
from rich.console import Console

from ops.load.options import JsonPath, check_range, run, settings_for
from shared.errors import SettingsError


def join(
    window: Annotated[float, typer.Option("--window-s", help="each event is watched for so long, at least")] = 15.0,
    group: Annotated[
        list[str] | None,
        typer.Option(help='how partitions are shared out, repeatable [default: "round robin", sticky, "sticky, ids"]'),
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """What a worker that joins, leaves or dies stops of the others; on Apache Kafka."""
    from tests.bench.fleet.join import GROUPS, JoinOptions, bench_join

    check_range({"--window-s": window}, least=1)
    if unknown := set(group or ()) - set(GROUPS):
        raise SettingsError(f"--group {min(unknown)}: must be one of {', '.join(map(repr, GROUPS))}")
    options = JoinOptions(window, [name for name in GROUPS if not group or name in group], json_path)
    settings = settings_for(None)
    run(lambda: bench_join(settings, options, Console(stderr=True)))


def scale(
    requests: Annotated[int, typer.Option(help="admitted, of each size")] = 20_000,
    connects: Annotated[float, typer.Option(help="clients a second that a gateway's core takes back")] = 1_500.0,
    tell_us: Annotated[float, typer.Option(help="CPU of a gateway for a reply, in microseconds")] = 38.0,
    busy: Annotated[float, typer.Option(help="share of its core that a gateway's own clients take")] = 0.4,
    json_path: JsonPath = None,
) -> None:
    """What decides, with 100 workers, 5,000 tenants and 1,000 partitions; and a gateway's death with 10,000 streams."""
    from tests.bench.fleet.scale import Gateways, bench_scale

    check_range({"--requests": requests, "--connects": connects, "--tell-us": tell_us}, least=1)
    if not 0 <= busy < 1:
        raise SettingsError(f"--busy {busy:g}: must be 0 or more, and below 1")
    gateways = Gateways(connects_per_s=connects, tell_us=tell_us, busy=busy)
    run(lambda: bench_scale(requests=requests, gateways=gateways, json_path=json_path))
