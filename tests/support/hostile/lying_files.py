"""Files with a false format: unpickling one leaves a mark."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from shared.errors import ModelError


class Payload:
    """An object that creates the file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def pickled(mark: Path) -> bytes:
    return pickle.dumps(Payload(mark))


def torch_zip(mark: Path) -> bytes:
    """Return a file like those of `torch.save`: a zip with a pickle in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(mark))
        archive.writestr("archive/data/0", b"\0" * 64)
    return file.getvalue()


def numpy_objects(mark: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Payload(mark)], dtype=object), allow_pickle=True)
    return file.getvalue()


def one_line(error: ModelError) -> str:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 1_500
    return text
