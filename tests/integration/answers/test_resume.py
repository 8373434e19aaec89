"""A client that lost its socket resumes its answer at the same gateway or another, with the first one alive or dead."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import msgpack
import pytest
import pytest_asyncio
from aiokafka import ConsumerRecord

from shared.client.session import AsyncReplyline
from shared.wire.messages import ResponseCreate, ResponseDelta, ResponseDone
from tests.integration.support.cuts import EVENTS, QUESTION, TOKENS, WHOLE, ask_and_lose, ask_and_lose_in
from tests.support.reliability import Reliability
from tests.support.shared_system import STANDARD
from tests.support.standstill import Standstill
from tests.support.system import Service, System, eventually
from tests.support.wire import JSON, MSGPACK, Answer, Client, Form

TARGET = "identical text, or an explicit recovered:false"
RANDOM_CUTS = 1_000
AT_ONCE = 32
LONG = 600  # tokens: three seconds, in which a client reconnects twice


pytestmark = STANDARD


@pytest.fixture(scope="module")
def here(gateways: list[Service]) -> Service:
    return gateways[0]


@pytest.fixture(scope="module")
def there(gateways: list[Service]) -> Service:
    return gateways[1]


@pytest_asyncio.fixture
async def doomed(system: System) -> AsyncIterator[Service]:
    """Start a gateway that the test kills."""
    gateway = await system.gateway(gateway__reply_partition=2).ready()
    yield gateway
    gateway.kill()


@pytest_asyncio.fixture(scope="module")
async def text(here: Service) -> str:
    async with Client.connect(here.ws) as client:
        return (await client.ask(QUESTION, max_output_tokens=TOKENS)).text


@pytest.mark.promise(6)
async def test_an_answer_cut_at_any_event_resumes_at_the_same_gateway(
    here: Service, worker: Service, text: str, reliability: Reliability
) -> None:
    """At every event of an answer, in both encodings: the same text, one end, computed once."""
    before = await worker.metric("infer_total")

    async def one(after: int, form: Form) -> Answer:
        return await (await ask_and_lose(here, after, form)).resume(here)

    cuts = [(after, form) for after in range(EVENTS + 1) for form in (JSON, MSGPACK)]
    answers = await asyncio.gather(*(one(*cut) for cut in cuts))
    assert [answer.outcome for answer in answers] == [WHOLE] * len(cuts)
    assert await worker.metric("infer_total") == before + len(cuts)
    same = sum(answer.text == text for answer in answers)
    reliability.found(
        figure=f"{same} of {len(cuts)} identical",
        target=TARGET,
        holds=same == len(cuts) == (EVENTS + 1) * 2,
    )


@pytest.mark.promise(6)
async def test_an_answer_cut_at_any_event_resumes_at_another_gateway(
    here: Service, there: Service, worker: Service, text: str, reliability: Reliability
) -> None:
    """The first gateway stays alive and holds the same answer."""
    before = await worker.metric("infer_total")

    async def one(after: int, form: Form) -> Answer:
        return await (await ask_and_lose(here, after, form)).resume(there)

    places = range(EVENTS + 1) if reliability.whole else (0, 1, 2, 3, 10, 30, 50, 64, 65, 66)
    cuts = [(after, form) for after in places for form in (JSON, MSGPACK)]
    answers = await asyncio.gather(*(one(*cut) for cut in cuts))
    assert [answer.outcome for answer in answers] == [WHOLE] * len(cuts)
    assert await worker.metric("infer_total") == before + len(cuts)
    for gateway in (here, there):
        await eventually(lambda: _holds_nothing(gateway))  # noqa: B023
    same = sum(answer.text == text for answer in answers)
    reliability.found(
        figure=f"{same} of {len(cuts)} identical",
        target=TARGET,
        holds=same == len(cuts),
    )


async def _holds_nothing(gateway: Service) -> bool:
    return await gateway.metric("replyline_gateway_inflight") == 0


@pytest.mark.promise(6)
async def test_an_answer_cut_at_any_time_repeatedly_resumes_at_either_gateway(
    here: Service, there: Service, worker: Service, text: str, reliability: Reliability
) -> None:
    """Some clients lose their socket twice or more. Each answer is computed once however often its client moves. A
    client that received the end before the cut does not count.
    """
    before = await worker.metric("infer_total")
    chance = random.Random(6)
    wanted, answers = reliability.amount(RANDOM_CUTS, part=20), list[Answer]()
    lost = cuts = 0

    async def one() -> None:
        nonlocal lost, cuts
        while cuts < wanted:
            form = chance.choice((JSON, MSGPACK))
            cut = await ask_and_lose_in(chance.uniform(0, 0.5), chance.choice((here, there)), form)
            lost, cuts = lost + 1, cuts + (not cut.done)
            while cuts < wanted and cut.created and not cut.done and chance.random() < 0.3:
                await cut.move_and_lose_in(chance.uniform(0, 0.2), chance.choice((here, there)))
                lost, cuts = lost + 1, cuts + (not cut.done)
            answers.append(await cut.resume(chance.choice((here, there))))

    await asyncio.gather(*(one() for _ in range(min(AT_ONCE, wanted))))
    assert [answer.outcome for answer in answers] == [WHOLE] * len(answers)
    assert await worker.metric("infer_total") == before + len(answers)
    same = sum(answer.text == text for answer in answers)
    reliability.found(
        figure=f"{cuts} cuts of {len(answers)} answers, {lost - cuts} more after an end: {same} identical",
        target=TARGET,
        holds=same == len(answers),
    )


async def test_answers_of_a_killed_gateway_resume_at_another(
    doomed: Service, there: Service, worker: Service, text: str
) -> None:
    """It is killed with SIGKILL while every client is at another position of its answer."""
    before = await worker.metric("infer_total")
    cuts = await asyncio.gather(*(ask_and_lose(doomed, after) for after in (0, 1, 2, 5, 10, 20, 40, 60)))
    doomed.kill()
    answers = await asyncio.gather(*(cut.resume(there) for cut in cuts))
    assert [answer.outcome for answer in answers] == [WHOLE] * len(cuts)
    assert {answer.text for answer in answers} == {text}
    assert await worker.metric("infer_total") == before + len(cuts)


async def test_a_successor_with_the_same_partition_resumes_answers_too(
    system: System, doomed: Service, worker: Service, text: str
) -> None:
    """It reads its partition from the end, and for returning clients what its predecessor's clients missed."""
    cut = await ask_and_lose(doomed, 20)
    await ask_and_lose(doomed, 3)
    doomed.kill()
    successor = await system.gateway(gateway__reply_partition=2).ready()
    answer = await cut.resume(successor)
    assert (answer.outcome, answer.text) == (WHOLE, text)
    assert await successor.stop() == 0


