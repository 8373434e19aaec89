"""What host memory has no room for comes back from disk, whole or not at all, and goes with its conversation."""

from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.settings import Settings
from shared.wire.session_key import SessionKey
from tests.support.fakes.kv_workers import SHARED, TALK, Workers, dropped
from workers.kv.cache import _open_disk
from workers.kv.disk import DiskTier
from workers.kv.host import ENTRY_BYTES

OTHER = [*SHARED, *range(60, 72)]
LITTLE = 3 * (ENTRY_BYTES + 200)  # bytes: of one conversation's blocks at most
MUCH = 1 << 20


def tier(folder: Path, max_bytes: int = MUCH) -> DiskTier:
    return DiskTier(folder, max_bytes=max_bytes, ttl_s=3_600)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("kv-*/*") if path.name != "lock"]


async def test_what_gave_way_to_another_conversation_comes_back_without_redis(workers: Workers, tmp_path: Path) -> None:
    """And without the disk it would not."""
    computed = []
    for disk in (tier(tmp_path), None):
        worker = workers.start(host_bytes=LITTLE, disk=disk)
        await worker.turn(TALK, session="s1")
        await worker.turn(OTHER, session="s2")
        workers.redis.sessions.clear()
        workers.redis.shared.clear()
        computed.append((await worker.restored([*TALK, 30], session="s1")).computed)
    assert computed[0] == len(TALK)
    assert computed[1] < len(TALK)


async def test_an_erased_conversation_has_no_file_left_and_its_neighbour_has(workers: Workers, tmp_path: Path) -> None:
    worker = workers.start(host_bytes=ENTRY_BYTES, disk=tier(tmp_path))
    await worker.turn(TALK, session="s1")
    own = set(files(tmp_path))
    await worker.turn(OTHER, session="s2")
    worker.cache.erase(SessionKey("t", "s1"), 2**40)
    left = set(files(tmp_path))
    assert left
    assert len(own & left) <= len(SHARED), "what a tenant's conversations share stays"
    workers.redis.sessions.clear()
    workers.redis.shared.clear()
    assert (await worker.restored([*TALK, 30], session="s1")).computed <= len(SHARED)
    assert (await worker.restored([*OTHER, 30], session="s2")).computed == len(OTHER)


async def test_a_damaged_file_is_computed_again_and_counted(workers: Workers, tmp_path: Path) -> None:
    worker = workers.start(host_bytes=ENTRY_BYTES, disk=tier(tmp_path))
    await worker.turn(TALK)
    workers.redis.sessions.clear()
    workers.redis.shared.clear()
    before = dropped("checksum")
    for path in files(tmp_path):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert (await worker.restored([*TALK, 30])).computed == 0
    assert dropped("checksum") == before + 1
    for path in files(tmp_path):
        path.unlink()
    assert (await worker.restored([*TALK, 30])).computed == 0


def test_the_least_recently_used_files_give_way(tmp_path: Path) -> None:
    disk = tier(tmp_path, max_bytes=2 * (ENTRY_BYTES + 100))
    for number in range(3):
        disk.write(disk.keep(bytes([number]), bytes(100), "a", number), bytes(100))
    assert [path.name for path in sorted(files(tmp_path))] == ["01", "02"]
    assert disk.find([b"\x00", b"\x02"], 5).keys() == {b"\x02"}
    disk.close()
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    living = tier(tmp_path)
    orphan = tmp_path / "kv-dead"
    orphan.mkdir()
    (orphan / "lock").touch()
    (orphan / "00").write_bytes(b"a customer's")
    second = tier(tmp_path)
    assert not orphan.exists()
    assert len(list(tmp_path.iterdir())) == 2
    for disk in (living, second):
        disk.close()


def test_nobody_else_may_read_the_folder(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("kv-*")} == {0}
    disk.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asked = Settings.model_validate({"kv": {"disk_mib": 1, "disk_dir": str(tmp_path / "file" / "kv")}})
    with pytest.raises(SettingsError, match=r"KV__DISK_DIR=.*file/kv: Not a directory; name a folder to write to"):
        _open_disk(asked.kv)
    assert _open_disk(Settings().kv) is None
