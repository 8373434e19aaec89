"""Versions in a store, of files that no engine reads."""

import hashlib
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.model.folder import (
    CHATML,
    GRAPH,
    GRAPH_DATA,
    MANIFEST,
    TOKENIZER,
    Manifest,
    Source,
    file_entry,
    write_manifest,
)
from shared.versions.golden import Golden, GoldenSet
from shared.versions.signature import SIGNATURE
from shared.versions.store import DOCUMENT, GOLDEN
from shared.versions.version import Version
from tests.support.models.fixtures import TINY

BASE = Source(name="base.gguf", sha256="b" * 64)


def write_folder(folder: Path, *, adapter: Source | None = None) -> Manifest:
    """Write a model folder whose files are a few bytes each."""
    folder.mkdir(parents=True)
    names = (GRAPH, GRAPH_DATA, TOKENIZER)
    for name in names:
        (folder / name).write_bytes(f"{folder} {name}".encode() * 9)
    manifest = Manifest(
        name="shop",
        revision=hashlib.sha256(str(folder).encode()).hexdigest(),
        precision="int8",
        source=BASE,
        architecture=TINY,
        stop_token_ids=(0,),
        chat_template=CHATML,
        files=tuple(file_entry(folder / name) for name in names),
        adapter=adapter,
    )
    write_manifest(folder, manifest)
    return manifest


def write_version(
    store: Path,
    name: str = "shop-2",
    *,
    key: Ed25519PrivateKey | None = None,
    adapter: Source | None = None,
    base_revision: str | None = None,
) -> Version:
    """Write a version's folder into the store, signed where a key is given."""
    folder = store / name
    manifest = write_folder(folder, adapter=adapter)
    signed = (folder / MANIFEST).read_bytes()
    version = Version(
        name=name,
        model=manifest.name,
        model_revision=manifest.revision,
        manifest_sha256=hashlib.sha256(signed).hexdigest(),
        base_revision=base_revision,
    )
    golden = GoldenSet(engine="fake", prompts=(Golden(prompt_ids=(1, 2), output_ids=(3, 4, 5)),))
    (folder / DOCUMENT).write_bytes(msgspec.json.encode(version))
    (folder / GOLDEN).write_bytes(msgspec.json.encode(golden))
    if key is not None:
        (folder / SIGNATURE).write_bytes(key.sign(signed))
    folder.rename(store / version.id)
    return version
