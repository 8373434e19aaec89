"""The cost model with which a worker starts: read from disk, or measured on the engine.

The formulas of `workers/schedule/costs.py` are fitted to a few kinds of calls, by least squares of relative errors, so
that steps of 5 ms and 500 ms have the same weight. Other processes on the machine can make single calls two or three
times longer, never shorter; so each kind of call is repeated until its two shortest agree, while there is time.

A stored table is valid only for its key: the same engine, model, slots and threads on the same kind of machine. Any
other table is measured again and replaced. So is one whose formulas do not fit the measurements, and one by which a
decode step takes longer than it does now: a disturbed quarter of an hour must not be used for months. No failure here
stops a worker: a table that could not be stored is measured again at the next start.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, combinations
from pathlib import Path
from statistics import median
from typing import Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.process.clock import monotonic_s
from shared.process.hardware import cpu_name, usable_cores
from workers.engine import DecodeRow, Engine, EngineInfo, MixingEngine, PrefillChunk, Sampling
from workers.schedule.costs import (
    PRIOR_DECODE,
    PRIOR_PREFILL,
    SCHEMA_VERSION,
    SMALLEST_CONSTANT_MS,
    CostModel,
    CostsKey,
    CostTable,
    Law,
)
from workers.schedule.work import Work

BUDGET_S: Final = 3.0
_MAX_ROUNDS: Final = 6
_AGREE: Final = 1.05  # ratio of the two shortest calls
_HELD_UP: Final = 1.5  # longer than this times the shortest: the call was delayed
_MOST_ERROR: Final = 0.1  # maximum error of a stored formula; on a quiet machine it is 0.02 to 0.05
_FASTER: Final = 0.75  # of the table's time: the table was measured while the whole engine was held up
_CHECKS: Final = 2  # decode steps
_NOISE: Final = 0.02  # of a time; a coefficient below this noise keeps the prior's value
_SMALLEST_MS: Final = 1e-4  # used if the clock measured 0
_NEAR_TOKENS: Final = 16
_PREFILL_CALLS: Final = ((1, 32), (1, 8), (1, 128), (4, 16))  # (rows, tokens of each) into empty slots
_LONG_TOKENS: Final = 512  # takes as long as all others together
_TAIL_TOKENS: Final = (16, 64, 128)  # tokens after a past
_MIXED_TOKENS: Final = (16, 64)
_MACHINE_FIELDS: Final = ("cpu", "num_cores")
_TOKEN_ID: Final = 1
_GREEDY: Final = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decode:
    """A decode step of `rows` rows that hold `past` tokens each."""

    rows: int
    past: int

    def run(self, engine: Engine) -> None:
        engine.decode(_rows(self.rows, self.past))

    @property
    def features(self) -> tuple[float, ...]:
        """Return the factors of the decode formula's coefficients."""
        return 1, self.rows, self.rows * self.past


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefill:
    """A prefill call of `rows` chunks of `tokens` each."""

    rows: int
    tokens: int
    past: int = 0

    def run(self, engine: Engine) -> None:
        token_ids = [_TOKEN_ID] * self.tokens
        engine.prefill(
            [PrefillChunk(slot=i, past=self.past, token_ids=token_ids, sampling=_GREEDY) for i in range(self.rows)]
        )

    @property
    def features(self) -> tuple[float, ...]:
        """Return the factors of the prefill formula's coefficients."""
        tokens = self.rows * self.tokens
        return 1, tokens, self.past, tokens * (self.past + self.tokens / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixed:
    """A mixed call of `rows` rows that hold `past` tokens each, and of `tokens` of a prompt."""

    rows: int
    past: int
    tokens: int

    def run(self, engine: Engine) -> None:
        cast("MixingEngine", engine).mixed(*self._parts)

    @property
    def work(self) -> Work:
        return Work.of_mixed(*self._parts)

    @property
    def _parts(self) -> tuple[list[PrefillChunk], list[DecodeRow]]:
        chunk = PrefillChunk(slot=self.rows, past=0, token_ids=[_TOKEN_ID] * self.tokens, sampling=_GREEDY)
        return [chunk], _rows(self.rows, self.past)


_Probe = _Decode | _Prefill | _Mixed


def load_or_calibrate(
    path: Path | None,
    key: CostsKey,
    engine: Engine,
    *,
    budget_s: float = BUDGET_S,
    clock_s: Callable[[], float] = monotonic_s,
) -> tuple[CostModel, str]:
    """Return the cost model and its origin, "loaded" or "calibrated: " with the reason.

    Args:
        path: file of the stored table; None to store nothing.
        key: the engine and machine for which the table is valid.
        engine: the engine to measure; it holds no sequence.
        budget_s: time for measuring.
        clock_s: a monotonic clock.

    Raises:
        EngineError: the engine failed.
    """
    if path is None:
        table = calibrate(engine, key, budget_s=budget_s, clock_s=clock_s)
        return CostModel.from_state(table), "calibrated: not kept"
    kept, why_not = _load(path, key)
    if kept is not None:
        if (slower := _too_slow(kept, engine, clock_s)) is None:
            return CostModel.from_state(kept), "loaded"
        why_not = slower
    measured = calibrate(engine, key, budget_s=budget_s, clock_s=clock_s)
    how = f"calibrated: {why_not}"
    misfit = _misfit(measured)
    if misfit is not None:
        how += f"; not kept: {misfit}; calls were held up, so the next start measures again"
    else:
        try:
            save(path, measured)
        except OSError as error:
            how += f"; not kept: {path} cannot be written ({error.strerror})"
    return CostModel.from_state(measured), how


def calibrate(
    engine: Engine, key: CostsKey, *, budget_s: float, clock_s: Callable[[], float] = monotonic_s
) -> CostTable:
    """Measure the engine's calls for at most `budget_s` seconds plus one call. Values not measured come from the prior.

    This overwrites the KV of every slot, so the engine must hold no sequence.

    Raises:
        EngineError: the engine failed.
    """
    times_ms: defaultdict[_Probe, list[float]] = defaultdict(list)
    end_s = clock_s() + budget_s
    for probe in _probes(engine.info, times_ms):
        if clock_s() >= end_s:
            break
        times_ms[probe].append(_timed_ms(probe, engine, clock_s))
    decodes = {probe.features: times for probe, times in times_ms.items() if isinstance(probe, _Decode)}
    prefills = {probe.features: times for probe, times in times_ms.items() if isinstance(probe, _Prefill)}
    laws = CostModel(decode=_fit(decodes, PRIOR_DECODE), prefill=_fit(prefills, PRIOR_PREFILL), mixes=key.mixes)
    mixed = {probe.work: times for probe, times in times_ms.items() if isinstance(probe, _Mixed)}
    return msgspec.structs.replace(laws.state(key), mixed_ms=_mixed_ms(laws, mixed))


def costs_key(info: EngineInfo, *, threads: int) -> CostsKey:
    """Return the key of this engine on this machine."""
    return CostsKey(
        engine=info.computed_by,
        model=info.model,
        revision=info.revision,
        precision=info.precision,
        num_slots=info.num_slots,
        max_length=info.max_length,
        threads=threads,
        cpu=cpu_name(),
        num_cores=usable_cores(),
        mixes=info.mixes,
    )


def table_path(folder: Path, engine: str, key: CostsKey) -> Path:
    """Return the file of this key: workers on several kinds of machine may share the folder."""
    kind = sha256(msgspec.json.encode(key)).hexdigest()[:8]
    return folder / f"{engine}-{key.model}-{key.precision}-{key.num_slots}-{kind}.json"


def save(path: Path, table: msgspec.Struct) -> None:
    """Write the table completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    try:
        Path(file.name).replace(path)
    except OSError:
        Path(file.name).unlink()
        raise


def _probes(info: EngineInfo, times_ms: Mapping[_Probe, Sequence[float]]) -> Iterator[_Probe]:
    """Yield the calls to measure: first each kind that fits the engine once, then again those with doubtful times.

    Decode steps come first: they are the cheapest, and most of an engine's work.
    """
    near = min(_NEAR_TOKENS, info.max_length // 2)
    # Limited, since every slot is read, and pages of memory that are read stay in use.
    far = max(info.max_length // 8, min(2 * near, info.max_length - 1))
    decodes = [_Decode(rows=rows, past=past) for rows in _row_counts(info.num_slots) for past in (near, far)]
    prefills = [_Prefill(rows=rows, tokens=tokens) for rows, tokens in _PREFILL_CALLS if rows <= info.max_prefill_rows]
    past = info.max_length // 4
    prefills += [_Prefill(rows=1, tokens=tokens, past=past) for tokens in _TAIL_TOKENS]
    a_round: list[_Probe] = [*decodes]
    a_round += [probe for probe in prefills if probe.past + probe.tokens <= info.max_length]
    if info.mixes:
        rows = {1, info.num_slots // 2} & {*range(1, info.num_slots)}
        tokens = [each for each in _MIXED_TOKENS if each <= info.max_length]
        a_round += [_Mixed(rows=each, past=near, tokens=chunk) for each in sorted(rows) for chunk in tokens]
    yield from a_round
    if info.max_length >= _LONG_TOKENS:
        yield _Prefill(rows=1, tokens=_LONG_TOKENS)
    for _ in range(_MAX_ROUNDS - 1):
        yield from [probe for probe in a_round if _in_doubt(times_ms[probe])]


def _too_slow(table: CostTable, engine: Engine, clock_s: Callable[[], float]) -> str | None:
    """Return why a table is of a slower machine than this one is now; None if it may be true."""
    probe = _Decode(rows=1, past=min(_NEAR_TOKENS, engine.info.max_length // 2))
    times_ms = [_timed_ms(probe, engine, clock_s) for _ in range(_CHECKS)]
    by_table_ms = CostModel.from_state(table).decode_ms(probe.rows, probe.rows * probe.past)
    if min(times_ms) >= _FASTER * by_table_ms:
        return None
    return f"a decode step took {min(times_ms):.1f} ms, by the table {by_table_ms:.1f} ms"


def _timed_ms(probe: _Probe, engine: Engine, clock_s: Callable[[], float]) -> float:
    start_s = clock_s()
    probe.run(engine)
    return max((clock_s() - start_s) * 1_000, _SMALLEST_MS)


def _in_doubt(times_ms: Sequence[float]) -> bool:
    """Return whether the shortest call may have been delayed too, because no other was nearly as short."""
    shortest = sorted(times_ms)[:2]
    return len(shortest) < 2 or shortest[1] > _AGREE * shortest[0]  # noqa: PLR2004 - two


def _row_counts(num_slots: int) -> Iterator[int]:
    """Yield 1, 2, 4 and so on, and the number of all slots."""
    rows = 1
    while rows < num_slots:
        yield rows
        rows *= 2
    yield num_slots


def _rows(count: int, past: int) -> list[DecodeRow]:
    return [DecodeRow(slot=slot, past=past, token_id=_TOKEN_ID, sampling=_GREEDY) for slot in range(count)]


def _mixed_ms(laws: CostModel, times_ms: Mapping[Work, Sequence[float]]) -> float:
    """Return the constant cost of mixed calls on top of `laws`, by least squares of relative errors; 0 without
    measurements."""
    usual = {work: median(ms for ms in times if ms <= _HELD_UP * min(times)) for work, times in times_ms.items()}
    weighed = sum((ms - laws.ms(work)) / ms**2 for work, ms in usual.items())
    return max(0.0, weighed / sum(1 / ms**2 for ms in usual.values())) if usual else 0.0


def _fit(times_ms: dict[tuple[float, ...], list[float]], prior: Law) -> Law:
    """Return the formula fitted to calls with these features and times; the prior if there are none.

    The shortest time of each call decides how calls compare, since a call may be delayed but not sped up; the median of
    the calls without a long delay decides the absolute speed.
    """
    if not times_ms:
        return prior
    features = np.array(list(times_ms))
    least = np.array([min(times) for times in times_ms.values()])
    scales = np.array(prior.coefficients)
    scales *= np.median(least / (features @ scales))  # the prior, scaled to this machine's speed
    size = len(scales)
    shares = np.vstack([features * scales / least[:, None], _NOISE * np.eye(size)])
    coefficients = scales * _non_negative_least_squares(shares, np.repeat([1.0, _NOISE], [len(least), size]))
    fitted = features @ coefficients
    error = np.mean(np.abs(least - fitted) / np.maximum(least, fitted))
    coefficients *= median(
        ms / by_law
        for times, by_law in zip(times_ms.values(), fitted, strict=True)
        for ms in times
        if ms <= _HELD_UP * min(times)
    )
    coefficients[0] = max(coefficients[0], SMALLEST_CONSTANT_MS)
    return Law(tuple(coefficients.tolist()), float(error))


def _non_negative_least_squares(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x >= 0 with `matrix` x nearest to `wanted`, by trying every choice of coefficients that are zero."""
    size = matrix.shape[1]
    nearest, least = np.zeros(size), np.inf
    for free in chain.from_iterable(combinations(range(size), count) for count in range(1, size + 1)):
        x = np.zeros(size)
        x[list(free)] = np.linalg.lstsq(matrix[:, free], wanted)[0]
        distance = float(np.linalg.norm(matrix @ x - wanted))
        if x.min() >= 0 and distance < least:
            nearest, least = x, distance
    return nearest


def _load(path: Path, key: CostsKey) -> tuple[CostTable | None, str]:
    """Return the table at `path` if it is valid for this key, else None and the reason."""
    try:
        table = msgspec.json.decode(path.read_bytes(), type=CostTable)
    except FileNotFoundError:
        return None, "no table"
    except OSError as error:
        return None, f"the table cannot be read ({error.strerror})"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, f"damaged table ({error})"
    if table.schema_version != SCHEMA_VERSION:
        return None, f"the table is of another version ({table.schema_version}, not {SCHEMA_VERSION})"
    if table.key != key:
        return None, _difference(table.key, key)
    misfit = _misfit(table)
    return (table, "loaded") if misfit is None else (None, f"a table whose {misfit}")


def _misfit(table: CostTable) -> str | None:
    """Return how far the formulas are off, if too far to be used."""
    errors = {"decode": table.error_decode, "prefill": table.error_prefill}
    worst = max(errors, key=errors.__getitem__)
    return f"{worst} law is off by {errors[worst]:.0%} on average" if errors[worst] > _MOST_ERROR else None


def _difference(theirs: CostsKey, ours: CostsKey) -> str:
    differing = [name for name in CostsKey.__struct_fields__ if getattr(theirs, name) != getattr(ours, name)]
    what = "machine" if set(differing) & set(_MACHINE_FIELDS) else "engine"
    facts = ", ".join(f"{name} {getattr(theirs, name)}, not {getattr(ours, name)}" for name in differing)
    return f"the table is of another {what} ({facts})"
