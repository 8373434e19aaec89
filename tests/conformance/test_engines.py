"""Every engine's contract with the worker: the same tokens, however the work is split, moved or resumed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

# tensorrt-on-cpu is the GPU engine on a device that runs its graphs on the CPU; on a GPU if there is one.
from tests.conformance.engine_cases import FOUND, GPU_ENGINES, MAX_LENGTH, NUM_SLOTS, TORCH_GPU, Case
from tests.support.models.native_library import native_library
from tests.support.not_run import name_not_run
from tests.unit.examples import examples
from workers.engine import DecodeRow, Engine, MixingEngine, PrefillChunk, Sampling
from workers.engine.native.build import KERNELS
from workers.engine.unusable import Unusable

NUM_TOKENS = 12
GREEDY = Sampling()

prompts = st.lists(st.integers(3, 258), min_size=1, max_size=48)
samplings = st.one_of(
    st.just(GREEDY),
    st.builds(Sampling, temperature=st.floats(0.3, 1.5), top_p=st.floats(0.2, 1.0), seed=st.integers(0, 2**63 - 1)),
)
several = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def test_engines_that_this_machine_cannot_run_are_named(pytestconfig: pytest.Config) -> None:
    """None is skipped silently: each is named with what is missing."""
    missing = {library: found.reason for library, found in FOUND.items() if isinstance(found, Unusable)}
    assert missing.keys() | set(GPU_ENGINES.values()) == FOUND.keys()
    for library, reason in missing.items():
        name_not_run(pytestconfig, f"engine {library} on a GPU: {reason}")
    for kernel in sorted({name for kernels in KERNELS.values() for name in kernels} - {*native_library().kernels}):
        name_not_run(pytestconfig, f"engine native by kernel {kernel}: this CPU has no such instructions")
    if isinstance(TORCH_GPU, Unusable):
        name_not_run(pytestconfig, "engine torch, which is not installed here; run: make test-torch")
    elif TORCH_GPU is None:
        name_not_run(pytestconfig, "engine torch on a GPU: torch finds none")


def test_an_engine_names_its_device(case: Case, request: pytest.FixtureRequest) -> None:
    """The worker uses it to choose the device whose health it watches."""
    name = request.node.callspec.params["case"]
    assert case.engine.info.device == ("gpu" if name.endswith(("-gpu", "-cuda")) else "cpu")


@dataclass(slots=True)
class Conversation:
    """A sequence in a slot: the prompt in its KV, and the tokens sampled so far (the last not in the KV yet)."""

    slot: int
    prompt: Sequence[int]
    sampling: Sampling
    tokens: list[int]

    @property
    def past(self) -> int:
        return len(self.prompt) + len(self.tokens) - 1


def start(engine: Engine, slot: int, prompt: Sequence[int], sampling: Sampling = GREEDY) -> Conversation:
    [token] = engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=sampling)])
    assert token is not None
    return Conversation(slot, prompt, sampling, [token])


def step(engine: Engine, conversations: Sequence[Conversation]) -> None:
    """Run one decode step for the conversations in slots 0 .. n-1."""
    rows = [
        DecodeRow(slot=c.slot, past=c.past, token_id=c.tokens[-1], sampling=c.sampling)
        for c in sorted(conversations, key=lambda c: c.slot)
    ]
    for conversation, token in zip(sorted(conversations, key=lambda c: c.slot), engine.decode(rows), strict=True):
        conversation.tokens.append(token)


def alone(engine: Engine, prompt: Sequence[int], sampling: Sampling = GREEDY, count: int = NUM_TOKENS) -> list[int]:
    """Return the reference answer: the whole prompt in one call, then one row a step."""
    conversation = start(engine, 0, prompt, sampling)
    while len(conversation.tokens) < count:
        step(engine, [conversation])
    return conversation.tokens


def fill_with_noise(engine: Engine) -> None:
    """Leave stale KV in every slot."""
    for slot in range(NUM_SLOTS):
        noise = [(slot * 31 + i * 7) % 250 + 3 for i in range(MAX_LENGTH - 1)]
        engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=noise, sampling=None)])


def test_answers_depend_on_every_token_of_the_prompt(case: Case) -> None:
    """Changing or swapping tokens changes the answer: otherwise the other tests would prove nothing."""
    prompt = list(range(10, 30))
    answers = [alone(case.engine, prompt), alone(case.engine, prompt[::-1]), alone(case.engine, [9, *prompt[1:]])]
    answers.append(alone(case.engine, [*prompt[:-1], 9]))
    assert len({tuple(answer) for answer in answers}) == len(answers)


@several
@given(st.lists(st.tuples(prompts, samplings), min_size=1, max_size=NUM_SLOTS))
def test_a_batch_gives_each_row_its_solo_result(case: Case, requests: list[tuple[list[int], Sampling]]) -> None:
    expected = [alone(case.engine, prompt, sampling) for prompt, sampling in requests]
    fill_with_noise(case.engine)
    chunks = [
        PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=sampling)
        for slot, (prompt, sampling) in enumerate(requests)
    ]
    first = case.engine.prefill(chunks)
    batch = [
        Conversation(slot, prompt, sampling, [token])
        for slot, ((prompt, sampling), token) in enumerate(zip(requests, first, strict=True))
        if token is not None
    ]
    for _ in range(NUM_TOKENS - 1):
        step(case.engine, batch)
    assert [conversation.tokens for conversation in batch] == expected


@several
@given(st.lists(st.tuples(prompts, samplings, st.integers(0, 8)), min_size=2, max_size=NUM_SLOTS))
def test_joining_and_leaving_in_any_order_changes_no_token(
    case: Case, requests: list[tuple[list[int], Sampling, int]]
) -> None:
    """Requests join while others decode; a finished one leaves, and the last slot is moved into its place."""
    expected = [alone(case.engine, prompt, sampling) for prompt, sampling, _ in requests]
    fill_with_noise(case.engine)
    waiting = sorted(range(len(requests)), key=lambda i: (requests[i][2], i))
    running: dict[int, Conversation] = {}
    done: dict[int, list[int]] = {}
    for now in range(1000):
        while waiting and requests[waiting[0]][2] <= now:
            index = waiting.pop(0)
            prompt, sampling, _ = requests[index]
            running[index] = start(case.engine, len(running), prompt, sampling)
        if running:
            step(case.engine, list(running.values()))
        for index in [i for i, c in running.items() if len(c.tokens) >= NUM_TOKENS]:
            done[index] = running[index].tokens
            leave(case.engine, running, index)
        if not running and not waiting:
            break
    assert [done[index] for index in range(len(requests))] == expected


def leave(engine: Engine, running: dict[int, Conversation], index: int) -> None:
    freed = running.pop(index).slot
    last = max(running.values(), key=lambda c: c.slot, default=None)
    if last is not None and last.slot > freed:
        engine.move(source=last.slot, target=freed, length=last.past)
        last.slot = freed


@several
@given(prompts, st.data())
def test_a_prompt_in_chunks_gives_the_same_tokens(case: Case, prompt: list[int], data: st.DataObject) -> None:
    expected = alone(case.engine, prompt)
    fill_with_noise(case.engine)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(prompt)).filter(lambda cut: cut < len(prompt)), max_size=5)))
    token: int | None = None
    for begin, end in zip([0, *cuts], [*cuts, len(prompt)], strict=True):
        sampling = GREEDY if end == len(prompt) else None
        [token] = case.engine.prefill(
            [PrefillChunk(slot=0, past=begin, token_ids=prompt[begin:end], sampling=sampling)]
        )
        assert (token is None) == (sampling is None)
    assert token is not None
    conversation = Conversation(0, prompt, GREEDY, [token])
    while len(conversation.tokens) < NUM_TOKENS:
        step(case.engine, [conversation])
    assert conversation.tokens == expected


@several
@given(st.lists(st.tuples(prompts, samplings), min_size=1, max_size=NUM_SLOTS), st.data())
def test_a_mixed_call_gives_each_row_and_chunk_its_solo_result(
    case: Case, request: pytest.FixtureRequest, requests: list[tuple[list[int], Sampling]], data: st.DataObject
) -> None:
    """Chunks of any prompts, of any sizes and in any order, run next to rows; a row with all of its tokens computes its
    last one again.
    """
    engine = case.engine
    if not isinstance(engine, MixingEngine) or not engine.info.mixes:
        name = request.node.callspec.params["case"]
        assert not engine.info.mixes, "an engine that claims to mix can"
        name_not_run(request.config, f"mixed calls of the engine {name}: it computes decode rows and prompts in turn")
        return
    expected = [alone(engine, prompt, sampling) for prompt, sampling in requests]
    fill_with_noise(engine)
    rows = [Conversation(slot, prompt, sampling, []) for slot, (prompt, sampling) in enumerate(requests)]
    done = [0] * len(rows)
    while any(len(row.tokens) < NUM_TOKENS for row in rows):
        ready = next((slot for slot, row in enumerate(rows) if not row.tokens), len(rows))
        decoded = [
            DecodeRow(slot=row.slot, past=row.past - again, token_id=row.tokens[-1 - again], sampling=row.sampling)
            for row in rows[:ready]
            for again in [len(row.tokens) == NUM_TOKENS]
        ]
        unread = [row.slot for row in rows if not row.tokens]
        chosen = data.draw(st.lists(st.sampled_from(unread), min_size=1, unique=True)) if unread else []
        chunks = []
        for slot in chosen:
            row, past = rows[slot], done[slot]
            done[slot] += data.draw(st.integers(1, len(row.prompt) - past))
            last = done[slot] == len(row.prompt)
            ids = row.prompt[past : done[slot]]
            chunks.append(PrefillChunk(slot=slot, past=past, token_ids=ids, sampling=row.sampling if last else None))
        first, tokens = engine.mixed(chunks, decoded) if chunks else ([], engine.decode(decoded))
        for row, token in zip(rows, tokens, strict=False):
            if len(row.tokens) == NUM_TOKENS:
                assert token == row.tokens[-1]
            else:
                row.tokens.append(token)
        for chunk, sampled in zip(chunks, first, strict=True):
            assert (sampled is None) == (chunk.sampling is None)
            rows[chunk.slot].tokens += [] if sampled is None else [sampled]
    assert [row.tokens for row in rows] == expected


@several
@given(prompts, samplings, st.integers(1, NUM_TOKENS - 1), st.integers(1, 16))
def test_another_engine_continues_from_exported_kv(
    case: Case, prompt: list[int], sampling: Sampling, taken: int, block: int
) -> None:
    """Blocks of any size, of prompt and answer alike, carry a sequence to another slot of another instance."""
    expected = alone(case.engine, prompt, sampling)
    fill_with_noise(case.other)
    conversation = start(case.engine, 0, prompt, sampling)
    while len(conversation.tokens) < taken:
        step(case.engine, [conversation])
    for begin in range(0, conversation.past, block):
        values = case.engine.export_kv(slot=0, start=begin, stop=min(begin + block, conversation.past))
        case.other.import_kv(slot=3, start=begin, values=values)
    case.other.move(source=3, target=0, length=conversation.past)
    while len(conversation.tokens) < NUM_TOKENS:
        step(case.other, [conversation])
    assert conversation.tokens == expected


@several
@given(prompts, samplings, st.integers(1, NUM_TOKENS - 1))
def test_a_recomputed_sequence_continues_unchanged(
    case: Case, prompt: list[int], sampling: Sampling, known: int
) -> None:
    """After a worker's death, prompt and known answer prefilled elsewhere as one give the same next token."""
    expected = alone(case.engine, prompt, sampling)
    again = [*prompt, *expected[:known]]
    [token] = case.other.prefill([PrefillChunk(slot=4, past=0, token_ids=again, sampling=sampling)])
    assert token == expected[known]


