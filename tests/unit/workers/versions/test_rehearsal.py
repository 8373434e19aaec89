"""A version is rehearsed in a separate process: what is wrong with it ends there, by a named reason."""

import asyncio
import hashlib
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from ops.model.prepare import prepare_model
from shared.errors import ModelError
from shared.model.folder import GRAPH_DATA, MANIFEST, ModelFolder
from shared.settings import Settings
from shared.versions.golden import Golden, GoldenSet
from shared.versions.state import State
from shared.versions.store import DOCUMENT, GOLDEN
from shared.versions.version import Version
from workers.engine.greedy import answer_greedily
from workers.engine.load_model import load_model
from workers.versions import beginning
from workers.versions.beginning import choices, load_first, read_last_served, remember_last_served
from workers.versions.candidate import open_candidate
from workers.versions.loader import VersionLoader
from workers.versions.rehearsal import rehearse

_PROMPT: Final = (5, 6, 7, 8)
_GIVEN: Final[dict[str, Any]] = {"engine": "onnx", "slots": 2, "max_length": 128, "threads": 1}


@pytest.fixture
def stored(tmp_path: Path, tiny_source: Path) -> tuple[Settings, Version]:
    """The tiny model as a version of a store, by its golden prompt; and settings that name neither."""
    folder = prepare_model(tmp_path, "fp32", source=tiny_source)
    settings = Settings.model_validate(
        {
            "worker": {**_GIVEN, "cache_dir": str(tmp_path)},
            "model": {"dir": str(folder.path), "versions_dir": str(tmp_path / "versions")},
        }
    )
    return settings, _store(settings, folder)


def _store(settings: Settings, folder: ModelFolder) -> Version:
    digest = hashlib.sha256((folder.path / MANIFEST).read_bytes()).hexdigest()
    manifest = folder.manifest
    version = Version(name="v", model=manifest.name, model_revision=manifest.revision, manifest_sha256=digest)
    output_ids = answer_greedily(load_model(settings).engine, [_PROMPT], 8)[0]
    golden = GoldenSet(engine="onnx", prompts=(Golden(prompt_ids=_PROMPT, output_ids=tuple(output_ids)),))
    (folder.path / DOCUMENT).write_bytes(msgspec.json.encode(version))
    (folder.path / GOLDEN).write_bytes(msgspec.json.encode(golden))
    settings.model.versions_dir.mkdir()
    (settings.model.versions_dir / version.id).symlink_to(folder.path)
    return version


def _another_byte(folder: Path) -> None:
    file = folder / GRAPH_DATA
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)


def _other_answers(folder: Path) -> None:
    golden = GoldenSet(engine="onnx", prompts=(Golden(prompt_ids=_PROMPT, output_ids=(1,) * 8),))
    (folder / GOLDEN).write_bytes(msgspec.json.encode(golden))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda _: None, None),
        (_another_byte, "corrupt: .*model.onnx.data differs from its manifest's sha256"),
        (_other_answers, "golden prompts: 0.00 of the tokens agree"),
    ],
)
async def test_a_version_is_served_if_its_files_are_whole_and_it_gives_its_golden_answers(
    stored: tuple[Settings, Version], harm: Callable[[Path], None], reason: str | None
) -> None:
    settings, version = stored
    candidate = open_candidate(settings, version.id, verify=False)
    harm(candidate.settings.model.dir)
    failure = await rehearse(settings, candidate)
    assert failure is None if reason is None else re.search(reason, failure or "")


async def test_a_byte_that_changes_after_the_rehearsal_is_not_served(stored: tuple[Settings, Version]) -> None:
    settings, version = stored
    candidate = open_candidate(settings, version.id, expected=version, verify=False)
    assert await rehearse(settings, candidate) is None
    _another_byte(candidate.settings.model.dir)
    nothing: Any = SimpleNamespace(model=None)
    loader = VersionLoader(faq=nothing, history=nothing, worker=nothing, tasks=nothing)
    with pytest.raises(ModelError, match="differs from its manifest's sha256"):
        await loader.load_beside(candidate, nothing)


async def test_one_that_is_killed_or_hangs_is_a_named_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.model_validate({"worker": {"engine": "fake"}})
    candidate = open_candidate(settings, "v2", verify=False)
    assert await rehearse(settings, candidate, limit_s=0.0) == "its rehearsal did not end within 0 s"
    started = asyncio.create_subprocess_exec
    niceness: list[int] = []

    async def killed(*command: str, **how: Any) -> asyncio.subprocess.Process:
        child = await started(*command, **how)
        communicate = child.communicate

        async def kill_and_wait() -> tuple[bytes, bytes]:
            niceness.append(os.getpriority(os.PRIO_PROCESS, child.pid))
            child.send_signal(signal.SIGKILL)
            return await communicate()

        monkeypatch.setattr(child, "communicate", kill_and_wait)
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", killed)
    assert await rehearse(settings, candidate) == "its rehearsal was ended by SIGKILL"
    assert niceness == [19]


# --- what a worker begins with


def _registry(state: State | None) -> Callable[..., Awaitable[State | None]]:
    async def asked(*_: object) -> State | None:
        return state

    return asked


@pytest.mark.parametrize(
    ("state", "last", "expected"),
    [
        (State(aliases={"champion": "a"}), "b", ("a", "b", None)),
        (State(aliases={"champion": "a"}), "a", ("a", None)),
        (State(aliases={"canary": "a"}), "b", (None,)),
        (None, "b", ("b", None)),
        (None, None, (None,)),
    ],
)
async def test_it_begins_with_what_the_registry_names_or_without_kafka_with_what_was_served_last(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: State | None,
    last: str | None,
    expected: tuple[str | None, ...],
) -> None:
    settings = Settings.model_validate({"worker": {"cache_dir": str(tmp_path)}})
    remember_last_served(settings.worker, last)
    assert read_last_served(settings.worker) == last
    monkeypatch.setattr(beginning, "_registry_state", _registry(state))
    assert await choices(settings, "c") == expected


def test_where_a_version_cannot_be_loaded_it_begins_with_the_next(stored: tuple[Settings, Version]) -> None:
    settings, version = stored
    candidate, model = load_first(settings, ("0" * 12, version.id, None))
    assert (candidate.revision, candidate.registered, model.info.name) == (version.id, True, "onnx")
    _another_byte(settings.model.dir)
    with pytest.raises(Exception, match=r"differs from its manifest's sha256; run: replyline model prepare"):
        load_first(settings, (version.id, None))
