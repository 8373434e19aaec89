"""The bench's rows, ratios and targets as people read them. Pure."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from rich import box
from rich.table import Table

from ops.measure.runner import show, verdict
from tests.bench.engines.rows import EngineRow, Ratio, Round

DECODE_TO_LLAMA: Final = 1.0
PREFILL_TO_LLAMA: Final = 1.0
DECODE_TO_TRANSFORMERS: Final = 8.0  # torch at batch 64, on a GPU
TENSORRT_TO_TORCH: Final = 1.2
BANDWIDTH_SHARE: Final = 0.6  # torch at batch 1, on a GPU
OVERHEAD_SHARE: Final = 0.1
_LLAMA_BATCHES: Final = (1, 4, 8, 16)
_LARGEST_BATCH: Final = 64


def row_table(rows: Sequence[EngineRow]) -> Table:
    """One line a row; what was not measured is –."""
    header = (
        "engine",
        "precision",
        "device",
        "batch",
        "prefill tok/s",
        "decode tok/s",
        "Python",
        "RSS MiB",
        "roofline",
    )
    return _table(
        header,
        [
            (
                *(row.engine, row.precision, row.device, row.batch, row.prefill_tok_s, row.decode_tok_s),
                *(_percent(row.overhead_share), round(row.rss_mib), _percent(row.roofline_share)),
            )
            for row in rows
        ],
    )


def ratio_table(ratios: Sequence[Ratio]) -> Table:
    """Above 1 the engine is faster than its peer."""
    return _table(
        ("engine", "precision", "to", "batch", "prefill", "decode"),
        [(one.engine, one.precision, one.peer, one.batch, one.prefill, one.decode) for one in ratios],
    )


def limits_text(rounds: Sequence[Round]) -> list[str]:
    """A line a device: the median over the rounds."""
    lines: list[str] = []
    for device in rounds[0].limits:
        of_device = [one.limits[device] for one in rounds if device in one.limits]
        rates = ", ".join(
            f"{precision} {show(median(one.gflop_s[precision] for one in of_device) / 1_000)} Tflop/s"
            for precision in of_device[0].gflop_s
        )
        read = show(median(one.read_gb_s for one in of_device))
        lines.append(f"{device}, {of_device[0].source}: reads {read} GB/s; {rates}")
    return lines


def verdicts(rows: Sequence[EngineRow], ratios: Sequence[Ratio]) -> list[str]:
    """The targets that something was measured for."""
    lines: list[str] = []
    for one in ratios:
        at = f"{one.engine} {one.precision} to {one.peer}, batch {one.batch}"
        if one.engine == "onnx" and one.precision.startswith("int8") and one.peer.startswith("llama.cpp"):
            if one.batch in _LLAMA_BATCHES:
                lines.append(f"{at}: decode {show(one.decode)} ({verdict(one.decode, DECODE_TO_LLAMA, at_least=True)})")
            held = verdict(one.prefill, PREFILL_TO_LLAMA, at_least=True)
            lines.append(f"{at}: prefill {show(one.prefill)} ({held})")
        elif one.engine.startswith("tensorrt") and one.peer.startswith("torch"):
            held = verdict(one.decode, TENSORRT_TO_TORCH, at_least=True)
            lines.append(f"{at}: decode {show(one.decode)} ({held})")
        elif one.engine == "torch" and one.peer.startswith("transformers") and one.batch == _LARGEST_BATCH:
            held = verdict(one.decode, DECODE_TO_TRANSFORMERS, at_least=True)
            lines.append(f"{at}: decode {show(one.decode)} ({held}; the target is of a GPU)")
    for row in rows:
        at = f"{row.engine} {row.precision} on {row.device}, batch {row.batch}"
        if row.device != "cpu" and row.overhead_share is not None:
            lines.append(
                f"{at}: Python {row.overhead_share:.1%} of a step ({verdict(row.overhead_share, OVERHEAD_SHARE)})"
            )
        if row.engine == "torch" and row.device != "cpu" and row.batch == 1 and row.roofline_share is not None:
            held = verdict(row.roofline_share, BANDWIDTH_SHARE, at_least=True)
            lines.append(f"{at}: {row.roofline_share:.1%} of the bandwidth ({held})")
    return lines


def _table(header: Sequence[str], rows: Sequence[Sequence[str | int | float | None]]) -> Table:
    table = Table(box=box.MARKDOWN)
    for name in header:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*(show(cell) for cell in row))
    return table


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
