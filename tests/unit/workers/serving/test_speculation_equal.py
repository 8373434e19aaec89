"""With verified tokens and without: the same text, ends, counts and kept KV."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.model.tokenizer import BYTE_LEVEL_SPECIALS
from shared.wire.session_key import SessionKey
from tests.support.builders.worker import Bench, answer
from workers.answer.guard import FactGuard
from workers.engine import Sampling
from workers.engine.fake import FakeEngine
from workers.request.job import Job
from workers.schedule.costs import CostModel, Law
from workers.schedule.sequence import Sequence

WORDS = b"we are open from nine to five and on "
# A step's first row takes nearly all of its time.
DECODE, PREFILL = Law((10.0, 0.01, 0.0), 0.1), Law((0.001, 0.01, 0.0, 0.0), 0.1)


def make_bench(engine: FakeEngine, *, speculates: bool) -> Bench:
    costs = CostModel(decode=DECODE, prefill=PREFILL, mixes=True)
    return Bench(engine=engine, speculates=speculates, reuse_kv=True, costs=costs)


class RepeatingEngine(FakeEngine):
    """It repeats its words, but for one token in nine, which depends on every token before it."""

    def __init__(self, mean_answer_tokens: int | None) -> None:
        super().__init__(num_slots=3, max_length=512, mixes=True, mean_answer_tokens=mean_answer_tokens)
        self.num_calls = 0

    def _next_token(self, slot: int, length: int, sampling: Sampling) -> int:
        token_id = super()._next_token(slot, length, sampling)
        if token_id == self._stop_token_id or token_id in self._vocabulary[:3]:
            return token_id
        return len(BYTE_LEVEL_SPECIALS) + WORDS[length % len(WORDS)]

    def _compute(self, *work: Any) -> Any:
        self.num_calls += 1
        return super()._compute(*work)


def answered(
    *, speculates: bool, arrange: Callable[[list[Job]], None], mean_answer_tokens: int | None, stops: tuple[str, ...]
) -> tuple[list[Any], list[Any], int]:
    """Return how four answers ended, the KV that was kept, and the number of calls."""
    engine = RepeatingEngine(mean_answer_tokens)
    bench = make_bench(engine, speculates=speculates)
    kept: list[Any] = []

    def keep(sequence: Sequence, start: int, values: Any) -> None:
        kept.append((sequence.request_id, start, values.tobytes()))

    bench.engine_loop.keep = keep
    jobs = [bench.accept(number, output=100 + number, stops=stops) for number in range(4)]
    for number, job in enumerate(jobs):
        job.sequence.prompt_ids = [5 + number, 6, 7, *(len(BYTE_LEVEL_SPECIALS) + byte for byte in WORDS)]
        job.sequence.session = SessionKey("t", f"s{number}")
    arrange(jobs)
    bench.run()
    ends = sorted((end.request_id, end.status, end.reason, end.output_text, end.usage) for end in bench.ends())
    return ends, sorted(kept), engine.num_calls


def nothing(jobs: list[Job]) -> None:
    """Leave the answers greedy and unguarded."""


def sampled(jobs: list[Job]) -> None:
    for number, job in enumerate(jobs):
        job.sequence.sampling = Sampling(temperature=0.8, top_p=0.9, seed=number)


def guarded(jobs: list[Job]) -> None:
    for job in jobs:
        job.sequence.held = True
        job.answer = answer(job.id, guard=FactGuard((), ("hi",)))


def short(jobs: list[Job]) -> None:
    for number, job in enumerate(jobs):
        job.sequence.max_output_tokens = 1 + number * 17


@pytest.mark.parametrize("mean_answer_tokens", [None, 40])
@pytest.mark.parametrize("stops", [(), ("five and",), ("n t", "ni")])
@pytest.mark.parametrize("arrange", [nothing, sampled, guarded, short])
def test_answers_and_kept_kv_are_the_same_with_verified_tokens(
    arrange: Callable[[list[Job]], None], stops: tuple[str, ...], mean_answer_tokens: int | None
) -> None:
    how: Any = {"arrange": arrange, "stops": stops, "mean_answer_tokens": mean_answer_tokens}
    plain, plain_kv, plain_calls = answered(speculates=False, **how)
    ends, kv, calls = answered(speculates=True, **how)
    assert ends == plain
    assert kv == plain_kv
    assert calls < plain_calls or plain_calls < 30, "some of them were accepted"


@pytest.mark.parametrize("after", range(4, 12))
def test_an_answer_cancelled_between_two_steps_has_a_beginning_of_its_text(after: int) -> None:
    [(_, _, _, whole, _), *_], _, _ = answered(speculates=False, arrange=nothing, mean_answer_tokens=None, stops=())
    bench = make_bench(RepeatingEngine(None), speculates=True)
    job = bench.accept(0, output=100)
    job.sequence.prompt_ids = [5, 6, 7, *(len(BYTE_LEVEL_SPECIALS) + byte for byte in WORDS)]
    for _ in range(after):
        bench.step()
    bench.engine_loop.cancel(job.id)
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason) == ("cancelled", "client")
    assert whole.startswith(end.output_text)
    assert end.usage.output_tokens == len(end.output_text)
    assert job.sequence.computed == len(job.sequence.prompt_ids) + len(job.sequence.output_ids) - 1
