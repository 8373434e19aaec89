"""A prepared folder that differs from its manifest is refused in one line, before any of it is parsed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import ModelError
from shared.model.folder import GRAPH, GRAPH_DATA, MANIFEST, TOKENIZER, ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.settings import Settings
from tests.support.hostile.lying_files import one_line, pickled
from tests.support.models.fixtures import flip
from workers.engine.load_model import load_model


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def move_out(folder: Path, name: str) -> None:
    """Move the file elsewhere and leave a link to it."""
    elsewhere = folder.parent / "elsewhere"
    shutil.move(folder / name, elsewhere)
    (folder / name).symlink_to(elsewhere)


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"{name}: {what}": (lambda folder, name=name, change=change: change(folder / name), line)
        for name in (GRAPH, GRAPH_DATA, TOKENIZER)
        for what, change, line in (
            ("a bit is flipped", flip, "differs from its manifest's sha256"),
            ("cut off", lambda path: os.truncate(path, path.stat().st_size - 1), "its manifest says"),
            ("missing", lambda path: path.unlink(), "is missing"),
            ("a pickle", lambda path: path.write_bytes(pickled(path.with_name("mark"))), "its manifest says"),
            ("a folder", lambda path: (path.unlink(), path.mkdir()), "is missing"),
        )
    },
    **{
        f"{name}: a link out of the folder": (lambda folder, name=name: move_out(folder, name), "not in its folder")
        for name in (GRAPH, GRAPH_DATA, TOKENIZER)
    },
    **{
        f"the manifest leaves out {name}": (
            lambda folder, name=name: rewrite(
                folder, lambda m: m.update(files=[file for file in m["files"] if file["name"] != name])
            ),
            f"does not name {name}",
        )
        for name in (GRAPH, GRAPH_DATA, TOKENIZER)
    },
    **{
        f"the manifest names {name}": (
            lambda folder, name=name: rewrite(
                folder, lambda m: m["files"].append({"name": name, "size": 1, "sha256": ""})
            ),
            "not in its folder",
        )
        for name in ("../../etc/passwd", "/etc/passwd", "..", "sub/model.onnx", "")
    },
    **{
        f"the manifest says {key}={value}": (
            lambda folder, key=key, value=value: rewrite(folder, lambda m: m["architecture"].update({key: value})),
            "is damaged",
        )
        for key, value in (("num_layers", 2**60), ("vocab_size", 2**53), ("num_heads", 0), ("head_dim", -1))
    },
    "a manifest that is a pickle": (
        lambda folder: (folder / MANIFEST).write_bytes(pickled(folder / "mark")),
        "is damaged",
    ),
    "a deep manifest": (lambda folder: (folder / MANIFEST).write_bytes(b'{"x":' * 100_000), "is damaged"),
    "a manifest of 2 MB": (
        lambda folder: rewrite(folder, lambda m: m.update(padding="x" * 2_000_000)),
        "is damaged",
    ),
}


def refuse_tampered(what: str, folder: Path) -> None:
    tamper, line = TAMPERED[what]
    tamper(folder)
    with pytest.raises(ModelError, match=line) as caught:
        ModelFolder.open(folder, verify=True)
    one_line(caught.value)
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("what", TAMPERED)
def test_a_folder_that_differs_from_its_manifest_is_refused_before_parsing(folder: Path, what: str) -> None:
    refuse_tampered(what, folder)


def test_a_worker_compares_the_sha256_before_it_loads(folder: Path) -> None:
    """The control first: an unchanged folder is loaded."""
    settings = Settings.model_validate(
        {"model": {"dir": folder}, "worker": {"max_length": 64, "slots": 1, "threads": 1}}
    )
    load_model(settings).engine.close()
    flip(folder / GRAPH_DATA)
    with pytest.raises(ModelError, match="sha256"):
        load_model(settings)


def test_a_gateway_compares_the_sha256_of_its_tokenizer(folder: Path) -> None:
    assert Tokenizer.load(folder).vocab_size > 0
    flip(folder / TOKENIZER)
    with pytest.raises(ModelError, match="sha256"):
        Tokenizer.load(folder)
