"""Answers a second as scripted workers and gateways are added."""

from pathlib import Path

import msgspec
from rich.console import Console

from shared.settings import Settings
from tests.bench.cell import Bench
from tests.bench.scale import bench_scale, name_of
from tests.proofs.elastic.conftest import Note

_SIZES = ((1, 1), (2, 1), (4, 1), (4, 2))
_LEAST = 0.8


async def test_more_workers_answer_more(note: Note, tmp_path: Path) -> None:
    """What failed fails here; how far from linear it is depends on the cores that all share."""
    written = tmp_path / "scale.json"
    bench = Bench(rounds=1, json_path=written, engine="fake", broker="kafka")
    await bench_scale(Settings(), bench, _SIZES, Console(stderr=True))
    medians = msgspec.json.decode(written.read_bytes())["medians"]
    assert all(one["failed"] == 0 for one in medians.values())
    for size in _SIZES[1:]:
        one, name = medians[name_of(*size)], name_of(*size)
        share = one["of_linear"] / medians[name_of(*_SIZES[0])]["of_linear"]
        figure = (
            f"{share:.2f} of linear, TTFT p99 {one['ttft_p99_ms']:.0f} ms, {one['cores_busy']:.0%} of the cores busy"
        )
        note(f"scale: {name}, scripted engines", figure, f"at least {_LEAST} of linear", holds=share >= _LEAST)
