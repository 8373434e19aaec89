"""The forecast on recorded series: how much its bound covers, and what it leaves unserved."""

from ops.lab.forecast.rolling import HORIZONS_MIN, ForecastRow, rows_of
from ops.scaling.forecast.demand_forecast import DemandForecast
from ops.traces.recorded import read_series
from tests.proofs.elastic.conftest import Note

TRACES = ("m-small", "m-mid", "m-large", "elb")


def test_the_forecast_covers_the_share_that_is_asked(note: Note) -> None:
    rows: list[ForecastRow] = []
    for trace in TRACES:
        series = read_series(trace)
        rows += rows_of(series, DemandForecast(bin_s=series.bin_s), HORIZONS_MIN, 0.9, lambda: 0.0)
    for minutes in HORIZONS_MIN:
        ours = [row for row in rows if row.horizon_min == minutes]
        covered = [row.coverage for row in ours]
        shares = [row.of_persistence for row in ours if row.of_persistence is not None]
        assert len(shares) == len(TRACES)
        note(
            f"forecast: P90 coverage {minutes:g} minutes ahead, {', '.join(TRACES)}",
            ", ".join(f"{share:.3f}" for share in covered),
            "0.88 to 0.92 on each",
            holds=all(0.88 <= share <= 0.92 for share in covered),
        )
        note(
            f"forecast: left unserved {minutes:g} minutes ahead, of the last value's at equal cost",
            ", ".join(f"{share:.2f}" for share in shares),
            "< 1 on each",
            holds=max(shares) < 1.0,
        )
