"""The first predictions come from a table of this engine and machine, else from a measurement."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workers.engine import DecodeRow, Engine, PrefillChunk
from workers.engine.fake import FakeEngine
from workers.schedule.costs import SCHEMA_VERSION, CostModel, CostsKey, CostTable
from workers.serving.calibration import calibrate, costs_key, load_or_calibrate, save, table_path


def key_of(engine: Engine) -> CostsKey:
    return costs_key(engine.info, threads=2)


def decode_ms(rows: int, context: int, by_context: float = 0.004) -> float:
    return 7.0 + 2.0 * rows + by_context * context


def prefill_ms(tokens: int, past: int, rows: int) -> float:
    return 9.0 + 1.1 * tokens + 0.005 * past + 0.0006 * tokens * (past + tokens / (2 * rows))


class TimedEngine(FakeEngine):
    """An engine whose clock advances only in its calls; each takes `slower(its number)` times as long as by the laws
    above."""

    def __init__(
        self, *, slower: Callable[[int], float] = lambda _: 1.0, by_context: float = 0.004, mixed_ms: float = 0.0
    ) -> None:
        super().__init__(num_slots=8, max_length=2_048, mixes=mixed_ms != 0.0)
        self.now_s = 0.0
        self.calls = 0
        self.prefilled: list[int] = []
        self._slower = slower
        self._by_context = by_context
        self._mixed_ms = mixed_ms

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        tokens = sum(len(chunk.token_ids) for chunk in chunks)
        self.prefilled.append(tokens)
        self._pass(prefill_ms(tokens, chunks[0].past, len(chunks)))
        return super().prefill(chunks)

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        self._pass(decode_ms(len(rows), sum(row.past for row in rows), self._by_context))
        return super().decode(rows)

    def mixed(self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> tuple[list[int | None], list[int]]:
        [chunk] = chunks
        tokens = len(chunk.token_ids)
        pairs_ms = prefill_ms(tokens, chunk.past, 1) + 1.1 * len(rows)
        self._pass(self._mixed_ms + pairs_ms + self._by_context * sum(row.past for row in rows))
        return super().mixed(chunks, rows)

    def clock_s(self) -> float:
        return self.now_s

    def _pass(self, ms: float) -> None:
        self.calls += 1
        self.now_s += ms / 1_000 * self._slower(self.calls)


def measured(engine: TimedEngine, *, budget_s: float = 30.0) -> CostModel:
    return CostModel.from_state(calibrate(engine, key_of(engine), budget_s=budget_s, clock_s=engine.clock_s))


# --- measuring


@pytest.mark.parametrize(("mixed_ms", "found_ms"), [(3.0, 3.0), (-3.0, 0.0)])
def test_what_a_mixed_call_takes_is_measured(mixed_ms: float, found_ms: float) -> None:
    """Within the budget; and of calls held up now and then, with more time."""
    for budget_s, held_up, tolerance_ms in ((3, 1.0, 0.1), (30, 10.0, 1.0)):
        engine = TimedEngine(mixed_ms=mixed_ms, slower=lambda call, by=held_up: by if call % 7 == 0 else 1.0)
        table = calibrate(engine, key_of(engine), budget_s=budget_s, clock_s=engine.clock_s)
        assert table.mixed_ms == pytest.approx(found_ms, abs=tolerance_ms)
        assert table.key.mixes


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(("num_slots", "max_length"), [(1, 64), (1, 16), (3, 40), (8, 2_048), (64, 512)])
def test_every_size_of_engine_is_measured_within_what_it_takes(num_slots: int, max_length: int, *, mixes: bool) -> None:
    """The engine refuses a call that does not fit it."""
    engine = FakeEngine(num_slots=num_slots, max_length=max_length, mixes=mixes)
    table = calibrate(engine, key_of(engine), budget_s=5.0)
    assert table.key == key_of(engine)
    prior = CostModel.prior()
    assert CostModel.from_state(table).decode_ms(num_slots, num_slots * 10) < prior.decode_ms(1, 10)


def test_the_engines_own_law_is_found() -> None:
    model = measured(TimedEngine())
    for rows, past in [(1, 16), (3, 100), (8, 30), (8, 600), (16, 100)]:
        assert model.decode_ms(rows, rows * past) == pytest.approx(decode_ms(rows, rows * past), rel=0.01)
    for tokens, past in [(20, 0), (256, 0), (1_024, 0), (100, 300), (512, 512)]:
        assert model.prefill_ms(tokens, past=past) == pytest.approx(prefill_ms(tokens, past, 1), rel=0.01)
    assert model.prefill_ms(128, rows=8) == pytest.approx(prefill_ms(128, 0, 8), rel=0.01)
    assert (model.error_decode, model.error_prefill) == pytest.approx((0, 0), abs=0.005)


def test_a_call_that_was_held_up_is_outvoted() -> None:
    quiet = TimedEngine()
    disturbed = TimedEngine(slower=lambda call: 10.0 if call % 7 == 0 else 1.0)
    models = [measured(engine) for engine in (quiet, disturbed)]
    assert disturbed.calls > quiet.calls
    for rows in (1, 8):
        assert models[1].decode_ms(rows, 2_000) == pytest.approx(models[0].decode_ms(rows, 2_000), rel=1e-3)
    for past in (0, 512):
        assert models[1].prefill_ms(128, past=past) == pytest.approx(models[0].prefill_ms(128, past=past), rel=1e-3)


def test_only_calls_in_doubt_are_repeated() -> None:
    """Two measurements that agree are enough; a call whose two shortest differ is repeated, a few times."""
    quiet = TimedEngine()
    measured(quiet)
    assert quiet.prefilled.count(128) == 4  # two kinds of call have this many tokens
    random = Random(5)
    noisy = TimedEngine(slower=lambda _: random.uniform(1.0, 3.0))
    measured(noisy)
    assert quiet.calls < noisy.calls <= 6 * quiet.calls / 2


def test_no_coefficient_is_below_zero() -> None:
    """An engine that is faster the more its rows hold: predictions must not fall, so the cost is zero."""
    table = measured(TimedEngine(by_context=-0.001)).state(key_of(TimedEngine()))
    assert table.decode_ms_per_context_token == 0
    assert table.decode_ms + 8 * table.decode_ms_per_row == pytest.approx(decode_ms(8, 0), rel=0.08)


def test_one_call_tells_how_fast_the_machine_is() -> None:
    """The prior's shape, at this machine's speed; of the other kind of call nothing is known."""
    engine, prior = TimedEngine(), CostModel.prior()
    model = measured(engine, budget_s=0.001)
    assert engine.calls == 1
    factor = decode_ms(1, 16) / prior.decode_ms(1, 16)
    for rows, context in [(1, 16), (8, 0), (8, 2_000), (64, 16_000)]:
        assert model.decode_ms(rows, context) == pytest.approx(factor * prior.decode_ms(rows, context))
    assert model.prefill_ms(128, past=512) == prior.prefill_ms(128, past=512)


def test_an_engine_that_the_clock_cannot_see_is_asked_a_few_times_only() -> None:
    """The result may be stored, although a law's constant must be above zero."""
    engine = TimedEngine(slower=lambda _: 0.0)
    model = measured(engine)
    table = model.state(key_of(engine))
    assert msgspec.json.decode(msgspec.json.encode(table), type=CostTable) == table
    assert engine.calls < 100
    assert 0 < model.decode_ms(8, 2_000) < 0.01
    assert 0 < model.prefill_ms(128) < 0.01


