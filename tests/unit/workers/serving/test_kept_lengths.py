"""What was learned of answers' lengths outlives its process, and a file that does not fit is passed over."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from workers.engine import EngineInfo
from workers.engine.fake import FakeEngine
from workers.serving.kept_lengths import KeptLengths

INFO = replace(FakeEngine(num_slots=4, max_length=512).info, model="m", revision="r")


def kept(path: Path | None, info: EngineInfo = INFO) -> KeptLengths:
    return KeptLengths(path, info)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a worker that has answered forty times with 30 tokens."""
    path = tmp_path / "costs" / "m.lengths"
    learned = kept(path)
    for _ in range(40):
        learned.lengths.observe("short", 30, ended_by_itself=True)
    learned.write()
    return path


def test_the_next_process_predicts_as_the_last_one_did(path: Path) -> None:
    assert kept(path).lengths.predict("short", 512, 0.5) == 30


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept(None).write()
    assert list(tmp_path.iterdir()) == []


def of(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["classes"]["short"].update(values)


def weighing(factor: float) -> Callable[[dict[str, Any]], None]:
    def weigh(table: dict[str, Any]) -> None:
        short = table["classes"]["short"]
        short["tokens"] *= factor
        for name in ("ended", "cut"):
            short[name] = [weight * factor for weight in short[name]]

    return weigh


@pytest.mark.parametrize(
    "wrong",
    [
        *(replace(INFO, model="n"), replace(INFO, revision="s"), replace(INFO, max_length=1_024)),
        *(b"", b"\xff\xfe", b"[]", b'{"classes": {"short": '),
        *(lambda table: table.update(schema_version=2), lambda table: table.update(unknown=1)),
        *(lambda table: table.pop("classes"), of(ended=[1.0]), of(num_answers=2), of(cut="none")),
        *(of(tokens=tokens) for tokens in (-1.0, 1e300, 1.0, 38.0, 20_000.0, 1e8)),
        *(weighing(0.0), weighing(1.5)),
    ],
)
def test_a_file_of_another_model_or_damaged_or_that_cannot_have_been_learned_is_passed_over(
    path: Path, wrong: EngineInfo | bytes | Callable[[dict[str, Any]], None]
) -> None:
    """Of the forty answers those long ago weigh less: 38.5 in all."""
    if callable(wrong):
        table = msgspec.json.decode(path.read_bytes())
        wrong(table)
        path.write_bytes(msgspec.json.encode(table))
    elif isinstance(wrong, bytes):
        path.write_bytes(wrong)
    with capture_logs() as logs:
        assert not kept(path, wrong if isinstance(wrong, EngineInfo) else INFO).lengths.knows("short")
    assert [log["event"] for log in logs] == ["kept_lengths_ignored"]


def test_a_folder_that_takes_no_file_costs_one_line(path: Path) -> None:
    learned = kept(path)
    path.unlink()
    path.parent.rmdir()
    path.parent.write_bytes(b"")
    with capture_logs() as logs:
        learned.write()
    assert [log["event"] for log in logs] == ["lengths_not_kept"]


async def test_what_was_published_since_is_written_now_and_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.serving.kept_lengths._EVERY_S", 0.0)
    learned = kept(path)
    writing = asyncio.create_task(learned.write_regularly())
    await asyncio.sleep(0)
    for _ in range(1_000):
        learned.lengths.observe("long", 90, ended_by_itself=True)
    for _ in range(10_000):
        await asyncio.sleep(0)
        if kept(path).lengths.knows("long"):
            break
    writing.cancel()
    assert kept(path).lengths.knows("long")
