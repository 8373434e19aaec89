"""`replyline forecast`: compare the forecast of recorded series with the recorded values."""

from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import JsonPath
from ops.paths import to_read
from ops.traces.recorded import LONG_ENOUGH, NAMES, read_series


class ForecastOptions(Struct, frozen=True, kw_only=True):
    """The series that are forecast, and how far ahead."""

    trace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            callback=to_read(names=NAMES),
            help="a kept series, or a JSON file; repeatable (default: the kept ones of two weeks or more)",
        ),
    ] = None
    horizon_min: Annotated[
        list[float] | None,
        typer.Option(min=1, max=1_440, help="minutes ahead; repeatable (default: 10 and 20)"),
    ] = None
    quantile: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="the share of the bins that stays below the bound")
    ] = 0.9
    json_path: JsonPath = None


def forecast(options: ForecastOptions) -> None:
    """Compare the autoscaler's forecast with the values of recorded series. Each bin is forecast from the bins before
    it alone."""
    from time import process_time

    from ops.lab.forecast.rolling import HORIZONS_MIN, ForecastRow, rows_of
    from ops.measure.runner import markdown, progress_bar, write_json
    from ops.scaling.forecast.demand_forecast import DemandForecast

    traces = [read_series(name) for name in options.trace or LONG_ENOUGH]
    rows: list[ForecastRow] = []
    with progress_bar(Console(stderr=True), "forecasting", len(traces)) as progress:
        for number, series in enumerate(traces, 1):
            found = DemandForecast(bin_s=series.bin_s)
            rows += rows_of(series, found, options.horizon_min or HORIZONS_MIN, options.quantile, process_time)
            progress(number)
    titles = ("trace", "minutes", "coverage", "over", "under", "of persistence's", "s")
    cells = [
        (
            row.trace,
            f"{row.horizon_min:g}",
            f"{row.coverage:.3f}",
            f"{row.over:.3f}",
            f"{row.under:.4f}",
            None if row.of_persistence is None else f"{row.of_persistence:.2f}",
            f"{row.fit_s:.1f}",
        )
        for row in rows
    ]
    typer.echo(markdown(titles, cells))
    write_json(options.json_path, rows)
