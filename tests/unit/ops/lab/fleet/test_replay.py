"""A replay: recorded series under each scaler, and what they are held to."""

import math

import numpy as np
import pytest

from ops.lab.fleet.commands import TRACES, FleetOptions, simulate
from ops.lab.fleet.contest import BARS, ENTRIES, OURS, STANDBY, Arena
from ops.lab.fleet.curve import Curve
from ops.lab.fleet.load import Load
from ops.lab.fleet.page import page, table
from ops.lab.fleet.replay import Replay
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


def _replay(**more: object) -> Replay:
    return Replay(experiment=_EXPERIMENT, curve=CURVE, goal=0.96, workers=12, forecast=None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TRACES)
def test_the_recorded_series_are_there(name: str) -> None:
    series = read_series(name)
    assert series.licence in {"Apache-2.0", "CC-BY-4.0"}
    assert _replay().load(series).span_ms > 3_300_000


def test_every_scaler_has_a_row_and_a_rival_its_best_setting_too() -> None:
    told = list(_replay(names=(*BARS, *ENTRIES)).rows(DAY, 120))
    rows = {(one.row.scaler, one.row.tuned): one.row for one in told}
    assert set(rows) == {(name, False) for name in (*BARS, *ENTRIES)} | {(n, True) for n in ENTRIES if n != OURS}
    clairvoyant, static, ours = (rows[name, False] for name in ("clairvoyant", "static", OURS))
    assert clairvoyant.answered == pytest.approx(0.96, abs=0.003)
    assert clairvoyant.worker_hours < ours.worker_hours < static.worker_hours
    assert static.worker_hours == pytest.approx(12 * 24)
    assert rows[STANDBY, False].answered > ours.answered
    assert rows[STANDBY, False].worker_hours > ours.worker_hours
    for name in set(ENTRIES) - {OURS}:
        assert rows[name, True].answered >= 0.96 or rows[name, True].answered >= rows[name, False].answered
    text = table([one.row for one in told])
    assert text.count("\n") == len(told) + 1
    html = page(told, [DAY], CURVE, "replyline autoscale simulate")
    assert html.count("<svg") == 4
    assert "keda, tuned" in html


def test_a_part_of_a_series_is_around_its_busiest_tick() -> None:
    load = _replay(hours=2.0).load(DAY)
    assert load.span_ms == 2 * 3_600_000
    assert load.per_s.max() == pytest.approx(_replay().load(DAY).per_s.max(), rel=0.01)


def test_ours_is_held_to_no_fleet_that_needs_the_impossible() -> None:
    """No fleet keeps the goal if more arrives than all partitions' workers carry: the clairvoyant then uses all of
    them."""
    load = Load(name="flood", tick_ms=5_000.0, per_s=np.full(12, 4_000.0))
    arena = Arena(load=load, curve=CURVE, costs=CPU, goal=0.96, workers=12, cold_start_ms=0)
    assert set(arena.cheapest()) == {24}


def test_the_fast_mode_agrees_with_every_request_played() -> None:
    """Ten minutes of a steady load: within two points of the share in time, by the curve as it is measured."""
    steady = Series(name="steady", title="", licence="", source="", bin_s=600, values=(10.0,))
    measured = Curve(
        per_s=8.087,
        loads=(0.4, 0.55, 0.7, 0.8, 0.9, 1.0),
        in_time=(1.0, 0.998, 0.986, 0.966, 0.957, 0.929),
        busy=(0.66, 0.81, 0.89, 0.93, 0.97, 0.97),
        running=(1.5, 3.2, 5.5, 7.0, 9.6, 10.3),
        waiting=(0.0, 0.03, 0.2, 0.4, 0.8, 1.1),
        spread=(1.8, 3.3, 4.3, 4.7, 5.8, 6.4),
    )
    both = []
    for exact in (False, True):
        replay = Replay(
            experiment=_EXPERIMENT, curve=measured, goal=0.96, workers=2, forecast=None, exact=exact, names=("static",)
        )
        (one,) = replay.rows(steady, 5)
        assert one.row.exact is exact
        both.append(one.row)
    assert both[0].answered == pytest.approx(both[1].answered, abs=0.02)
    assert both[0].worker_hours == pytest.approx(both[1].worker_hours, abs=0.01)


def test_an_unknown_scaler_is_named() -> None:
    with pytest.raises(SettingsError, match="--scaler karpenter: not one of static, clairvoyant"):
        simulate(FleetOptions(scalers=["karpenter"]))