def test_exported_blocks_join_and_are_the_stated_size(case: Case) -> None:
    start(case.engine, 2, list(range(20, 50)))
    whole = case.engine.export_kv(slot=2, start=0, stop=30)
    parts = [case.engine.export_kv(slot=2, start=begin, stop=begin + 10) for begin in (0, 10, 20)]
    assert np.array_equal(whole, np.concatenate(parts, axis=3))
    layout = case.engine.info.kv_layout
    assert (whole.shape, whole.dtype) == (layout.shape(30), layout.numpy_dtype)
    case.other.import_kv(slot=5, start=0, values=whole)
    assert np.array_equal(case.other.export_kv(slot=5, start=0, stop=30), whole)


def test_a_prefix_from_kv_saves_its_computation(case: Case) -> None:
    """Importing a shared prefix and prefilling the rest equals prefilling all."""
    prompt = [*range(40, 72), *range(100, 120)]
    expected = alone(case.engine, prompt)
    prefix = case.engine.export_kv(slot=0, start=0, stop=32)
    fill_with_noise(case.other)
    case.other.import_kv(slot=0, start=0, values=prefix)
    [token] = case.other.prefill([PrefillChunk(slot=0, past=32, token_ids=prompt[32:], sampling=GREEDY)])
    assert token is not None
    conversation = Conversation(0, prompt, GREEDY, [token])
    while len(conversation.tokens) < NUM_TOKENS:
        step(case.other, [conversation])
    assert conversation.tokens == expected


