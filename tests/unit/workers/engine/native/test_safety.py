"""The native kernels stay within their memory, and compute each row bit for bit as if it ran alone, in any shape."""

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.model.prepare import prepare_model
from shared.model.folder import NATIVE, Architecture
from tests.support.models.fixtures import TINY
from tests.support.models.native_kernels import Alone, Direct, Rows, Weights, architectures, opened
from tests.support.models.native_library import native_library
from tests.support.not_run import name_not_run
from tests.unit.examples import examples
from workers.engine.native.build import Recipe
from workers.engine.native.library import Library
from workers.graph.native_layout import Form

Part = tuple[int, int, int]
Action = list[Part] | tuple[str, int, int, int]

SLOTS = 4
SHAPE = msgspec.structs.replace(TINY, vocab_size=33)
several = settings(
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
numbers = st.integers(0, 10_000)
# What is done to the slots: (a step of several parts of slots | a move | a carrying of KV, with numbers to choose by).
actions = st.lists(
    st.one_of(
        st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=5),
        st.tuples(st.sampled_from(("move", "carry")), numbers, numbers, numbers),
    ),
    max_size=12,
)


@pytest.fixture(scope="module", params=Recipe().kernels)
def library(request: pytest.FixtureRequest) -> Library:
    if request.param not in native_library().kernels:
        name_not_run(request.config, f"the native kernel {request.param}: this CPU has no such instructions")
        pytest.skip("named in the last lines")
    return native_library(request.param)


@dataclass(frozen=True, slots=True)
class Setting:
    architecture: Architecture
    form: Form
    low: bool
    at_end: bool
    seed: int
    threads: int
    capacity: int


set_up = st.builds(
    Setting,
    architecture=architectures(),
    form=st.sampled_from(("int8", "q4")),
    low=st.booleans(),
    at_end=st.booleans(),
    seed=numbers,
    threads=st.integers(1, 3),
    capacity=st.sampled_from((32, 64, 96)),
)


@several
@given(case=set_up, plan=actions)
def test_a_row_has_its_solo_bits_and_no_page_is_overrun(library: Library, case: Setting, plan: list[Action]) -> None:
    """A row's logits have the same bits as if one thread computed its slot alone, token by token.

    That holds for any mix of rows and chunks, with stale tokens in other slots, after moves and KV imports, on any
    number of threads. A padded column of the vocabulary is never the most likely token.
    """
    weights = Weights.random(case.architecture, case.form, case.seed, low=case.low, at_end=case.at_end)
    with (
        opened(library, weights, slots=1, capacity=case.capacity, threads=1, max_step_tokens=1) as one,
        opened(library, weights, slots=SLOTS, capacity=case.capacity, threads=case.threads) as engine,
    ):
        alone = Alone(one)
        slots = Slots(engine, case.capacity, np.random.default_rng(case.seed))
        for action in plan:
            if isinstance(action, list):
                slots.step(action, alone)
            elif action[0] == "move":
                slots.move(*action[1:])
            else:
                slots.carry(*action[1:])


@dataclass(slots=True)
class Slots:
    """An engine and the tokens in each of its slots."""

    engine: Direct
    capacity: int
    chance: np.random.Generator
    tokens: list[list[int]] = field(default_factory=lambda: [[] for _ in range(SLOTS)])

    def step(self, parts: list[Part], alone: Alone) -> None:
        """Continue slots, the first time perhaps from an earlier token; compare some of the rows."""
        rows: list[tuple[int, int, int]] = []
        begun: set[int] = set()
        vocabulary = self.engine.config.vocabulary
        for slot, back, more in parts:
            tokens = self.tokens[slot % SLOTS]
            if slot % SLOTS not in begun:
                begun.add(slot % SLOTS)
                del tokens[len(tokens) - back % (len(tokens) + 1) :]
            room = min(self.engine.config.max_step_tokens - len(rows), self.capacity - len(tokens))
            for _ in range(min(1 + more % 40, room)):
                rows.append((int(self.chance.integers(vocabulary)), slot % SLOTS, len(tokens)))
                tokens.append(rows[-1][0])
        if not rows:
            return
        wanted = self.chance.permutation(len(rows))[: self.chance.integers(len(rows) + 1)].tolist()
        found = self.engine.step(rows, wanted)
        for row, logits in zip(wanted, found, strict=True):
            _, slot, position = rows[row]
            assert np.array_equal(logits, alone.logits(self.tokens[slot][: position + 1]))

    def move(self, source: int, target: int, length: int) -> None:
        source, target = source % SLOTS, target % SLOTS
        length %= len(self.tokens[source]) + 1
        self.engine.move(source, target, length)
        self.tokens[target] = self.tokens[source][:length]

    def carry(self, source: int, target: int, cut: int) -> None:
        """Export a slot in two blocks into another."""
        source, target = source % SLOTS, target % SLOTS
        stop = len(self.tokens[source])
        cut %= stop + 1
        blocks = [self.engine.export(source, 0, cut), self.engine.export(source, cut, stop)]
        assert self.engine.import_(target, 0, blocks[0]) == self.engine.import_(target, cut, blocks[1]) == 0
        assert np.array_equal(self.engine.export(target, 0, stop), np.concatenate(blocks, axis=3))
        self.tokens[target] = [*self.tokens[source]]


