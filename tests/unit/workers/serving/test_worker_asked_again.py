"""A repeated request is computed once and sent to every reader that asks, except for erased text."""

import pytest

from shared.errors import EngineError, ProtocolError
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.wire.messages import Adopt, Cancel, ReplyDelta, ReplyDone
from shared.wire.requests import Target
from tests.support.builders.worker import DEFAULTS, TOPIC, Bench, order
from workers.request.job import Job

HOME: Target = ("chat.replies", None)
THERE: Target = ("chat.replies", 1)
AGAIN: tuple[Partition, int] = (TOPIC, 100)
CANCEL = Cancel(request_id="r0")


def repeat(bench: Bench, offset: int = 0, *, text: str = "hi", partition: int | None = 1) -> bool:
    bench.offsets.open(*AGAIN)
    again = order(f"r{offset}", now=now_unix_ms(), defaults=DEFAULTS, input=text, reply_partition=partition)
    return bench.answers.repeated(again, AGAIN)


def adopt(bench: Bench, job: Job, *, earlier_ms: int = 0) -> None:
    created = job.order.created_unix_ms - earlier_ms
    bench.answers.adopt(Adopt(request_id=job.id, reply_partition=1, created_unix_ms=created))


def text_at(bench: Bench, target: Target) -> str:
    """As a gateway places it, by offset; its end agrees."""
    text, ends = "", []
    for reply in bench.publisher.by_target.get(target, []):
        if isinstance(reply, ReplyDelta):
            assert reply.offset <= len(text)
            text += reply.delta[len(text) - reply.offset :]
        else:
            ends.append(reply.output_text)
    assert ends == [text]
    return text


def test_an_answer_that_is_asked_for_again_goes_to_both_is_computed_once_and_both_records_are_done_with_it() -> None:
    bench = Bench()
    bench.accept(0, output=5)
    assert bench.step()
    assert repeat(bench)
    bench.run()
    assert (text_at(bench, HOME), text_at(bench, THERE)) == ("aaaaa", "aaaaa")
    assert len(bench.history.turns) == 1
    bench.acknowledge(target=THERE)
    assert bench.offsets.committable() == {}
    bench.acknowledge()
    assert bench.offsets.num_open == 0
    assert bench.worker.idle


@pytest.mark.parametrize("decided", [False, True])
def test_what_was_answered_is_told_again_uncomputed_and_holds_up_no_commit(*, decided: bool) -> None:
    """While its end is being sent, both transmissions are sent as one."""
    bench = Bench()
    bench.accept(0, decided=decided)
    bench.run()
    [end] = bench.ends()
    assert repeat(bench, partition=None)
    assert bench.ends() == [end]
    assert repeat(bench)
    assert bench.publisher.by_target[THERE][-1] == end
    bench.acknowledge(target=HOME)
    assert bench.offsets.committable() == {}, "it is owed there, too"
    bench.acknowledge()
    assert bench.offsets.committable() == {TOPIC: 101}
    assert bench.worker.idle
    assert repeat(bench, partition=2)
    assert bench.publisher.by_target["chat.replies", 2] == [end]
    assert not bench.step()


def test_who_asks_again_at_the_same_gateway_gets_all_of_it_again() -> None:
    """Its process is another one, and has nothing of the text."""
    bench = Bench()
    bench.accept(0, output=4)
    assert bench.step()
    assert repeat(bench, partition=None)
    bench.run()
    assert [reply.offset for reply in bench.publisher.said if isinstance(reply, ReplyDelta)][:2] == [0, 0]
    assert text_at(bench, HOME) == "aaaa"


def test_another_services_reader_is_not_told_twice_of_a_request_that_is_delivered_twice() -> None:
    bench = Bench()
    job = bench.accept(0, output=3)
    job.targets = {("chat.replies.crm", None): None}
    assert bench.step()
    bench.answers.readers.add(job, ("chat.replies.crm", None), None)
    bench.run()
    assert bench.deltas() == ["a", "a", "a"]
    assert len(bench.ends()) == 1


