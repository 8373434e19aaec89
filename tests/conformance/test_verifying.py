"""Every engine that verifies: tokens, logits and KV are those of plain steps for any proposed tokens."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.engine_cases import NATIVE_ENGINES, NUM_SLOTS, Case
from tests.conformance.test_engines import GREEDY, NUM_TOKENS, alone, fill_with_noise, prompts, samplings
from tests.unit.examples import examples
from workers.engine import MAX_PROPOSED, DecodeRow, PrefillChunk, Sampling, VerifyingEngine
from workers.engine.native.engine import NativeEngine

# How many of a proposal's first tokens are the right ones, and how many tokens it has.
proposals = st.tuples(st.integers(0, 6), st.integers(0, 6))
several = settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


VERIFYING = ("fake", *NATIVE_ENGINES)
those_that_verify = pytest.mark.parametrize("case", VERIFYING, indirect=True, scope="module")


def test_an_engine_says_whether_it_verifies_and_refuses_proposed_tokens_otherwise(
    case: Case, request: pytest.FixtureRequest
) -> None:
    assert case.engine.info.verifies is (request.node.callspec.params["case"] in VERIFYING)
    case.engine.prefill([PrefillChunk(slot=0, past=0, token_ids=[5, 6], sampling=None)])
    with pytest.raises(ValueError, match="at most 0 proposed tokens, got 1"):
        case.engine.decode([DecodeRow(slot=0, past=2, token_id=7, sampling=GREEDY, proposed=(8,))])


def verifying(case: Case) -> VerifyingEngine:
    assert isinstance(case.engine, VerifyingEngine)
    return case.engine


def proposed(answer: Sequence[int], done: int, right: int, length: int) -> tuple[int, ...]:
    """Return `length` proposed tokens after `answer[:done]`: the first `right` of them are the answer's, the others are
    wrong."""
    tokens = list(answer[done : done + length])
    return tuple([token if place < right else 3 + (token + 1) % 250 for place, token in enumerate(tokens)])


@those_that_verify
@several
@given(
    st.lists(st.tuples(prompts, samplings), min_size=1, max_size=NUM_SLOTS - 1),
    st.lists(proposals, min_size=1, max_size=20),
    st.booleans(),
)
def test_verified_tokens_and_kv_are_those_of_plain_steps(
    case: Case,
    requests: list[tuple[list[int], Sampling]],
    plan: list[tuple[int, int]],
    next_to_chunk: bool,
) -> None:
    """Also next to another prompt's chunk, in the same call."""
    engine = verifying(case)
    expected, kv = [], []
    for prompt, sampling in requests:
        expected.append(alone(engine, prompt, sampling))
        kv.append(engine.export_kv(slot=0, start=0, stop=len(prompt) + NUM_TOKENS - 1))
    fill_with_noise(engine)
    chunk = PrefillChunk(slot=NUM_SLOTS - 1, past=0, token_ids=list(range(10, 40)), sampling=None)
    got: list[list[int]] = []
    for slot, (prompt, sampling) in enumerate(requests):
        [token] = engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=sampling)])
        assert token is not None
        got.append([token])
    turns = iter(plan * NUM_TOKENS * len(requests))
    while any(len(tokens) < NUM_TOKENS for tokens in got):
        rows, rights = [], []
        for slot, ((prompt, sampling), tokens) in enumerate(zip(requests, got, strict=True)):
            if (done := len(tokens)) == NUM_TOKENS:
                continue
            right, length = next(turns)
            more = proposed(expected[slot], done, right, min(length, NUM_TOKENS - done - 1))
            rights.append(min(right, len(more)))
            rows.append(
                DecodeRow(slot=slot, past=len(prompt) + done - 1, token_id=tokens[-1], sampling=sampling, proposed=more)
            )
        verified = engine.verify([chunk] if next_to_chunk else [], rows)[1]
        assert [len(tokens) for tokens in verified] == [1 + right for right in rights], "all that is right is accepted"
        for row, tokens in zip(rows, verified, strict=True):
            got[row.slot] += tokens
    assert got == expected
    for slot, values in enumerate(kv):
        assert np.array_equal(engine.export_kv(slot=slot, start=0, stop=values.shape[3]), values)


@pytest.mark.parametrize("case", NATIVE_ENGINES, indirect=True, scope="module")
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 15, 16])
@pytest.mark.parametrize("right", [0, 1, 3, 16])
@pytest.mark.parametrize("others", [0, 1, NUM_SLOTS - 1])
def test_verified_logits_are_those_of_plain_steps_to_the_bit(case: Case, length: int, right: int, others: int) -> None:
    engine = case.engine
    assert isinstance(engine, NativeEngine)
    prompt = list(range(20, 57))
    [token] = engine.prefill([PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=GREEDY)])
    assert token is not None
    answer, logits = [token], []
    for past in range(len(prompt), len(prompt) + 17):
        answer += engine.decode([DecodeRow(slot=0, past=past, token_id=answer[-1], sampling=GREEDY)])
        logits.append(engine.logits[0].copy())
    rows = [DecodeRow(slot=0, past=len(prompt), token_id=token, sampling=GREEDY)]
    for slot in range(1, 1 + others):
        engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt[slot:], sampling=None)])
        rows.append(DecodeRow(slot=slot, past=len(prompt) - slot, token_id=9, sampling=GREEDY))
    more = proposed(answer, 1, right, length)
    rows[0] = DecodeRow(slot=0, past=len(prompt), token_id=token, sampling=GREEDY, proposed=more)
    tokens = engine.verify([], rows)[1][0]
    assert tokens == answer[1 : 2 + min(right, length)]
    for place in range(len(tokens)):
        assert engine.logits[place].tobytes() == logits[place].tobytes()


@those_that_verify
def test_too_many_proposed_tokens_are_refused(case: Case) -> None:
    engine = verifying(case)
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=[5, 6], sampling=None)])
    row = DecodeRow(slot=0, past=2, token_id=7, sampling=GREEDY, proposed=(8,) * (MAX_PROPOSED + 1))
    with pytest.raises(ValueError, match=f"at most {MAX_PROPOSED} proposed tokens, got {MAX_PROPOSED + 1}"):
        engine.verify([], [row])
    with pytest.raises(ValueError, match="at most 0 proposed tokens, got 1"):
        engine.mixed([], [DecodeRow(slot=0, past=2, token_id=7, sampling=GREEDY, proposed=(8,))])
