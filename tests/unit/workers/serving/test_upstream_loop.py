"""A worker with upstream servers: every request has one end, in time, for any behaviour of the servers."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.builders.upstream_worker import Running, worker
from tests.support.fakes.upstream import (
    HEAD,
    FakeUpstream,
    Say,
    answers,
    asking,
    chunk,
    endless_line,
    sends,
    status,
    upstream,
    usage,
)
from workers.request.ending import terminal_event, turn_of

NEVER_ENDS = sends(HEAD, chunk("You "), then=60)
HANGS = sends(then=60)
DOWN = "http://127.0.0.1:9/v1"


def place_of(fake: FakeUpstream, running: Running) -> Any:
    return running.loop.choice._upstreams[fake.url]


async def test_an_answer_is_whole_and_its_usage_is_the_upstreams() -> None:
    async with upstream(answers("Within ", "30 days.")) as fake, worker(fake.url) as running:
        asked = running.ask(0, stops=("\n",))
        assert await running.end(asked) == [("completed", "stop", "Within 30 days.")]
        assert (asked.usage().input_tokens, asked.usage().cached_tokens, asked.usage().output_tokens) == (50, 20, 2)
        done = terminal_event(asked, running.ends[asked.id], model="m", gateways="chat.replies")
        turn = turn_of(asked, done, asked.order.asked_unix_ms + 900)
        assert turn is not None
        assert (turn.timings.total_ms, turn.ended_unix_ms) == (900, asked.order.asked_unix_ms + 900)
        assert turn.output_ids == (), "of which only the text is known"
        assert fake.bodies[0]["model"] == "tiny", "the first that it lists"
        assert "priority" not in fake.bodies[0]


async def test_usage_that_cannot_be_true_is_not_believed_and_said_once() -> None:
    with capture_logs() as logs:
        async with upstream(answers("a", "b", told=usage(10**9, 1))) as fake, worker(fake.url) as running:
            asked = [running.ask(number) for number in range(3)]
            await running.end(*asked)
    assert {each.usage().output_tokens for each in asked} == {2}
    assert [line["event"] for line in logs].count("usage_not_believed") == 1


async def test_no_more_than_its_places_are_sent_and_all_are_answered() -> None:
    async with upstream(answers(pause_s=0.01)) as fake, worker(fake.url) as running:
        asked = [running.ask(number) for number in range(7)]
        assert {end[0] for end in await running.end(*asked)} == {"completed"}
        assert fake.most_open == 2


async def test_the_earliest_deadline_has_the_first_priority() -> None:
    async with upstream() as fake, worker(fake.url, priority=True) as running:
        await running.end(running.ask(0, first_ms=9_000), running.ask(1, first_ms=3_000))
    late, soon = (body["priority"] for body in fake.bodies[:2])
    assert 0 <= min(late, soon) < max(late, soon) < 2**31


async def test_a_cancel_and_a_deadline_stop_the_upstream_at_once() -> None:
    async with upstream(NEVER_ENDS) as fake, worker(fake.url) as running:
        one, other = running.ask(0), running.ask(1, first_ms=500)
        await running.until(lambda: one.answer.text and other.answer.text)
        running.loop.cancel(one.id)
        assert await running.end(one, other) == [("cancelled", "client", "You "), ("incomplete", "deadline", "You ")]
        await running.until(lambda: fake.aborted == 2)
        assert place_of(fake, running).running == 0


async def test_an_answer_without_text_is_given_up_at_once_and_one_with_text_goes_on() -> None:
    async with upstream(answers("Within ", "30 days.", pause_s=0.05)) as fake, worker(fake.url) as running:
        shown, waiting = running.ask(0), running.ask(1, guard=True)
        await running.until(lambda: shown.answer.text)
        running.loop.release_unseen()
        assert running.released == [waiting.id]
        assert await running.end(shown) == [("completed", "stop", "Within 30 days.")]
        await running.until(lambda: fake.aborted == 1)
        assert (waiting.id in running.ends, place_of(fake, running).running) == (False, 0)


async def test_a_stop_string_and_the_limit_end_an_answer_that_would_go_on() -> None:
    async with upstream(answers(*["so "] * 90, pause_s=0.001)) as fake, worker(fake.url) as running:
        stopped, cut = running.ask(0, stops=("so so so",), output=50), running.ask(1, output=5)
        ends = await running.end(stopped, cut)
        assert ends[0] == ("completed", "stop", "")
        assert ends[1] == ("incomplete", "max_output_tokens", "so " * 6)


async def test_an_endless_text_without_words_is_cut() -> None:
    async with upstream(answers(*["x" * 2_000] * 50)) as fake, worker(fake.url) as running:
        asked = running.ask(0, output=40)
        assert (await running.end(asked))[0][:2] == ("incomplete", "max_output_tokens")
        assert len(asked.answer.text) < 4_000


async def test_the_limit_that_the_upstream_names_is_the_answers() -> None:
    async with upstream(answers("a", finish="length")) as fake, worker(fake.url) as running:
        assert await running.end(running.ask(0)) == [("incomplete", "max_output_tokens", "a")]


BROKEN = sends(HEAD, b"data: <\n\n")
SILENT = sends(HEAD, chunk(finish="stop"), b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "bad", [HANGS, status(500), status(429), status(302, "location: /x"), endless_line, BROKEN, SILENT]
)
async def test_where_one_upstream_is_bad_the_next_answers_in_time(bad: Say) -> None:
    with capture_logs() as logs:
        async with upstream(bad) as first, upstream() as second, worker(first.url, second.url) as running:
            asked = [running.ask(number, session_id=f"s{number}", first_ms=2_000) for number in range(6)]
            assert {end[:2] for end in await running.end(*asked)} == {("completed", "stop")}
    assert first.bodies, "it was asked"
    assert any(line["event"] == "upstream_failed" for line in logs)


@pytest.mark.parametrize("bad", [status(500), endless_line, BROKEN, status(401)])
async def test_where_none_answers_the_faq_does(bad: Say) -> None:
    async with upstream(bad) as fake, worker(fake.url) as running:
        asked = [running.ask(number) for number in range(4)]
        assert set(await running.end(*asked)) == {("incomplete", "infeasible", "")}


async def test_a_hanging_upstream_is_left_alone_after_three_deadlines() -> None:
    async with upstream(HANGS) as fake, worker(fake.url, places=6) as running:
        ends = await running.end(*[running.ask(number, first_ms=400) for number in range(6)])
        assert {end[0] for end in ends} == {"incomplete"}
        await running.until(lambda: place_of(fake, running).opened)


async def test_while_nobody_can_be_reached_the_outlook_is_none_and_the_faq_answers_at_once() -> None:
    async with worker(DOWN) as running:
        await running.until(lambda: running.loop.choice.back_unix_ms() == float("inf"))
        assert await running.end(running.ask(0, first_ms=60_000)) == [("incomplete", "infeasible", "")]
        assert running.loop.outlook is None
        assert "start it" in str(running.loop.missing())


async def test_an_upstream_that_is_back_within_the_deadline_is_asked_again() -> None:
    async with upstream(status(503), answers()) as fake, worker(fake.url) as running:
        assert (await running.end(running.ask(0)))[0][0] == "completed"
        assert (await running.end(running.ask(1)))[0][0] == "completed"
        assert running.loop.outlook is not None


async def test_a_slow_upstream_that_still_answers_is_not_taken_for_a_dead_one() -> None:
    """Three streams never begin, while the fourth continues."""
    going_on = answers(*["so "] * 60, pause_s=0.02)
    with capture_logs() as logs:
        async with upstream(going_on, HANGS) as fake, worker(fake.url, places=4) as running:
            goes_on = running.ask(0, output=90)
            await running.until(lambda: goes_on.answer.text)
            hanging = [running.ask(number, first_ms=300) for number in range(1, 4)]
            assert {end[1] for end in await running.end(*hanging)} == {"deadline"}
            assert (await running.end(goes_on))[0][0] == "completed"
    assert "unavailable" not in {line["event"] for line in logs}


@pytest.mark.parametrize("first_ms", [20, 100])
@pytest.mark.parametrize("num_upstreams", [1, 2])
async def test_clients_that_wait_for_less_than_the_promise_leave_the_others_their_model(
    first_ms: int, num_upstreams: int
) -> None:
    """The upstream takes 150 ms, of a promise of 3 s."""
    takes_its_time = answers("Within ", "30 days.", before_s=0.15)
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(upstream(takes_its_time)) for _ in range(num_upstreams)]
        running = await stack.enter_async_context(worker(*[fake.url for fake in fakes], promise_ms=3_000))
        for round_ in range(3):
            hasty = [running.ask(10 * round_ + number, first_ms=first_ms) for number in range(6)]
            assert {end[0] for end in await running.end(*hasty)} == {"incomplete"}
        assert not any(place_of(fake, running).failures for fake in fakes)
        patient = [running.ask(100 + number) for number in range(6)]
        assert {end[:2] for end in await running.end(*patient)} == {("completed", "stop")}


@pytest.mark.parametrize("bad", [status(500), status(403), BROKEN])
async def test_a_request_that_fails_on_a_server_keeps_it_open_for_other_customers(bad: Say) -> None:
    """Each question is in a separate conversation, like a question without a session."""

    async def say(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        await (answers() if asked["messages"][-1]["content"] == "Hello" else bad)(writer)

    async with upstream(asking(say)) as fake, worker(fake.url) as running:
        for number in range(12):
            await running.end(running.ask(number, session_id=f"poison{number}"))
            await running.until(lambda: not running.loop.choice.is_suspected(fake.url))
            assert not place_of(fake, running).opened


@pytest.mark.parametrize("bad", [status(500), BROKEN, sends(HEAD, chunk("You "))])
async def test_one_conversation_that_a_server_fails_on_leaves_it_to_the_others(bad: Say) -> None:
    """Its words may be the cause of the server's failure; after three conversations the shop's own words decide."""
    async with upstream(bad) as fake, worker(fake.url) as running:
        for number in range(5):
            await running.end(running.ask(number, session_id="poison"))
        assert not running.loop.choice.is_open(fake.url)
        await running.end(*[running.ask(number, session_id=f"s{number}") for number in range(5, 8)])
        await running.until(lambda: place_of(fake, running).opened)


async def test_one_whose_probe_hangs_too_is_opened_after_the_first_deadline() -> None:
    async with upstream(HANGS) as fake, worker(fake.url) as running:
        await running.until(lambda: running.loop.missing() is None)
        fake.models = sends()
        await running.end(running.ask(0, first_ms=300))
        await running.until(lambda: running.loop.choice.is_open(fake.url))


async def test_a_full_upstream_is_sent_no_more_than_it_takes_and_all_are_answered() -> None:
    busy = 0

    async def takes_two(writer: asyncio.StreamWriter) -> None:
        nonlocal busy
        if busy == 2:
            await status(429)(writer)
            return
        busy += 1
        await asyncio.sleep(0.03)
        busy -= 1
        await answers()(writer)

    with capture_logs() as logs:
        async with upstream(takes_two) as fake, worker(fake.url, places=4) as running:
            asked = [running.ask(number) for number in range(12)]
            assert {end[0] for end in await running.end(*asked)} == {"completed"}
    assert {line["event"] for line in logs} == {"upstream_failed"}, "it was never taken for one that is away"


@pytest.mark.parametrize("guard", [False, True])
async def test_an_answer_that_breaks_off_goes_on_with_the_same_words(*, guard: bool) -> None:
    """It is written once more, by the same upstream or the next, and nothing is shown twice."""
    broken = sends(HEAD, chunk("You can return it within 30 days. It"), chunk(" is fr"))
    whole = answers("You can return", " it within 30 days. It is", " free.")
    async with upstream(broken, whole) as one, upstream(broken, whole) as other, worker(one.url, other.url) as running:
        for number in range(2):
            ends = await running.end(running.ask(number, guard=guard))
            assert ends == [("completed", "stop", "You can return it within 30 days. It is free.")]
    assert len(one.bodies) + len(other.bodies) >= 3


OTHERS = answers("Within 30 days.")
SHORTER = answers("You can return it")


@pytest.mark.parametrize(
    "then", [OTHERS, SHORTER, status(400), status(500), sends(HEAD, chunk("You can return it wi"))]
)
async def test_an_answer_that_nobody_goes_on_with_ends_with_what_was_shown(then: Say) -> None:
    async with upstream(sends(HEAD, chunk("You can return it ")), then) as fake, worker(fake.url) as running:
        ((*end, text),) = await running.end(running.ask(0))
        assert end == ["incomplete", "infeasible"]
        assert text in ("You can return it ", "You can return it wi")
        assert 2 <= len(fake.bodies) <= 4


async def test_an_answer_that_breaks_off_unseen_and_goes_on_otherwise_has_the_faq() -> None:
    async with upstream(sends(HEAD, chunk("You ")), OTHERS) as fake, worker(fake.url) as running:
        assert await running.end(running.ask(0, guard=True)) == [("incomplete", "infeasible", "")]


async def test_the_guard_keeps_what_stands_nowhere() -> None:
    async with (
        upstream(answers("Within 30 days. ", "It costs 99 euros. ", "Bye.")) as fake,
        worker(fake.url) as running,
    ):
        ((*_, text),) = await running.end(running.ask(0, guard=True))
        assert "30 days" in text
        assert "99" not in text


async def test_a_fault_of_our_own_fails_one_answer() -> None:
    async with upstream() as fake, worker(fake.url) as running:
        broken, good = running.ask(0), running.ask(1)
        broken.answer.add_text = None  # type: ignore[assignment,method-assign]
        assert [end[:2] for end in await running.end(broken, good)] == [("failed", "internal"), ("completed", "stop")]
        assert broken.faulty
        assert place_of(fake, running).running == 0


async def test_an_erased_conversation_that_waits_is_erased() -> None:
    async with upstream() as fake, worker(fake.url) as running:
        asked = running.ask(0)
        running.loop.forget(asked.sequence.session)
        assert asked.sequence.erased
        await running.end(asked)
