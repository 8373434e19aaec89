"""What was measured of every engine, as rows and as ratios of one run: pure.

Each round runs every engine once, one after the other, so that a machine that slows down slows all of them. A row has
the median over the rounds; a ratio is of the two engines' figures in the same round, and the median of those counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from tests.bench.engines.roofline import Limits, Work, decode_bound_s, prefill_bound_s

PEERS: Final = ("transformers", "llama.cpp")


class Cell(Struct, frozen=True, kw_only=True):
    """One engine with one model in one precision. Also the key of what was measured of it."""

    engine: str
    model: str
    precision: str
    device: str

    @property
    def label(self) -> str:
        return f"{self.engine} {self.precision}"


class Timing(Struct, frozen=True, kw_only=True):
    """One batch in one round. Prompts and new tokens of all its rows; the first new token is prefill's.

    `runtime_s` is the part of `decode_s` that was spent in the runtime's own calls; `rss_mib` is the most that was
    resident so far in the process, which measures its batches in ascending order.
    """

    batch: int
    prefill_s: float
    decode_s: float
    decode_steps: int
    rss_mib: float
    runtime_s: float | None = None
    device_mib: float | None = None


class Measured(Struct, frozen=True, kw_only=True):
    """What one process says of its engine. `runtime` names the library and its version."""

    cell: Cell
    runtime: str
    work: Work
    timings: list[Timing]


class Round(Struct, frozen=True, kw_only=True):
    """`limits` by device."""

    limits: dict[str, Limits]
    measured: list[Measured]


class EngineRow(Struct, frozen=True, kw_only=True):
    """As `--json` writes them. `overhead_share` is Python's part of a decode step, around the runtime's calls;
    `roofline_share` is of decode. None: not measured."""

    engine: str
    model: str
    precision: str
    device: str
    batch: int
    prefill_tok_s: float
    decode_tok_s: float
    overhead_share: float | None
    rss_mib: float
    roofline_share: float | None


class EngineDetail(Struct, frozen=True, kw_only=True):
    """Beside a row: its rounds, and what the row has no key for."""

    engine: str
    precision: str
    batch: int
    runtime: str
    step_ms: float
    prefill_roofline_share: float | None
    device_mib: float | None
    prefill_tok_s_by_round: list[float]
    decode_tok_s_by_round: list[float]


class Ratio(Struct, frozen=True, kw_only=True):
    """`engine` to `peer`, both at `batch`; above 1 the engine is the faster."""

    engine: str
    precision: str
    peer: str
    batch: int
    prefill: float
    decode: float


class Sizes(Struct, frozen=True, kw_only=True):
    """Tokens of each prompt, and new ones of each answer."""

    prompt_tokens: int
    new_tokens: int


def rows_of(rounds: Sequence[Round], sizes: Sizes) -> list[EngineRow]:
    """A row for each engine and batch, in the order in which they were measured."""
    rows: list[EngineRow] = []
    for (cell, batch), found in _by_cell(rounds).items():
        rows.append(
            EngineRow(
                engine=cell.engine,
                model=cell.model,
                precision=cell.precision,
                device=cell.device,
                batch=batch,
                prefill_tok_s=round(median(_prefill_tok_s(t, sizes) for _, _, t in found), 2),
                decode_tok_s=round(median(decode_tok_s(t) for _, _, t in found), 2),
                overhead_share=_median(_overhead_share(t) for _, _, t in found),
                rss_mib=round(max(t.rss_mib for _, _, t in found), 1),
                roofline_share=_median(_decode_share(*one, sizes) for one in found),
            )
        )
    return rows


def details_of(rounds: Sequence[Round], sizes: Sizes) -> list[EngineDetail]:
    details: list[EngineDetail] = []
    for (cell, batch), found in _by_cell(rounds).items():
        taken = [t.device_mib for _, _, t in found if t.device_mib is not None]
        details.append(
            EngineDetail(
                engine=cell.engine,
                precision=cell.precision,
                batch=batch,
                runtime=found[0][1].runtime,
                step_ms=round(median(t.decode_s / t.decode_steps for _, _, t in found) * 1_000, 3),
                prefill_roofline_share=_median(_prefill_share(*one, sizes) for one in found),
                device_mib=round(max(taken), 1) if taken else None,
                prefill_tok_s_by_round=[round(_prefill_tok_s(t, sizes), 2) for _, _, t in found],
                decode_tok_s_by_round=[round(decode_tok_s(t), 2) for _, _, t in found],
            )
        )
    return details


def ratios_of(rounds: Sequence[Round], sizes: Sizes) -> list[Ratio]:
    """Every engine of ours to each peer, and TensorRT to torch, at the batches that both were measured at."""
    found = _by_cell(rounds)
    ratios: list[Ratio] = []
    for (cell, batch), ours in found.items():
        for (other, other_batch), theirs in found.items():
            if other_batch != batch or not _are_compared(cell.engine, other.engine):
                continue
            pairs = [(t, u) for (_, _, t), (_, _, u) in zip(ours, theirs, strict=False)]
            ratios.append(
                Ratio(
                    engine=cell.engine,
                    precision=cell.precision,
                    peer=other.label,
                    batch=batch,
                    prefill=round(median(_prefill_tok_s(t, sizes) / _prefill_tok_s(u, sizes) for t, u in pairs), 3),
                    decode=round(median(decode_tok_s(t) / decode_tok_s(u) for t, u in pairs), 3),
                )
            )
    return ratios


def _are_compared(ours: str, theirs: str) -> bool:
    if ours in PEERS:
        return False
    return theirs in PEERS or (ours.startswith("tensorrt") and theirs == "torch")


def decode_tok_s(timing: Timing) -> float:
    return timing.batch * timing.decode_steps / timing.decode_s


def _prefill_tok_s(timing: Timing, sizes: Sizes) -> float:
    return timing.batch * sizes.prompt_tokens / timing.prefill_s


def _overhead_share(timing: Timing) -> float | None:
    return None if timing.runtime_s is None else 1 - timing.runtime_s / timing.decode_s


def _decode_share(limits: Limits | None, measured: Measured, timing: Timing, sizes: Sizes) -> float | None:
    if limits is None:
        return None
    past = sizes.prompt_tokens + timing.decode_steps / 2
    bound_s = decode_bound_s(measured.work, limits, measured.cell.precision, rows=timing.batch, past=past)
    return bound_s * timing.decode_steps / timing.decode_s


def _prefill_share(limits: Limits | None, measured: Measured, timing: Timing, sizes: Sizes) -> float | None:
    if limits is None:
        return None
    bound_s = prefill_bound_s(
        measured.work, limits, measured.cell.precision, rows=timing.batch, tokens=sizes.prompt_tokens
    )
    return None if bound_s is None else bound_s / timing.prefill_s


def _median(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return round(median(known), 4) if known else None


_Found = tuple[Limits | None, Measured, Timing]


def _by_cell(rounds: Sequence[Round]) -> Mapping[tuple[Cell, int], list[_Found]]:
    found: dict[tuple[Cell, int], list[_Found]] = {}
    for one in rounds:
        for measured in one.measured:
            for timing in measured.timings:
                key = measured.cell, timing.batch
                found.setdefault(key, []).append((one.limits.get(measured.cell.device), measured, timing))
    return found