@pytest.mark.parametrize("steps", [0, 2])
def test_an_answer_whose_client_has_come_to_another_gateway_is_told_there_whole(steps: int) -> None:
    """It is sent immediately, also before it has any text."""
    bench = Bench()
    job = bench.accept(0, output=5, created_unix_ms=int(now_unix_ms()))
    for _ in range(steps):
        assert bench.step()
    adopt(bench, job)
    assert [reply.delta for reply in bench.publisher.by_target[THERE] if isinstance(reply, ReplyDelta)] == ["a" * steps]
    bench.run()
    assert (text_at(bench, HOME), text_at(bench, THERE)) == ("aaaaa", "aaaaa")
    bench.acknowledge(target=HOME)
    assert not bench.worker.idle
    bench.acknowledge()
    assert bench.worker.idle
    del bench.publisher.by_target[THERE]
    adopt(bench, job)
    assert [type(reply) for reply in bench.publisher.by_target[THERE]] == [ReplyDone], "it has ended"


@pytest.mark.parametrize("what", ["cancelled", "erased", "erased since", "asked earlier", "not here"])
def test_a_gateway_hears_nothing_of_an_answer_that_is_not_its_clients(what: str) -> None:
    """It reads the log, and finds there what became of it."""
    bench = Bench()
    job = bench.accept(0, output=5, created_unix_ms=int(now_unix_ms()))
    assert bench.step()
    if what == "cancelled":
        bench.worker.cancel(CANCEL)
    if what == "erased":
        bench.erase()
    if what == "erased since":
        bench.run()
        bench.acknowledge()
        bench.erase()
    if what == "not here":
        bench.answers.adopt(Adopt(request_id="r9", reply_partition=1, created_unix_ms=1))
    else:
        adopt(bench, job, earlier_ms=1 if what == "asked earlier" else 0)
    bench.run()
    assert THERE not in bench.publisher.by_target


def test_another_question_under_an_id_that_is_being_answered_is_refused() -> None:
    """It is no part of that answer, nor is its record done with it: it goes to the dead letters."""
    bench = Bench()
    job = bench.accept(0)
    with pytest.raises(ProtocolError, match="another request with this id") as refused:
        repeat(bench, text="something else")
    assert (refused.value.code, refused.value.param) == ("invalid_field", "id")
    assert job.origins == [(TOPIC, 0)]
    bench.run()
    assert THERE not in bench.publisher.by_target
    bench.acknowledge()
    assert not repeat(bench, text="something else"), "from now on it has its own answer"


@pytest.mark.parametrize("why", ["cancelled", "cancelled before it came", "erased", "failed"])
def test_an_answer_that_has_nothing_for_who_asks_again_is_leaving_until_its_end_is_acknowledged(why: str) -> None:
    bench = Bench()
    bench.accept(0, output=30, cancelled=why == "cancelled before it came")
    if why == "cancelled":
        assert bench.step()
        assert not bench.answers.is_ending("r0", AGAIN)
        assert bench.worker.cancel(CANCEL)
        assert not bench.worker.cancel(CANCEL), "one that comes now may be for who asks again"
    if why == "erased":
        bench.erase()
    if why == "failed":
        assert bench.step()
        bench.engine_loop._fail(EngineError("out of memory"))
    assert bench.answers.is_ending("r0", AGAIN)
    assert not bench.answers.is_ending("r0", (TOPIC, 0)), "its own record, read again"
    bench.run()
    assert bench.answers.is_ending("r0", AGAIN)
    bench.acknowledge()
    assert not bench.answers.is_ending("r0", AGAIN)
    assert not repeat(bench)


def test_an_answer_that_ended_before_its_cancel_took_effect_is_told() -> None:
    bench = Bench()
    job = bench.accept(0)
    bench.run()
    job.withdrawn = True
    assert not bench.answers.is_ending("r0", AGAIN)


