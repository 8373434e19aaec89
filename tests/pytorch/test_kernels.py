"""The fused kernels against torch's own operators: on a GPU, or on the CPU by Triton's interpreter.

The interpreter multiplies bfloat16's bits as integers and rounds to E4M3 without a carry, so these two are a GPU's.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from ops.model.prepare import prepare_model
from tests.pytorch.torch_engines import GREEDY, logits_of, on_device, on_the_cpu
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.torch.decoder.layers import on_grid, unrounded_product
from workers.engine.torch.decoder.weights import Linear, RoundedLinear
from workers.engine.torch.device import TorchDevice
from workers.engine.torch.kernels.attention import attend, parts_for
from workers.engine.torch.kernels.greedy import greedy
from workers.engine.torch.kernels.norm import norm
from workers.engine.torch.kernels.product import Shape, Tile, Workspace, product
from workers.engine.torch.kernels.step import rounded_product

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]
EIGHT_BITS = [torch.int8, torch.float8_e4m3fn]
ROUNDED = EIGHT_BITS if DEVICE == "cuda" else [torch.int8]
# How far numbers may be off: what a type's last place is worth.
OFF = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


@pytest.fixture(autouse=True)
def _on_the_device() -> Iterator[None]:
    torch.manual_seed(3)
    torch.set_default_device(DEVICE)
    yield
    torch.set_default_device("cpu")


def rounded_linear(outputs: int, inputs: int, dtype: torch.dtype, step: float | None) -> RoundedLinear:
    levels = on_grid(torch.randn(outputs, inputs), 0.03, dtype)
    return RoundedLinear(levels, None, torch.rand(outputs) * 0.05 + 0.01, step)


def workspace() -> Workspace:
    return Workspace(torch.full((1 << 16,), float("nan")), torch.zeros(64, dtype=torch.int32))


def near(found: torch.Tensor, expected: torch.Tensor, *, of: float = 2e-3) -> None:
    found, expected = found.float(), expected.float()
    assert torch.linalg.norm(found - expected) <= of * torch.linalg.norm(expected)


@pytest.mark.parametrize("width", [64, 96, 576])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, *ROUNDED])
def test_a_norm_is_torchs(width: int, dtype: torch.dtype) -> None:
    hidden, scale = torch.randn(3, width) * 40, torch.rand(width) + 0.5
    out = torch.empty(3, width, dtype=dtype)
    step = 0.05 if dtype in EIGHT_BITS else None
    norm(hidden, scale, out, epsilon=1e-5, step=step)
    expected = F.rms_norm(hidden, (width,), scale, 1e-5)
    if step is None:
        near(out, expected, of=5e-3)
    else:
        near(out, on_grid(expected, step, dtype), of=1e-2)  # of two levels that are equally near either may be taken


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 16, 33])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_is_torchs(rows: int, splits: int, biased: bool, dtype: torch.dtype) -> None:
    x = torch.randn(rows, 192).to(dtype)
    linear = Linear(torch.randn(100, 192).to(dtype), torch.randn(100).to(dtype) if biased else None)
    expected = F.linear(x.float(), linear.matrix.float(), None if linear.bias is None else linear.bias.float())
    tile, memory = Tile(32, 64, splits, 4, 2), workspace()
    out = torch.full((rows, 100), float("nan"), dtype=dtype)
    product(x, linear, out, memory, tile=tile)
    near(out, expected, of=OFF[dtype])
    added = torch.randn(rows, 100)
    before = added.clone()
    product(x, linear, added, memory, added=True, tile=tile)
    near(added, before + expected, of=1e-5)
    gated = torch.full((rows, 50), float("nan"), dtype=dtype)
    product(x, linear, gated, memory, gated=True, tile=tile)
    near(gated, F.silu(expected[:, :50]) * expected[:, 50:], of=OFF[dtype])
    assert not memory.arrivals.any()


@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize("step", [None, 0.04])
@pytest.mark.parametrize("splits", [1, 2])
def test_a_product_of_8_bits_is_that_of_the_numbers_that_its_levels_stand_for(
    dtype: torch.dtype, step: float | None, splits: int
) -> None:
    linear = rounded_linear(64, 128, dtype, step)
    x = torch.randn(3, 128).half()
    read = x if step is None else on_grid(x, step, dtype)
    out = torch.empty(3, 64, dtype=torch.float16)
    product(read, linear, out, workspace(), tile=Tile(32, 64, splits, 4, 2))
    near(out, unrounded_product(x.float(), linear))
    near(rounded_product(x.view(3, 1, 128), linear).view(3, 64), out)


@pytest.mark.parametrize("dtype", ROUNDED)
def test_what_a_gate_lets_through_is_rounded_for_the_next_product(dtype: torch.dtype) -> None:
    linear = rounded_linear(64, 128, torch.int8, None)
    x = torch.randn(3, 128).half()
    out = torch.empty(3, 32, dtype=dtype)
    product(x, linear, out, workspace(), gated=True, out_step=0.02, tile=Tile(16, 64, 1, 4, 2))
    both = unrounded_product(x.float(), linear)
    near(out, on_grid(F.silu(both[:, :32]) * both[:, 32:], 0.02, dtype), of=2e-2)


def test_a_workspace_has_room_for_what_its_products_split() -> None:
    shapes = [Shape(64, 4096, 2), Shape(512, 256, 1, gated=True)]
    room = Workspace.of(shapes, rows=20, device=torch.device(DEVICE))
    assert not room.arrivals.any()
    assert len(room.sums)


def attended(  # noqa: PLR0917 - as `attend` has them
    packed: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, past: Sequence[int], angles: Any, norms: Any
) -> torch.Tensor:
    """One row and head after another, in float32; puts the new tokens into the slots."""
    dtype = keys.dtype
    _, key_heads, _, head = keys.shape
    cosines, sines = angles
    group = packed.shape[1] // head // key_heads - 2
    out = []
    for row, length in enumerate(past):
        heads = packed[row].float().view(-1, head)
        if norms is not None:
            query_norm, key_norm = norms
            heads = heads.clone()
            turned = key_heads * group
            heads[:turned] = F.rms_norm(heads[:turned], (head,), query_norm, 1e-5)
            heads[turned : turned + key_heads] = F.rms_norm(heads[turned : turned + key_heads], (head,), key_norm, 1e-5)
        first, second = heads[:, : head // 2], heads[:, head // 2 :]
        c, s = cosines[length], sines[length]
        turned_heads = torch.cat((first * c - second * s, second * c + first * s), 1).to(dtype)
        for key_head in range(key_heads):
            keys[row, key_head, length] = turned_heads[key_heads * group + key_head]
            values[row, key_head, length] = heads[key_heads * (group + 1) + key_head].to(dtype)
            k, v = keys[row, key_head, : length + 1].float(), values[row, key_head, : length + 1].float()
            queries = turned_heads[key_head * group : (key_head + 1) * group].float()
            out.append((torch.softmax(queries @ k.T * head**-0.5, 1) @ v).flatten())
    return torch.cat(out).view(len(past), -1)


@pytest.mark.parametrize(("key_heads", "group", "head"), [(3, 3, 64), (1, 7, 32), (2, 1, 16), (1, 4, 128), (2, 2, 80)])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_is_the_softmax_of_all_that_the_slot_holds(
    key_heads: int, group: int, head: int, normed: bool, dtype: torch.dtype
) -> None:
    capacity, past = 640, [1, 63, 64, 65, 255, 256, 257, 511, 512, 600]
    angles = (torch.rand(capacity, head // 2), torch.rand(capacity, head // 2))
    norms = (torch.rand(head) + 0.5, torch.rand(head) + 0.5) if normed else None
    packed = torch.randn(len(past) + 1, key_heads * (group + 2) * head).to(dtype)
    keys, values = (torch.randn(len(past) + 1, key_heads, capacity, head).to(dtype) for _ in "kv")
    expected_keys, expected_values = keys.clone(), values.clone()
    expected = attended(packed, expected_keys, expected_values, past, angles, norms)
    parts = parts_for(
        len(past) + 1, key_heads=key_heads, group=group, head_dim=head, capacity=capacity, device=packed.device
    )
    out = torch.full((len(past) + 1, key_heads * group * head), float("nan"), dtype=dtype)
    # The last row only pads the step: its slot stays as it is.
    lengths = torch.tensor([*past, capacity - 1])
    query_norm, key_norm = norms or (None, None)
    attend(
        packed, keys, values, lengths, *angles, out, parts, span=capacity, epsilon=1e-5,
        query_norm=query_norm, key_norm=key_norm,
    )  # fmt: skip
    near(out[:-1], expected, of=2 * OFF[dtype])
    assert torch.equal(values, expected_values)
    near(keys, expected_keys, of=OFF[dtype])
    assert torch.equal(keys[-1], expected_keys[-1])
    assert not parts.arrivals.any()
    alone = torch.empty_like(out[:1])
    attend(
        packed[9:10], keys[9:10], values[9:10], lengths[9:10], *angles, alone, parts, span=capacity, epsilon=1e-5,
        query_norm=query_norm, key_norm=key_norm,
    )  # fmt: skip
    assert torch.equal(alone[0], out[9])


def test_of_equal_logits_the_smallest_token_is_taken() -> None:
    logits = torch.randn(4, 9000)
    logits[0, [5000, 17, 8999]] = 9.0
    logits[1, [4096, 4095]] = 9.0
    logits[2] = float("nan")
    peaks, best = torch.empty(4, 1), torch.empty(4, dtype=torch.int64)
    greedy(logits, peaks, best)
    assert best[[0, 1, 3]].tolist() == [17, 4095, int(logits[3].argmax())]
    assert torch.equal(peaks[[0, 1, 3], 0], logits[[0, 1, 3]].max(1).values)
    assert not torch.isfinite(peaks[2])


@pytest.mark.parametrize("name", list(FAMILY_CONFIGS))
def test_a_step_of_every_family_is_the_decoders(tmp_path: Path, name: str) -> None:
    """Logits of a step in a batch of three, against torch's operators in float32; alone the same to the bit."""
    config = FAMILY_CONFIGS[name]
    write_family(tmp_path / "source", config, family_tensors(config, 1))
    reference = on_the_cpu(prepare_model(tmp_path, "fp32", source=tmp_path / "source"), num_slots=3)
    folder = prepare_model(tmp_path, "fp16", source=tmp_path / "source", max_length=128)
    fused = on_device(folder, TorchDevice(DEVICE), num_slots=3, max_length=96, fused=True)
    prompts = [list(range(5, 25)), [7, 8], list(range(40, 70))]
    rows = [
        DecodeRow(slot=slot, past=len(prompt), token_id=9 + slot, sampling=GREEDY)
        for slot, prompt in enumerate(prompts)
    ]
    found: dict[str, np.ndarray] = {}
    for label, engine in (("reference", reference), ("fused", fused)):
        for slot, prompt in enumerate(prompts):
            engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=None)])
        engine.decode(rows)
        found[label] = np.stack([logits_of(engine, row) for row in range(3)])
    assert np.linalg.norm(found["fused"] - found["reference"]) < 5e-3 * np.linalg.norm(found["reference"])
    fused.prefill([PrefillChunk(slot=0, past=0, token_ids=prompts[0], sampling=None)])
    fused.decode(rows[:1])
    assert np.array_equal(logits_of(fused), found["fused"][0])
