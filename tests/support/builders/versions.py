"""Versions in a store, of files that no engine reads."""

import hashlib
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ops.lifecycle.versions.signing import write_signature
from shared.model.folder import (
    CHATML,
    GRAPH,
    GRAPH_DATA,
    MANIFEST,
    TOKENIZER,
    Manifest,
    Source,
    file_entry,
    sha256_of,
    write_manifest,
)
from shared.versions.golden import Golden, GoldenSet
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
    system_prompt: str | None = None,
    earlier: bool = False,
) -> Version:
    """Write a version's folder into the store, signed if a key is given; `earlier`: in the format of a release whose
    documents did not name their golden prompts."""
    folder = store / name
    manifest = write_folder(folder, adapter=adapter)
    golden = GoldenSet(engine="fake", prompts=(Golden(prompt_ids=(1, 2), output_ids=(3, 4, 5)),))
    (folder / GOLDEN).write_bytes(msgspec.json.encode(golden))
    version = Version(
        name=name,
        model=manifest.name,
        model_revision=manifest.revision,
        manifest_sha256=sha256_of(folder / MANIFEST),
        base_revision=base_revision,
        system_prompt=system_prompt,
        golden_sha256=None if earlier else sha256_of(folder / GOLDEN),
    )
    (folder / DOCUMENT).write_bytes(msgspec.json.encode(version))
    if key is not None:
        write_signature(folder, key)
    folder.rename(store / version.id)
    return version
