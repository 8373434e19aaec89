"""The fused kernels compile for GPUs that this machine does not have: Triton needs none to make their code.

In a process of its own: the tests beside it have Triton interpret its kernels.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from workers.engine.torch.kernels import attention, greedy, norm, product

sm, kind = int(sys.argv[1]), sys.argv[2]
FLOAT32, NUMBERS, INTEGERS = "*fp32", f"*{kind}", "i32"
SHARED = {"PDL": sm >= 90}
PRODUCT = {"x": NUMBERS, "matrix": NUMBERS, "scales": FLOAT32, "bias": NUMBERS, "out": NUMBERS, "sums": FLOAT32,
    "arrivals": "*i32", "rows": INTEGERS, "outputs": INTEGERS, "inputs": INTEGERS, "x_step": "fp32", "out_step": "fp32"}
ATTEND = {**dict.fromkeys(("packed", "keys", "values", "out"), NUMBERS), "past": "*i64", "arrivals": "*i32",
    **dict.fromkeys(("cosines", "sines", "query_norm", "key_norm", "sums", "peaks", "masses"), FLOAT32),
    "capacity": INTEGERS, "scale": "fp32", "epsilon": "fp32", "most_parts": INTEGERS}
KERNELS = [
    (norm._norm, {"hidden": FLOAT32, "scale": FLOAT32, "out": NUMBERS, "step": "fp32", "width": INTEGERS,
        "epsilon": "fp32"}, {"BLOCK": 4096}, {"num_warps": 8}),
    (greedy._greedy, {"logits": FLOAT32, "peaks": FLOAT32, "token_ids": "*i64", "vocabulary": INTEGERS},
        {"TOKENS": 4096}, {"num_warps": 8}),
]
for head, group in ((128, 7), (64, 3)):
    KERNELS.append((attention._attend, ATTEND, {"KEY_HEADS": 4, "GROUP": group, "HEAD": head, "QUERIES": 16,
        "HALF": head // 2, "WIDTH": head, "PART": 256, "PLACES": 64, "NORMED": True}, {"num_stages": 3}))
for rows in (16, 128):
    for gated in (False, True):
        for matrix in (NUMBERS, "*i8", "*fp8e4nv") if sm >= 89 else (NUMBERS, "*i8"):
            shape = product.Shape(4096, 4096, 1 if matrix != NUMBERS else 2, gated)
            tile = product.tile_for(rows, shape)
            KERNELS.append((product._product, {**PRODUCT, "matrix": matrix}, {"OUTPUTS": tile.outputs,
                "INPUTS": tile.inputs, "ROWS": rows, "SPLITS": 2, "GATED": gated, "SCALED": matrix != NUMBERS,
                "BIASED": True, "ADDED": False}, {"num_warps": tile.warps, "num_stages": tile.stages}))
found = []
for kernel, types, constants, options in KERNELS:
    constants = {**constants, **SHARED}
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    whole = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or signature[name] == "i32"}
    made = triton.compile(ASTSource(kernel, signature, places, whole), target=GPUTarget("cuda", sm, 32),
        options={**options, "launch_pdl": sm >= 90, "enable_fp_fusion": True})
    found.append({"name": kernel.__name__, "constants": constants, "shared": made.metadata.shared,
        "waits": "griddepcontrol.wait" in made.asm["ptx"], "code": len(made.asm["cubin"])})
print(json.dumps(found))
"""
# Bytes of shared memory that a program may have.
SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024}


@pytest.mark.parametrize("sm", SHARED_MEMORY)
def test_every_kernel_compiles(sm: int) -> None:
    """Within the shared memory that the GPU has, and waiting for the kernel before it where it may start early."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, str(sm), "bf16"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert len(found) > 10
    for kernel in found:
        assert kernel["code"], kernel
        assert kernel["shared"] <= SHARED_MEMORY[sm], kernel
        assert kernel["waits"] == (sm >= 90), kernel
