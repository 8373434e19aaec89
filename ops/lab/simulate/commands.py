"""The options of `replyline simulate`."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import Costs, JsonPath, one_of, settings_of
from ops.paths import FILE_TO_WRITE, to_read
from ops.traces.drawn import KINDS
from shared.errors import SettingsError
from shared.process.lifetime import settle_heap
from shared.wire.fields import MAX_SEED

_DEFAULT_LOAD: Final = 1.5


class SimulateOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline simulate`."""

    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--trace",
            metavar="NAME|FILE",
            callback=to_read(names=tuple(KINDS)),
            help="poisson, bimodal, burst, surge, diurnal, heavy, promotion, sessions, spread, or a JSONL "
            "file; repeatable (default: bimodal)",
        ),
    ] = None
    loads: Annotated[
        list[float] | None,
        typer.Option(
            "--load", min=0.01, max=1_000, help="multiples of capacity; repeatable (default: 1.5, of a file: its own)"
        ),
    ] = None
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="by name, or all but reserve and ladder; repeatable (default: all)"),
    ] = None
    slots: Annotated[int, typer.Option(min=1, max=4_096, help="sequences decoded together")] = 16
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="of arrivals; then all are served to their ends")
    ] = 120.0
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="the same seed, the same result")] = 1
    lengths: Annotated[
        Literal["known", "predicted"], typer.Option(help="whether the scheduler knows the answers' lengths")
    ] = "predicted"
    costs: Costs = "cpu"
    profile: Annotated[
        Literal["cpu", "gpu"] | None, typer.Option(help="the product's deadlines (default: by the costs)")
    ] = None
    noise: Annotated[
        float, typer.Option(min=0, max=1, help="standard deviation of each call's time, as a share of it")
    ] = 0.0
    admission: Annotated[bool, typer.Option(help="put the gateway's admission before our policy")] = True
    light: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="cost of the ladder's light model, as a share of the champion's"),
    ] = 0.25
    plot_path: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            callback=FILE_TO_WRITE,
            help="write what became of the requests: an SVG of bars",
        ),
    ] = None
    json_path: JsonPath = None


def simulate(options: SimulateOptions) -> None:
    """Simulate traces with the worker's own scheduler in virtual time, and compare it with other policies and the
    offline bound."""
    from ops.lab.simulate.comparison import Comparison
    from ops.lab.simulate.summary import table
    from ops.measure.runner import progress_bar, write_json
    from ops.traces.costs import read_costs

    experiment = Comparison(
        traces=_traces(options.traces),
        loads=_loads(options.traces, options.loads),
        policies=_policies(options.policies),
        slots=options.slots,
        seconds=options.seconds,
        seed=options.seed,
        lengths=options.lengths,
        costs=read_costs(options.costs, options.profile),
        noise=options.noise,
        admission=options.admission,
        light=options.light,
        settings=settings_of("simulate"),
    )
    settle_heap()
    console = Console(stderr=True)
    with progress_bar(console, "simulating", experiment.num_runs) as progress:
        rows = experiment.run(progress)
    typer.echo(table(rows))
    write_json(options.json_path, rows)
    if options.plot_path is not None:
        from ops.lab.simulate.plot import plot

        options.plot_path.write_text(plot(rows), encoding="utf-8")
        console.print(f"plot: {options.plot_path}")


def _traces(given: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(given or ["bimodal"]))


def _loads(traces: list[str] | None, given: list[float] | None) -> tuple[float | None, ...]:
    if given:
        return tuple(dict.fromkeys(given))
    made = [name in KINDS for name in traces or ["bimodal"]]
    if any(made) and not all(made):
        raise SettingsError("--trace: a recorded file beside others needs a --load")
    return (_DEFAULT_LOAD,) if all(made) else (None,)


def _policies(given: list[str] | None) -> tuple[str, ...]:
    from ops.lab.simulate.comparison import ALL_POLICIES, KNOWN_POLICIES

    names = tuple(dict.fromkeys(given or ["all"]))
    if "all" in names:
        return ALL_POLICIES
    for name in names:
        if name not in KNOWN_POLICIES:
            raise SettingsError(f"--policy {name}: {one_of(('all', *KNOWN_POLICIES))}")
    return names
