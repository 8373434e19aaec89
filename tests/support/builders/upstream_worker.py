"""A worker's loop over upstreams by itself: jobs are its input, ends its output."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from shared.process.clock import now_unix_ms
from shared.wire.deadline import Deadline
from tests.support.builders.worker import answer, job
from workers.answer.guard import FactGuard
from workers.engine.upstream.body import ChatMessage
from workers.engine.upstream.choice import Choice
from workers.engine.upstream.client import UpstreamClient
from workers.prompt.conversation import Prompt
from workers.request.job import Job
from workers.schedule.costs import CostModel
from workers.schedule.goodput.goodput import Goodput
from workers.schedule.lengths import OutputLengths
from workers.schedule.sequence import Finished
from workers.schedule.streams import PRIOR_DECODE, PRIOR_PREFILL, Paces, Streams
from workers.serving.drafts import Drafts, Ended, Progress, Released
from workers.serving.upstream_loop import UpstreamLoop

ASKED: Final = (ChatMessage("user", "How long may I return it? " * 10),)


@dataclass
class Running:
    loop: UpstreamLoop
    ends: dict[str, Finished] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)

    def receive(self, progress: list[Progress]) -> None:
        for item in progress:
            if isinstance(item, Ended):
                assert item.job.id not in self.ends, "ended twice"
                self.ends[item.job.id] = item.finished
            elif isinstance(item, Released):
                self.released.append(item.job.id)

    def ask(
        self,
        number: int,
        *messages: ChatMessage,
        output: int = 20,
        first_ms: int = 5_000,
        guard: bool = False,
        **fields: Any,
    ) -> Job:
        made = job(number, output=output, **fields)
        made.prompt = Prompt(ids=range(20), shared_tokens=0, messages=messages or ASKED)
        now = int(now_unix_ms())
        made.sequence.deadline = Deadline(first_token_unix_ms=now + first_ms, deadline_unix_ms=now + 2 * first_ms)
        if guard:
            made.sequence.held = True
            made.answer = answer(made.id, guard=FactGuard((), ("30 days",)))
        self.jobs[made.id] = made
        self.loop.add(made)
        return made

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 - another server's doing
                await asyncio.sleep(0.005)

    async def end(self, *asked: Job) -> list[tuple[str, str, str]]:
        await self.until(lambda: all(each.id in self.ends for each in asked))
        ends = [(self.ends[each.id], each.answer.text) for each in asked]
        return [(finished.status, finished.reason, text) for finished, text in ends]


@asynccontextmanager
async def worker(
    *urls: str, places: int = 2, priority: bool = False, promise_ms: float = 400
) -> AsyncIterator[Running]:
    lengths, costs = OutputLengths(), CostModel(decode=PRIOR_DECODE, prefill=PRIOR_PREFILL)
    slots = places * len(urls)
    streams = Streams(Goodput(costs, lengths, num_slots=slots), lengths=lengths, num_slots=slots)

    def publish(progress: list[Progress]) -> None:
        running.receive(progress)

    loop = UpstreamLoop(
        client=UpstreamClient(key=None, silence_s=5),
        choice=Choice(urls, places=places),
        streams=streams,
        paces=Paces(costs),
        drafts=Drafts(roster=streams, publish=publish, interval_s=0.0),
        model="",
        priority=priority,
        promise_ms=promise_ms,
    )
    running = Running(loop)
    serving = asyncio.create_task(loop.serve())
    yield running
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert loop.gone
