"""Unpack a model from an OCI image layout that holds one ModelPack artifact.

    layout/
    ├── oci-layout
    ├── index.json            names the manifest
    └── blobs/sha256/…        the manifest and the layers: raw files, or tars of files

https://github.com/modelpack/model-spec, https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
A layer's file has the name of its annotation org.cncf.model.filepath. What is compressed is refused.
"""

import fcntl
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from shared.errors import ModelError
from shared.model.folder import sha256_of

INDEX: Final = "index.json"
ARTIFACT: Final = "application/vnd.cncf.model.manifest.v1+json"

_LAYER: Final = re.compile(r"application/vnd\.cncf\.model\.[a-z.]+\.v1\.(raw|tar)")
_FILEPATH: Final = "org.cncf.model.filepath"
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_JSON_BYTES: Final = 4_194_304
_FICLONE: Final = 0x40049409  # linux/fs.h
_COPY_BYTES: Final = 8_388_608


class _Descriptor(Struct, frozen=True, rename="camel"):
    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = field(default_factory=dict)


class _Index(Struct, frozen=True):
    manifests: tuple[_Descriptor, ...]


class _Manifest(Struct, frozen=True, rename="camel"):
    layers: tuple[_Descriptor, ...]
    artifact_type: str = ""


def is_layout(path: Path) -> bool:
    """Return whether a folder is an OCI image layout."""
    return (path / INDEX).is_file() and (path / "blobs").is_dir()


def unpack(layout: Path, target: Path) -> None:
    """Write the files of the layout's one model into `target`; each is a copy. Raises
    `ModelError` where the layout holds none or several, is damaged, or a layer is of another kind."""
    index = _decoded(layout / INDEX, _Index)
    if len(index.manifests) != 1:
        raise ModelError(f"{layout / INDEX} names {len(index.manifests)} manifests; give a layout of one model")
    manifest = _decoded(_blob(layout, index.manifests[0]), _Manifest)
    if manifest.artifact_type != ARTIFACT:
        raise ModelError(
            f"{layout}: artifactType {manifest.artifact_type!r} is no model; pack it as ModelPack: {ARTIFACT}"
        )
    for layer in manifest.layers:
        kind = _LAYER.fullmatch(layer.media_type)
        if kind is None:
            raise ModelError(
                f"{layout}: cannot read a layer of {layer.media_type}; pack it raw, or as tar uncompressed"
            )
        if kind[1] == "raw":
            copy_file(_blob(layout, layer), target / _flat(layout, layer.annotations.get(_FILEPATH, "")))
        else:
            _untar(layout, _blob(layout, layer), target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, so that no later write to `source` changes `target`. A file system that can (XFS, Btrfs) shares
    their blocks until one is written."""
    try:
        with source.open("rb") as data, target.open("xb") as file:
            try:
                fcntl.ioctl(file, _FICLONE, data.fileno())
            except OSError:
                shutil.copyfileobj(data, file, _COPY_BYTES)
    except FileExistsError:
        raise ModelError(f"{target.name} is there twice; give each file once") from None


def _untar(layout: Path, blob: Path, target: Path) -> None:
    try:
        with tarfile.open(blob, "r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    raise ModelError(f"{layout}: {member.name!r} in a layer is no plain file; pack plain files only")
                with content, (target / _flat(layout, member.name)).open("xb") as file:
                    shutil.copyfileobj(content, file)
    except tarfile.TarError as error:
        raise ModelError(f"{blob}: no whole tar ({error}); pack the model again") from error
    except FileExistsError as error:
        raise ModelError(f"{layout}: {error.filename} is there twice; give each file once") from error


def _flat(layout: Path, name: str) -> str:
    """Return the name of a file in the model's folder, which has no folders."""
    flat = name.removeprefix("./")
    if not flat or "/" in flat or flat in {".", ".."}:
        raise ModelError(f"{layout}: a layer's file is named {name!r}; a prepared model's files lie in one folder")
    return flat


def _blob(layout: Path, descriptor: _Descriptor) -> Path:
    digest = _DIGEST.fullmatch(descriptor.digest)
    if digest is None:
        raise ModelError(f"{layout}: digest {descriptor.digest!r} is no sha256; pack the model again")
    path = layout / "blobs" / "sha256" / digest[1]
    if not path.is_file() or path.stat().st_size != descriptor.size or sha256_of(path) != digest[1]:
        raise ModelError(f"{path} is missing or damaged; pull or pack the model again")
    return path


def _decoded(path: Path, kind: type[Any]) -> Any:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_JSON_BYTES), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({error}); pull or pack the model again") from error
