"""Put a model into the store as a version: whole, or not at all."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ops.lifecycle.versions.model_pack import copy_file, is_layout, unpack
from ops.lifecycle.versions.signing import write_signature
from ops.stack.owned_directory import OwnedDirectory
from shared.errors import ModelError, VersionError, VersionFault
from shared.model.folder import MANIFEST, Manifest, ModelFolder
from shared.settings import Settings
from shared.versions.signature import key_id, read_private_key, read_trusted_keys
from shared.versions.state import ALIASES
from shared.versions.store import DOCUMENT, GOLDEN, StoredVersion, open_version, wrong_base
from shared.versions.version import Card, Version

_READABLE: Final = 0o755
_READ_ONLY: Final = 0o444


class About(Struct, frozen=True, kw_only=True):
    """The facts about a version that its folder does not hold. `base_revision` None: the manifest's own."""

    name: str | None = None
    system_prompt: str | None = None
    base_revision: str | None = None
    notes: str = ""
    trained_on: tuple[str, ...] = ()


def add(
    settings: Settings, source: Path, about: About, now_unix_ms: float, *, key_file: Path | None = None
) -> StoredVersion:
    """Put a copy of a prepared model folder, or of a layout of one, into the store under the id of its document; sign
    the document if `key_file` is given. Return the version.

    Raises `ModelError` if the source is not whole, `VersionError` if the key is not one of `model.trusted_keys`, or the
    adapter is of another base, `SettingsError` if the engine cannot load it.
    """
    from ops.lifecycle.versions.golden_prompts import golden_prompts
    from workers.engine.load_model import load_model

    key, store = _signing_key(key_file, settings.model.trusted_keys, source), settings.model.versions_dir
    store.mkdir(parents=True, exist_ok=True)
    with OwnedDirectory(".adding-", parent=store) as workshop:
        place = workshop.path / "model"
        place.mkdir()
        if is_layout(source):
            unpack(source, place)
        else:
            _copy(source, place)
        folder = ModelFolder.open(place, verify=True)
        version = document(folder.manifest, (place / MANIFEST).read_bytes(), about, now_unix_ms)
        wrong = wrong_base(folder.manifest, version.base_revision)
        if wrong is not None:
            raise VersionError("wrong base revision", f"{source} is refused: {wrong}; leave --base-revision out")
        there = settings.model.model_copy(update={"dir": place})
        model = load_model(settings.model_copy(update={"model": there}))
        try:
            golden = golden_prompts(model, version.system_prompt or settings.worker.system_prompt)
        finally:
            model.engine.close()
        encoded = msgspec.json.encode(golden)
        version = msgspec.structs.replace(version, golden_sha256=hashlib.sha256(encoded).hexdigest())
        (place / GOLDEN).write_bytes(encoded)
        (place / DOCUMENT).write_bytes(msgspec.json.encode(version))
        if key is not None:
            write_signature(place, key)
        for file in place.iterdir():
            file.chmod(_READ_ONLY)
        place.chmod(_READABLE)
        place.rename(store / version.id)
    return open_version(settings.model, version.id, verify=False)


def _signing_key(key_file: Path | None, trusted_keys: Path | None, source: Path) -> Ed25519PrivateKey | None:
    """Return the key that signs the version. Raises `VersionError` if keys are trusted and it is not one of them."""
    key = None if key_file is None else read_private_key(key_file)
    if trusted_keys is not None and (key is None or key_id(key.public_key()) not in read_trusted_keys(trusted_keys)):
        reason: VersionFault = "unsigned" if key is None else "wrongly signed"
        remedy = f"give the private key of one of {trusted_keys}: replyline versions add {source} --key FILE"
        raise VersionError(reason, f"{source} is refused, {reason}: {remedy}")
    return key


def document(manifest: Manifest, encoded: bytes, about: About, now_unix_ms: float) -> Version:
    """Return the document of a model; `encoded` are its manifest's bytes. Raises `ModelError` for a name that no
    version may have."""
    version = Version(
        name=about.name or manifest.name,
        model=manifest.name,
        model_revision=manifest.revision,
        manifest_sha256=hashlib.sha256(encoded).hexdigest(),
        base_revision=about.base_revision or (manifest.source.sha256 if manifest.adapter else None),
        system_prompt=about.system_prompt,
        card=Card(
            languages=manifest.languages,
            context_tokens=manifest.max_length or manifest.architecture.max_positions,
            precision=manifest.precision,
            notes=about.notes,
        ),
        trained_on=about.trained_on,
        added_unix_ms=round(now_unix_ms),
    )
    if version.name in ALIASES:
        raise ModelError(f"--name {version.name}: is the name of an alias, which commands take it for; write another")
    try:
        return msgspec.convert(msgspec.to_builtins(version), Version)
    except msgspec.ValidationError:
        remedy = "write letters, digits, - . _ (64 at most), a letter or digit first"
        raise ModelError(f"--name {version.name}: {remedy}") from None


def _copy(source: Path, target: Path) -> None:
    folder = ModelFolder.open(source)
    for name in (MANIFEST, *(entry.name for entry in folder.manifest.files)):
        copy_file(source / name, target / name)
