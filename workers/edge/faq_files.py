"""The signed FAQ as an edge keeps it: `faq.signed` as it came, and `faq.json`, which its processes read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.errors import SettingsError
from shared.faq.in_step import InStep, digest_of
from shared.versions.faq_bundle import Bundle

SIGNED: Final = "faq.signed"
FAQ: Final = "faq.json"


@dataclass(slots=True)
class FaqFiles:
    """A folder of them. `version` is the one in use, None before the first; `keys` are those that may sign."""

    folder: Path
    keys: dict[str, Ed25519PublicKey]
    version: int | None = None

    @property
    def faq(self) -> Path:
        return self.folder / FAQ

    def open(self) -> None:
        """Use what was kept, where something was. Raises `SettingsError` where no trusted key has signed it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / SIGNED).exists():
            self._use(Bundle.open(self.folder / SIGNED))

    def take(self, document: bytes, signature: bytes) -> None:
        """Use a version from the centre. Raises `SettingsError` for one that is not signed, or older."""
        bundle = Bundle.read(document, signature, "the centre's FAQ")
        if self.version is not None and bundle.version < self.version:
            raise SettingsError(
                f"the centre's FAQ is version {bundle.version}, older than {self.version}, which this edge has: it is "
                "not taken; sign the right one anew: replyline faq sign"
            )
        self._use(bundle)
        bundle.write(self.folder / SIGNED)

    def _use(self, bundle: Bundle) -> None:
        if bundle.signer(self.keys) is None:
            raise SettingsError(
                f"FAQ version {bundle.version} is signed by no trusted key ({', '.join(self.keys)}), and not taken;"
                " put the signer's key into the folder of REPLYLINE_EDGE__TRUSTED_KEYS"
            )
        if not self.faq.exists() or self.faq.read_bytes() != bundle.faq:
            part = self.faq.with_suffix(".part")
            part.write_bytes(bundle.faq)
            part.replace(self.faq)
        self.version = bundle.version

    def confirm(self, unix_ms: float) -> None:
        """Write down that the version in use was the centre's at that moment."""
        assert self.version is not None, "confirmed before the first"
        InStep(self.version, digest_of(self.faq), int(unix_ms)).write(self.faq)
