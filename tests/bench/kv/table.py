"""What is said of `replyline bench kv`: a table a cell, and the ratios beside their targets. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from ops.measure.runner import markdown, show, verdict
from tests.bench.kv.ratios import middle, rounded, worst
from tests.bench.kv.ttft import Cell, Level
from tests.bench.kv.whole import WholeRound, WholeRun, prefill_share, throughput_ratio, throughput_vs_peer, time_ratio
from tests.bench.kv.window import LATER, TURNS, WindowRun, window_ratio
from tests.bench.kv.write import WriteRow

TTFT_REDIS_TARGET: Final = 0.25
TTFT_WARM_TARGET: Final = 0.10
PREFILL_TARGET: Final = 0.35
WRITE_TARGET: Final = 1.15
SAVED_TARGET: Final = 0.80
THROUGHPUT_TARGET: Final = 2.2
PEER_TARGET: Final = 1.3
OUTAGE_TARGET: Final = 1.05

_LEVELS: Final[dict[Level, str]] = {
    "slot": "slot, the same worker's next turn",
    "host": "host memory, the same worker",
    "redis": "Redis, another worker",
}
_SIDES: Final = {"on": "cache on", "off": "cache off", "peer": "llama-server, its prompt cache"}


class Cells(Struct, kw_only=True):
    """What was measured; what was not is empty."""

    ttft: list[Cell] = []
    whole: list[WholeRound] = []
    write: list[WriteRow] = []
    down: list[WholeRound] = []
    slow: list[WholeRound] = []
    window: list[WindowRun] = []


class Ratios(Struct, frozen=True, kw_only=True):
    """The keys of `--json`. None where a cell was not measured. `ttft_ratio_warm` is the worse of slot and host."""

    ttft_ratio_redis: float | None
    ttft_ratio_warm: float | None
    ttft_ratio_slot: float | None
    ttft_ratio_host: float | None
    prefill_share: float | None
    write_ratio: float | None
    write_saved: float | None
    throughput_ratio: float | None
    throughput_vs_peer: float | None
    redis_down_ratio: float | None
    redis_slow_ratio: float | None
    window_ttft_ratio: float | None


def ratios_of(cells: Cells) -> Ratios:
    by_level = {cell.level: cell.ratio for cell in cells.ttft}
    slot, host = by_level.get("slot"), by_level.get("host")
    return Ratios(
        ttft_ratio_redis=rounded(by_level.get("redis")),
        ttft_ratio_warm=rounded(worst([slot, host])),
        ttft_ratio_slot=rounded(slot),
        ttft_ratio_host=rounded(host),
        prefill_share=rounded(prefill_share(cells.whole)),
        write_ratio=cells.write[-1].ratio if cells.write else None,
        write_saved=cells.write[-1].saved if cells.write else None,
        throughput_ratio=rounded(throughput_ratio(cells.whole)),
        throughput_vs_peer=rounded(throughput_vs_peer(cells.whole)),
        redis_down_ratio=rounded(time_ratio(cells.down)),
        redis_slow_ratio=rounded(time_ratio(cells.slow)),
        window_ttft_ratio=rounded(window_ratio(cells.window)),
    )


def show_cells(cells: Cells, ratios: Ratios) -> str:
    tables = [
        _ttft(cells.ttft),
        _whole("whole conversations", cells.whole),
        _writes(cells.write),
        _whole("Redis down", cells.down),
        _whole("Redis 100 ms away", cells.slow),
        _windows(cells.window),
    ]
    return "\n\n".join([*(table for table in tables if table), "\n".join(_verdicts(ratios))])


def _ttft(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    header = ("turn 5 from", "TTFT p50 ms", "recomputed", "ratio", "worker's prefill p50 ms", "recomputed", "ratio",
              "prompt tokens", "cached", "same first tokens", "not by the model")  # fmt: skip
    rows = [
        (
            _LEVELS[cell.level],
            middle(cell.ttft_ms),
            middle(cell.recomputed_ttft_ms),
            cell.ratio,
            middle(cell.prefill_ms),
            middle(cell.recomputed_prefill_ms),
            cell.prefill_ratio,
            middle(float(tokens) for tokens in cell.prompt_tokens),
            middle(float(tokens) for tokens in cell.cached_tokens),
            f"{cell.same_text} of {len(cell.ttft_ms)}",
            cell.not_by_model,
        )
        for cell in cells
    ]
    return markdown(header, rows)


def _whole(title: str, rounds: Sequence[WholeRound]) -> str:
    if not rounds:
        return ""
    header = (title, "turns", "answers by the model", "fallback", "refused", "cut", "seconds", "answers/s",
              "tokens an answer", "prompt tokens", "of these computed", "TTFT p50 ms")  # fmt: skip
    sides = [
        [one.off for one in rounds],
        [one.on for one in rounds],
        [one.peer for one in rounds if one.peer is not None],
    ]
    rows = [_side(runs) for runs in sides if runs]
    return markdown(header, rows)


def _side(runs: Sequence[WholeRun]) -> tuple[str | int | float | None, ...]:
    model = sum(run.model_answers for run in runs)
    elapsed_s = sum(run.elapsed_s for run in runs)
    computed = [run.computed_tokens for run in runs if run.computed_tokens is not None]
    return (
        _SIDES[runs[0].what],
        sum(run.turns for run in runs),
        model,
        sum(run.fallbacks for run in runs),
        sum(run.refusals for run in runs),
        sum(run.cut for run in runs),
        elapsed_s,
        model / elapsed_s if elapsed_s else None,
        sum(run.output_tokens for run in runs) / model if model else None,
        sum(run.prompt_tokens for run in runs),
        sum(computed) if computed else None,
        middle(run.ttft_ms.p50 for run in runs),
    )


def _writes(rows: Sequence[WriteRow]) -> str:
    header = ("turn", "conversations", "tokens so far", "new tokens", "KiB written", "of the new tokens' bytes",
              "saved against rewriting all")  # fmt: skip
    lines = [
        (
            row.turn if row.turn is not None else "all",
            row.turns,
            row.session_tokens,
            row.new_tokens,
            row.written_bytes / 1_024,
            row.ratio,
            row.saved,
        )
        for row in rows
    ]
    return markdown(header, lines) if lines else ""


def _windows(runs: Sequence[WindowRun]) -> str:
    if not runs:
        return ""
    header = ("history_window", "TTFT p50 ms, turns 2–5", f"turns {LATER}–{TURNS}", "of these the slowest",
              "mean", "prompt tokens", "of these computed", "not by the model")  # fmt: skip
    return markdown(header, [_window(run) for run in runs])


def _window(run: WindowRun) -> tuple[str | int | float | None, ...]:
    later = run.of(LATER, TURNS)
    measured = [one.ttft_ms for one in later if one.ttft_ms is not None]
    return (
        run.mode,
        middle(one.ttft_ms for one in run.of(2, LATER - 1)),
        middle(measured),
        max(measured, default=None),
        sum(measured) / len(measured) if measured else None,
        sum(one.prompt_tokens for one in later) / len(later) if later else None,
        sum(one.computed_tokens for one in later) / len(later) if later else None,
        run.not_by_model,
    )


def _verdicts(ratios: Ratios) -> Iterator[str]:
    for what, value, target, at_least in (
        ("TTFT of turn 5 from Redis, of recomputing", ratios.ttft_ratio_redis, TTFT_REDIS_TARGET, False),
        ("TTFT of turn 5 warm (slot or host memory, the worse)", ratios.ttft_ratio_warm, TTFT_WARM_TARGET, False),
        ("prompt tokens computed, of those without cache", ratios.prefill_share, PREFILL_TARGET, False),
        ("bytes written, of the new tokens'", ratios.write_ratio, WRITE_TARGET, False),
        ("bytes saved against rewriting the conversation", ratios.write_saved, SAVED_TARGET, True),
        ("answers/s, of those without cache", ratios.throughput_ratio, THROUGHPUT_TARGET, True),
        ("answers/s, of llama-server's", ratios.throughput_vs_peer, PEER_TARGET, True),
        ("time with Redis down, of cache off", ratios.redis_down_ratio, OUTAGE_TARGET, False),
        ("time with Redis 100 ms away, of cache off", ratios.redis_slow_ratio, OUTAGE_TARGET, False),
    ):
        yield f"{what}: {show(value)} ({verdict(value, target, at_least=at_least)})"
