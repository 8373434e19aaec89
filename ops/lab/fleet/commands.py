"""The options of `replyline autoscale simulate`."""

from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import Costs, HtmlPath, JsonPath, command_typed, one_of, settings_of
from ops.paths import to_read
from ops.traces.recorded import NAMES, read_series
from shared.errors import SettingsError
from shared.process.lifetime import settle_heap
from shared.wire.fields import MAX_SEED

TRACES: Final = ("m-small", "m-mid", "m-large", "azure-conv", "azure-code")
_COLD_STARTS_S: Final = (5.0, 120.0)


class FleetOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline autoscale simulate`."""

    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--trace",
            metavar="NAME|FILE",
            callback=to_read(names=NAMES),
            help=f"{', '.join(TRACES)}; repeatable (default: all of them)",
        ),
    ] = None
    cold_starts_s: Annotated[
        list[float] | None,
        typer.Option("--cold-start-s", min=0, max=3_600, help="from a start to the first answer; repeatable (5, 120)"),
    ] = None
    scalers: Annotated[
        list[str] | None,
        typer.Option(
            "--scaler",
            help="static, clairvoyant, replyline, standby, keda, hpa, knative, llm-d, dynamo; repeatable (default: all "
            "but standby)",
        ),
    ] = None
    goal: Annotated[float, typer.Option(min=0.5, max=0.999, help="share that the model answers in time")] = 0.96
    workers: Annotated[int, typer.Option(min=1, max=24, help="that carry the trace's busiest minute")] = 12
    beliefs: Annotated[
        list[float] | None,
        typer.Option(
            "--belief",
            min=0.1,
            max=10.0,
            help="what ours believes that a worker carries, of what it does; repeatable (default: 0.75, 1, 1.25)",
        ),
    ] = None
    hours: Annotated[
        float | None, typer.Option(min=0.1, max=10_000, help="around the busiest tick (default: the whole trace)")
    ] = None
    costs: Costs = "cpu"
    slots: Annotated[int, typer.Option(min=1, max=4_096, help="sequences that a worker decodes together")] = 16
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="the same seed, the same result")] = 1
    html_path: HtmlPath = None
    json_path: JsonPath = None


def simulate(options: FleetOptions) -> None:
    """Replay recorded traffic on a simulated fleet under our scaler, other scalers, and one that knows the future."""
    from ops.lab.fleet.contest import BELIEFS
    from ops.lab.fleet.curve import LOADS, curve_of
    from ops.lab.fleet.page import page, table
    from ops.lab.fleet.replay import Replay, Told
    from ops.measure.runner import progress_bar, write_html, write_json
    from ops.traces.costs import read_costs
    from ops.virtual_worker.experiment import Experiment

    settings = settings_of("autoscale")
    names = _names(options.scalers)
    series = [read_series(name) for name in options.traces or TRACES]
    experiment = Experiment(slots=options.slots, seed=options.seed, costs=read_costs(options.costs), settings=settings)
    settle_heap()
    console = Console(stderr=True)
    with progress_bar(console, "measuring what a worker carries", len(LOADS)) as progress:
        curve = curve_of(experiment, settings.worker.cache_dir / "curves", progress)
    replay = Replay(
        experiment=experiment,
        curve=curve,
        goal=options.goal,
        workers=options.workers,
        names=names,
        beliefs=options.beliefs or BELIEFS,
        hours=options.hours,
    )
    runs = [(each, cold) for each in series for cold in dict.fromkeys(options.cold_starts_s or _COLD_STARTS_S)]
    told: list[Told] = []
    with progress_bar(console, "replaying", len(runs)) as progress:
        for done, run in enumerate(runs, 1):
            told += replay.rows(*run)
            progress(done)
    rows = [one.row for one in told]
    typer.echo(table(rows))
    write_json(options.json_path, rows)
    if options.html_path is not None:
        write_html(options.html_path, page(told, series, curve, command_typed()), console)


def _names(given: list[str] | None) -> tuple[str, ...]:
    """Return the names of the scalers to compare. Raises `SettingsError`."""
    from ops.lab.fleet.contest import BARS, ENTRIES, OURS, SCALERS

    for name in given or ():
        if name not in (known := (*BARS, OURS, *ENTRIES)):
            raise SettingsError(f"--scaler {name}: {one_of(known)}")
    return tuple(dict.fromkeys(given or SCALERS))
