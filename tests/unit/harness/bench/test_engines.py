"""The numbers of `replyline bench engines`: rooflines, medians, ratios, and what other programs print."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.model.prepare import prepare_model
from ops.stack.processes import ServiceError
from shared.errors import SettingsError
from shared.model.folder import Architecture, ModelFolder
from shared.settings import Settings
from tests.bench.engines.cells import Peers, plan, prepared, takes
from tests.bench.engines.checkpoint import hugging_face_folder, write_folder
from tests.bench.engines.limits import data_sheet
from tests.bench.engines.llama import arguments, measured, parse
from tests.bench.engines.measure import RuntimeClock
from tests.bench.engines.plot import plot_of
from tests.bench.engines.program import EnginesOptions, parse_batches
from tests.bench.engines.roofline import Limits, Work, decode_bound_s, prefill_bound_s, work_of
from tests.bench.engines.rows import Cell, Measured, Round, Sizes, Timing, details_of, ratios_of, rows_of
from tests.bench.engines.table import verdicts
from workers.graph.sources.opening import open_source
from workers.graph.sources.safetensors import SafetensorsSource

SIZES = Sizes(prompt_tokens=64, new_tokens=64)
NOWHERE = Peers(llama_bench=None, gguf=None, source=None)
LIMITS = Limits(source="given", read_gb_s=10.0, gflop_s={"fp32": 100.0, "int8": 400.0})
WORK = Work(weight_bytes=1e8, kv_bytes_per_token=50_000, body=100_000_000, head=30_000_000, attention=70_000)
SMOLLM2 = Architecture(
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    hidden_size=576,
    intermediate_size=1536,
    vocab_size=49_152,
    max_positions=8_192,
    rope_theta=100_000.0,
    norm_epsilon=1e-5,
    tied_embedding=True,
)


def timing(batch: int, *, prefill_s: float = 1.0, decode_s: float = 2.0, runtime_s: float | None = None) -> Timing:
    return Timing(
        batch=batch, prefill_s=prefill_s, decode_s=decode_s, decode_steps=63, rss_mib=100.0, runtime_s=runtime_s
    )


def of(engine: str, *timings: Timing, precision: str = "int8") -> Measured:
    cell = Cell(engine=engine, model="m", precision=precision, device="cpu")
    return Measured(cell=cell, runtime="r 1", work=WORK, timings=list(timings))


def test_a_model_s_work_is_that_of_its_matrices() -> None:
    """SmolLM2-135M: 134.5 million weights with the tied table, 46,080 bytes of float32 KV a token."""
    work = work_of(SMOLLM2, stored_bytes=150_000_000, kv_itemsize=4)
    assert work.body + work.head == 134_479_872
    assert work.kv_bytes_per_token == 46_080
    assert work.weight_bytes == 150_000_000


def test_an_untied_embedding_is_not_read_by_a_step() -> None:
    """Only the head's half of the two tables is."""
    untied = Architecture(
        **{name: getattr(SMOLLM2, name) for name in SMOLLM2.__struct_fields__} | {"tied_embedding": False}
    )
    work = work_of(untied, stored_bytes=(106_168_320 + 2 * 28_311_552) * 4, kv_itemsize=4)
    assert work.weight_bytes == pytest.approx((106_168_320 + 28_311_552) * 4)


def test_one_row_is_bound_by_bytes_and_many_by_products() -> None:
    """10 GB/s and 0.1 GB of weights: 10 ms. 400 Gflop/s and 64 rows of 0.26 Gflop: 42 ms."""
    assert decode_bound_s(WORK, LIMITS, "int8", rows=1, past=0) == pytest.approx(0.010)
    assert decode_bound_s(WORK, LIMITS, "int8", rows=64, past=0) == pytest.approx(64 * 0.26 / 400)


