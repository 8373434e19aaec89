"""The store of versions: a folder a version, named by its id.

    .models/versions/1f2e3d4c5b6a/
    ├── manifest.json, …     a model folder (shared/model/folder.py)
    ├── version.json         the document: names manifest.json and golden.json by sha256; its digest is the id
    ├── golden.json          golden prompts with their tokens
    └── version.json.sig     the signature of the document, if it is signed

The files are copies that no process may write (mode 0444). `open_version` checks a version before it is
loaded, and raises `VersionError` if it is not whole, or not what its id says.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from shared.errors import ModelError, VersionError, VersionFault
from shared.model.folder import MANIFEST, REMEDY, Manifest, ModelFolder
from shared.settings.worker import ModelSettings
from shared.versions.golden import GoldenSet
from shared.versions.registry import Added, Registry
from shared.versions.signature import SIGNATURE, read_trusted_keys, signer
from shared.versions.version import Version

DOCUMENT: Final = "version.json"
GOLDEN: Final = "golden.json"

_MAX_BYTES: Final = 4_194_304


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version whose folder was found to be what its id says. `signed_by` is the id of a trusted key; None where no
    keys are trusted."""

    version: Version
    folder: ModelFolder
    golden: GoldenSet
    signed_by: str | None

    @property
    def path(self) -> Path:
        return self.folder.path


def open_version(
    model: ModelSettings, revision: str, *, expected: Version | None = None, verify: bool = True
) -> StoredVersion:
    """Open a version of the store `model.versions_dir`: document, signature, manifest, golden prompts, files, base. The
    document must equal the registry's, `expected`, if that is known. Without `verify` the files' sizes are compared,
    not their sha256.

    Raises `VersionError` with one named reason, `SettingsError` if `model.trusted_keys` holds no key.
    """
    return _Opening(model.versions_dir / revision, revision, expected).open(model.trusted_keys, verify=verify)


def stored(model: ModelSettings) -> Registry:
    """Return a registry of the versions that the store's folders say they are, the newest last; without moves."""
    found = list[Version]()
    for document in model.versions_dir.glob(f"*/{DOCUMENT}"):
        with suppress(OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            found.append(msgspec.json.decode(document.read_bytes(), type=Version))
    found.sort(key=lambda version: version.added_unix_ms)
    return Registry(versions={version.id: Added(version=version, author="") for version in found})


@dataclass(frozen=True, slots=True)
class _Opening:
    path: Path
    revision: str
    expected: Version | None

    def open(self, trusted_keys: Path | None, *, verify: bool) -> StoredVersion:
        if not self.path.is_dir():
            self._refuse("not in this store", f"there is no {self.path}", "bring the version's folder to this machine")
        document = self._read(DOCUMENT)
        version = self._decoded(DOCUMENT, document, Version)
        if version.id != self.revision:
            self._refuse("corrupt", f"the digest of its {DOCUMENT} is {version.id}")
        if self.expected is not None and version != self.expected:
            self._refuse("corrupt", f"its {DOCUMENT} is not the registry's")
        signed_by = None if trusted_keys is None else self._signer(version, document, trusted_keys)
        manifest = self._named(MANIFEST, version.manifest_sha256)
        golden = self._decoded(GOLDEN, self._named(GOLDEN, version.golden_sha256), GoldenSet)
        if not any(each.output_ids for each in golden.prompts):
            self._refuse("corrupt", f"{GOLDEN} has no answer to compare")
        folder = self._whole(manifest, verify=verify)
        self._fits(version, folder.manifest)
        return StoredVersion(version, folder, golden, signed_by)

    def _signer(self, version: Version, document: bytes, trusted_keys: Path) -> str:
        """Return the id of the trusted key that signed the document, which names all other files."""
        keys = read_trusted_keys(trusted_keys)
        remedy = f"sign it by a key of {trusted_keys}: replyline versions sign {self.path} --key FILE"
        if version.golden_sha256 is None:
            fault = f"an earlier release stored it, without the sha256 of {GOLDEN}"
            self._refuse("unsigned", fault, f"add it again: replyline versions add {self.path} --key FILE")
        try:
            signature = (self.path / SIGNATURE).read_bytes()
        except OSError:
            self._refuse("unsigned", f"there is no {SIGNATURE}", remedy)
        found = signer(signature, document, keys)
        if found is None:
            self._refuse("wrongly signed", f"{SIGNATURE} is of none of the keys {', '.join(keys)}", remedy)
        return found

    def _named(self, name: str, sha256: str | None) -> bytes:
        """Return a file that the document names by its sha256; None: it does not."""
        data = self._read(name)
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            self._refuse("corrupt", f"{name} is not the one that {DOCUMENT} names")
        return data

    def _whole(self, manifest: bytes, *, verify: bool) -> ModelFolder:
        try:
            return ModelFolder.open(self.path, verify=verify)
        except ModelError as error:
            fault = str(error).removesuffix(f"; {REMEDY}")
            self._refuse("truncated" if self._lacks_bytes(manifest) else "corrupt", fault)

    def _lacks_bytes(self, manifest: bytes) -> bool:
        files = [(self.path / entry.name, entry.size) for entry in msgspec.json.decode(manifest, type=Manifest).files]
        return any(not file.is_file() or file.stat().st_size < size for file, size in files)

    def _fits(self, version: Version, manifest: Manifest) -> None:
        wrong = wrong_base(manifest, version.base_revision)
        if wrong is not None:
            self._refuse("wrong base revision", wrong, "merge the adapter into its own model, and add that")

    def _decoded(self, name: str, data: bytes, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._refuse("corrupt", f"{name}: {error}")

    def _read(self, name: str) -> bytes:
        try:
            with (self.path / name).open("rb") as file:
                return file.read(_MAX_BYTES)
        except OSError as error:
            self._refuse("truncated", f"{name}: {error.strerror}")

    def _refuse(self, reason: VersionFault, fault: str, remedy: str | None = None) -> NoReturn:
        remedy = remedy or f"copy {self.path} again from where it was added"
        raise VersionError(reason, f"version {self.revision} is refused, {reason}: {fault}; {remedy}")


def wrong_base(manifest: Manifest, base_revision: str | None) -> str | None:
    """Return why a model was not made from the base that its document names.

    Returns:
        None if it was, or if no base is named and nothing was merged into it.
    """
    if base_revision is None and manifest.adapter is None:
        return None
    base, adapter = manifest.source, manifest.adapter
    if base_revision == base.sha256:
        return None
    what = f"{manifest.name} was made" if adapter is None else f"its adapter {adapter.name} was merged"
    return f"{what} from {base.name} (sha256 {base.sha256}), its document names {base_revision or 'no base'}"
