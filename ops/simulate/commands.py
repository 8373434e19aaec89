"""The options of `replyline simulate`."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console

from shared.errors import SettingsError
from shared.process.lifetime import settle_heap
from shared.settings import load_settings
from shared.telemetry.logs import configure_logs

_MOST_LOAD: Final = 1_000.0
_MOST_SECONDS: Final = 86_400.0
_MOST_SLOTS: Final = 4_096
_MOST_NOISE: Final = 1.0
_DEFAULT_LOAD: Final = 1.5


def simulate(
    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--trace",
            help="poisson, bimodal, burst, surge, diurnal, heavy, promotion, sessions, spread, or a JSONL "
            "file; repeatable [default: bimodal]",
        ),
    ] = None,
    loads: Annotated[
        list[float] | None,
        typer.Option("--load", help="in multiples of capacity; repeatable [default: 1.5, of a file: as recorded]"),
    ] = None,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", help="by name, or all; repeatable [default: all]")
    ] = None,
    slots: Annotated[int, typer.Option(help="sequences decoded together")] = 16,
    seconds: Annotated[float, typer.Option(help="of arrivals; then all are served to their ends")] = 120.0,
    seed: Annotated[int, typer.Option(help="the same seed, the same result")] = 1,
    lengths: Annotated[
        Literal["known", "predicted"], typer.Option(help="whether the scheduler is told the answers' lengths")
    ] = "predicted",
    costs: Annotated[
        str, typer.Option(help="cpu (measured), gpu (given), or the file of a worker's calibration")
    ] = "cpu",
    profile: Annotated[
        Literal["cpu", "gpu"] | None, typer.Option(help="the product's deadlines [default: by the costs]")
    ] = None,
    noise: Annotated[float, typer.Option(help="standard deviation of each call's time, as a share of it")] = 0.0,
    admission: Annotated[bool, typer.Option(help="put the gateway's admission before our policy")] = True,
    plot_path: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="write what became of the requests: an SVG of bars")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the rows, with stable keys")
    ] = None,
) -> None:
    """Run traces through the worker's own scheduler in virtual time, beside other policies and the offline bound."""
    from ops.measure.runner import check_writable, progress_bar, write_json
    from ops.simulate.experiment import Experiment
    from ops.simulate.summary import table
    from ops.traces.costs import read_costs

    settings = load_settings()
    configure_logs(settings.log, process="simulate")
    _within({"--slots": slots}, least=1, most=_MOST_SLOTS)
    _within({"--seconds": seconds}, least=1, most=_MOST_SECONDS)
    _within({"--noise": noise}, least=0, most=_MOST_NOISE)
    for load in loads or []:
        _within({"--load": load}, least=0.01, most=_MOST_LOAD)
    check_writable(json_path)
    _check_writable("--plot", plot_path)
    experiment = Experiment(
        traces=_traces(traces),
        loads=_loads(traces, loads),
        policies=_policies(policies),
        slots=slots,
        seconds=seconds,
        seed=seed,
        lengths=lengths,
        costs=read_costs(costs, profile),
        noise=noise,
        admission=admission,
        settings=settings,
    )
    settle_heap()
    console = Console(stderr=True)
    with progress_bar(console, "simulating", experiment.num_runs) as progress:
        rows = experiment.run(progress)
    typer.echo(table(rows))
    write_json(json_path, rows)
    if plot_path is not None:
        from ops.simulate.plot import plot

        plot_path.write_text(plot(rows), encoding="utf-8")
        console.print(f"plot: {plot_path}")


def _traces(given: list[str] | None) -> tuple[str, ...]:
    from ops.traces.drawn import KINDS

    names = tuple(dict.fromkeys(given or ["bimodal"]))
    for name in names:
        if name not in KINDS and not Path(name).is_file():
            raise SettingsError(f"--trace {name}: is no file, and none of {', '.join(KINDS)}")
    return names


def _loads(traces: list[str] | None, given: list[float] | None) -> tuple[float | None, ...]:
    from ops.traces.drawn import KINDS

    if given:
        return tuple(dict.fromkeys(given))
    made = [name in KINDS for name in traces or ["bimodal"]]
    if any(made) and not all(made):
        raise SettingsError("--trace: a recorded file beside others needs a --load")
    return (_DEFAULT_LOAD,) if all(made) else (None,)


def _policies(given: list[str] | None) -> tuple[str, ...]:
    from ops.simulate.experiment import ALL_POLICIES

    names = tuple(dict.fromkeys(given or ["all"]))
    if "all" in names:
        return ALL_POLICIES
    for name in names:
        if name not in ALL_POLICIES:
            raise SettingsError(f"--policy {name}: none of all, {', '.join(ALL_POLICIES)}")
    return names


def _within(options: dict[str, float], *, least: float, most: float) -> None:
    """Raises `SettingsError`, one line a fault."""
    wrong = [f"{name} {value:g}" for name, value in options.items() if not least <= value <= most]
    if wrong:
        raise SettingsError("\n".join(f"{given}: must be {least:g} to {most:g}" for given in wrong))


def _check_writable(option: str, path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise SettingsError(f"{option} {path}: {path.parent} is no directory; make it first")