@example(budget_s=0.0)
@given(budget_s=st.floats(0.0, 2.0))
def test_measuring_stops_when_its_time_is_over(budget_s: float) -> None:
    """One call may go over; the longest of this engine takes 0.66 s."""
    engine = TimedEngine()
    measured(engine, budget_s=budget_s)
    assert engine.now_s < budget_s + 0.7
    assert bool(engine.calls) == bool(budget_s)


# --- keeping


def started(path: Path | None, engine: TimedEngine, **how: float) -> tuple[CostModel, str]:
    return load_or_calibrate(path, key_of(engine), engine, clock_s=engine.clock_s, **how)


def test_a_second_start_reads_what_the_first_measured(tmp_path: Path) -> None:
    engine, path = TimedEngine(), tmp_path / "made" / "costs.json"
    first, how = started(path, engine)
    assert (how, engine.calls > 0) == ("calibrated: no table", True)
    engine.calls = 0
    second, how = started(path, engine)
    assert (how, engine.calls) == ("loaded", 2)
    assert second.state(key_of(engine)) == first.state(key_of(engine))
    assert [file.name for file in path.parent.iterdir()] == ["costs.json"]


def test_two_kinds_of_machine_share_a_folder(tmp_path: Path) -> None:
    """Neither replaces what the other has measured."""
    engine = TimedEngine()
    keys = [key_of(engine), msgspec.structs.replace(key_of(engine), cpu="another", threads=64)]
    for expected in ("calibrated: no table", "loaded"):
        for key in keys:
            path = table_path(tmp_path, "fake", key)
            _, how = load_or_calibrate(path, key, engine, clock_s=engine.clock_s)
            assert how == expected


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (None, "not kept"),
        ("file/costs.json", "/file/costs.json cannot be written ("),
        ("folder", "the table cannot be read"),
    ],
)
def test_without_a_place_to_keep_it_each_start_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, said: str
) -> None:
    """A file is in the place of the folder, or a folder in the place of the file: that stops the superuser too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    engine = TimedEngine()
    for _ in range(2):
        engine.calls = 0
        model, how = started(None if place is None else tmp_path / place, engine)
        assert how.startswith("calibrated: ")
        assert "not kept" in how
        assert said in how
        assert engine.calls > 0
        assert model.decode_ms(1, 10) == pytest.approx(decode_ms(1, 10), rel=0.01)
    assert {file.name for file in tmp_path.rglob("*")} == {"file", "folder"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cpu": "another cpu"}, "the table is of another machine (cpu another cpu, not "),
        ({"num_cores": 999}, "the table is of another machine (num_cores 999, not "),
        ({"precision": "fp32", "num_slots": 9}, "another engine (precision fp32, not none, num_slots 9, not 8)"),
        (
            {"schema_version": SCHEMA_VERSION + 1},
            f"the table is of another version ({SCHEMA_VERSION + 1}, not {SCHEMA_VERSION})",
        ),
        ({"error_decode": 0.25}, "a table whose decode law is off by 25% on average"),
        ({"error_prefill": 0.25}, "a table whose prefill law is off by 25% on average"),
        *((content, "damaged table (") for content in (b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000)),
        (b'{"schema_version": 1}', "damaged table ("),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_table_that_does_not_fit_is_measured_again(
    tmp_path: Path, change: dict[str, Any] | bytes, reason: str
) -> None:
    """One of another engine, machine or version, of a law that fits badly, or damaged."""
    engine, path = TimedEngine(), tmp_path / "costs.json"
    key = key_of(engine)
    if isinstance(change, bytes):
        path.write_bytes(change)
    else:
        table = calibrate(engine, key, budget_s=5.0, clock_s=engine.clock_s)
        ours = {name: value for name, value in change.items() if hasattr(table, name)}
        other = msgspec.structs.replace(key, **{name: value for name, value in change.items() if name not in ours})
        save(path, msgspec.structs.replace(table, key=other, **ours))
    _, how = started(path, engine)
    assert how.startswith("calibrated: ")
    assert reason in how
    assert started(path, engine)[1] == "loaded"


def beside_a_neighbour(call: int) -> float:
    """For the first ten calls of each thirty the engine gets a third of the machine."""
    return 3.0 if call % 30 < 10 else 1.0


def test_a_table_whose_laws_fit_badly_serves_this_run_only(tmp_path: Path) -> None:
    """The time was too short to ask those again that were held up."""
    engine = TimedEngine(slower=beside_a_neighbour)
    path = tmp_path / "costs.json"
    model, how = started(path, engine, budget_s=1.5)
    assert how.startswith("calibrated: no table; not kept: prefill law is off by ")
    assert how.endswith("% on average; calls were held up, so the next start measures again")
    assert not path.exists()
    assert model.decode_ms(1, 16) > 0
    quiet = TimedEngine()
    assert started(path, quiet)[1] == "calibrated: no table"
    assert started(path, quiet)[1] == "loaded"


@pytest.mark.parametrize(("held_up", "how"), [(1.2, "loaded"), (1.5, "calibrated: "), (20.0, "calibrated: ")])
def test_a_table_of_a_machine_that_was_held_up_throughout_is_measured_again(
    tmp_path: Path, held_up: float, how: str
) -> None:
    """Its laws fit: each call was longer by as much."""
    path = tmp_path / "costs.json"
    assert started(path, TimedEngine(slower=lambda _: held_up))[1] == "calibrated: no table"
    model, found = started(path, TimedEngine())
    assert found.startswith(how)
    if how != "loaded":
        assert found == f"calibrated: a decode step took 9.1 ms, by the table {9.064 * held_up:.1f} ms"
        assert model.decode_ms(1, 16) == pytest.approx(decode_ms(1, 16), rel=0.01)
        assert started(path, TimedEngine())[1] == "loaded"


@pytest.mark.parametrize("slower", [lambda _: 10.0, lambda call: 1.0 if call == 2 else 10.0])
def test_a_true_table_is_kept_by_a_start_that_is_held_up(tmp_path: Path, slower: Callable[[int], float]) -> None:
    path = tmp_path / "costs.json"
    quiet, _ = started(path, TimedEngine())
    kept = path.read_bytes()
    model, how = started(path, TimedEngine(slower=slower))
    assert how == "loaded"
    assert path.read_bytes() == kept
    assert model.decode_ms(8, 2_000) == quiet.decode_ms(8, 2_000)