BEYOND = [-1, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_out_of_bounds_are_refused_and_nothing_is_done(library: Library, threads: int) -> None:
    weights = Weights.random(SHAPE, "int8", 1, low=False, at_end=True)
    with opened(library, weights, slots=2, capacity=32, threads=threads, max_step_tokens=8) as engine:
        good = [(5, 0, 0), (6, 0, 1), (7, 1, 0)]
        engine.step(good, [1, 2])
        before = engine.export(0, 0, 32), engine.export(1, 0, 32)
        wrong: list[tuple[Rows, list[int], int | None, int | None]] = [
            *(([(value, 0, 0)], [0], None, None) for value in (*BEYOND, SHAPE.vocab_size)),
            *(([*good[:2], (7, value, 0)], [0], None, None) for value in (*BEYOND, 2)),
            *(([(7, 1, 0), (5, 0, value)], [0], None, None) for value in (*BEYOND, 32)),
            *((good, [0, value], None, None) for value in (*BEYOND, 3)),
            *((good, [0], tokens, None) for tokens in (*BEYOND, 0, 9)),
            *((good, [0], None, wanted) for wanted in (*BEYOND, 4)),
        ]
        for rows, wanted, tokens, num_wanted in wrong:
            status, *outputs = engine.attempt(rows, wanted, tokens=tokens, num_wanted=num_wanted)
            assert (status, *[(each == -7).all() for each in outputs]) == (-1, True, True, True), (rows, wanted)
        for slot in (0, 1):
            assert np.array_equal(engine.export(slot, 0, 32), before[slot])


def test_kv_that_is_not_finite_is_refused_and_changes_nothing(library: Library) -> None:
    weights = Weights.random(SHAPE, "int8", 1, low=False, at_end=True)
    with opened(library, weights, slots=2, capacity=32, threads=1) as engine:
        engine.step([(5, 0, 0), (6, 0, 1), (7, 0, 2)], [])
        before = engine.export(0, 0, 3)
        for bits in (0x7F80, 0xFF80, 0x7FC0):
            spoilt = before.copy()
            spoilt.reshape(-1)[-1] = bits
            assert engine.import_(0, 0, spoilt) == -1
        assert np.array_equal(engine.export(0, 0, 3), before)


WRITE = """
import ctypes, sys
from pathlib import Path
from shared.model.folder import ModelFolder
from workers.engine.native.library import NativeWeights
weights = NativeWeights.map(ModelFolder.open(Path(sys.argv[1])), 32)
address = weights.addresses[3]
ctypes.string_at(address, 64)
print("read", flush=True)
ctypes.memset(address, 0, 1)
"""


def test_weights_can_be_read_and_never_written(tmp_path: Path, tiny_source: Path) -> None:
    """A write kills the process that tries."""
    folder = prepare_model(tmp_path, "int8", source=tiny_source)
    before = (folder.path / NATIVE).read_bytes()
    done = subprocess.run([sys.executable, "-c", WRITE, str(folder.path)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, b"read\n"), done.stderr
    assert (folder.path / NATIVE).read_bytes() == before
