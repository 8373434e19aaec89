"""The figures that the benches print: numerators, denominators and what counts as failed."""

import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.client.outcome import Outcome
from ops.stack.processes import ServiceError
from shared.conversation.turn import Turn
from shared.wire.outcome import Reason, Status, Usage
from tests.bench import upstream
from tests.bench.bare_engine import generate
from tests.bench.cell import Measured, Target, report
from tests.bench.engines.llama import BatchedRow, PromptRow, measured, parse
from tests.bench.engines.own import OwnEngine
from tests.bench.engines.shape import write_gguf
from tests.bench.engines.timing import Decoded
from tests.bench.gateway.paced import delta_text, lateness_ms
from tests.bench.kv.client import Answered, Conversed
from tests.bench.kv.peer import ask_same
from tests.bench.kv.prompts import Asked, again
from tests.bench.llama_client import START, reach_peer
from tests.bench.stream import StreamOptions, ask_peer, figures_of, steady_tokens_per_s, tokens_between
from tests.support.models.fixtures import TINY
from tests.support.samples.prompts import MOST_TURNS, TEMPLATE, TURNS, build, said
from tests.support.servers.called_server import Call, CalledServer, Reply
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.fake import FakeEngine
from workers.graph.sources.opening import open_source
from workers.prompt.conversation import PromptBuilder

NEW_TOKENS = 12
SHORT = 9  # begins a prompt whose answer ends a token early


def cell(name: str, *rounds: dict[str, float | None], bases: tuple[str, ...] = ()) -> Measured:
    return Measured(name=name, bases=bases, rounds=list(rounds))


def test_ratios_compare_figures_of_the_same_round() -> None:
    """A machine that is twice as slow in one round is so for both sides, so the ratio stays."""
    ours = cell("ours", {"s": 3.0, "x": None}, {"s": 6.0, "x": 1.0}, {"s": 3.0, "x": 1.0})
    base = cell("base", {"s": 2.0, "x": 1.0}, {"s": 4.0, "x": 0.0}, {"s": 2.0, "x": 4.0})
    assert ours.ratios(base) == {"s": 1.5, "x": 0.25}
    assert ours.medians() == {"s": 3.0, "x": 1.0}
    assert "| s | 1.50 (1.50, 1.50, 1.50) |" in report([msgspec.structs.replace(ours, bases=("base",)), base], [])


def test_a_target_is_met_missed_or_not_measured_and_a_failure_misses_it() -> None:
    cells = [
        cell("base", {"tok_s": 100.0}),
        cell("fast", {"tok_s": 95.0, "failed": 0}, bases=("base",)),
        cell("torn", {"tok_s": 95.0, "failed": 2}, bases=("base",)),
    ]
    targets = [Target(cell=name, figure="tok_s", base="base", value=0.9, at_least=True) for name in ("fast", "torn")]
    targets += [Target(cell="fast", figure="p50_ms", value=2.0), Target(cell="absent", figure="p50_ms", value=2.0)]
    said = report(cells, targets).splitlines()
    assert said[-3:] == [
        "fast of base, tok_s: 0.95 (≥ 0.9 met)",
        "torn of base, tok_s: 0.95 (≥ 0.9 missed: 2 failed)",
        "fast, p50_ms: – (≤ 2.00 not measured)",
    ]
    assert "| tok_s | 0.95 | 0.95 |" in said


def test_engine_and_llama_cpp_figures_count_all_rows_of_a_batch() -> None:
    """1.9 of 2.0 s are spent in the runtime, a twentieth in Python. llama.cpp's benches print rows among
    other output.
    """
    step = Decoded(rows=4, context=64, steps=63, seconds=2.0, rss_mib=100.04, runtime_s=1.9)
    assert step.figures() == {"decode_tok_s 4 x 64": 126.0, "rss_mib 4 x 64": 100.0, "python 4 x 64": 0.05}
    row = {"n_kv_max": 2048, "n_batch": 2048, "pp": 64, "tg": 64, "pl": 4, "n_kv": 512, "t_pp": 0.5, "t_tg": 2.0}
    said = [b"load: printing all EOG tokens:", json.dumps(row).encode(), b"", b"{broken", b"llama_perf: 1 ms"]
    prompt = {"n_prompt": 256, "n_gen": 0, "n_depth": 600, "avg_ns": 9, "samples_ns": [10**9, 2**40, 5 * 10**8]}
    prompts = parse("llama-bench", [json.dumps(prompt).encode()], PromptRow)
    rows = parse("llama-batched-bench", said, BatchedRow)
    found = measured(rows, prompts, "tiny", Path("Q4_0.gguf"), rss_mib=50.0).figures()
    assert found == {
        "decode_tok_s 4 x 64": 128.0,
        "rss_mib 4 x 64": 50.0,
        "prefill_tok_s 256 over 600": 256.0,
    }
    with pytest.raises(ServiceError, match="llama-bench printed no result"):
        parse("llama-bench", [b"error: invalid parameter for argument: -npp"], PromptRow)


