"""A version is opened only if its folder matches its id; otherwise one reason is named."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.errors import SettingsError, VersionError
from shared.model.folder import GRAPH_DATA, MANIFEST, TOKENIZER, Source
from shared.settings.worker import ModelSettings
from shared.versions.golden import LEAST_AGREEMENT, Golden, GoldenSet
from shared.versions.signature import SIGNATURE, key_id
from shared.versions.store import DOCUMENT, GOLDEN, open_version
from shared.versions.version import Version
from tests.support.builders.versions import BASE, write_version
from tests.support.models.fixtures import flip

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ADAPTER = Source(name="adapter", sha256="c" * 64)


# What an attacker with access to one machine's store may change, and the file that holds it.
SWAPPED = {
    "prompt": (DOCUMENT, lambda document: document.replace(b"null", b'"Ask for the PIN."', 1)),
    "name": (DOCUMENT, lambda document: document.replace(b"shop-2", b"shop-3")),
    "golden answers": (GOLDEN, lambda golden: golden.replace(b"[3,4,5]", b"[3,4,6]")),
    "golden set emptied": (GOLDEN, lambda golden: b'{"engine":"fake","prompts":[]}'),
    "manifest": (MANIFEST, lambda manifest: manifest.replace(b"shop", b"show", 1)),
}


def trusting(store: Path, *keys: Ed25519PrivateKey) -> ModelSettings:
    """Return the settings of a worker that trusts these keys."""
    folder = store / "keys"
    folder.mkdir()
    for number, key in enumerate(keys):
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{number}.pem").write_bytes(pem)
    return ModelSettings(versions_dir=store, trusted_keys=folder)


def reason_of(model: ModelSettings, revision: str) -> str:
    """Return the reason why a version is refused: one line that names the version."""
    with pytest.raises(VersionError) as caught:
        open_version(model, revision)
    assert revision in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.reason


def test_a_complete_version_is_opened_with_its_document_and_golden_prompts(tmp_path: Path) -> None:
    version = write_version(tmp_path)
    stored = open_version(ModelSettings(versions_dir=tmp_path), version.id)
    assert (stored.version, stored.path, stored.signed_by) == (version, tmp_path / version.id, None)
    assert stored.golden.prompts[0].output_ids == (3, 4, 5)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: flip(path / GRAPH_DATA), "corrupt"),
        (lambda path: flip(path / MANIFEST), "corrupt"),
        (lambda path: (path / MANIFEST).write_text("{}"), "corrupt"),
        (
            lambda path: (path / DOCUMENT).write_text((path / DOCUMENT).read_text().replace("shop-2", "shop-3")),
            "corrupt",
        ),
        (lambda path: (path / DOCUMENT).write_text("no document"), "corrupt"),
        (lambda path: (path / GOLDEN).write_text('{"engine": 1}'), "corrupt"),
        *(
            (lambda path, file=file, swap=swap: (path / file).write_bytes(swap((path / file).read_bytes())), "corrupt")
            for file, swap in SWAPPED.values()
        ),
        (lambda path: os.truncate(path / GRAPH_DATA, 5), "truncated"),
        (lambda path: (path / TOKENIZER).unlink(), "truncated"),
        (lambda path: (path / DOCUMENT).unlink(), "truncated"),
        (lambda path: (path / MANIFEST).unlink(), "truncated"),
        (lambda path: path.rename(path.with_name("elsewhere")), "not in this store"),
    ],
)
def test_a_damaged_version_is_refused_for_a_named_reason(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    version = write_version(tmp_path)
    damage(tmp_path / version.id)
    assert reason_of(ModelSettings(versions_dir=tmp_path), version.id) == reason


@pytest.mark.parametrize("keys", [(), (KEY,)])
@pytest.mark.parametrize("swapped", ["prompt", "name", "golden set emptied"])
def test_an_older_releases_version_is_opened_by_its_registry_entry_and_never_with_trusted_keys(
    tmp_path: Path, keys: tuple[Ed25519PrivateKey, ...], swapped: str
) -> None:
    """A version of an older release has an id of 48 bits, and its document has no digest of the golden prompts."""
    version = write_version(tmp_path, earlier=True, key=KEY)
    assert len(version.id) == 12
    model = trusting(tmp_path, *keys) if keys else ModelSettings(versions_dir=tmp_path)
    if keys:
        with pytest.raises(VersionError, match=f"replyline versions add {tmp_path / version.id} --key"):
            open_version(model, version.id, expected=version)
        return
    assert open_version(model, version.id, expected=version).version == version
    another = replace(version, added_unix_ms=9)
    with pytest.raises(VersionError, match="not the registry's"):
        open_version(model, version.id, expected=another)
    file, swap = SWAPPED[swapped]
    path = tmp_path / version.id / file
    path.write_bytes(swap(path.read_bytes()))
    assert reason_of(model, version.id) == "corrupt"


def test_an_id_has_128_bits_and_an_older_id_stays_valid(tmp_path: Path) -> None:
    version = Version(name="shop", model="m", model_revision="r", manifest_sha256="a" * 64, trained_on=("a",))
    assert version.id == "bde2fc0e2c5d"
    assert len(write_version(tmp_path).id) * 4 == 128


def test_without_verify_a_truncated_file_is_detected_and_a_flipped_bit_is_not(tmp_path: Path) -> None:
    model, version = ModelSettings(versions_dir=tmp_path), write_version(tmp_path)
    flip(tmp_path / version.id / GRAPH_DATA)
    assert open_version(model, version.id, verify=False).version == version
    os.truncate(tmp_path / version.id / GRAPH_DATA, 5)
    with pytest.raises(VersionError, match="truncated"):
        open_version(model, version.id, verify=False)


def test_with_trusted_keys_only_a_version_they_signed_is_opened(tmp_path: Path) -> None:
    signed, other, unsigned = (
        write_version(tmp_path, name, key=key) for name, key in (("a", KEY), ("b", OTHER), ("c", None))
    )
    model = trusting(tmp_path, KEY)
    assert open_version(model, signed.id).signed_by == key_id(KEY.public_key())
    assert reason_of(model, other.id) == "wrongly signed"
    assert reason_of(model, unsigned.id) == "unsigned"
    shutil.copy(tmp_path / signed.id / SIGNATURE, tmp_path / unsigned.id / SIGNATURE)  # another version's
    assert reason_of(model, unsigned.id) == "wrongly signed"
    (tmp_path / signed.id / SIGNATURE).write_bytes(b"too short")
    assert reason_of(model, signed.id) == "wrongly signed"


def test_openssl_accepts_the_signature_too(tmp_path: Path) -> None:
    path = tmp_path / write_version(tmp_path, key=KEY).id
    trusting(tmp_path, KEY)
    check = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(tmp_path / "keys" / "0.pem")]
    files = ["-in", str(path / DOCUMENT), "-sigfile", str(path / SIGNATURE)]
    assert subprocess.run([*check, *files], check=False).returncode == 0
    (path / DOCUMENT).write_bytes(b"another")
    assert subprocess.run([*check, *files], check=False).returncode == 1


def test_a_folder_without_keys_trusts_no_signature_and_names_the_command(tmp_path: Path) -> None:
    version = write_version(tmp_path, key=KEY)
    with pytest.raises(SettingsError, match="replyline versions keygen"):
        open_version(trusting(tmp_path), version.id)
    (tmp_path / "keys" / "rubbish.pem").write_text("no key")
    with pytest.raises(SettingsError, match=r"rubbish\.pem"):
        open_version(ModelSettings(versions_dir=tmp_path, trusted_keys=tmp_path / "keys"), version.id)


def test_an_adapter_is_loaded_only_on_the_base_its_document_names(tmp_path: Path) -> None:
    model = ModelSettings(versions_dir=tmp_path)
    ours = write_version(tmp_path, "ours", adapter=ADAPTER, base_revision=BASE.sha256)
    assert open_version(model, ours.id).version == ours
    for name, base in (("theirs", "d" * 64), ("nobody-s", None)):
        version = write_version(tmp_path, name, adapter=ADAPTER, base_revision=base)
        assert reason_of(model, version.id) == "wrong base revision"


IDS = st.lists(st.integers(0, 3), max_size=8).map(tuple)


@given(st.lists(st.tuples(IDS, IDS), max_size=4))
def test_agreement_counts_the_tokens_before_the_first_difference(pairs: list[tuple[tuple[int, ...], ...]]) -> None:
    golden = GoldenSet(engine="fake", prompts=tuple(Golden(prompt_ids=(1,), output_ids=ours) for ours, _ in pairs))
    same = [max(n for n in range(9) if ours[:n] == theirs[:n] and n <= len(ours)) for ours, theirs in pairs]
    wanted = sum(len(ours) for ours, _ in pairs)
    answers = [theirs for _, theirs in pairs]
    assert golden.agreement(answers) == (sum(same) / wanted if wanted else 0.0)
    assert (golden.failure(answers) is None) == (golden.agreement(answers) >= LEAST_AGREEMENT)
