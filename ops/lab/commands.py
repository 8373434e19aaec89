"""The laboratory's commands: simulations, loads, comparisons and drills. `replyline` imports them when one is named."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console

from ops.command_line import MEASURE_PANEL, OPERATE_PANEL, VERSIONS_PANEL, by_options, settings_of
from ops.lab.drill.commands import drill
from ops.lab.fleet.commands import simulate as simulate_fleet
from ops.lab.forecast.commands import forecast
from ops.lab.load.commands import bench_app, replay
from ops.lab.optimize.commands import optimize_app
from ops.lab.rollout.commands import simulate as simulate_rollouts
from ops.lab.simulate.commands import simulate
from ops.paths import FILE_TO_WRITE, FOLDER_TO_READ

_root = typer.Typer()
_autoscale = typer.Typer()
_rollout = typer.Typer()

# By the group of `replyline` to which the commands are added.
APPS: Final = {"replyline": _root, "autoscale": _autoscale, "rollout": _rollout}


def _harness(name: str) -> ModuleType | None:
    """Return the commands of a maintainers' harness; None outside of a checkout, which has them under tests/."""
    try:
        return import_module(f"tests.{name}.commands")
    except ModuleNotFoundError as error:
        if error.name not in {"tests", f"tests.{name}", f"tests.{name}.commands"}:
            raise
        return None


@_root.command("profile", rich_help_panel=MEASURE_PANEL)
def profile_(
    batch: Annotated[int, typer.Option(min=1, max=512, help="sequences computed together")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="length of each prompt")] = 256,
    prefills: Annotated[int, typer.Option(min=1, max=1_000, help="number of prefills measured")] = 5,
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="number of decode steps measured")] = 32,
    engine: Annotated[
        Literal["native", "onnx", "tensorrt", "tensorrt-rtx", "torch"] | None,
        typer.Option(help="engine to profile (default: the setting)"),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(callback=FOLDER_TO_READ, help="the model's folder (default: REPLYLINE_MODEL__DIR)")
    ] = None,
    trace: Annotated[
        Path, typer.Option(metavar="FILE", callback=FILE_TO_WRITE, help="the Chrome trace to write")
    ] = Path("profile.json"),
) -> None:
    """Show where an engine call spends its time, as a Chrome trace of the runtime's own profiler."""
    from ops.lab.profile import ProfileOptions, profile

    options = ProfileOptions(batch=batch, prompt_tokens=prompt_tokens, prefills=prefills, steps=steps, trace=trace)
    worker: dict[str, Any] = {"slots": batch, "max_length": options.max_length}
    if engine is not None:
        worker["engine"] = engine
    overrides = {} if model is None else {"model": {"dir": model}}
    told = profile(settings_of("profile", worker=worker, **overrides), options)
    Console().print(f"{told}\ntrace: {trace} (ui.perfetto.dev, chrome://tracing)", soft_wrap=True, highlight=False)


_autoscale.command("simulate")(by_options(simulate_fleet))
_rollout.command("simulate")(by_options(simulate_rollouts))
_root.command(rich_help_panel=OPERATE_PANEL)(by_options(replay))
_root.command(rich_help_panel=MEASURE_PANEL)(by_options(simulate))
_root.command(rich_help_panel=MEASURE_PANEL)(by_options(forecast))
_root.command(rich_help_panel=MEASURE_PANEL)(by_options(drill))
_harness("bench")  # adds its programs to `bench`
_root.add_typer(optimize_app, name="optimize", rich_help_panel=VERSIONS_PANEL)
_root.add_typer(bench_app, name="bench", rich_help_panel=MEASURE_PANEL)
if (_chaos := _harness("chaos")) is not None:
    _root.add_typer(_chaos.chaos_app, name="chaos", rich_help_panel=MEASURE_PANEL)
