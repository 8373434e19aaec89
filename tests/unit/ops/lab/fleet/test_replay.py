"""A replay: recorded series under each scaler, and what they are held to."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ops.lab.fleet.commands import TRACES, FleetOptions, simulate
from ops.lab.fleet.contest import BARS, ENTRIES, OURS, STANDBY, Arena
from ops.lab.fleet.curve import Curve, curve_of
from ops.lab.fleet.load import DemandTrace
from ops.lab.fleet.page import page, table
from ops.lab.fleet.pool import Pool
from ops.lab.fleet.replay import Replay, cost_at
from ops.lab.fleet.simulator import Played
from ops.traces.costs import CPU
from ops.traces.recorded import Series, read_series
from ops.virtual_worker.experiment import Experiment
from shared.errors import SettingsError
from shared.settings import Settings

CURVE = Curve(
    per_s=8.0,
    loads=(0.5, 0.8, 1.0, 2.0),
    in_time=(1.0, 0.97, 0.93, 0.5),
    busy=(0.6, 0.9, 0.98, 1.0),
    running=(3.0, 7.0, 10.0, 16.0),
    waiting=(0.0, 0.4, 1.0, 9.0),
    spread=(3.0, 4.0, 6.0, 4.0),
)
_EXPERIMENT = Experiment(slots=16, costs=CPU, settings=Settings())
DAY = Series(
    name="day",
    title="a day",
    licence="none",
    source="made",
    bin_s=600,
    values=tuple(100 - 80 * math.cos(2 * math.pi * at / 144) for at in range(144)),
)


HOURS = msgspec.structs.replace(DAY, values=DAY.values[::6])


def _replay(**more: object) -> Replay:
    return Replay(experiment=_EXPERIMENT, curve=CURVE, goal=0.96, workers=12, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TRACES)
def test_the_recorded_series_are_there(name: str) -> None:
    series = read_series(name)
    assert series.licence in {"Apache-2.0", "CC-BY-4.0"}
    assert _replay().load(series).span_ms > 3_300_000


def test_every_scaler_has_a_row_and_a_rival_its_best_setting_too() -> None:
    told = list(_replay(names=(*BARS, OURS, *ENTRIES)).rows(HOURS, 120))
    rows = {(one.row.scaler, one.row.tuned): one.row for one in told if one.row.setting != "belief x0.75"}
    names = (*BARS, OURS, *ENTRIES)
    assert set(rows) == {(name, False) for name in names} | {(name, True) for name in ENTRIES}
    clairvoyant, static, ours = (rows[name, False] for name in ("clairvoyant", "static", OURS))
    assert clairvoyant.answered == pytest.approx(0.96, abs=0.003)
    assert clairvoyant.worker_hours < ours.worker_hours < static.worker_hours
    assert static.worker_hours == pytest.approx(12 * 4)
    assert rows[STANDBY, False].answered > ours.answered
    assert rows[STANDBY, False].worker_hours > ours.worker_hours
    for name in ENTRIES:
        assert rows[name, True].answered >= 0.96 or rows[name, True].answered >= rows[name, False].answered
    text = table([one.row for one in told])
    assert text.count("\n") == len(told) + 1
    html = page(told, [HOURS], CURVE, "replyline autoscale simulate")
    assert html.count("<svg") == 4
    assert "keda, tuned" in html


def test_ours_is_replayed_with_each_belief() -> None:
    rows = [one.row for one in _replay(names=(OURS,), beliefs=(0.5, 1.0)).rows(HOURS, 5)]
    assert [row.setting for row in rows] == ["belief x0.5", "belief x1"]
    assert rows[0].worker_hours > rows[1].worker_hours


def _run(answered: float, worker_hours: float) -> Played:
    pool = Pool(cold_start_ms=0.0, gone_ms=worker_hours * 3_600_000)
    return Played(pool=pool, span_ms=0.0, asked=[1.0], in_time=[answered], kept=[1])


def test_the_cost_at_equal_answers_lies_between_the_runs_that_no_other_beats() -> None:
    runs = [_run(0.94, 10), _run(0.96, 20), _run(0.95, 21), _run(0.97, 40), _run(0.965, 41)]
    assert cost_at(runs, 0.95) == pytest.approx(15)
    assert cost_at(runs, 0.965) == pytest.approx(30)
    assert cost_at(runs, 0.975) is None
    assert cost_at(runs, 0.93) is None


def test_a_part_of_a_series_is_around_its_busiest_tick() -> None:
    load = _replay(hours=2.0).load(DAY)
    assert load.span_ms == 2 * 3_600_000
    assert load.per_s.max() == pytest.approx(_replay().load(DAY).per_s.max(), rel=0.01)


def test_ours_is_held_to_no_fleet_that_needs_the_impossible() -> None:
    """No fleet keeps the goal if more arrives than all partitions' workers carry: the clairvoyant then uses all of
    them."""
    load = DemandTrace(name="flood", tick_ms=5_000.0, per_s=np.full(12, 4_000.0))
    arena = Arena(load=load, curve=CURVE, costs=CPU, slots=16, goal=0.96, workers=12, cold_start_ms=0)
    assert set(arena.cheapest()) == {24}


def test_a_curve_is_simulated_once_for_the_same_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.lab.fleet.curve.LOADS", (0.2, 1.0, 3.0))
    monkeypatch.setattr("ops.lab.fleet.curve._SPAN_S", 20.0)
    told: list[int] = []
    curve = curve_of(_EXPERIMENT, tmp_path, told.append)
    assert told == [1, 2, 3]
    assert curve.in_time[0] > 0.95 > curve.in_time[2]
    assert curve.busy == tuple(sorted(curve.busy))
    assert curve.running[2] > 14
    assert curve.waiting[0] < 0.1 < curve.waiting[2]
    assert curve_of(_EXPERIMENT, tmp_path, told.append) == curve
    assert told == [1, 2, 3, 3]


def test_an_unknown_scaler_is_named() -> None:
    with pytest.raises(SettingsError, match="--scaler karpenter: write static, clairvoyant"):
        simulate(FleetOptions(scalers=["karpenter"]))