@given(st.integers(1, 64), st.floats(0, 4_096), st.sampled_from(["int8", "fp32", "fp16", "q4_0"]))
def test_more_rows_and_more_past_never_take_less(rows: int, past: float, precision: str) -> None:
    """Whatever binds."""
    least = decode_bound_s(WORK, LIMITS, precision, rows=rows, past=past)
    assert decode_bound_s(WORK, LIMITS, precision, rows=rows + 1, past=past) >= least > 0
    assert decode_bound_s(WORK, LIMITS, precision, rows=rows, past=past + 1) >= least


def test_weights_of_four_bits_are_held_against_the_8_bit_rate() -> None:
    """Their kernels multiply bytes; a rate that nobody measured gives no share."""
    q4, int8, fp16 = (
        prefill_bound_s(WORK, LIMITS, precision, rows=1, tokens=64) for precision in ("q4_0", "int8", "fp16")
    )
    assert q4 == int8 == pytest.approx((64 * (0.2 + 70_000 * 32 / 1e9) + 0.06) / 400)
    assert fp16 is None


def test_a_row_is_the_median_of_its_rounds() -> None:
    """A round that was held up changes nothing."""
    taken = (2.0, 2.1, 9.0)
    rounds = [Round(limits={"cpu": LIMITS}, measured=[of("onnx", timing(4, decode_s=s))]) for s in taken]
    (row,) = rows_of(rounds, SIZES)
    assert row.decode_tok_s == pytest.approx(4 * 63 / 2.1, abs=0.01)
    assert row.prefill_tok_s == 256.0
    assert row.overhead_share is None
    (detail,) = details_of(rounds, SIZES)
    assert detail.decode_tok_s_by_round == [126.0, 120.0, 28.0]
    assert detail.step_ms == pytest.approx(2_100 / 63, abs=0.001)


def test_python_s_share_is_what_the_runtime_s_calls_leave() -> None:
    """1.9 of 2.0 s in the runtime: a twentieth is ours."""
    (row,) = rows_of([Round(limits={}, measured=[of("onnx", timing(1, runtime_s=1.9))])], SIZES)
    assert row.overhead_share == 0.05
    assert row.roofline_share is None


def test_a_row_has_the_promised_keys_and_no_other() -> None:
    """In this order: scripts read them."""
    (row,) = rows_of([Round(limits={"cpu": LIMITS}, measured=[of("onnx", timing(1))])], SIZES)
    keys = "engine model precision device batch prefill_tok_s decode_tok_s overhead_share rss_mib roofline_share"
    assert list(row.__struct_fields__) == keys.split()


def test_ratios_are_of_figures_of_the_same_round() -> None:
    """A machine that is twice as slow in one round is so for both: the ratio stays."""
    rounds = [
        Round(
            limits={},
            measured=[
                of("onnx", timing(8, decode_s=1.0 * slow), timing(64, decode_s=slow)),
                of("llama.cpp", timing(8, decode_s=1.5 * slow, prefill_s=0.5), precision="q4_0"),
            ],
        )
        for slow in (1.0, 2.0, 1.0)
    ]
    (ratio,) = ratios_of(rounds, SIZES)
    assert (ratio.engine, ratio.peer, ratio.batch) == ("onnx", "llama.cpp q4_0", 8)
    assert (ratio.decode, ratio.prefill) == (1.5, 0.5)
    assert verdicts([], [ratio]) == [
        "onnx int8 to llama.cpp q4_0, batch 8: decode 1.50 (≥ 1.00 met)",
        "onnx int8 to llama.cpp q4_0, batch 8: prefill 0.5 (≥ 1.00 missed)",
    ]


def test_llama_cpp_s_rows_are_found_among_its_chatter() -> None:
    """As llama-batched-bench of 0.5.0-dev prints them."""
    row = {"n_kv_max": 2048, "n_batch": 2048, "pp": 64, "tg": 64, "pl": 4, "n_kv": 512, "t_pp": 0.2, "t_tg": 0.8}
    lines = [b"load: printing all EOG tokens:", json.dumps(row).encode(), b"", b"{broken", b"llama_perf: 1 ms"]
    (found,) = parse(lines)
    assert (found.pl, found.t_pp, found.t_tg) == (4, 0.2, 0.8)


