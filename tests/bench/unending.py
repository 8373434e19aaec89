"""A model whose answers are as long as is asked: its folder once more, with a manifest that names no stop token.

What a benchmark divides by time is then the same for every model and every day. What such an answer says beyond its end
is of no use; that it takes as long as any other text of that length is.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from shared.model.folder import ModelFolder, write_manifest


@contextmanager
def unending(path: Path) -> Iterator[Path]:
    """The copy, of the same name, for as long as it is needed. Raises `ModelError` where there is no such folder."""
    folder = ModelFolder.open(path)
    with tempfile.TemporaryDirectory(prefix="replyline-bench-") as directory:
        copy = Path(directory) / path.name
        copy.mkdir()
        for entry in folder.manifest.files:
            shutil.copyfile(path / entry.name, copy / entry.name)
        write_manifest(copy, msgspec.structs.replace(folder.manifest, stop_token_ids=()))
        yield copy
