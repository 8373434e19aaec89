"""`replyline forecast`: compare each model's forecasts of a recorded series with the recorded values."""

from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import JsonPath


class ForecastOptions(Struct, frozen=True, kw_only=True):
    """The series that are forecast, by which models, how far ahead."""

    trace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help="a kept series, or a JSON file; repeatable (default: the kept ones)"),
    ] = None
    model: Annotated[list[str] | None, typer.Option(help="repeatable (default: all)")] = None
    horizon_min: Annotated[
        list[float] | None,
        typer.Option(help="minutes ahead; repeatable (default: 10 and 20; of a trace under a day, 1 and 2)"),
    ] = None
    quantile: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="the share of the bins that stays below the bound")
    ] = 0.9
    json_path: JsonPath = None


def forecast(options: ForecastOptions) -> None:
    """Compare every forecast with the values of recorded series. Each bin is forecast from the bins before it alone.

    A model is the default only if it leaves at least 5 % less unserved, at equal cost, than the last value and damped
    smoothing do in most rows, ten minutes ahead or more.
    """
    from time import process_time

    from ops.lab.forecast.lstm import LSTM, SEEDS, make_lstm, torch_is_there
    from ops.lab.forecast.rolling import Row, rows_of, usual_horizons_min
    from ops.lab.forecast.table import table, verdicts
    from ops.measure.runner import progress_bar, write_json
    from ops.scaling.forecast.models import MODELS, make
    from ops.traces.recorded import NAMES, read_series

    traces = [read_series(name) for name in options.trace or NAMES]
    names = options.model or [*MODELS, *([LSTM] if torch_is_there() else [])]
    tasks = [(series, name, seed) for series in traces for name in names for seed in (SEEDS if name == LSTM else (0,))]
    rows: list[Row] = []
    with progress_bar(Console(stderr=True), "forecasting", len(tasks)) as progress:
        for number, (series, name, seed) in enumerate(tasks, 1):
            forecaster = make_lstm(seed, bin_s=series.bin_s) if name == LSTM else make(name, bin_s=series.bin_s)
            horizons = options.horizon_min or usual_horizons_min(series)
            rows += rows_of(series, forecaster, horizons, options.quantile, process_time)
            progress(number)
    typer.echo(f"{table(rows)}\n\n{verdicts(rows)}")
    if LSTM not in names:
        typer.echo(
            "lstm: not measured, torch is not installed; ops/setup/torch, then .venv-torch/bin/replyline forecast"
        )
    write_json(options.json_path, rows)
