"""What the GPU engine does beyond the conformance suite (padding, memory, streams, what crosses), on the CPU."""

from collections.abc import Iterator

import numpy as np
import pytest

from shared.errors import EngineError
from shared.model.folder import ModelFolder
from tests.support.models.onnx_device import OnnxDevice, on_the_cpu
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.device import tokens as tokens_module
from workers.engine.device.kv import DeviceKv
from workers.engine.tensorrt.engine import TensorrtEngine

NUM_SLOTS = 6
MAX_LENGTH = 96
GREEDY = Sampling()
PROMPT = list(range(10, 40))
# By its largest logit, from its candidates (twice), from a block, by the whole row.
SAMPLINGS = (
    GREEDY,
    Sampling(temperature=0.8, top_p=0.7, seed=3),
    Sampling(temperature=0.8, top_p=0.95, seed=4),
    Sampling(temperature=1.3, seed=5),
    Sampling(temperature=1e-6, top_p=0.5, seed=6),
)


@pytest.fixture
def device() -> OnnxDevice:
    return OnnxDevice()


@pytest.fixture
def engine(slots_folder: ModelFolder, device: OnnxDevice) -> Iterator[TensorrtEngine]:
    engine = on_the_cpu(slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH, device=device)
    yield engine
    engine.close()


def prefill(engine: TensorrtEngine, slot: int, prompt: list[int], sampling: Sampling | None = GREEDY) -> int | None:
    return engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=sampling)])[0]


def decode(engine: TensorrtEngine, tokens: list[int], past: int, samplings: tuple[Sampling, ...] = ()) -> list[int]:
    """A step of the first slots, all of which hold `past` tokens."""
    chosen = samplings or (GREEDY,) * len(tokens)
    rows = [DecodeRow(slot=slot, past=past, token_id=token, sampling=chosen[slot]) for slot, token in enumerate(tokens)]
    return engine.decode(rows)


def test_padding_leaves_slots_in_use_as_they_were(engine: TensorrtEngine) -> None:
    """Three rows are computed as four; the fourth slot is full to its last token, and nothing of it changes."""
    for slot in range(NUM_SLOTS):
        prefill(engine, slot, [slot + 5] * MAX_LENGTH)
    before = [engine.export_kv(slot=slot, start=0, stop=MAX_LENGTH) for slot in range(NUM_SLOTS)]
    for rows in (1, 3, 5):
        decode(engine, [7] * rows, MAX_LENGTH - 1)
        for slot in range(rows, NUM_SLOTS):
            np.testing.assert_array_equal(engine.export_kv(slot=slot, start=0, stop=MAX_LENGTH), before[slot])


def test_nothing_is_allocated_once_it_is_loaded(engine: TensorrtEngine, device: OnnxDevice) -> None:
    """Over a thousand pieces of work of every kind."""
    loaded = device.num_allocations
    for step in range(200):
        prefill(engine, step % NUM_SLOTS, PROMPT[: 1 + step % 30])
        decode(engine, [step] * (1 + step % NUM_SLOTS), 5, (*SAMPLINGS, GREEDY))
        values = engine.export_kv(slot=0, start=0, stop=4)
        engine.import_kv(slot=1, start=0, values=values)
        engine.move(source=1, target=2, length=4)
    assert device.num_allocations == loaded


def test_what_crosses_does_not_change_the_token(engine: TensorrtEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a part of a row or from the whole: the same token, in prefill and decode."""

    def answers() -> list[list[int | None]]:
        first = [prefill(engine, slot, PROMPT, sampling) for slot, sampling in enumerate(SAMPLINGS)]
        seen: list[list[int | None]] = [first]
        for past in range(len(PROMPT), len(PROMPT) + 12):
            seen.append([*decode(engine, [int(token or 0) for token in seen[-1]], past, SAMPLINGS)])
        return seen

    crossed: list[Sampling] = []
    whole_row = tokens_module.TokenReader._from_whole_row

    def counted(reader: tokens_module.TokenReader, row: int, sampling: Sampling, position: int) -> int:
        crossed.append(sampling)
        return whole_row(reader, row, sampling, position)

    monkeypatch.setattr(tokens_module.TokenReader, "_from_whole_row", counted)
    expected = answers()
    greedy, narrow, wide, everything, freezing = (crossed.count(sampling) for sampling in SAMPLINGS)
    assert (greedy, freezing) == (0, 13)
    assert narrow + wide + everything <= 2  # of 39: a row crosses whole where rounding might decide
    monkeypatch.setattr(tokens_module, "from_a_part", lambda _sampling: False)
    assert answers() == expected


def test_an_import_goes_on_while_other_slots_are_computed(engine: TensorrtEngine, device: OnnxDevice) -> None:
    _, copies = device.streams
    prefill(engine, 0, PROMPT)
    values = engine.export_kv(slot=0, start=0, stop=len(PROMPT))
    engine.import_kv(slot=5, start=0, values=values)
    decode(engine, [7, 8], 20)
    assert copies.num_waiting > 0
    prefill(engine, 5, [9], None)
    assert copies.num_waiting == 0


def test_an_import_of_more_than_a_buffer_holds_is_whole(
    engine: TensorrtEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [3 + (7 * i) % 250 for i in range(MAX_LENGTH)]
    prefill(engine, 0, prompt)
    whole = engine.export_kv(slot=0, start=0, stop=MAX_LENGTH)
    monkeypatch.setattr("workers.engine.device.kv._STAGED_TOKENS", 7)
    np.testing.assert_array_equal(engine.export_kv(slot=0, start=0, stop=MAX_LENGTH), whole)
    for slot in (3, 4):
        engine.import_kv(slot=slot, start=0, values=whole)
    for slot in (3, 4):
        np.testing.assert_array_equal(engine.export_kv(slot=slot, start=0, stop=MAX_LENGTH), whole)


def test_this_device_shows_an_import_that_is_not_waited_for(
    engine: TensorrtEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite's own teeth: an engine that forgets to wait gives other tokens here."""
    prefill(engine, 0, PROMPT)
    values = engine.export_kv(slot=0, start=0, stop=len(PROMPT))
    expected = decode(engine, [7], len(PROMPT))
    prefill(engine, 0, PROMPT[::-1])
    engine.import_kv(slot=0, start=0, values=values)
    monkeypatch.setattr(DeviceKv, "await_imports", lambda _kv, _slots: None)
    assert decode(engine, [7], len(PROMPT)) != expected


def test_logits_that_are_no_numbers_are_an_error(engine: TensorrtEngine) -> None:
    prefill(engine, 0, PROMPT)
    values = engine.export_kv(slot=0, start=0, stop=4)
    engine.import_kv(slot=0, start=0, values=np.full_like(values, np.nan))
    for sampling in SAMPLINGS:
        with pytest.raises(EngineError, match="logits that are not finite; restart the worker"):
            decode(engine, [7], len(PROMPT), (sampling,))


@pytest.mark.parametrize("max_length", [0, 104])
def test_sequences_longer_than_the_slots_are_refused(slots_folder: ModelFolder, max_length: int) -> None:
    with pytest.raises(ValueError, match=f"max_length must be 1 to 103, got {max_length}"):
        on_the_cpu(slots_folder, num_slots=2, max_length=max_length)
