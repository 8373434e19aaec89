"""The options of `replyline bench`, and of its commands for loads: traffic, knee, compare."""

import typer
from rich.console import Console

from ops.command_line import (
    by_options,
    command_typed,
    run,
)
from ops.lab.load.options import CompareOptions, KneeOptions, LadderOptions, LoadOptions, ReplayOptions, TrafficOptions
from ops.lab.own_system import settings_of_own_system
from shared.errors import SettingsError

bench_app = typer.Typer(
    help="Measure a load of your choice, or run one of the programs behind the numbers in docs/measured.md.",
    invoke_without_command=True,
)


def load(context: typer.Context, options: LoadOptions) -> None:
    """Send questions over WebSockets and report TTFT, TPOT, end-to-end time, tok/s, answers by source and goodput."""
    if context.invoked_subcommand is not None:
        return
    from ops.lab.load.bench import bench_load

    if options.rate is not None and options.clients is not None:
        raise SettingsError("--rate and --clients: use one; a rate is an open loop, clients are a closed one")
    if options.input_tokens is not None and options.mix is not None:
        raise SettingsError("--input-tokens and --mix: use one")
    settings = settings_of_own_system(options.url)
    run(lambda: bench_load(options, settings, command_typed(), Console(stderr=True)))


def traffic(options: TrafficOptions) -> None:
    """Send realistic traffic: conversations with time to think, a promotion's crowd, +800 %, all lengths."""
    from ops.lab.load.traffic import bench_traffic, check

    check(options)
    settings = settings_of_own_system(options.url)
    run(lambda: bench_traffic(options, settings, command_typed(), Console(stderr=True)))


def knee(options: KneeOptions) -> None:
    """Find the largest rate at which the answers stay within bounds: increase it until one fails, then search in
    between."""
    from ops.lab.load.knee import bench_knee

    if options.limit < options.start:
        raise SettingsError(f"--limit {options.limit:g}: must be {options.start:g} (--start) or more")
    settings = settings_of_own_system(options.url)
    run(lambda: bench_knee(options, settings, command_typed(), Console(stderr=True)))


def compare(options: CompareOptions) -> None:
    """Decide whether the second result is worse than the first, with ratios and confidence intervals. Exit status 1 for
    a regression."""
    from ops.lab.load.compare import bench_compare

    raise typer.Exit(bench_compare(options, command_typed(), Console(stderr=True)))


def ladder(options: LadderOptions) -> None:
    """Count right answers in time with the ladder and without it, at multiples of what the champion can do."""
    from ops.lab.load.ladder import bench_ladder

    for folder in (options.full, options.light):
        if not (folder / "manifest.json").is_file():
            raise SettingsError(f"{folder}: holds no model; run: replyline model prepare --precision fp32 (or int8)")
    settings = settings_of_own_system(None)
    run(lambda: bench_ladder(options, settings, command_typed(), Console(stderr=True)))


def replay(options: ReplayOptions) -> None:
    """Send recorded requests again, with their original spacing and deadlines, each conversation over its own
    connection."""
    from ops.lab.load.replay import replay as run_replay

    run(lambda: run_replay(options, command_typed(), Console(stderr=True)))


bench_app.callback()(by_options(load))
for _command in (traffic, knee, compare, ladder):
    bench_app.command()(by_options(_command))
