"""The native engine for ARM: compiled by zig, and run under qemu-user if this is no ARM machine.

Bits are checked and no speed, because qemu does not model time.
"""

import platform
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.models.native_kernels import Direct, Rows, Weights, architectures, opened
from tests.support.models.native_library import native_library
from tests.support.not_run import name_not_run
from tests.unit.examples import examples
from workers.engine.native.build import FLAGS, LIBRARY, Built, Compiler, Recipe, build, zig_for
from workers.engine.native.library import Library

DRIVER: Final = Path(__file__).parents[1] / "support/models/native_driver.c"
CAPACITY: Final = 64
ARM: Final = Recipe(machine="aarch64")
numbers = st.integers(0, 10_000)
random_weights = st.builds(
    Weights.random, architectures(), st.sampled_from(("int8", "q4")), numbers, low=st.just(False), at_end=st.just(True)
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # zig compiles a libc


@pytest.fixture(scope="module")
def zig(pytestconfig: pytest.Config) -> Compiler:
    found = zig_for("aarch64")
    if found is None:
        name_not_run(pytestconfig, "the native engine for ARM: no zig; type: ops/setup/native --zig")
        pytest.skip("no zig")
    return found


def test_every_kernel_for_arm_is_compiled(tmp_path: Path, zig: Compiler) -> None:
    built = build(tmp_path, ARM, zig)
    assert isinstance(built, Built), built
    assert (built.kernels, built.left_out) == (("neon", "portable"), {})


def test_zigs_library_has_the_kernels_of_this_machine(tmp_path: Path, zig: Compiler) -> None:
    """The CPU detection of compilers' own libraries differs: zig's detects nothing."""
    recipe, here = Recipe(), zig_for(platform.machine())
    assert here is not None
    assert isinstance(build(tmp_path, recipe, here), Built)
    assert Library.load(recipe.folder(tmp_path) / LIBRARY).kernels == native_library().kernels


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, zig: Compiler) -> list[str]:
    """The driver, linked statically, because qemu has no ARM libc."""
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


def steps(command: list[str], engine: Direct, plan: list[Rows], work: Path) -> dict[tuple[int, int], np.ndarray]:
    """Return the logits of every row of a plan's steps, by slot and position, of an engine like `engine`."""
    places, data = [], b""
    for section in engine.sections:
        places.append(-1 if section is None else len(data))
        data += b"" if section is None else section.tobytes() + bytes(-section.nbytes % 64)
    numbers = [*np.frombuffer(engine.config, np.int32), len(places), *places]
    for rows in plan:
        numbers += [len(rows), *chain(*zip(*rows, strict=True)), len(rows), *range(len(rows))]
    (work / "weights").write_bytes(data)
    (work / "input").write_bytes(np.array(numbers, np.int32).tobytes())
    done = subprocess.run([*command, str(work / "weights"), str(work / "input")], capture_output=True, check=True)
    logits = np.frombuffer(done.stdout, np.float32).reshape(-1, engine.config.vocabulary)
    return dict(zip(((slot, position) for rows in plan for _, slot, position in rows), logits, strict=True))


@pytest.mark.parametrize("kernel", ARM.kernels)
@settings(
    max_examples=examples(16),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(weights=random_weights, parts=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_a_row_on_arm_has_the_same_bits_for_any_split_of_its_prompt(
    program: list[str], tmp_path: Path, kernel: str, weights: Weights, parts: list[tuple[int, int]]
) -> None:
    """Chunks of two slots, two to a step, and every token alone. The portable kernel here is near."""
    draw = np.random.default_rng(1)
    held, chunks = [0, 0], []
    for slot, more in parts:
        length = min(1 + more % 16, CAPACITY - held[slot % 2])
        ids = draw.integers(0, weights.architecture.vocab_size, length).tolist()
        chunks.append([(token, slot % 2, held[slot % 2] + at) for at, token in enumerate(ids)])
        held[slot % 2] += length
    together = [[*chain(*chunks[at : at + 2])] for at in range(0, len(chunks), 2)]
    alone = [[row] for chunk in chunks for row in chunk]
    with opened(native_library("portable"), weights, slots=2, capacity=CAPACITY, threads=1) as engine:
        found = steps([*program, kernel], engine, together, tmp_path)
        for place, logits in steps([*program, kernel], engine, alone, tmp_path).items():
            assert np.array_equal(logits, found[place])
        for rows in alone:
            [expected] = engine.step(rows, [0])
            # Sums in another order may round later values to another level.
            assert np.abs(found[rows[0][1:]] - expected).max() <= 0.05 * np.abs(expected).max()
