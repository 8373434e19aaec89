"""The FAQ versions that an edge accepts, and how far it trusts the one in use."""

import errno
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.errors import SettingsError
from shared.faq.entries import read_entries
from shared.faq.fallback import Fallback
from shared.faq.live import LiveFaq
from shared.settings import FaqSettings
from shared.versions.faq_bundle import sign_faq
from shared.versions.signature import key_id
from workers.edge.sync import FaqFiles

KEY, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
TRUSTED = {key_id(KEY.public_key()): KEY.public_key()}


def faq_of(folder: Path, answer: str) -> Path:
    path = folder / f"{len(answer)}.json"
    entry = {"question": "How long?", "alternatives": [], "answer": answer}
    path.write_text(json.dumps([{"id": "period", "topic": "returns", "en": entry}]))
    return path


@pytest.fixture
def edge(tmp_path: Path) -> FaqFiles:
    files = FaqFiles(tmp_path / "edge", TRUSTED)
    files.open()
    return files


def take(edge: FaqFiles, folder: Path, answer: str, version: int, key: Ed25519PrivateKey = KEY) -> None:
    bundle = sign_faq(faq_of(folder, answer), key, version)
    edge.take(bundle.document, bundle.signature)


def test_a_signed_version_is_used_and_kept(edge: FaqFiles, tmp_path: Path) -> None:
    take(edge, tmp_path, "30 days.", 2)
    assert [entry.answer for entry in read_entries(edge.faq)] == ["30 days."]
    again = FaqFiles(edge.folder, TRUSTED)
    again.open()
    assert again.version == 2


def test_an_older_unsigned_or_changed_faq_is_refused_by_name(edge: FaqFiles, tmp_path: Path) -> None:
    take(edge, tmp_path, "30 days.", 2)
    with pytest.raises(SettingsError, match="version 1, older than 2"):
        take(edge, tmp_path, "90 days.", 1)
    with pytest.raises(SettingsError, match="version 3 is signed by no trusted key"):
        take(edge, tmp_path, "90 days.", 3, STRANGER)
    assert [entry.answer for entry in read_entries(edge.faq)] == ["30 days."]
    signed = edge.folder / "faq.signed"
    signed.write_bytes(signed.read_bytes().replace(b"30", b"90"))
    with pytest.raises(SettingsError, match="signed by no trusted key"):
        FaqFiles(edge.folder, TRUSTED).open()


async def test_an_unconfirmed_faq_is_reported_with_its_date(edge: FaqFiles, tmp_path: Path) -> None:
    take(edge, tmp_path, "30 days.", 2)
    edge.confirm(unix_ms=1_800_000_000_000)
    faq = LiveFaq(FaqSettings(path=edge.faq, stale_s=10))
    (entry,) = faq.index.entries
    plain = Fallback(source="faq", text="30 days.", language="en", grounding=(entry.as_grounding(),))
    fresh = faq.freshness.told(plain, 1_800_000_010_000)
    assert (fresh.source, fresh.text, fresh.faq_version) == ("faq", "30 days.", 2)
    stale = faq.freshness.told(plain, 1_800_000_010_001)
    assert (stale.source, stale.faq_version) == ("unsure", 2)
    assert faq.freshness.is_stale(1_700_000_000_000), "the clock was set back"
    assert stale.text == "I could not check since 2027-01-15 08:00 UTC whether this still holds:\n\n30 days."


async def test_a_newer_version_makes_the_loaded_one_stale_immediately(edge: FaqFiles, tmp_path: Path) -> None:
    take(edge, tmp_path, "30 days.", 2)
    edge.confirm(unix_ms=1_000)
    faq = LiveFaq(FaqSettings(path=edge.faq, stale_s=10))
    assert not faq.freshness.is_stale(1_000)
    take(edge, tmp_path, "60 days, newly.", 3)
    edge.confirm(unix_ms=2_000)
    await faq.look()
    assert faq.freshness.is_stale(2_000)
    await faq.look()
    await faq.look()
    assert (faq.index.entries[0].answer, faq.freshness.version) == ("60 days, newly.", 3)
    assert not faq.freshness.is_stale(2_000)


@pytest.mark.parametrize("written", range(3))
def test_a_full_disk_keeps_one_version_whole(
    edge: FaqFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """If any of its files no longer fits, a restart opens a signed version, and never an older one than served."""
    take(edge, tmp_path, "30 days.", 2)
    bundle, room, write = sign_faq(faq_of(tmp_path, "14 days"), KEY, 3), [written], Path.write_bytes

    def write_while_there_is_room(self: Path, data: bytes) -> int:
        if not room[0]:
            write(self, data[:1])
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", write_while_there_is_room)
    with pytest.raises(OSError, match="No space left"):
        edge.take(bundle.document, bundle.signature)
    assert edge.version == 2, "so that it asks for the new one again"
    monkeypatch.undo()
    again = FaqFiles(edge.folder, TRUSTED)
    again.open()
    assert again.version in (2, 3)
    assert [entry.answer for entry in read_entries(again.faq)] == ["30 days." if again.version == 2 else "14 days"]
    edge.take(bundle.document, bundle.signature)
    again.open()
    assert again.version == 3
