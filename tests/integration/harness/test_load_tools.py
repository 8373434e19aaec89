"""Traffic through the whole system: recorded, replayed, generated, and sent straight to Kafka."""

import asyncio
import gzip
import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ops.lab.load.options import ReplayOptions, TrafficOptions
from ops.lab.load.replay import replay
from ops.lab.load.traffic import bench_traffic
from ops.operate.recording.file import Recording, read_recording
from ops.operate.recording.options import RecordOptions
from ops.operate.recording.record import record
from shared.settings import Settings
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System, eventually
from tests.support.wire import JSON, MSGPACK, Client, Form

CONSENTED = "Does the rain jacket AX-3391-B come in green?"
PRIVATE = "I am Alice, and my parcel is late."
GAP_S = 0.5


pytestmark = STANDARD


def settings_of(system: System) -> Settings:
    return Settings(kafka=system.kafka_settings, worker={"engine": "fake"})  # type: ignore[arg-type]


async def ask_twice(url: str, form: Form, text: str, **start: object) -> None:
    async with Client.connect(url, form, start=False) as client:
        await client.send({"type": "session.start", **start})
        await client.of_type("session.created")
        for deadline_ms in (5_000, 9_000):
            await client.ask(text, max_output_tokens=4, deadline_ms=deadline_ms)
            await asyncio.sleep(GAP_S)


async def started(system: System, path: Path) -> tuple[asyncio.Task[None], StringIO]:
    """Start a recording of the next four requests; return it and its output."""
    told = StringIO()
    options = RecordOptions(path=path, minutes=1, requests=4)
    task = asyncio.create_task(record(options, settings_of(system), asyncio.Event(), Console(file=told, width=500)))
    await eventually(lambda: task.done() or "recording" in told.getvalue())
    return task, told


async def recorded(system: System, gateway: Service, path: Path) -> Recording:
    """Two concurrent conversations, one with consent; four requests."""
    recording, told = await started(system, path)
    await asyncio.gather(
        ask_twice(gateway.ws, JSON, CONSENTED, consent={"training": True}),
        ask_twice(gateway.ws, MSGPACK, PRIVATE),
    )
    await asyncio.wait_for(recording, 30)
    assert f"{path}: 4 requests in" in told.getvalue()
    assert "2 with their text (consented)" in told.getvalue()
    return read_recording(path)


def talks(recording: Recording) -> list[list[tuple[int, int]]]:
    """Return each conversation's requests in order: length and deadline."""
    found: dict[str, list[tuple[int, int]]] = {}
    for one in sorted(recording.asked, key=lambda one: one.at_ms):
        found.setdefault(one.session, []).append((one.input_tokens, one.deadline_ms))
    return sorted(found.values())


async def test_recorded_traffic_is_replayed(
    system: System, gateway: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It contains texts only with consent; conversations, lengths and deadlines are unchanged."""
    path = tmp_path / "a.replay"
    recording = await recorded(system, gateway, path)
    committed = await system.committed()
    texts = [one.text for one in recording.asked]
    assert sorted(text or "" for text in texts) == ["", "", CONSENTED, CONSENTED]
    assert b"Alice" not in gzip.decompress(path.read_bytes())
    assert recording.num_sessions == 2
    assert sorted(one.deadline_ms for one in recording.asked) == [5_000, 5_000, 9_000, 9_000]
    assert {one.input_tokens for one in recording.asked} == {len(CONSENTED), len(PRIVATE)}

    again, result = tmp_path / "b.replay", tmp_path / "result.json"
    second, _ = await started(system, again)
    page = tmp_path / "report.html"
    options = ReplayOptions(path=path, url=gateway.ws, token=None, speed=2.0, json_path=result, html_path=page)
    await replay(options, "replyline replay", Console(quiet=True))
    await asyncio.wait_for(second, 30)
    report = json.loads(result.read_bytes())
    assert (report["requests"], report["goodput"]["answers"], report["by_source"]["model"]) == (4, 4, 4)
    assert report["by_bucket"]["short"]["requests"] == 4
    assert "4 questions of 2 conversations" in page.read_text()
    assert not any(words in page.read_text() for words in (CONSENTED, "Alice"))
    assert "| short | 4 | 4 | 0 | 0 | 0 | 0 | 100.0% |" in capsys.readouterr().out

    replayed = read_recording(again)
    assert talks(replayed) == talks(recording)
    assert [one.text for one in replayed.asked] == [None] * 4  # a replay's customers are anonymous

    async def workers_went_on() -> bool:
        return await system.committed() != committed

    await eventually(workers_went_on)


async def test_generated_traffic_is_sent_to_a_running_gateway(gateway: Service, tmp_path: Path) -> None:
    path, page = tmp_path / "result.json", tmp_path / "report.html"
    options = TrafficOptions(
        name="sessions", rate=6.0, seconds=2.0, url=gateway.ws, token=None, broker="embedded", seed=1,
        json_path=path, html_path=page,
    )  # fmt: skip
    await bench_traffic(options, Settings(), "replyline bench traffic", Console(quiet=True))
    report = json.loads(path.read_bytes())
    assert report["requests"] == report["by_phase"]["all"]["requests"] > 4
    assert report["goodput"]["share"] == 1.0
    assert f"{report['requests']} questions in 2 s: a shop&#39;s customers in conversations" in page.read_text()