def test_slots_do_not_affect_each_other(case: Case) -> None:
    """Work in neighbouring slots, up to their last token, leaves a slot's KV unchanged."""
    kept = list(range(60, 90))
    start(case.engine, 2, kept)
    before = case.engine.export_kv(slot=2, start=0, stop=30)
    for slot in (1, 3):
        start(case.engine, slot, [slot + 5] * MAX_LENGTH)
    start(case.engine, 0, [4] * (MAX_LENGTH - 1))
    case.engine.decode([DecodeRow(slot=0, past=MAX_LENGTH - 1, token_id=9, sampling=GREEDY)])
    assert np.array_equal(case.engine.export_kv(slot=2, start=0, stop=30), before)


def test_an_engine_that_mixes_computes_rows_of_any_slots(case: Case) -> None:
    """In any order; another engine uses the slots from the first on."""
    prompts = {3: list(range(10, 30)), 1: list(range(40, 55))}
    rows = {slot: start(case.other, slot, prompt) for slot, prompt in prompts.items()}
    calls = [DecodeRow(slot=c.slot, past=c.past, token_id=c.tokens[-1], sampling=GREEDY) for c in rows.values()]
    if case.other.info.mixes:
        expected = [alone(case.engine, prompt, count=2)[1] for prompt in prompts.values()]
        assert case.other.decode(calls) == expected
    else:
        with pytest.raises(ValueError, match="in order"):
            case.other.decode(calls)