async def test_a_client_may_move_on_again(here: Service, there: Service, doomed: Service, text: str) -> None:
    """From one gateway to another to a third: each cursor is as valid as the first."""
    cut = await ask_and_lose(doomed, 10, max_output_tokens=TOKENS)
    doomed.kill()
    async with Client.connect(there.ws, session_id=cut.session_id, cursor=cut.cursor) as client:
        await client.until(lambda _: len(client.events) > 2)  # under load the rest comes in few deltas
        cut.seen += client.events[1:3]
        client.socket.transport.abort()
    answer = await cut.resume(here)
    assert (answer.outcome, answer.text) == (WHOLE, text)


async def test_the_fallback_of_a_dead_gateway_is_not_given_twice(
    system: System, here: Service, doomed: Service, worker: Service
) -> None:
    """It answered after its client was gone, and the answer is in the log."""
    worker.pause()
    try:
        cut = await ask_and_lose(doomed, 1, first_token_ms=300)
        async with system.reading("chat.replies") as log:
            await log.until(lambda record: _ends(record, cut.seen[0]["response_id"]))
        doomed.kill()
        answer = await cut.resume(here)
    finally:
        worker.resume()
    assert answer.outcome == ("completed", "stop", "faq")
    assert "tracking" in answer.text


def _ends(record: ConsumerRecord, response_id: str) -> bool:
    event = msgpack.unpackb(record.value)
    return (event["type"], event["request_id"]) == ("chat.done", response_id)


async def test_the_adopting_gateway_answers_by_the_deadline_if_no_worker_does(
    here: Service, doomed: Service, worker: Service, standstill: Standstill
) -> None:
    """There is no worker, and the gateway died: the FAQ answers in time, because the question is in the
    request topic.
    """
    worker.pause()
    try:
        asked_at = time.monotonic()
        cut = await ask_and_lose(doomed, 1, first_token_ms=4_000)
        doomed.kill()
        answer = await cut.resume(here)
        done_at = time.monotonic()
    finally:
        worker.resume()
    assert answer.outcome == ("completed", "stop", "faq")
    assert "tracking" in answer.text
    assert asked_at + 4 <= done_at
    assert done_at - standstill.seconds(asked_at, done_at) < asked_at + 4 + 2 * standstill.grace_s


