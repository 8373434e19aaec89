"""The numbers of `replyline bench engines`: figures by batch, bases, targets, and what other programs print."""

import json
from pathlib import Path

import numpy as np
import pytest

from ops.model.prepare import prepare_model
from ops.stack.processes import ServiceError
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.settings import Settings
from tests.bench.engines.checkpoint import hugging_face_folder, write_folder
from tests.bench.engines.choice import Peers, plan, prepared, takes
from tests.bench.engines.llama import arguments, measured, parse
from tests.bench.engines.measure import RuntimeClock
from tests.bench.engines.program import bases_of, parse_batches, parse_engines, targets_of
from tests.bench.engines.timing import Sizes, Timing
from workers.graph.sources.opening import open_source
from workers.graph.sources.safetensors import SafetensorsSource

SIZES = Sizes(prompt_tokens=64, new_tokens=64)
NOWHERE = Peers(llama_bench=None, gguf=None, source=None)


def test_figures_are_of_all_rows_of_a_batch() -> None:
    """1.9 of 2.0 s in the runtime: a twentieth is Python's. What was not measured is no figure."""
    timing = Timing(batch=4, prefill_s=0.5, decode_s=2.0, decode_steps=63, rss_mib=100.04, runtime_s=1.9)
    assert timing.figures(SIZES) == {
        "decode_tok_s @4": 126.0,
        "prefill_tok_s @4": 512.0,
        "rss_mib @4": 100.0,
        "python @4": 0.05,
    }
    on_gpu = Timing(batch=1, prefill_s=0.5, decode_s=2.0, decode_steps=63, rss_mib=100.0, device_mib=512.04)
    assert on_gpu.figures(SIZES)["device_mib @1"] == 512.0


def test_every_engine_is_divided_by_each_peer_and_tensorrt_by_torch() -> None:
    names = ["onnx int8", "torch bf16", "tensorrt fp16", "transformers fp32", "llama.cpp q4_0"]
    assert bases_of("onnx int8", names) == ("transformers fp32", "llama.cpp q4_0")
    assert bases_of("tensorrt fp16", names) == ("torch bf16", "transformers fp32", "llama.cpp q4_0")
    assert bases_of("llama.cpp q4_0", names) == ()


def test_targets_are_of_what_is_measured() -> None:
    """Decode of llama.cpp's up to 16 rows, prefill at all; on a GPU little Python, and more than torch."""
    targets = targets_of(["onnx int8", "llama.cpp q4_0"], [1, 64])
    assert [(one.figure, one.base, one.value) for one in targets] == [
        ("decode_tok_s @1", "llama.cpp q4_0", 1.0),
        ("prefill_tok_s @1", "llama.cpp q4_0", 1.0),
        ("prefill_tok_s @64", "llama.cpp q4_0", 1.0),
    ]
    gpu = targets_of(["torch bf16", "tensorrt fp16", "transformers bf16"], [64])
    assert [(one.cell, one.figure, one.value) for one in gpu] == [
        ("torch bf16", "decode_tok_s @64", 8.0),
        ("tensorrt fp16", "decode_tok_s @64", 1.2),
        ("tensorrt fp16", "python @64", 0.1),
    ]


def test_llama_cpp_is_given_room_for_all_that_is_measured_and_measured_as_the_others_are() -> None:
    """It leaves out in silence what does not fit its context. Its rows stand among its chatter, as
    llama-batched-bench of 0.5.0-dev prints them; llama-bench has another form, and says so itself."""
    given = arguments(Path("m.gguf"), 2, [1, 16], SIZES)
    assert (given[given.index("-c") + 1], given[given.index("-npl") + 1]) == (str(16 * 128), "1,16")
    row = {"n_kv_max": 2048, "n_batch": 2048, "pp": 64, "tg": 64, "pl": 4, "n_kv": 512, "t_pp": 0.5, "t_tg": 2.0}
    rows = parse([b"load: printing all EOG tokens:", json.dumps(row).encode(), b"", b"{broken", b"llama_perf: 1 ms"])
    found = measured(rows, "tiny", Path("Q4_0.gguf"), runtime="llama.cpp", rss_mib=50.0)
    assert (found.engine, found.precision, found.device) == ("llama.cpp", "q4_0", "cpu")
    assert found.figures(SIZES) == {"decode_tok_s @4": 128.0, "prefill_tok_s @4": 512.0, "rss_mib @4": 50.0}
    with pytest.raises(ServiceError, match=r"error: invalid parameter.*llama-batched-bench"):
        parse([b"error: invalid parameter for argument: -npp"])


