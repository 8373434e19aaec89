"""An edge and its centre over a slow, lossy link that is cut: who answers, how right, how soon, and what is lost."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TypeVar

from ops.evaluation.asking import Gateway, ask_all
from ops.evaluation.judging.judge import judge
from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions, turns_of
from ops.stack.own_pages import open_page
from shared.client import AsyncReplyline, Response, ResponseCreate, ResponseDelta, ResponseDone
from shared.conversation.history import History
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.process.clock import now_unix_ms
from shared.wire.session_key import SessionKey
from tests.proofs.elastic.conftest import Note
from tests.proofs.elastic.edges import TENANT, EdgeNode, ask, centre_of, edge_of, history_at
from tests.proofs.elastic.slow_link import SlowLink

T = TypeVar("T")
SURE = "How long do I have to return something?"
UNSURE = "Which moon is best for selling umbrellas?"
ENTRIES = read_entries(PACKAGED_PATH)
PATIENT_MS = 600_000
# A centre that answers every question with one token per 20 ms, and an edge that quotes.
WRITER = {
    "WORKER__ENGINE": "fake",
    "WORKER__FAKE_DECODE_MS_PER_STEP": "20",
    "ANSWERS__POLICY": "model",
    "ANSWERS__GUARD": "false",
}
LIGHT = {"WORKER__ENGINE": "fake"}


async def eventually(holds: Callable[[], Awaitable[T | None]], *, limit_s: float = 20.0) -> T:
    async with asyncio.timeout(limit_s):
        while not (found := await holds()):  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.1)
    return found


def answered_by(edge: EdgeNode) -> dict[str, int]:
    """Return how many questions the edge, the centre, and the edge for want of the centre have answered."""
    with open_page(edge.addresses.metrics[1], timeout_s=5) as page:
        found = re.findall(r'replyline_edge_questions_total\{outcome="(\w+)"\} (\S+)', page.read().decode())
    return {who: int(float(number)) for who, number in found}


async def right_answers(questions: Sequence[Question], url: str, history: History, token: str | None) -> int:
    """Ask each in a conversation that holds its earlier turns; return how many answers are right."""

    async def remember(session_id: str, question: Question) -> None:
        for turn in turns_of(question, ENTRIES, name=session_id, asked_unix_ms=now_unix_ms()):
            await history.append(SessionKey(TENANT, session_id), turn, journal=True)

    gateway = Gateway(url=url, token=token, remember=remember, deadline_ms=PATIENT_MS)
    given = await ask_all(questions, gateway.ask, clients=4)
    await history.close()
    return sum(judge(question, answer).right for question, answer in zip(questions, given, strict=True))


async def test_a_third_is_answered_here_and_as_many_are_right(tmp_path: Path, note: Note) -> None:
    questions = [each for each in read_questions(PACKAGED_QUESTIONS, ENTRIES) if each.split == "held_out"]
    async with (
        centre_of(tmp_path, {}) as centre,
        edge_of(centre, tmp_path / "edge", {"WORKER__ENGINE": "fake"}) as edge,
    ):
        at_centre = history_at(centre.addresses)
        alone = await right_answers(questions, centre.addresses.ws, at_centre, centre.token)
        at_edge = history_at(edge.addresses, journal_of=TENANT)
        both = await right_answers(questions, edge.addresses.ws, at_edge, None)
        by = answered_by(edge)
    assert by.get("unsure", 0) + by.get("quote", 0) == 0, by
    share = by["here"] / len(questions)
    note("edge: held-out questions answered there", f"{share:.0%} of {len(questions)}", ">= 30 %", holds=share >= 0.3)
    note("edge: right answers, edge and centre", f"{both}, centre alone {alone}", "no fewer", holds=both >= alone)


async def first_texts_ms(url: str, questions: Sequence[str], token: str | None = None) -> list[float]:
    return sorted([(await ask(url, question, token=token))[1] * 1_000 for question in questions])


def p50_p99(times: Sequence[float]) -> tuple[float, float]:
    cuts = quantiles(times, n=100, method="inclusive")
    return cuts[49], cuts[98]


async def test_what_is_sure_does_not_wait_for_the_link(tmp_path: Path, note: Note) -> None:
    questions = [entry.question for entry in ENTRIES if entry.language == "en"][:40]
    async with (
        centre_of(tmp_path, LIGHT) as centre,
        edge_of(centre, tmp_path / "edge", LIGHT) as edge,
        SlowLink(centre.addresses.port) as customers,
    ):
        far = f"ws://127.0.0.1:{customers.port}/ws"
        for round_trip_ms in (0, 30, 150):
            for link in (*edge.links, customers):
                link.round_trip_s, link.loss = round_trip_ms / 1_000, 0.01 if round_trip_ms else 0.0
            here = p50_p99(await first_texts_ms(edge.addresses.ws, questions))
            there = p50_p99(await first_texts_ms(far, questions, centre.token))
            figure = "p50 {:.0f} ms, p99 {:.0f} ms; ".format(*here) + "over the link {:.0f}, {:.0f}".format(*there)
            below = here[0] < max(round_trip_ms, 60)
            note(f"edge: first text, link of {round_trip_ms} ms", figure, "p50 without the link's delay", holds=below)
        late = [(await ask(edge.addresses.ws, f"{UNSURE} {number}"))[0] for number in range(10)]
    assert [response.status for response in late] == ["completed"] * 10


async def asked_and_cut(url: str, session_id: str, begun: asyncio.Event) -> tuple[str, list[ResponseDone]]:
    """Ask for a long answer; return what was shown of it, and its ends."""
    shown, ends = "", []
    async with AsyncReplyline(url, session_id=session_id) as chat:
        request = ResponseCreate(event_id=f"ev_{session_id}", input=UNSURE, max_output_tokens=100)
        async for event in chat.ask(request):
            if isinstance(event, ResponseDelta):
                shown = shown[: event.offset] + event.delta
                begun.set()
            elif isinstance(event, ResponseDone):
                ends.append(event)
    return shown, ends


async def test_a_cut_link_loses_and_doubles_nothing(tmp_path: Path, note: Note) -> None:
    async with centre_of(tmp_path, WRITER) as centre, edge_of(centre, tmp_path / "edge", LIGHT) as edge:
        for link in edge.links:
            link.round_trip_s, link.loss = 0.03, 0.01
        at_centre, at_edge = history_at(centre.addresses), history_at(edge.addresses)
        url, run = edge.addresses.ws, secrets.token_hex(3)

        async def known(history: History, session_id: str) -> list[str]:
            key = SessionKey(TENANT, session_id)
            turns = await history.turns(key, limit=50, before_unix_ms=now_unix_ms() + PATIENT_MS)
            return [turn.output_text for turn in turns]

        async def reached() -> bool:
            return (await ask(url, UNSURE))[0].source == "model"

        await eventually(reached)
        begun = [asyncio.Event() for _ in range(6)]
        asked = [asyncio.create_task(asked_and_cut(url, f"{run}-{at}", event)) for at, event in enumerate(begun)]
        await asyncio.gather(*[event.wait() for event in begun])
        edge.socket.reset()
        answers = await asyncio.gather(*asked)
        wrong = [ends for shown, ends in answers if len(ends) != 1 or ends[0].response.output_text != shown]
        whole = sum(ends[0].response.status == "completed" or len(shown) == 100 for shown, ends in answers)
        assert not wrong
        for at, (shown, _) in enumerate(answers):
            assert (await known(at_centre, f"{run}-{at}")) == [shown] == await known(at_edge, f"{run}-{at}")
        note("edge: answers cut in mid-stream that went on", f"{whole} of 6", "all", holds=whole == 6)

        await ask(url, SURE, session_id=f"{run}-gone")
        await eventually(lambda: known(at_centre, f"{run}-gone"))
        edge.cut()
        began_s = time.monotonic()
        away = [(await ask(url, (SURE, UNSURE)[at % 2], session_id=f"{run}-away-{at}"))[0] for at in range(8)]
        took_s = (time.monotonic() - began_s) / 8
        assert [each.source for each in away[::2]] == ["faq"] * 4
        # "busy": the worker had no time for its FAQ.
        assert {each.source for each in away[1::2]} <= {"quote", "unsure", "busy"}
        told = {f"{run}-away-{at}": each.output_text for at, each in enumerate(away) if each.source != "busy"}
        async with AsyncReplyline(url, session_id=f"{run}-gone") as chat:
            await chat.erase()
        assert await known(at_centre, f"{run}-gone")
        edge.mend()
        mended_s = time.monotonic()

        async def in_step() -> bool:
            synced = [await known(at_centre, session_id) for session_id in told]
            return all(synced) and not await known(at_centre, f"{run}-gone")

        await eventually(in_step)
        for session_id, text in told.items():
            assert await known(at_centre, session_id) == [text]

        async def asked_on() -> float | None:
            asked_s = time.monotonic()
            response, first_s = await ask(url, UNSURE + "!", session_id=f"{run}-1")
            return asked_s + first_s - mended_s if response.source == "model" else None

        after_s = await eventually(asked_on)  # a conversation from before the cut continues at the centre
        note(
            "edge: link back, until the centre has all and an answer begins",
            f"{after_s:.2f} s",
            "≤ 1 s",
            holds=after_s <= 1.0,
        )
        note("edge: link cut and back: lost, doubled", f"0, 0; an answer in {took_s:.1f} s", "0, 0", holds=True)

        async with AsyncReplyline(centre.addresses.ws, token=centre.token, session_id=f"{run}-0") as chat:
            await chat.erase()

        async def forgotten() -> bool:
            return not await known(at_edge, f"{run}-0")

        await eventually(forgotten)
        for history in (at_centre, at_edge):
            await history.close()


async def test_nothing_stale_is_told_as_sure(tmp_path: Path, note: Note) -> None:
    stale_s = 4.0
    async with (
        centre_of(tmp_path, WRITER) as centre,
        edge_of(centre, tmp_path / "edge", LIGHT, stale_s=stale_s) as edge,
    ):
        ages: list[float] = []

        async def ask_on(until_s: float, changed_s: float) -> Response:
            """Ask until `until_s`; record the age of the answers that gave the old text as sure."""
            while time.monotonic() < until_s:
                asked_s = time.monotonic()
                response, _ = await ask(edge.addresses.ws, SURE)
                if response.source == "faq" and old in response.output_text:
                    ages.append(asked_s - changed_s)
                await asyncio.sleep(0.05)
            return response

        async def quotes(text: str) -> bool:
            response, _ = await ask(edge.addresses.ws, SURE)
            assert response.source != "faq" or response.faq_version is not None
            return response.source == "faq" and text in response.output_text

        for old, new, cut in (("30 days", "60 days", False), ("60 days", "90 days", True)):
            await eventually(partial(quotes, old))  # it starts more slowly than its FAQ grows stale
            if cut:
                edge.cut()
            centre.reword("return-period", old, new)
            now_s = time.monotonic()
            last = await ask_on(now_s + stale_s + 4, now_s)
            if cut:
                assert last.source == "unsure"
                assert "could not check" in last.output_text
                edge.mend()
            else:
                await eventually(partial(quotes, new))
        too_old = [age for age in ages if age > stale_s]
        figure = f"{len(too_old)}; the oldest {max(ages, default=0):.1f} s after the change, bound {stale_s:g} s"
        note("edge: answers wrong because of staleness", figure, "0", holds=not too_old)
        assert not too_old
