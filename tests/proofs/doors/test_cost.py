"""The cost of a door compared with the WebSocket: CPU of the gateway's process per delta, and time to the first
text."""

import asyncio
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx2
import psutil

from shared.client.session import AsyncReplyline
from shared.wire.messages import ResponseCreate, ResponseDelta
from tests.proofs.doors.conftest import Tried
from tests.proofs.doors.streams import ALL, DoorStream, WebSocketStream
from tests.support.rows import Rows

_ROUNDS = 3
_STREAMS = 40
_FIRSTS = 20
_MOST_RATIO = 1.3
_MOST_MS = 5.0


async def test_a_delta_costs_little_more_than_over_the_websocket(scripted: Tried, rows: Rows) -> None:
    """Each round measures every door in turn with this many streams; medians of the rounds' ratios count."""
    used: dict[str, list[float]] = {kind.name: [] for kind in ALL}
    for _ in range(_ROUNDS):
        for kind in ALL:
            used[kind.name].append(await _cpu_us_a_character(scripted, kind))
    for kind in ALL[1:]:
        pairs = zip(used[kind.name], used[WebSocketStream.name], strict=True)
        ratio = statistics.median(own / websocket for own, websocket in pairs)
        rows.found(
            f"CPU of a delta against the WebSocket's, {kind.name}",
            figure=f"{ratio:.2f} ({statistics.median(used[kind.name]):.0f} µs of the gateway's process)",
            target=f"at most {_MOST_RATIO}",
            holds=ratio <= _MOST_RATIO,
        )


async def _cpu_us_a_character(tried: Tried, kind: type[DoorStream]) -> float:
    """Return the CPU per character, in µs: the scripted engine's tokens are single characters, and each is a separate
    delta."""
    gateway = tried.gateways[0]
    process = psutil.Process(gateway.service.child.process.pid)
    streams = [kind(f"Tell me all, {secrets.token_hex(4)}") for _ in range(_STREAMS)]
    before = process.cpu_times()
    await asyncio.gather(*(stream.run(gateway, gateway) for stream in streams))
    after = process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    return float(used_s) / sum(len(stream.text) for stream in streams) * 1e6


_HTTP: dict[str, tuple[str, Callable[[str], dict[str, Any]], str]] = {
    "OpenAI chat completions": (
        "/v1/chat/completions",
        lambda text: {"model": "replyline", "stream": True, "messages": [{"role": "user", "content": text}]},
        '"delta":{"content":',
    ),
    "OpenAI Responses": (
        "/v1/responses",
        lambda text: {"model": "replyline", "stream": True, "input": text},
        "response.output_text.delta",
    ),
    "AI SDK UI message stream": (
        "/ai-sdk/chat",
        lambda text: {
            "id": f"chat-{secrets.token_hex(8)}",
            "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}],
        },
        "text-delta",
    ),
}
"""Each door's path, body and what its first text is known by."""


async def test_first_text_comes_as_soon_as_over_the_websocket(scripted: Tried, rows: Rows) -> None:
    """One question at a time, through each door in turn, over connections that stand."""
    gateway, taken_ms = scripted.gateways[0], defaultdict[str, list[float]](list)
    async with AsyncReplyline(gateway.service.ws) as socket, httpx2.AsyncClient(base_url=gateway.http) as client:
        for number in range(_FIRSTS):
            taken_ms["WebSocket"].append(await _first_ms_by_socket(socket, f"Tell me, {number}"))
            for name, (path, body, known_by) in _HTTP.items():
                question = f"Tell me, {secrets.token_hex(4)}"
                taken_ms[name].append(await _first_ms_by_http(client, path, body(question), known_by))
    websocket_ms = statistics.median(taken_ms["WebSocket"])
    for name in _HTTP:
        more_ms = statistics.median(taken_ms[name]) - websocket_ms
        rows.found(
            f"first text against the WebSocket's, {name}",
            figure=f"{more_ms:+.1f} ms ({websocket_ms:.1f} ms over the WebSocket)",
            target=f"at most {_MOST_MS:g} ms more",
            holds=more_ms <= _MOST_MS,
        )


async def _first_ms_by_socket(client: AsyncReplyline, text: str) -> float:
    start_s, taken_ms = time.monotonic(), 0.0
    async for event in client.ask(ResponseCreate(event_id=f"e-{secrets.token_hex(8)}", input=text)):
        if isinstance(event, ResponseDelta) and not taken_ms:
            taken_ms = (time.monotonic() - start_s) * 1_000
    return taken_ms


async def _first_ms_by_http(client: httpx2.AsyncClient, path: str, body: dict[str, Any], known_by: str) -> float:
    start_s, taken_ms = time.monotonic(), 0.0
    async with client.stream("POST", path, json=body) as stream:
        async for line in stream.aiter_lines():
            if known_by in line and not taken_ms:
                taken_ms = (time.monotonic() - start_s) * 1_000
    return taken_ms
