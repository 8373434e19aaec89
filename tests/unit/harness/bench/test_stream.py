"""What `replyline bench stream` divides by what: answers of one length, and a bound that nothing exceeds."""

from pathlib import Path

import msgspec
import pytest

from ops.client.outcome import Outcome
from ops.model.prepare import prepare_model
from shared.model.folder import CHATML, ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.wire.messages import Reason, Status
from tests.bench.bare_engine import generate, run
from tests.bench.stream import figures_of, unending
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.fake import FakeEngine
from workers.loading import LoadedModel, chat_template

BATCH, NEW_TOKENS = 4, 12


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
