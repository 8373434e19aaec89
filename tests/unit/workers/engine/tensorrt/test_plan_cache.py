"""A cached plan is returned only for exactly what it was built for, and only if complete."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile.lying_files import pickled
from workers.engine.tensorrt.plans import PlanCache, PlanKey, PlanShapes, Rejected, read_plan

SHAPES = PlanShapes(num_slots=8, capacity=2_056, prefill_rows=8, prefill_tokens=256)
KEY = PlanKey(
    model="tiny-fp16",
    graph_sha256="a" * 64,
    precision="fp16",
    library="tensorrt",
    version="10.15.1",
    sm="sm_90",
    shapes=SHAPES,
)
PLAN = bytes(range(256)) * 40
OTHERS = {
    "model": {"model": "tiny-int8"},
    "weights": {"graph_sha256": "b" * 64},
    "precision": {"precision": "int8"},
    "library": {"library": "tensorrt-rtx"},
    "version": {"version": "10.15.2"},
    "GPU": {"sm": "sm_89"},
    "slots": {"shapes": msgspec.structs.replace(SHAPES, num_slots=16)},
    "capacity": {"shapes": msgspec.structs.replace(SHAPES, capacity=4_104)},
    "prefill": {"shapes": msgspec.structs.replace(SHAPES, prefill_tokens=512)},
}


def store_another(cache: PlanCache, change: dict[str, object]) -> None:
    """Copied from another machine, say, or a digest cut too short."""
    cache.store(msgspec.structs.replace(KEY, **change), PLAN).rename(cache.path(KEY))


def rewrite(cache: PlanCache, change: Callable[[bytes], bytes]) -> None:
    path = cache.store(KEY, PLAN)
    path.write_bytes(change(path.read_bytes()))


LIES: dict[str, tuple[Callable[[PlanCache], object], str]] = {
    **{
        f"built for another {what}": (
            lambda cache, change=change: store_another(cache, change),
            "it was built for something else",
        )
        for what, change in OTHERS.items()
    },
    "other bytes under its header": (
        lambda cache: rewrite(cache, lambda stored: stored.replace(PLAN, PLAN[::-1])),
        "it is damaged",
    ),
    "cut off": (lambda cache: rewrite(cache, lambda stored: stored[:-1]), "it is damaged"),
    "runs on": (lambda cache: rewrite(cache, lambda stored: stored + b"\0"), "it is damaged"),
    "without its header": (lambda cache: rewrite(cache, lambda _: PLAN), "it is not a plan of this version"),
    "a pickle": (
        lambda cache: rewrite(cache, lambda _: pickled(cache.directory / "mark")),
        "it is not a plan of this version",
    ),
    "a pickle after the first line": (
        lambda cache: rewrite(cache, lambda stored: stored[:17] + pickled(cache.directory / "mark")),
        "its header is damaged",
    ),
}


def refuse_plan(what: str, base: Path) -> None:
    """It is not handed out, TensorRT never sees it, and nothing of it is unpickled."""
    cache = PlanCache(base / "plans")
    lie, line = LIES[what]
    lie(cache)
    rejected = cache.load(KEY)
    assert isinstance(rejected, Rejected)
    assert (rejected.path, rejected.reason) == (cache.path(KEY), line)
    assert not (cache.directory / "mark").exists()


@pytest.fixture
def cache(tmp_path: Path) -> PlanCache:
    return PlanCache(tmp_path / "plans")


def test_what_was_stored_is_loaded(cache: PlanCache) -> None:
    assert cache.load(KEY) is None
    cache.store(KEY, b"old")
    path = cache.store(KEY, PLAN)
    assert cache.load(KEY) == PLAN == read_plan(path)
    assert list(cache.directory.iterdir()) == [path]


@pytest.mark.parametrize("what", LIES)
def test_a_corrupt_file_is_rejected(tmp_path: Path, what: str) -> None:
    refuse_plan(what, tmp_path)


@given(st.data())
def test_no_changed_byte_passes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    cache = PlanCache(tmp_path_factory.mktemp("plans"))
    path = cache.store(KEY, PLAN)
    stored = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(stored) - 1))
    stored[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(stored)
    assert cache.load(KEY) != PLAN or b" " in stored[place : place + 1]
    assert isinstance(cache.load(KEY), Rejected)


def test_an_interrupted_write_leaves_the_old_plan(cache: PlanCache, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache.store(KEY, PLAN)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.engine.tensorrt.plans.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cache.store(KEY, b"half of a new one")
    assert cache.load(KEY) == PLAN
    assert list(cache.directory.iterdir()) == [path]


def test_a_models_name_cannot_leave_the_directory(cache: PlanCache) -> None:
    path = cache.path(msgspec.structs.replace(KEY, model="../../etc/x y"))
    assert path.parent == cache.directory
    assert " " not in path.name