def test_seeds_differ_and_repeat(case: Case) -> None:
    prompt = list(range(5, 25))
    answers = [alone(case.engine, prompt, Sampling(temperature=1.2, seed=seed)) for seed in (1, 2, 3, 1)]
    assert answers[0] == answers[3]
    assert len({tuple(answer) for answer in answers}) == 3


def test_only_chunks_that_request_it_are_sampled(case: Case) -> None:
    chunks = [
        PrefillChunk(slot=slot, past=0, token_ids=[7, 8, 9 + slot], sampling=GREEDY if slot == 1 else None)
        for slot in range(3)
    ]
    tokens = case.engine.prefill(chunks)
    assert [token is None for token in tokens] == [True, False, True]
    assert tokens[1] == start(case.engine, 0, [7, 8, 10]).tokens[0]


def chunk(slot: int = 0, past: int = 0, tokens: int = 3) -> PrefillChunk:
    return PrefillChunk(slot=slot, past=past, token_ids=[5] * tokens, sampling=GREEDY)


def row(slot: int = 0, past: int = 3) -> DecodeRow:
    return DecodeRow(slot=slot, past=past, token_id=5, sampling=GREEDY)


def mixed(engine: Engine, chunks: list[PrefillChunk], rows: list[DecodeRow]) -> None:
    if not isinstance(engine, MixingEngine):
        raise ValueError("mixes nothing")  # noqa: TRY004 - as a wrong call is refused
    engine.mixed(chunks, rows)


def kv(engine: Engine, tokens: int) -> NDArray[Any]:
    layout = engine.info.kv_layout
    return np.zeros(layout.shape(tokens), layout.numpy_dtype)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda e: e.prefill([]),
        lambda e: e.prefill([chunk(tokens=0)]),
        lambda e: e.prefill([chunk(slot=NUM_SLOTS)]),
        lambda e: e.prefill([chunk(slot=-1)]),
        lambda e: e.prefill([chunk(past=-1)]),
        lambda e: e.prefill([chunk(past=MAX_LENGTH - 2)]),
        lambda e: e.prefill([chunk(slot=0), chunk(slot=2)]),
        lambda e: e.prefill([chunk(slot=1), chunk(slot=0)]),
        lambda e: e.prefill([chunk(slot=0), chunk(slot=1, past=4)]),
        lambda e: e.prefill([chunk(slot=slot) for slot in range(NUM_SLOTS + 1)]),
        lambda e: mixed(e, [], []),
        lambda e: mixed(e, [chunk(slot=0)], [row()]),
        lambda e: mixed(e, [chunk(slot=2), chunk(slot=2)], [row()]),
        lambda e: mixed(e, [chunk(slot=1)], [row(slot=1)]),
        lambda e: mixed(e, [chunk(slot=slot) for slot in range(NUM_SLOTS + 1)], []),
        lambda e: e.decode([]),
        lambda e: e.decode([row(slot=0), row(slot=0)]),
        lambda e: e.decode([row(past=0)]),
        lambda e: e.decode([row(past=MAX_LENGTH)]),
        lambda e: e.move(source=0, target=NUM_SLOTS, length=1),
        lambda e: e.move(source=0, target=1, length=MAX_LENGTH + 1),
        lambda e: e.export_kv(slot=0, start=3, stop=2),
        lambda e: e.export_kv(slot=0, start=0, stop=MAX_LENGTH + 1),
        lambda e: e.import_kv(slot=0, start=0, values=kv(e, 3)[:, :, :, :, :0]),
        lambda e: e.import_kv(slot=0, start=0, values=kv(e, 3)[0]),
        lambda e: e.import_kv(slot=0, start=0, values=kv(e, 3).astype("<i2")),
        lambda e: e.import_kv(slot=0, start=MAX_LENGTH, values=kv(e, 1)),
    ],
)
def test_a_wrong_call_is_refused(case: Case, wrong: Callable[[Engine], object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        wrong(case.engine)


def test_closing_twice_is_harmless(case: Case) -> None:
    case.other.close()
    case.other.close()
