"""Recorded traces: a line of JSON a request."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from ops.traces.least_work import LeastWork
from ops.traces.mixes import held
from ops.traces.trace import Request, Trace
from shared.errors import SettingsError

_MAX_REQUESTS: Final = 5_000_000


def read_trace(path: Path, *, load: float | None, seed: int, least: LeastWork) -> Trace:
    """Return the file's requests by arrival, the first at 0; sped up or slowed down to `load`, None as recorded.

    Raises `SettingsError`, which names the file, the line and what is wrong with it.
    """
    requests = sorted(_read(path), key=lambda request: request.arrival_ms)
    start_ms = requests[0].arrival_ms
    span_ms = requests[-1].arrival_ms - start_ms
    if load is not None and span_ms <= 0:
        raise SettingsError(f"{path}: all requests arrive at once, so no --load can be given; leave it out")
    work_ms = sum(least.ms(request) for request in requests)
    stretch = 1.0 if load is None else work_ms / (load * span_ms)
    moved = (
        msgspec.structs.replace(request, arrival_ms=(request.arrival_ms - start_ms) * stretch) for request in requests
    )
    random = Random(f"held/{seed}")  # noqa: S311 - a load, not a secret
    return Trace(name=path.stem, load=load, seed=seed, requests=held(moved, random))


def _read(path: Path) -> list[Request]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"--trace {path}: {error.strerror}; give a name or a JSONL file") from error
    requests = _of_lines(path, data.splitlines())
    if not 0 < len(requests) <= _MAX_REQUESTS:
        raise SettingsError(f"--trace {path}: holds {len(requests)} requests; 1 to {_MAX_REQUESTS} can be simulated")
    return requests


def _of_lines(path: Path, lines: Sequence[bytes]) -> list[Request]:
    decoder = msgspec.json.Decoder(Request)
    requests: list[Request] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            request = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}, line {number}: {error}; write one request as JSON in each line") from error
        if request.output_tokens > request.max_output_tokens:
            raise SettingsError(f"{path}, line {number}: output_tokens is above max_output_tokens")
        requests.append(request)
    return requests
