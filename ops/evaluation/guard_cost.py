"""What the fact guard costs (`replyline eval --guard-cost`), and how long it holds an answer's beginning back.

The engine's loop as a worker runs it (scheduler, engine, answers; no broker), answering FAQ questions from their own
entries, a batch at a time: in turns with the guard and without, the order changing. And the guard alone, fed the same
answers token by token.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from numpy.typing import NDArray
from rich.console import Console

from ops.measure.quantiles import median, quantiles
from ops.measure.runner import progress_bar
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.faq.fallback import Fallback
from shared.process.clock import now_unix_ms
from shared.process.lifetime import settle_heap
from shared.records.requests import Defaults, settle
from shared.settings import Settings
from shared.wire.deadline import Deadline
from shared.wire.messages import ChatRequest, Grounding
from workers.answer.guard import FactGuard
from workers.answer.stream import Answer
from workers.engine import Sampling
from workers.loading import LoadedModel
from workers.prompt.conversation import Prompt, PromptBuilder
from workers.prompt.history_window import HistoryWindow
from workers.request.job import Job
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import build_scheduler
from workers.schedule.scheduler import SchedulerLimits
from workers.schedule.sequence import Sequence as TokenSequence
from workers.serving.engine_loop import EngineLoop, News

_HORIZON_MS: Final = 600_000


class GuardCost(Struct, frozen=True, kw_only=True):
    """`ratio` is the median over pairs of rounds of tokens a second with the guard over without. `us_per_token`: the
    guard alone; `us_per_answer`: making it. `held_tokens`: sampled before the first text is shown, without it 1."""

    ratio: float
    ratios: list[float]
    on_tok_s: float
    off_tok_s: float
    us_per_token: float
    us_per_answer: float
    held_tokens_p50: float
    held_tokens_p99: float
    replaced_share: float


class Asked(Struct, frozen=True):
    """A question and the entry that it is answered from."""

    grounding: Grounding
    prompt: Prompt


class Round(Struct, frozen=True):
    tok_s: float
    outputs: list[list[int]]
    replaced: int


def measure(
    model: LoadedModel, settings: Settings, console: Console, *, batch: int, rounds: int, new_tokens: int
) -> GuardCost:
    """Two rounds of each batch of questions, one with the guard; the batches in turn."""
    asked = _questions(model, settings)
    batches = [asked[at : at + batch] for at in range(0, len(asked) - batch + 1, batch)]
    settle_heap()
    _round(model, settings, batches[0], guarded=False, new_tokens=new_tokens)  # warm
    on: list[Round] = []
    off: list[Round] = []
    with progress_bar(console, "rounds", rounds) as progress:
        for number in range(rounds):
            chosen = batches[number % len(batches)]
            for guarded in (True, False) if number % 2 else (False, True):
                done = _round(model, settings, chosen, guarded=guarded, new_tokens=new_tokens)
                (on if guarded else off).append(done)
            progress(number + 1)
    spoken = [
        (each.grounding, tokens)
        for number, done in enumerate(off)
        for each, tokens in zip(batches[number % len(batches)], done.outputs, strict=True)
    ]
    per_token, per_answer, held = _alone(model, spoken)
    ratios = [with_it.tok_s / without.tok_s for with_it, without in zip(on, off, strict=True)]
    spread = quantiles(held, digits=1)
    return GuardCost(
        ratio=round(median(ratios), 4),
        ratios=[round(ratio, 4) for ratio in ratios],
        on_tok_s=round(median([done.tok_s for done in on]), 1),
        off_tok_s=round(median([done.tok_s for done in off]), 1),
        us_per_token=round(per_token, 2),
        us_per_answer=round(per_answer, 1),
        held_tokens_p50=spread.p50 or 0.0,
        held_tokens_p99=spread.p99 or 0.0,
        replaced_share=round(sum(done.replaced for done in on) / (len(on) * batch), 3),
    )


def _questions(model: LoadedModel, settings: Settings) -> list[Asked]:
    prompts = PromptBuilder(model.template, system=settings.worker.system_prompt, window=HistoryWindow("sliding", 0))
    asked = []
    for entry in read_entries(PACKAGED_PATH):
        if entry.language == "en":
            grounding = entry.as_grounding()
            prompt = prompts.build(
                turns=(), grounding=(grounding,), question=entry.alternatives[0], max_tokens=settings.worker.max_length
            )
            asked.append(Asked(grounding, prompt))
    return asked


def _round(model: LoadedModel, settings: Settings, asked: Sequence[Asked], *, guarded: bool, new_tokens: int) -> Round:
    """All of them at once, to their ends."""
    news: list[News] = []
    worker = settings.worker
    costs = CostModel.prior()
    limits = SchedulerLimits(
        num_slots=worker.slots,
        prefill_chunk_tokens=worker.prefill_chunk_tokens,
        max_prefill_rows=min(worker.slots, 8),
        stop_token_ids=model.engine.info.stop_token_ids,
    )
    loop = EngineLoop(
        engine=model.engine,
        scheduler=build_scheduler(limits=limits, costs=costs, lengths=OutputLengths()),
        costs=costs,
        tell=news.extend,
        interval_s=worker.reply_interval_ms / 1_000,
        keep=_keep_nothing,
    )
    defaults = Defaults.of(settings)
    jobs = [
        _job(model, each, defaults, number, guarded=guarded, new_tokens=new_tokens) for number, each in enumerate(asked)
    ]
    start = time.perf_counter()
    for job in jobs:
        loop.add(job)
    while loop.turn():
        pass
    seconds = time.perf_counter() - start
    outputs = [list(job.sequence.output_ids) for job in jobs]
    dones = [
        job.answer.done(status="completed", reason="stop", usage=job.usage(), timings=job.timings(), model="bench")
        for job in jobs
    ]
    return Round(sum(map(len, outputs)) / seconds, outputs, sum(bool(done.replaced) for done in dones))


def _keep_nothing(_sequence: TokenSequence, _start: int, _values: NDArray[Any]) -> None:
    """No conversation goes on."""


def _job(model: LoadedModel, asked: Asked, defaults: Defaults, number: int, *, guarded: bool, new_tokens: int) -> Job:
    now = now_unix_ms()
    request = ChatRequest(id=f"r{number}", session_id=f"s{number}", input="?", reply_topic=defaults.reply_topic)
    sequence = TokenSequence(
        request_id=request.id,
        prompt_ids=asked.prompt.ids,
        max_output_tokens=new_tokens,
        sampling=Sampling(),
        deadline=Deadline.after(now, first_token_ms=_HORIZON_MS, whole_ms=_HORIZON_MS),
        arrived_unix_ms=now,
    )
    return Job(
        order=settle(request, defaults, now),
        bucket="short",
        sequence=sequence,
        answer=Answer(
            request_id=request.id,
            session_id=request.session_id,
            attempt=1,
            token_bytes=model.tokenizer.token_bytes,
            stops=(),
            guard=FactGuard((asked.grounding,), (asked.grounding.question,)) if guarded else None,
        ),
        prompt=asked.prompt,
        fallback=Fallback(source="busy", text="busy", language="en"),
    )


def _alone(model: LoadedModel, spoken: Sequence[tuple[Grounding, Sequence[int]]]) -> tuple[float, float, list[float]]:
    """Microseconds a token and to make a guard; and with which token each answer's first text came."""
    held: list[float] = []
    feeding_s = making_s = 0.0
    num_tokens = 0
    for grounding, tokens in spoken:
        pieces = [model.tokenizer.token_bytes(token).decode(errors="replace") for token in tokens]
        begun = time.perf_counter()
        guard = FactGuard((grounding,), (grounding.question,))
        made = time.perf_counter()
        shown = [guard.feed(piece) for piece in pieces]
        shown.append(guard.finish())
        fed = time.perf_counter()
        making_s, feeding_s, num_tokens = making_s + made - begun, feeding_s + fed - made, num_tokens + len(pieces)
        held.append(float(next((at for at, text in enumerate(shown, 1) if text), len(shown))))
    return feeding_s / num_tokens * 1e6, making_s / len(spoken) * 1e6, held
