"""A worker's cold start, with the demo's model on the local disk."""

from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from shared.settings import Settings
from tests.bench.start import StartRow, bench_start
from tests.proofs.elastic.conftest import Note

_MOST_S: Final = 2.0


async def test_a_started_worker_answers_what_waits_for_it(note: Note, tmp_path: Path) -> None:
    written = tmp_path / "start.json"
    await bench_start(Settings(), 3, written, Console(stderr=True))
    row = msgspec.json.decode(written.read_bytes(), type=StartRow)
    memory = f"{row.rss_mib:.0f} MiB, {row.shared_mib:.0f} of them shared"
    note(
        "cold start: process start to first text, weights on the local disk, CPU",
        f"{row.first_text_s:.2f} s, {row.cpu_s:.2f} s of CPU; {memory}",
        f"at most {_MOST_S:g} s",
        holds=row.first_text_s <= _MOST_S,
    )
