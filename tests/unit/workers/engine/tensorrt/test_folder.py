"""A TensorRT model is prepared for one sequence length, and again for another."""

from pathlib import Path

import onnx
import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import GRAPH, ModelFolder
from tests.support.models.fixtures import TINY


def prepared(tmp_path: Path, source: Path, max_length: int = 96) -> ModelFolder:
    return prepare_model(tmp_path, "fp16", source=source, max_length=max_length)


def slot_tokens(folder: ModelFolder) -> set[int]:
    """Of every cache in the graph."""
    graph = onnx.load(folder.path / GRAPH, load_external_data=False).graph
    values = [value for value in [*graph.input, *graph.output] if value.name.startswith(("past_key", "present_value"))]
    return {value.type.tensor_type.shape.dim[2].dim_value for value in values}


@pytest.mark.parametrize(("max_length", "capacity"), [(96, 104), (103, 104), (104, 112), (2_048, TINY.max_positions)])
def test_slots_have_a_place_more_than_the_longest_sequence(
    tmp_path: Path, tiny_source: Path, max_length: int, capacity: int
) -> None:
    folder = prepared(tmp_path, tiny_source, max_length)
    assert folder.path == tmp_path / "tiny-fp16"
    assert (folder.manifest.dialect, folder.manifest.max_length) == ("tensorrt", capacity)
    assert slot_tokens(folder) == {capacity}


def test_it_is_written_again_only_for_another_length(tmp_path: Path, tiny_source: Path) -> None:
    first = prepared(tmp_path, tiny_source).graph_path.stat()
    assert prepared(tmp_path, tiny_source).graph_path.stat().st_ino == first.st_ino
    assert prepared(tmp_path, tiny_source, 100).graph_path.stat().st_ino == first.st_ino  # the same slots
    longer = prepared(tmp_path, tiny_source, 200)
    assert longer.graph_path.stat().st_ino != first.st_ino
    assert slot_tokens(longer) == {208}


def test_a_longer_slot_is_no_other_model(tmp_path: Path, tiny_source: Path) -> None:
    """KV of one is KV of the other: the revision, by which it is named, is the same."""
    revisions = {prepared(tmp_path, tiny_source, length).manifest.revision for length in (96, 200)}
    assert len(revisions) == 1
    assert prepare_model(tmp_path, "fp32", source=tiny_source).manifest.revision not in revisions