@pytest.mark.parametrize("when", ["before it comes", "while it is written", "when it has ended"])
def test_an_erased_conversations_answer_is_neither_told_again_nor_remembered(when: str) -> None:
    """Redis may have lost the mark that would keep it out; nor does its slot serve the next prompt."""
    bench = Bench()
    if when == "before it comes":
        bench.erase()
    job = bench.accept(0)
    assert job.sequence.erased == (when == "before it comes")
    assert bench.step()
    if when == "while it is written":
        bench.erase("another")
        assert not job.erased
        bench.erase()
    bench.run()
    if when == "when it has ended":
        bench.acknowledge()
        bench.erase()
    else:
        assert bench.history.turns == []
    bench.acknowledge()
    assert bench.history.forgotten[-1][0].session_id == "s"
    assert bench.prompts.forgotten[-1].session_id == "s", "nor what was encoded"
    assert not repeat(bench)


@pytest.mark.parametrize("heard", [True, False])
def test_what_was_asked_of_the_new_conversation_is_not_erased(*, heard: bool) -> None:
    """A request may be read before the erasure that preceded it: the generation known to its gateway decides, not the
    clock."""
    bench = Bench()
    later = bench.accept(0, generation=bench.erase() if heard else int(now_unix_ms()) + 60_000)
    if not heard:
        bench.erase()
    bench.run()
    assert not later.erased
    assert not (heard and later.sequence.erased)
    assert [turn.request_id for turn in bench.history.turns] == ["r0"]


def test_a_cancel_is_of_the_request_that_it_names() -> None:
    """The same gateway has asked again since; its earlier cancel does not apply to the present request."""
    bench = Bench()
    job = bench.accept(0, output=9)
    bench.answers.readers.add(job, HOME, 7)
    assert bench.worker.cancel(Cancel(request_id="r0", created_unix_ms=job.order.created_unix_ms))
    assert not job.withdrawn
    assert bench.worker.cancel(Cancel(request_id="r0", created_unix_ms=7))
    assert job.withdrawn


def test_a_cancel_ends_the_work_when_nobody_is_left_to_wait() -> None:
    bench = Bench()
    job = bench.accept(0, output=30, reply_partition=0)
    repeat(bench)
    for _ in ("leaves", "who was let go has no say any more"):
        assert bench.step()
        assert bench.worker.cancel(Cancel(request_id="r0", reply_partition=0))
    assert bench.step()
    assert list(job.targets) == [THERE]
    assert bench.publisher.forgotten == [(("chat.replies", 0), "r0")]
    assert bench.worker.cancel(Cancel(request_id="r0", reply_partition=1))
    bench.run()
    assert [(end.status, end.reason) for end in bench.ends()] == [("cancelled", "client")]
    assert bench.publisher.by_target[THERE][-1] == bench.ends()[0]
    assert len(bench.publisher.forgotten) == 1, "the last has the end yet to come"


def test_a_turn_names_the_questions_that_were_open_when_it_was_asked_or_ended() -> None:
    """Only questions of its conversation count: neither is in the other's prompt, even if another worker computes it
    again."""
    bench = Bench()
    bench.accept(0, output=2, concurrent=("r8", "r9"))
    bench.accept(1, output=9)
    bench.accept(2, output=9, session_id="other")
    with bench.answers.preparing(order("r3")):
        bench.run()
    named = {turn.request_id: set(turn.concurrent) for turn in bench.history.turns}
    assert ("r1" in named["r0"]) != ("r0" in named["r1"]), "the first that ended"
    assert (named["r0"] - {"r1"}, named["r1"] - {"r0"}, named["r2"]) == ({"r8", "r9", "r3"}, {"r3"}, set())


def test_a_turn_is_on_its_way_before_its_end_is_published() -> None:
    """A worker killed in between would have shown an answer that no later prompt has."""
    bench = Bench()
    bench.accept(0, output=2)
    bench.publisher.done = lambda *_: seen.append(len(bench.history.turns))  # type: ignore[method-assign]
    seen: list[int] = []
    bench.run()
    assert seen == [1]
