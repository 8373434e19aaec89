"""`replyline engine build` really builds and keeps plans, on a machine without a GPU, by TensorRT for RTX."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ops.model.engine_build import build_engine
from ops.model.prepare import prepare_model
from shared.errors import ModelError
from shared.model.folder import ModelFolder
from shared.settings import Settings
from tests.support.models.fixtures import TINY, write_llama
from workers.engine.tensorrt.build import build_decoder, import_library
from workers.engine.tensorrt.plans import PlanShapes

MAX_LENGTH = 96
SHAPES = PlanShapes(num_slots=2, capacity=104, prefill_rows=2, prefill_tokens=32)


@pytest.fixture(scope="module")
def slots_folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    source = tmp_path_factory.mktemp("source") / "tiny"
    write_llama(source, TINY, seed=7)
    return prepare_model(source.parent, "fp16", source=source, max_length=MAX_LENGTH)


def built(folder: ModelFolder, cache: Path, *, slots: int = 4) -> str:
    """What `replyline engine build` says."""
    worker = {"engine": "tensorrt-rtx", "slots": slots, "max_length": MAX_LENGTH, "cache_dir": cache}
    said = StringIO()
    settings = Settings.model_validate({"model": {"dir": folder.path}, "worker": worker})
    build_engine(settings, Console(file=said, width=1_000))
    return said.getvalue()


def test_plans_are_built_once_and_again_where_they_are_damaged(slots_folder: ModelFolder, tmp_path: Path) -> None:
    assert "plan built: " in built(slots_folder, tmp_path)
    sampler, decoder = sorted((tmp_path / "plans").iterdir())
    assert (sampler.name[:8], decoder.name[:10]) == ("sampler-", "tiny-fp16-")
    assert f"plan kept already: {decoder}" in built(slots_folder, tmp_path)

    whole = decoder.read_bytes()
    decoder.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"plan built: {decoder}" in built(slots_folder, tmp_path)
    assert f"plan kept already: {decoder}" in built(slots_folder, tmp_path)


def test_other_slots_have_plans_of_their_own(slots_folder: ModelFolder, tmp_path: Path) -> None:
    for slots in (1, 2):
        assert "plan built: " in built(slots_folder, tmp_path, slots=slots)
    assert len(list((tmp_path / "plans").iterdir())) == 4


def test_progress_is_told_to_its_end(slots_folder: ModelFolder) -> None:
    told: list[tuple[str, float]] = []
    library = import_library("tensorrt-rtx")
    assert build_decoder(library, slots_folder.graph_path, SHAPES, lambda *progress: told.append(progress))
    assert all(name and 0 < fraction <= 1 for name, fraction in told)
    assert told[-1][1] == 1.0


def test_a_graph_that_tensorrt_cannot_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match=r"^TensorRT [\d.]+ cannot read the graph \(.+\); prepare the model again$"):
        build_decoder(import_library("tensorrt-rtx"), tmp_path / "model.onnx", SHAPES, lambda *_progress: None)
