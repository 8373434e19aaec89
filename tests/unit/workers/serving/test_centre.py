"""An edge's questions to its centre, and their outcome when the centre is silent or has changed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.client import AnswerEvent, ConnectFailed, ResponseCreate, ResponseDelta, ResponseDone
from shared.faq.fallback import Fallback, choose_fallback
from shared.faq.speech.words import WaysOn
from shared.process.clock import CLOCKS, Clocks, now_unix_ms
from shared.wire.messages import Cancel
from shared.wire.outcome import Outcome, Response
from tests.support.builders.worker import Bench, job
from tests.support.fakes.gateways import quiet, until
from workers.edge.link_time import LinkTime
from workers.request.job import Job
from workers.serving.centre import CentreClient

DOUBT = Fallback(source="unsure", text="I don't know.", language="en")


@dataclass
class FakeReach:
    away: bool = False
    back_s: float = 0.0
    pushed: int = 0
    causes: list[str] = field(default_factory=list)

    def lost(self, cause: str) -> None:
        self.causes.append(cause)

    async def push(self) -> None:
        self.pushed += 1


@dataclass
class FakeChat:
    """The conversation at the centre: it records what it receives, yields the test's events, then fails."""

    told: list[AnswerEvent]
    fails: Exception | None = None
    hangs: bool = False
    asked: list[ResponseCreate] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def ask(self, request: ResponseCreate) -> AsyncIterator[AnswerEvent]:
        self.asked.append(request)
        for event in self.told:
            yield event
        if self.fails is not None:
            raise self.fails
        if self.hangs:
            await asyncio.Event().wait()

    async def cancel(self, event_id: str) -> None:
        self.cancelled.append(event_id)

    async def __aexit__(self, *_: object) -> None:
        pass


def delta(text: str, offset: int = 0) -> ResponseDelta:
    return ResponseDelta(response_id="r", seq=0, offset=offset, delta=text, cursor="c")


def end(text: str, **fields: Any) -> ResponseDone:
    outcome = Outcome.uncounted("completed", "stop", **fields, output_text=text)
    return ResponseDone(response=outcome.within(Response, id="r"), cursor="c")


@dataclass
class Asked:
    bench: Bench
    centre: CentreClient
    chat: FakeChat
    reach: FakeReach
    job: Job

    @property
    def end(self) -> tuple[str, str, str]:
        [done] = self.bench.ends()
        return done.status, done.source, done.output_text


async def asked(
    *told: AnswerEvent, source: str = "unsure", first_ms: int = 3_000, away: bool = False, **chat: Any
) -> Asked:
    """Let an edge's worker accept a question; before that only the loop's time passes."""
    CLOCKS.set(Clocks(lambda: 1_000.0, lambda: 1_800_000_000.0))
    reach, talk = FakeReach(away=away), FakeChat(list(told), **chat)
    centre = CentreClient(url="ws://centre/ws", token=lambda: "t", tenant="demo", link=LinkTime(), reach=reach)
    due = int(now_unix_ms()) + first_ms
    question = job(0, decided=True, first_token_unix_ms=due, deadline_unix_ms=due + 60_000)
    question.fallback = DOUBT if source == "unsure" else question.fallback
    centre._chats[question.session] = (talk, 1e12)  # type: ignore[assignment] # an open conversation
    bench = Bench(centre=centre)
    bench.worker.accept(question)
    await quiet()
    return Asked(bench, centre, talk, reach, question)


async def test_what_is_unsure_is_asked_with_the_time_left_and_told_as_it_comes() -> None:
    it = await asked(delta("Ada"), delta(" wrote.", 3), end("Ada wrote.", source="model"))
    assert (it.bench.deltas(), it.end) == (["Ada", " wrote."], ("completed", "model", "Ada wrote."))
    [request] = it.chat.asked
    assert (request.event_id, request.input, it.reach.pushed) == ("r0", "hi", 1)
    assert request.first_token_ms == 2_800
    assert [turn.output_text for turn in it.bench.history.turns] == ["Ada wrote."]


@pytest.mark.parametrize(
    "case",
    [{"source": "faq"}, {"away": True}, {"first_ms": 190}],
    ids=["sure", "away", "no time behind the link"],
)
async def test_the_centre_is_not_asked(case: dict[str, Any]) -> None:
    it = await asked(**case)
    assert it.chat.asked == []
    assert it.end[1] == case.get("source", "unsure")


@pytest.mark.parametrize(
    "told",
    [
        [delta(choose_fallback("Why?", ()).text)],
        [delta(choose_fallback("为什么", (), ways_on=WaysOn(handoff=True)).text)],
        [end("", source="model")],
        [],
    ],
    ids=["busy", "busy, with the offer of a person", "nothing", "it is lost"],
)
async def test_a_centre_that_has_no_answer_leaves_the_edges_own(told: list[AnswerEvent]) -> None:
    it = await asked(*told, fails=ConnectFailed("gone"))
    assert (it.bench.deltas(), it.end) == ([], ("completed", "unsure", "I don't know."))


async def test_a_fault_of_our_own_leaves_the_edges_own() -> None:
    it = await asked(fails=ZeroDivisionError())
    assert it.end == ("completed", "unsure", "I don't know.")


async def test_a_centre_that_says_nothing_in_time_leaves_the_edges_own() -> None:
    it = await asked(hangs=True, first_ms=250)
    await until(it.bench.ends)
    await quiet()
    assert (it.end, it.chat.cancelled) == (("completed", "unsure", "I don't know."), ["r0"])


async def test_an_answer_told_again_goes_on_where_it_was() -> None:
    it = await asked(delta("Ada"), delta("Ada wrote."), end("Ada wrote.", source="model"))
    assert (it.bench.deltas(), it.end[0]) == (["Ada", " wrote."], "completed")


@pytest.mark.parametrize("second", [delta("Bob"), end("Bob", source="model"), None], ids=["text", "end", "cut"])
async def test_other_words_or_a_cut_end_an_answer_with_what_was_shown(second: AnswerEvent | None) -> None:
    it = await asked(delta("Ada"), *([] if second is None else [second]), fails=ConnectFailed("gone"))
    assert (it.bench.deltas(), it.end) == (["Ada"], ("incomplete", "model", "Ada"))


async def test_a_cancel_reaches_the_centre() -> None:
    it = await asked(delta("Ada"), hangs=True)
    it.bench.worker.cancel(Cancel(request_id="r0"))
    await quiet()
    assert (it.end, it.chat.cancelled) == (("cancelled", "model", "Ada"), ["r0"])
    await it.centre.close()