def test_a_random_models_file_has_the_shape_it_was_written_for(tmp_path: Path) -> None:
    """It has more tokens than the vocabulary that it borrows; its activations neither vanish nor explode."""
    shape = msgspec.structs.replace(TINY, vocab_size=49_200)
    write_gguf(shape, tmp_path / "random.gguf")
    checkpoint = open_source(tmp_path / "random.gguf").checkpoint
    assert msgspec.structs.replace(checkpoint.architecture, norm_epsilon=TINY.norm_epsilon) == shape
    assert checkpoint.read("layers.1.mlp.down_proj").std() == pytest.approx(shape.intermediate_size**-0.5, rel=0.05)


def test_only_complete_model_answers_count_as_answered() -> None:
    """A fallback, a refusal and a cut answer count as failed, although their prompts were computed."""
    whole = Answered(ttft_ms=200.0, prompt_tokens=300, cached_tokens=200, output_tokens=20, by_model=True)
    cut = Answered(ttft_ms=100.0, prompt_tokens=300, cached_tokens=200)
    assert Conversed(elapsed_s=2.0, answers=[whole, whole, cut, Answered()]).figures() == {
        "answers_per_s": 1.0,
        "ttft_p50_ms": 200.0,
        "prompt_tokens": 900,
        "computed_tokens": 300,
        "output_tokens": 40,
        "failed": 2,
    }


@given(turns=TURNS)
def test_the_peer_gets_a_prompt_only_with_the_token_count_of_the_worker(turns: list[Turn]) -> None:
    """History is counted token by token; a turn without a model answer adds none."""
    turns = [turn for turn in turns if turn.user]
    prompts = [
        build(turn.user, grounding=turn.grounding, turns=turns[:number]).ids for number, turn in enumerate(turns)
    ]
    counted = [
        msgspec.structs.replace(turn, usage=Usage(input_tokens=len(ids), output_tokens=7))
        for turn, ids in zip(turns, prompts, strict=True)
    ]
    builder = PromptBuilder(TEMPLATE, system="S", most_turns=MOST_TURNS).build
    by_faq = said("Hours?", "Nine to five.", source="faq")
    assert again([*counted, by_faq], builder, 10_000) == [Asked(ids=list(ids), new_tokens=7) for ids in prompts]
    with pytest.raises(ServiceError, match="turn 1: the worker counted 1 tokens"):
        again([said("q?", "a", usage=Usage(input_tokens=1))], builder, 10_000)


def test_a_peer_that_does_not_answer_is_reported_before_anything_is_measured() -> None:
    for not_connected in (None, START):
        reach_peer(not_connected)
    with pytest.raises(ServiceError, match=r"--peer http://127.0.0.1:1: .*; is a llama-server there\?"):
        reach_peer("http://127.0.0.1:1")


async def test_the_peer_gets_tokens_and_must_write_as_many_as_replyline() -> None:
    """The peer decodes greedily, with its cache, and must not stop early; an answer that stops early counts
    as failed.
    """

    def answer(call: Call) -> Reply:
        body = json.loads(call.body)
        end = {"tokens_predicted": body["n_predict"] - (body["prompt"][0] == SHORT), "tokens_evaluated": 3}
        chunks = [{"content": "a", "stop": False}, {"content": "", "stop": True, "timings": {"cache_n": 2}, **end}]
        return Reply(body="".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode())

    with CalledServer(answer).serve() as peer:
        whole, short = (ask_same(peer.url, Asked(ids=[first, 5, 6], new_tokens=NEW_TOKENS)) for first in (4, SHORT))
        assert (whole.by_model, whole.prompt_tokens, whole.cached_tokens, short.by_model) == (True, 3, 2, False)
        options = StreamOptions(clients=1, requests=3, max_output_tokens=NEW_TOKENS)
        figures = await ask_peer(peer.url, [[4]] * 4 + [[SHORT]], options)
    assert (figures["failed"], len(peer.calls)) == (1, 7)
    body = json.loads(peer.calls[0].body)
    assert (body["prompt"], body["n_predict"], body["temperature"]) == ([4, 5, 6], NEW_TOKENS, 0.0)
    assert body["ignore_eos"]
    assert body["cache_prompt"]


@given(dues_s=st.lists(st.floats(0, 1e8), max_size=5), later_s=st.floats(0, 10))
def test_merged_deltas_keep_the_lateness_of_each_delta(dues_s: list[float], later_s: float) -> None:
    """A gateway that merges deltas does not hide the lateness of the first one."""
    now_s = max(dues_s, default=0.0) + later_s
    late = lateness_ms("".join(map(delta_text, dues_s)), now_s)
    assert late == pytest.approx([(now_s - due_s) * 1_000 for due_s in dues_s], abs=0.01)


class CountingEngine(FakeEngine):
    """Its answers end after two tokens if the caller respects stop tokens."""

    def __init__(self) -> None:
        super().__init__(num_slots=4, max_length=512, mean_answer_tokens=2)
        self.decoded: list[int] = []

    def decode(self, rows: list[DecodeRow]) -> list[int]:
        self.decoded.append(len(rows))
        return super().decode(rows)