async def test_a_cancel_at_another_gateway_ends_the_answer_everywhere(
    here: Service, there: Service, worker: Service
) -> None:
    cut = await ask_and_lose(here, 5, max_output_tokens=2_000)
    async with Client.connect(there.ws, session_id=cut.session_id, cursor=cut.cursor) as client:
        await client.of_type("response.output_text.delta")
        await client.send({"type": "response.cancel", "target_event_id": cut.event_id})
        done = await client.of_type("response.done")
    assert (done["response"]["status"], done["response"]["reason"]) == ("cancelled", "client")

    async def is_over() -> bool:
        return (
            await here.metric("replyline_gateway_inflight")
            == await worker.metric("replyline_worker_load", what="used")
            == 0
        )

    await eventually(is_over)


@pytest.mark.parametrize("moves", [False, True], ids=["back", "elsewhere"])
async def test_the_terminal_client_outlives_its_socket(here: Service, there: Service, text: str, moves: bool) -> None:
    """It loses its socket twice during an answer, reconnects by itself, and returns each character once."""
    async with AsyncReplyline(here.ws, *([there.ws] if moves else ()), patience_s=10) as client:
        parts, lost = [], 0
        async for event in client.ask(ResponseCreate(event_id="e", input=QUESTION, max_output_tokens=LONG)):
            if isinstance(event, ResponseDelta):
                assert event.offset == len("".join(parts))
                parts.append(event.delta)
                if len(parts) in (5, 7):  # a reconnecting client may get everything it missed in one delta
                    assert client._socket is not None
                    client._socket.hang_up()
                    lost += 1
            elif isinstance(event, ResponseDone):
                assert event.response.output_text == "".join(parts)
                assert (len(event.response.output_text), event.response.output_text[:TOKENS]) == (LONG, text)
        assert lost == 2
        assert client.session is not None
        assert client.session.recovered


async def test_a_cursor_is_valid_for_its_own_session_only(here: Service, there: Service, text: str) -> None:
    """A changed cursor, another session's or none: not recovered, and the connection continues as a new one."""
    cut = await ask_and_lose(here, 10)
    assert cut.cursor is not None
    changed = cut.cursor[:-6] + ("A" if cut.cursor[-6] != "A" else "B") + cut.cursor[-5:]
    for session_id, cursor in ((cut.session_id, changed), ("another", cut.cursor), (cut.session_id, "resp_1@12")):
        for gateway in (here, there):
            async with Client.connect(gateway.ws, session_id=session_id, cursor=cursor) as client:
                assert (client.events[0]["recovered"], client.events[0]["replayed"]) == (False, 0)
                assert (await client.ask("Still there?", max_output_tokens=2)).text
                assert client.count("response.done") == 1
    cut.seen.clear()
    assert (await cut.resume(there)).text == text, "repeated by its event id, the answer starts at its beginning"


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
@pytest.mark.parametrize("back", [False, True], ids=["resumed-there", "resumed-here"])
@pytest.mark.parametrize("gone", [False, True], ids=["erased-here", "erased-there"])
async def test_an_erased_conversation_is_not_resumed(
    here: Service, there: Service, gone: bool, back: bool, ended: bool
) -> None:
    """This holds even at the gateway that holds the text, if it was erased at the other one."""
    cut = await ask_and_lose(here, EVENTS // 2, max_output_tokens=TOKENS if ended else 2_000)
    while cut.done:  # on a machine that pauses, a few events contain everything
        cut = await ask_and_lose(here, EVENTS // 4, max_output_tokens=TOKENS)
    if ended:
        await eventually(lambda: _holds_nothing(here))
    async with Client.connect((there if gone else here).ws, session_id=cut.session_id) as client:
        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")
    async with Client.connect((here if back else there).ws, session_id=cut.session_id, cursor=cut.cursor) as client:
        done = await client.of_type("response.done")
        assert (done["response"]["status"], done["response"]["output_text"]) == ("cancelled", "")
        assert client.count("response.output_text.delta") == 0
    for gateway in (here, there):
        await eventually(lambda: _holds_nothing(gateway))  # noqa: B023


async def test_a_question_repeated_after_an_erasure_elsewhere_is_a_new_one(
    here: Service, there: Service, worker: Service
) -> None:
    """The gateway that holds its answer does not send it again."""
    async with Client.connect(here.ws) as client:
        await client.ask(QUESTION, event_id="e", max_output_tokens=2)
        before = await worker.metric("infer_total")
        async with Client.connect(there.ws, session_id=client.session_id) as elsewhere:
            await elsewhere.send({"type": "session.delete"})
            await elsewhere.of_type("session.deleted")

        async def is_forgotten() -> bool:
            """Wait until the worker has read the erasure too."""
            seen = len(client.events)
            await client.create(QUESTION, event_id="e", max_output_tokens=2)
            assert (await client.answer("e", since=seen)).text
            return await worker.metric("infer_total") > before

        await eventually(is_forgotten)
