"""Recorded traffic on a simulated fleet: our scaler compared with a fixed fleet, with one that knows the traffic, and
with others'."""

from random import Random

import pytest

from ops.lab.fleet.commands import TRACES
from ops.lab.fleet.contest import BARS, ENTRIES, OURS, SCALERS, Arena
from ops.lab.fleet.curve import Curve, curve_of
from ops.lab.fleet.replay import Replay, Row
from ops.scaling.autoscale.scaler import Scaler, Seen, Wanted
from ops.traces.costs import CPU
from ops.traces.recorded import read_series
from ops.virtual_worker.experiment import Experiment
from shared.settings import Settings
from tests.proofs.elastic.conftest import Note

_COLD_STARTS_S = (5.0, 120.0)
_GOAL = 0.96
_HOURS = 48.0  # around the busiest moment; Azure's have one
_SILENT_MS = 60_000.0


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment(
        slots=16,
        costs=CPU,
        settings=Settings(),
    )


@pytest.fixture(scope="module")
def curve(experiment: Experiment) -> Curve:
    return curve_of(experiment, experiment.settings.worker.cache_dir / "curves", lambda _: None)


def _replay(experiment: Experiment, curve: Curve, **more: object) -> Replay:
    settled = {"goal": _GOAL, "workers": 12, "forecast": None, "hours": _HOURS} | more
    return Replay(experiment=experiment, curve=curve, **settled)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rows(experiment: Experiment, curve: Curve) -> list[Row]:
    replay = _replay(experiment, curve)
    return [one.row for name in TRACES for cold in _COLD_STARTS_S for one in replay.rows(read_series(name), cold)]


def _said(rows: list[Row], text: str) -> str:
    return "; ".join(f"{row.cold_start_s:g} s: " + text.format(row=row) for row in rows)


@pytest.mark.parametrize("trace", TRACES)
def test_the_bars(trace: str, rows: list[Row], note: Note) -> None:
    ours = [row for row in rows if row.trace == trace and row.scaler == OURS]
    assert len(ours) == len(_COLD_STARTS_S)
    note(
        f"replay {trace}: in time, at worker-hours of a fixed fleet's, by cold start",
        _said(ours, "{row.answered:.1%} at {row.of_static:.0%}"),
        ">= 96 % at <= 70 %",
        holds=all(row.answered >= _GOAL and row.of_static <= 0.7 for row in ours),
    )
    note(
        f"replay {trace}: a clairvoyant's answers, at worker-hours of its, by cold start",
        _said(ours, "{row.answers_of_clairvoyant:.1%} at {row.of_clairvoyant:.0%}"),
        ">= 99 % at <= 110 %",
        holds=all(row.answers_of_clairvoyant >= 0.99 and row.of_clairvoyant <= 1.1 for row in ours),
    )
    note(
        f"replay {trace}: growths taken back an hour, by cold start",
        _said(ours, "{row.taken_back:.2f}"),
        "<= 1",
        holds=all(row.taken_back <= 1.0 for row in ours),
    )


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("rival", [name for name in SCALERS if name not in {*BARS, OURS}])
def test_the_rivals(trace: str, rival: str, rows: list[Row], note: Note) -> None:
    theirs = [row for row in rows if row.trace == trace and row.scaler == rival]
    saved = [row.saved for row in theirs]
    told = "{row.setting} {row.answered:.1%}, {row.worker_hours:.1f} worker-hours, {row.saved} fewer"
    note(
        f"replay {trace}: worker-hours fewer than {rival} at equal answers, default and tuned, by cold start",
        _said(theirs, told),
        ">= 0.20 fewer than each",
        holds=all(each is not None and each >= 0.2 for each in saved),
    )


class _Deaf:
    """Our scaler, with one measurement missing in one minute of ten."""

    name, every_ms = OURS, 5_000.0

    def __init__(self, scaler: Scaler) -> None:
        self._scaler = scaler
        self._random = Random(1)
        self._lost: dict[str, object] = {}
        self._until_ms = 0.0
        self._size: int | None = None

    def decide(self, seen: Seen) -> Wanted:
        if seen.now_unix_ms >= self._until_ms:
            silences: list[dict[str, object]] = [{"asked": None}, {"found": None}, {"whole": False}]
            self._lost = self._random.choice(silences) if self._random.random() < 0.1 else {}
            self._until_ms = seen.now_unix_ms + _SILENT_MS
        known = {name: getattr(seen, name) for name in Seen.__slots__}
        wanted = self._scaler.decide(Seen(**(known | self._lost)))
        assert not self._lost or self._size is None or wanted.workers >= self._size, "silence is not zero"
        self._size = wanted.workers
        return wanted


def test_a_lost_metric_changes_nothing(experiment: Experiment, curve: Curve, note: Note) -> None:
    replay = _replay(experiment, curve)
    load = replay.load(read_series("m-large"))
    arena = Arena(load=load, curve=curve, costs=CPU, goal=_GOAL, workers=12, cold_start_ms=120_000.0)
    whole, deaf = (
        replay.play(arena, scaler)
        for scaler in (ENTRIES[OURS].make(arena, _GOAL), _Deaf(ENTRIES[OURS].make(arena, _GOAL)))
    )
    more, answers = deaf.worker_hours / whole.worker_hours, deaf.attainment / whole.attainment
    note(
        "replay m-large: one minute in ten without a metric, its worker-hours and answers of those without a gap",
        f"{more:.3f} and {answers:.3f}",
        "within 0.03 and 0.005 of 1",
        holds=abs(more - 1) <= 0.03 and abs(answers - 1) <= 0.005,
    )


def test_the_curve_against_every_request(experiment: Experiment, curve: Curve, note: Note) -> None:
    apart = []
    for exact in (False, True):
        replay = _replay(experiment, curve, hours=0.1, exact=exact, names=(OURS,))
        (one,) = replay.rows(read_series("azure-conv"), 120.0)
        apart.append(one.row)
    fast, played = apart
    note(
        "replay azure-conv: six minutes by the curve and request by request",
        f"in time {fast.answered:.1%} and {played.answered:.1%}, worker-hours {fast.worker_hours} and "
        f"{played.worker_hours}",
        "within 2 points and 5 %",
        holds=abs(fast.answered - played.answered) <= 0.02 and abs(fast.worker_hours / played.worker_hours - 1) <= 0.05,
    )