def test_another_program_s_words_are_told() -> None:
    """llama-bench has another form, and says so itself."""
    with pytest.raises(ServiceError, match=r"error: invalid parameter.*llama-batched-bench"):
        parse([b"error: invalid parameter for argument: -npp"])


def test_llama_cpp_is_given_room_for_all_that_is_measured() -> None:
    """It leaves out in silence what does not fit its context."""
    given = arguments(Path("m.gguf"), 2, [1, 16], SIZES)
    assert given[given.index("-c") + 1] == str(16 * 128)
    assert given[given.index("-npl") + 1] == "1,16"


def test_llama_cpp_is_measured_as_the_others_are(tiny_folder: ModelFolder, tmp_path: Path) -> None:
    """The same model, its own bytes, KV in half precision."""
    gguf = tmp_path / "Q4_0.gguf"
    gguf.write_bytes(b"x" * 1_000)
    rows = parse([b'{"pp": 64, "tg": 64, "pl": 4, "t_pp": 0.5, "t_tg": 2.0}'])
    found = measured(rows, tiny_folder.manifest, gguf, runtime="llama.cpp", rss_mib=50.0)
    assert (found.cell.precision, found.work.weight_bytes, found.work.kv_bytes_per_token) == ("q4_0", 1_000, 256)
    (row,) = rows_of([Round(limits={}, measured=[found])], SIZES)
    assert (row.prefill_tok_s, row.decode_tok_s) == (512.0, 128.0)


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


@pytest.mark.parametrize(
    ("name", "gb_s"), [("NVIDIA H200", 4_800), ("NVIDIA H100 PCIe", 2_000), ("NVIDIA H100 80GB HBM3", 3_350)]
)
def test_a_known_gpu_s_limits_are_its_data_sheet_s(name: str, gb_s: float) -> None:
    """The longer name first."""
    found = data_sheet(name)
    assert found is not None
    assert found.read_gb_s == gb_s
    assert data_sheet("Some GPU") is None


def test_the_plot_has_a_line_for_each_engine_in_both_drawings() -> None:
    """It is a whole SVG file."""
    timings = [timing(batch) for batch in (1, 4)]
    measured = [of("onnx", *timings), of("llama.cpp", *timings, precision="<q4>")]
    drawn = plot_of(rows_of([Round(limits={}, measured=measured)], SIZES), SIZES)
    texts = [node.text for node in ET.fromstring(drawn).iter() if node.text]
    assert [text for text in texts if text in {"onnx int8", "llama.cpp <q4>"}].count("onnx int8") == 2
    assert texts.count("llama.cpp <q4>") == 2


def test_batches_ascend_and_come_once() -> None:
    """Peak memory is told from small to large."""
    assert parse_batches("16, 1,4,1") == (1, 4, 16)
    with pytest.raises(SettingsError, match="--batches many"):
        parse_batches("many")


def test_wrong_options_are_told_together(tmp_path: Path) -> None:
    """One line a fault, before anything starts."""
    options = EnginesOptions(
        engines=("onnx", "abacus"),
        batches=(0, 8),
        sizes=Sizes(prompt_tokens=64, new_tokens=1),
        rounds=1,
        peers=Peers(llama_bench=tmp_path / "missing", gguf=None, source=None),
        json_path=None,
        plot_path=None,
    )
    with pytest.raises(SettingsError) as told:
        options.check()
    faults = str(told.value).splitlines()
    assert [fault.split(":")[0].removesuffix(f" {tmp_path / 'missing'}") for fault in faults] == [
        "--engines abacus",
        "--batches 0",
        "--new-tokens 1",
        "--llama-bench",
    ]
