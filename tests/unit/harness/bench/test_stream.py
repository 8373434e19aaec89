"""What `replyline bench stream` divides by what: answers of one length, and a bound that nothing exceeds."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.client.outcome import Outcome
from ops.model.prepare import prepare_model
from shared.model.folder import CHATML, ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.wire.messages import Reason, Status
from tests.bench.bare_engine import generate, run
from tests.bench.stream import figures_of, fit, steady_tokens_per_s, tokens_between, unending
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.fake import FakeEngine
from workers.loading import LoadedModel, chat_template

BATCH, NEW_TOKENS = 4, 12
ANSWER = Outcome(
    scheduled_s=10.0, deadline_ms=1_000, first_s=10.1, last_s=10.4, done_s=10.5, source="model", status="completed",
    reason="stop", output_tokens=4,
)  # fmt: skip


class CountingEngine(FakeEngine):
    """Says how many rows each call had. Its answers end after some two tokens, if anybody heeds that."""

    def __init__(self) -> None:
        super().__init__(num_slots=BATCH, max_length=512, max_prefill_rows=3, mean_answer_tokens=2)
        self.prefilled: list[int] = []
        self.decoded: list[int] = []

    def prefill(self, chunks: list[PrefillChunk]) -> list[int | None]:
        self.prefilled.append(len(chunks))
        return super().prefill(chunks)

    def decode(self, rows: list[DecodeRow]) -> list[int]:
        self.decoded.append(len(rows))
        return super().decode(rows)


def test_the_engine_alone_has_every_row_full_in_every_step_to_the_last_token() -> None:
    """Whatever ends early: who counts only what stands before a stop token divides by less than the engine can do."""
    engine = CountingEngine()
    tokenizer = Tokenizer.byte_level()
    model = LoadedModel(engine, tokenizer, chat_template(tokenizer, CHATML))
    found = run(model, [f"question {number}" for number in range(2 * BATCH)], batch=BATCH, new_tokens=NEW_TOKENS)
    assert len(found.answers) == 2 * BATCH
    assert set(engine.decoded) == {BATCH}
    assert len(engine.decoded) == 3 * (NEW_TOKENS - 1), "the first batch is computed twice"
    assert found.tok_s > 0


def test_prompts_are_prefilled_in_as_few_calls_as_the_engine_allows() -> None:
    engine = CountingEngine()
    outputs = generate(engine, [[5, 6, 7]] * BATCH, NEW_TOKENS).rows
    assert engine.prefilled == [3, 1]
    assert [len(row) for row in outputs] == [NEW_TOKENS] * BATCH


def test_a_model_without_an_end_is_the_same_but_for_its_stop_tokens(tmp_path: Path, tiny_source: Path) -> None:
    folder = prepare_model(tmp_path, "fp32", source=tiny_source)
    with unending(folder.path) as path:
        copy = ModelFolder.open(path, verify=True)
        assert copy.manifest == msgspec.structs.replace(folder.manifest, stop_token_ids=())
        assert path.name == folder.path.name
    assert not path.exists()
    assert ModelFolder.open(folder.path, verify=True).manifest.stop_token_ids


def outcome(
    at: float, *, tokens: int = NEW_TOKENS, status: Status = "incomplete", reason: Reason = "max_output_tokens"
) -> Outcome:
    ended = {"source": "model", "status": status, "reason": reason, "output_tokens": tokens, "text": "text"}
    return Outcome(scheduled_s=at, deadline_ms=60_000, first_s=at + 0.1, last_s=at + 1, done_s=at + 1, **ended)


def test_an_answer_of_another_length_has_failed() -> None:
    """It took another time: as many tokens a second say another thing."""
    expected = ["text", "text", "other"]
    whole = [outcome(at) for at in range(4)]
    assert figures_of(whole, warmup=1, new_tokens=NEW_TOKENS, expected=expected)["failed"] == 0
    ended = outcome(4, tokens=3, status="completed", reason="stop")
    found = figures_of([*whole, ended], warmup=1, new_tokens=NEW_TOKENS, expected=expected)
    assert (found["failed"], found["same_text"]) == (1, pytest.approx(2 / 3))


@given(num_tokens=st.integers(min_value=12, max_value=400), seed=st.integers())
def test_fit_fills_the_length_and_does_not_pass_it(num_tokens: int, seed: int) -> None:
    """By whatever way of counting: here a token is up to four characters."""

    def count(text: str) -> int:
        return -(-len(text) // 4)

    text = fit("Explain these words:", num_tokens, seed, count)
    assert text.startswith("Explain these words:")
    assert num_tokens - 3 <= count(text) <= num_tokens


@given(cut=st.floats(min_value=10.0, max_value=10.5))
def test_tokens_of_a_window_add_up(cut: float) -> None:
    """Wherever a window is cut in two, no token is lost and none counted twice."""
    whole = tokens_between([ANSWER], 9.0, 11.0)
    assert whole == pytest.approx(4)
    assert tokens_between([ANSWER], 9.0, cut) + tokens_between([ANSWER], cut, 11.0) == pytest.approx(whole)


def test_the_steady_rate_leaves_out_start_and_end() -> None:
    """Answers back to back by one client: the rate is that of one answer, whatever the first and last did."""
    outcomes = [
        dataclasses.replace(
            ANSWER, scheduled_s=float(at), first_s=at + 0.2, last_s=at + 0.9, done_s=at + 1.0, output_tokens=8
        )
        for at in range(10)
    ]
    assert steady_tokens_per_s(outcomes, warmup=2) == pytest.approx(8)
    assert steady_tokens_per_s(outcomes[:1], warmup=0) == 0
