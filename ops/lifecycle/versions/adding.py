"""Put a model into the store as a version: whole, or not at all."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ops.lifecycle.versions.model_pack import is_layout, link_or_copy, unpack
from ops.stack.owned_directory import OwnedDirectory
from shared.errors import ModelError, VersionError
from shared.model.folder import MANIFEST, Manifest, ModelFolder
from shared.settings import Settings
from shared.versions.signature import SIGNATURE
from shared.versions.store import DOCUMENT, GOLDEN, StoredVersion, open_version, signer_of, wrong_base
from shared.versions.version import Card, Version

_READABLE: Final = 0o755


class About(Struct, frozen=True, kw_only=True):
    """The facts about a version that its folder does not tell. `base_revision` None: the manifest's own."""

    name: str | None = None
    system_prompt: str | None = None
    base_revision: str | None = None
    notes: str = ""
    evaluations: dict[str, float] = msgspec.field(default_factory=dict)
    trained_on: tuple[str, ...] = ()


def add(settings: Settings, source: Path, about: About, now_unix_ms: float) -> StoredVersion:
    """Put a prepared model folder, or a layout of one, into the store under the id of its document; return it.

    Raises `ModelError` where the source is not whole, `VersionError` where it is not signed as `model.trusted_keys`
    asks for, or its adapter is of another base, `SettingsError` where the engine cannot load it.
    """
    from ops.lifecycle.versions.golden_prompts import golden_prompts
    from workers.engine.load_model import load_model

    store = settings.model.versions_dir
    store.mkdir(parents=True, exist_ok=True)
    with OwnedDirectory(".adding-", parent=store) as workshop:
        place = workshop.path / "model"
        place.mkdir()
        if is_layout(source):
            unpack(source, place)
        else:
            _link(source, place)
        folder = ModelFolder.open(place, verify=True)
        manifest = (place / MANIFEST).read_bytes()
        if settings.model.trusted_keys is not None:
            signer_of(place, manifest, settings.model.trusted_keys, shown=source)
        version = document(folder.manifest, manifest, about, now_unix_ms)
        wrong = wrong_base(folder.manifest, version.base_revision)
        if wrong is not None:
            raise VersionError("wrong base revision", f"{source} is refused: {wrong}; leave --base-revision out")
        place = place.rename(workshop.path / version.id)
        place.chmod(_READABLE)
        there = settings.model.model_copy(update={"versions_dir": workshop.path, "dir": place})
        model = load_model(settings.model_copy(update={"model": there}))
        try:
            golden = golden_prompts(model, version.system_prompt or settings.worker.system_prompt)
        finally:
            model.engine.close()
        (place / GOLDEN).write_bytes(msgspec.json.encode(golden))
        (place / DOCUMENT).write_bytes(msgspec.json.encode(version))
        place.rename(store / version.id)
    return open_version(settings.model, version.id, verify=False)


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
            evaluations=about.evaluations,
            notes=about.notes,
        ),
        trained_on=about.trained_on,
        added_unix_ms=round(now_unix_ms),
    )
    try:
        return msgspec.convert(msgspec.to_builtins(version), Version)
    except msgspec.ValidationError as error:
        raise ModelError(f"--name {version.name}: {error}; use letters, digits, - . _") from None


def _link(source: Path, target: Path) -> None:
    folder = ModelFolder.open(source)
    for name in (MANIFEST, *(entry.name for entry in folder.manifest.files)):
        link_or_copy(source / name, target / name)
    if (source / SIGNATURE).is_file():
        link_or_copy(source / SIGNATURE, target / SIGNATURE)
