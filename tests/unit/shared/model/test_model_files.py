"""Every kind of invalid content in each model file is refused, and no file is deserialised."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.reliability import Reliability
from tests.unit.shared.model.test_prepared_folder import TAMPERED, refuse_tampered
from tests.unit.workers.engine.tensorrt.test_plan_cache import LIES, refuse_plan
from tests.unit.workers.engine.test_onnx_files import ONNX, refuse_graph
from tests.unit.workers.graph.sources.test_gguf_files import GGUF, refuse_gguf
from tests.unit.workers.graph.sources.test_safetensors_files import SAFETENSORS, refuse_safetensors

Refuse = Callable[[str, Path], None]

EVERY = 8  # in the ordinary suite, where each kind is also a separate test


@pytest.mark.promise(20)
def test_every_kind_of_invalid_file_is_refused_before_it_is_deserialised(
    tmp_path: Path, prepared: Path, reliability: Reliability
) -> None:
    """The test fails at a kind that is not refused, or whose unpickled file leaves a mark."""
    sources: list[tuple[Refuse, str]] = [
        *((refuse_safetensors, what) for what in SAFETENSORS),
        *((refuse_gguf, what) for what in GGUF),
        *((refuse_plan, what) for what in LIES),
    ]
    folders: list[tuple[Refuse, str]] = [
        *((refuse_tampered, what) for what in TAMPERED),
        *((refuse_graph, what) for what in ONNX),
    ]
    every = 1 if reliability.whole else EVERY
    for number, (refuse, what) in enumerate(sources[::every]):
        base = tmp_path / f"source-{number}"
        base.mkdir()
        refuse(what, base)
    for number, (refuse, what) in enumerate(folders[::every]):
        base = tmp_path / f"folder-{number}"
        base.mkdir()
        refuse(what, Path(shutil.copytree(prepared, base / "model")))
    kinds = len(sources[::every]) + len(folders[::every])
    reliability.found(
        figure=f"{kinds} kinds refused, 0 deserialised",
        target="30 refused before anything is deserialised",
        holds=kinds >= reliability.amount(30, part=10),
    )
