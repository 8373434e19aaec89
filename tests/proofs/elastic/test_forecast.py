"""The default forecast on recorded series: how much its bound covers, and what it leaves unserved."""

from ops.lab.forecast.rolling import Row, rows_of
from ops.lab.forecast.table import beats
from ops.scaling.forecast.models import DEFAULT, make
from ops.traces.recorded import read_series
from tests.proofs.elastic.conftest import Note

TRACES = ("m-small", "m-mid", "m-large", "elb")


def test_the_default_forecast_covers_what_it_says(note: Note) -> None:
    rows: list[Row] = []
    for trace in TRACES:
        series = read_series(trace)
        for model in ("last", "damped", DEFAULT):
            rows += rows_of(series, make(model, bin_s=series.bin_s), (10, 20), 0.9, lambda: 0.0)
    for minutes in (10, 20):
        ours = [row for row in rows if (row.model, row.horizon_min) == (DEFAULT, minutes)]
        covered = [row.coverage for row in ours]
        shares = [row.of_persistence for row in ours if row.of_persistence is not None]
        assert len(shares) == len(TRACES)
        note(
            f"forecast: P90 coverage {minutes} minutes ahead, {', '.join(TRACES)}",
            ", ".join(f"{share:.3f}" for share in covered),
            "0.88 to 0.92 on each",
            holds=all(0.88 <= share <= 0.92 for share in covered),
        )
        note(
            f"forecast: left unserved {minutes} minutes ahead, of the last value's at equal cost",
            ", ".join(f"{share:.2f}" for share in shares),
            "<= 0.5 on each",
            holds=max(shares) <= 0.5,
        )
    wins, judged = beats(rows)[DEFAULT]
    note("forecast: rows where the default passes its rule", f"{wins} of {judged}", "most", holds=wins > judged / 2)