def test_the_engine_bench_fills_every_row_in_every_step() -> None:
    """Counting only tokens before a stop token would understate the engine."""
    engine = CountingEngine()
    outputs = generate(engine, [[5, 6, 7]] * 4, NEW_TOKENS)
    assert [len(row) for row in outputs] == [NEW_TOKENS] * 4
    assert engine.decoded == [4] * (NEW_TOKENS - 1)


class MixingFake(FakeEngine):
    """Reports the prompts of its mixed steps."""

    def __init__(self) -> None:
        super().__init__(num_slots=4, max_length=512)
        self._info = dataclasses.replace(self._info, mixes=True)
        self.chunks: list[PrefillChunk] = []

    def mixed(self, chunks: list[PrefillChunk], rows: list[DecodeRow]) -> tuple[list[int | None], list[int]]:
        self.chunks += chunks
        return self.prefill(chunks), self.decode(rows)


def test_every_row_holds_its_context_before_measurement_begins() -> None:
    """With another context, more rows, a prompt after a past or a mixed step whose prompt takes the next slot, each row
    starts at its position with all earlier tokens computed.
    """
    engine = MixingFake()
    subject = OwnEngine(engine=engine, clock=None, chunk=32, tokens=list(range(1, 257)) * 2, what={})
    for context, rows in ((64, 1), (64, 3), (100, 3)):
        subject.decode(rows, context, NEW_TOKENS)
        held = [engine.export_kv(slot=slot, start=0, stop=context) for slot in range(rows)]
        assert all(np.array_equal(one, held[0]) and one.all() for one in held)
    assert subject.prefill(48, 200) is not None
    assert engine.export_kv(slot=0, start=0, stop=248).all()
    assert subject.mixed(3, 64, 128) is not None
    assert {(chunk.slot, chunk.past, len(chunk.token_ids)) for chunk in engine.chunks} == {(3, 0, 128)}
    assert subject.full == 3, "the slot of the mixed step's prompt is no copy any more"


def outcome(
    at_s: float, *, tokens: int = NEW_TOKENS, status: Status = "incomplete", reason: Reason = "max_output_tokens"
) -> Outcome:
    ended = {"source": "model", "status": status, "reason": reason, "output_tokens": tokens, "text": "text"}
    times = {"scheduled_s": at_s, "first_s": at_s + 0.2, "last_s": at_s + 0.9, "done_s": at_s + 1.0}
    return Outcome(deadline_ms=60_000, **times, **ended)  # type: ignore[arg-type]


def test_an_answer_of_another_length_counts_as_failed() -> None:
    """Its time differs, so its tokens per second cannot be compared."""
    whole = [outcome(at) for at in range(4)]
    ended = outcome(4, tokens=3, status="completed", reason="stop")
    found = figures_of([*whole, ended], warmup=1, new_tokens=NEW_TOKENS, expected=["text", "text", "other"])
    assert (found["failed"], found["same_text"]) == (1, pytest.approx(2 / 3))


@given(cut_s=st.floats(0, 1))
def test_window_token_counts_add_up_and_the_steady_rate_excludes_start_and_end(cut_s: float) -> None:
    """If a window is split anywhere, no token is lost or counted twice."""
    one = outcome(0.0)
    assert tokens_between([one], -1, cut_s) + tokens_between([one], cut_s, 2) == pytest.approx(NEW_TOKENS)
    assert steady_tokens_per_s([outcome(float(at)) for at in range(10)], warmup=2) == pytest.approx(NEW_TOKENS)


def test_upstream_answers_count_for_the_model_only_if_complete_and_in_time() -> None:
    """The FAQ's answer at the deadline is in time but not the model's; a missing answer is an error."""
    whole = {"source": "model", "status": "completed", "reason": "stop", "first_s": 0.5}
    outcomes = [
        Outcome(scheduled_s=0.0, deadline_ms=2_000, done_s=1.0, **whole),
        Outcome(scheduled_s=0.0, deadline_ms=2_000, done_s=2.1, **whole),
        Outcome(scheduled_s=0.0, deadline_ms=2_000, done_s=2.1, source="faq", status="completed", reason="stop"),
        Outcome(scheduled_s=0.0, deadline_ms=2_000, done_s=1.0, source="model", status="failed", reason="internal"),
        Outcome(scheduled_s=0.0, deadline_ms=2_000, error="timeout"),
    ]
    behind = upstream.figures_of(outcomes)
    assert behind == {"asked": 5, "model_in_time": 1, "any_in_time": 3, "errors": 2, "first_text_p50_ms": 500.0}
    figures = upstream.compared(upstream.figures_of(outcomes[-1:]), behind)
    assert (figures["in_time_ratio"], figures["first_text_more_ms"]) == (1.0, None), (
        "the same result for no answers as for one"
    )