@pytest.fixture(scope="module")
def tiny_folder(tiny_source: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    models = tmp_path_factory.mktemp("models")
    prepare_model(models, "fp32", source=tiny_source)
    prepare_model(models, "fp16", source=tiny_source)
    return prepare_model(models, "int8", source=tiny_source)


def test_what_cannot_run_is_named_with_its_reason(tiny_folder: ModelFolder) -> None:
    """The CPU's engine has a process for each of its folders; the others say what is missing."""
    settings = Settings.model_validate({"model": {"dir": tiny_folder.path}})
    planned, missing = plan(("onnx", "llama.cpp"), settings, NOWHERE, threads=2)
    assert [one.name for one in planned] == ["onnx fp32", "onnx int8"]
    assert planned[1].env["REPLYLINE_MODEL__DIR"] == str(tiny_folder.path)
    assert [(one.engine, one.reason.split(" are")[0]) for one in missing] == [("llama.cpp", "--llama-bench and --gguf")]


def test_a_folder_in_the_making_is_none(tiny_folder: ModelFolder) -> None:
    """Only whole folders of this model count, each for the engines that compute what it holds."""
    (tiny_folder.path.parent / "tiny-half").mkdir(exist_ok=True)
    manifests = [folder.manifest for folder in prepared(tiny_folder.path.parent, "tiny")]
    assert [manifest.precision for manifest in manifests] == ["fp16", "fp32", "int8"]
    assert [takes("tensorrt", manifest) for manifest in manifests] == [True, False, False]
    assert [takes("onnx", manifest) for manifest in manifests] == [False, True, True]
    assert [takes("torch", manifest) for manifest in manifests] == [True, True, False]


def test_transformers_is_given_the_same_numbers(tiny_source: Path, tmp_path: Path) -> None:
    """A folder that is written of a checkpoint holds that checkpoint."""
    checkpoint = open_source(tiny_source).checkpoint
    write_folder(checkpoint, 2, tmp_path)
    again = SafetensorsSource.open(tmp_path).checkpoint()
    assert again.architecture == checkpoint.architecture
    for name in checkpoint.weights:
        np.testing.assert_array_equal(again.read(name), checkpoint.read(name))
    assert hugging_face_folder(tiny_source, tmp_path / "unused") == tiny_source


def test_the_time_in_the_runtime_counts_nested_calls_once() -> None:
    """A watched call that calls another watched one is one span."""

    class Runtime:
        def outer(self, value: int) -> int:
            return self.inner(value) + self.inner(value)

        def inner(self, value: int) -> int:
            return sum(range(200_000)) * 0 + value

    clock, alone = RuntimeClock(), RuntimeClock()
    clock.watch(Runtime, ["outer", "inner"])
    alone.watch(Runtime, ["outer"])
    assert Runtime().outer(3) == 6
    assert 0 < clock.seconds <= alone.seconds


def test_batches_ascend_and_engines_are_named_once_and_none_is_made_up() -> None:
    """Peak memory is told from small to large."""
    assert parse_batches("16, 1,4,1") == (1, 4, 16)
    assert parse_engines("onnx, llama.cpp,onnx") == ("onnx", "llama.cpp")
    for wrong in ("many", "", "0,8", "1,9999"):
        with pytest.raises(SettingsError, match=f"--batches {wrong}: write numbers"):
            parse_batches(wrong)
    for wrong in ("abacus", "onnx,abacus", ","):
        with pytest.raises(SettingsError, match=f"--engines {wrong}: name some of onnx"):
            parse_engines(wrong)
