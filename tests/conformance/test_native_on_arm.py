"""The native engine for ARM: compiled by zig, its steps computed under qemu-user where there is no ARM machine.

Bits are checked and no speed: qemu computes what an instruction says, not how fast.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import NATIVE, ModelFolder
from tests.support.not_run import name_not_run
from workers.engine.native.build import FLAGS, Built, Recipe, build
from workers.engine.native.compiler import Compiler, zig_for
from workers.engine.native.weights import NativeWeights

DRIVER: Final = Path(__file__).parents[1] / "support/models/native_driver.c"
CAPACITY: Final = 64
ARM: Final = Recipe(machine="aarch64")
PROMPT: Final = [7, 1, 30, 12, 99, 4, 5, 6, 44, 17, 23, 61, 8, 9, 2, 70, 71, 72, 73, 3]
Row = tuple[int, int, int]  # id, slot, position

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # zig compiles a libc


@pytest.fixture(scope="module")
def zig(pytestconfig: pytest.Config) -> Compiler:
    found = zig_for("aarch64")
    if found is None:
        name_not_run(pytestconfig, "the native engine for ARM: no zig; type: ops/setup/native --zig")
        pytest.skip("no zig")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_source: Path) -> ModelFolder:
    return prepare_model(tmp_path_factory.mktemp("models"), "int8", source=tiny_source)


def test_every_kernel_for_arm_is_compiled(tmp_path: Path, zig: Compiler) -> None:
    built = build(tmp_path, ARM, zig)
    assert isinstance(built, Built), built
    assert (built.kernels, built.left_out) == (("neon", "portable"), {})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, zig: Compiler) -> list[str]:
    """The driver, linked statically: qemu has no libc of ARM's."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        name_not_run(pytestconfig, "the native engine's steps on ARM: no qemu; type: apt-get install qemu-user-static")
        pytest.skip("no qemu-user")
    work = tmp_path_factory.mktemp("driver")
    static = Compiler("zig", tuple(each.replace("linux-gnu.2.17", "linux-musl") for each in zig.argv))
    table = "".join(f"EACH({name})" for name in ARM.kernels)
    for name, flags in ARM.kernels.items():
        compile_(static, work, "-c", "step.c", "-o", f"{work}/{name}.o", f"-DKERNEL={name}", *flags)
    objects = [f"{work}/{name}.o" for name in ARM.kernels]
    arguments = ("-static", "-I.", "engine.c", str(DRIVER), f"-DKERNELS={table}", *objects, "-lm")
    compile_(static, work, *arguments, "-o", f"{work}/driver")
    return [qemu, f"{work}/driver"]


def compile_(compiler: Compiler, work: Path, *arguments: str) -> None:
    assert compiler.run(work, *FLAGS, *arguments, folder=ARM.sources) is None


def steps(program: list[str], folder: ModelFolder, kernel: str, plan: list[list[Row]], tmp_path: Path) -> np.ndarray:
    """The logits of every row of a plan's steps, with two slots, on one thread."""
    a, weights = folder.manifest.architecture, NativeWeights.map(folder, CAPACITY)
    packed = (folder.path / NATIVE).read_bytes()
    packed += bytes(-len(packed) % 64)
    places, data = [], packed
    for table in weights.held[1:]:
        places.append(len(data))
        data += table.tobytes() + bytes(-table.nbytes % 64)
    begin = weights.held[0].ctypes.data
    places += [-1 if address is None else address - begin for address in weights.addresses[len(places) :]]
    sizes = (a.num_layers, a.num_heads, a.num_kv_heads, a.head_dim, a.hidden_size, a.intermediate_size, a.vocab_size)
    numbers = [*sizes, 2, CAPACITY, 64, 1, 0, int(np.float32(a.norm_epsilon).view(np.int32)), len(places), *places]
    for step in plan:
        numbers += [
            len(step),
            *(part for column in zip(*step, strict=True) for part in column),
            len(step),
            *range(len(step)),
        ]
    (tmp_path / "weights").write_bytes(data)
    (tmp_path / "input").write_bytes(np.array(numbers, np.int32).tobytes())
    files = (str(tmp_path / "weights"), str(tmp_path / "input"))
    done = subprocess.run([*program, kernel, *files], capture_output=True, check=True, env=os.environ)
    return np.frombuffer(done.stdout, np.float32).reshape(-1, a.vocab_size)


@pytest.mark.parametrize("kernel", ["neon", "portable"])
def test_a_rows_logits_on_arm_are_the_same_to_the_bit_however_its_prompt_is_cut(
    program: list[str], folder: ModelFolder, tmp_path: Path, kernel: str
) -> None:
    """Whole; token by token; and in two pieces beside another sequence. And near those of ONNX Runtime."""
    from tests.support.models.teacher_forced import engine_forced

    first = [(token, 0, at) for at, token in enumerate(PROMPT)]
    other = [(token, 1, at) for at, token in enumerate(reversed(PROMPT))]
    whole = steps(program, folder, kernel, [first], tmp_path)
    single = steps(program, folder, kernel, [[row] for row in first], tmp_path)
    mixed = steps(program, folder, kernel, [[*first[:13], *other[:5]], [*other[5:6], *first[13:]]], tmp_path)
    assert np.array_equal(single, whole)
    assert np.array_equal(np.concatenate([mixed[:13], mixed[19:]]), whole)
    expected = engine_forced(folder, PROMPT[:1], PROMPT[1:])
    assert np.corrcoef(whole[:-1].reshape(-1), expected.reshape(-1))[0, 1] > 0.99
