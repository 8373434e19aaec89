"""A request that comes again: computed once, told to everyone who asks, and nothing of what was erased."""

import pytest

from shared.errors import EngineError, ProtocolError
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.wire.messages import Adopt, Cancel, ChatRequest, ReplyDelta, ReplyDone
from shared.wire.requests import settle
from tests.support.fakes.worker_bench import DEFAULTS, TOPIC, Bench, decided
from workers.request.job import Job
from workers.request.reply_publisher import Target

THERE: Target = ("chat.replies", 1)
AGAIN: tuple[Partition, int] = (TOPIC, 100)


def repeat(bench: Bench, offset: int = 0, *, text: str = "hi", partition: int | None = 1) -> bool:
    request = ChatRequest(
        id=f"r{offset}", session_id="s", input=text, reply_topic="chat.replies", reply_partition=partition
    )
    bench.offsets.begin(*AGAIN)
    return bench.worker.repeated(settle(request, DEFAULTS, now_unix_ms()), AGAIN)


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


def test_an_answer_that_is_asked_for_again_goes_to_both_and_is_computed_once() -> None:
    bench = Bench()
    job = bench.accept(0, output=5)
    assert bench.step()
    assert bench.step()
    assert repeat(bench)
    bench.run()
    home, there = job.targets
    assert (text_at(bench, home), text_at(bench, there)) == ("aaaaa", "aaaaa")
    assert len(bench.history.turns) == 1


def test_both_records_are_done_when_both_have_the_end() -> None:
    bench = Bench()
    bench.accept(0)
    repeat(bench)
    bench.run()
    bench.acknowledge(target=THERE)
    assert bench.offsets.committable() == {}
    bench.acknowledge()
    assert bench.offsets.num_open == 0
    assert bench.worker.idle


def test_who_asks_again_while_its_end_is_on_its_way_holds_up_no_commit() -> None:
    """Both times it is told leave as one."""
    bench = Bench()
    bench.accept(0)
    bench.run()
    assert repeat(bench, partition=None)
    assert len(bench.ends()) == 1
    bench.acknowledge()
    assert bench.offsets.committable() == {TOPIC: 101}
    assert bench.worker.idle


def test_who_asks_again_at_the_same_gateway_gets_all_of_it_again() -> None:
    """Its process is another one, and has nothing of the text."""
    bench = Bench()
    job = bench.accept(0, output=4)
    assert bench.step()
    assert repeat(bench, partition=None)
    bench.run()
    assert len(job.targets) == 1
    assert [reply.offset for reply in bench.publisher.said if isinstance(reply, ReplyDelta)][:2] == [0, 0]
    assert text_at(bench, next(iter(job.targets))) == "aaaa"


def test_what_was_answered_is_told_again_uncomputed() -> None:
    bench = Bench()
    bench.accept(0)
    bench.run()
    [end] = bench.ends()
    assert repeat(bench), "while its end is on its way"
    bench.acknowledge()
    assert bench.worker.idle
    assert repeat(bench, partition=2)
    assert bench.publisher.by_target[THERE] == [_whole(end), end]
    assert bench.publisher.by_target["chat.replies", 2] == [end]
    bench.acknowledge()
    assert bench.offsets.num_open == 0
    assert not bench.step()


def adopt(bench: Bench, job: Job, partition: int = 1, *, earlier_ms: int = 0) -> None:
    created = job.order.created_unix_ms - earlier_ms
    bench.worker.adopt(Adopt(request_id=job.id, reply_partition=partition, created_unix_ms=created))


def test_an_answer_whose_client_has_come_to_another_gateway_is_told_there_whole() -> None:
    bench = Bench()
    job = bench.accept(0, output=5, created_unix_ms=int(now_unix_ms()))
    assert bench.step()
    assert bench.step()
    adopt(bench, job)
    bench.run()
    home, there = job.targets
    assert (there, text_at(bench, home), text_at(bench, there)) == (THERE, "aaaaa", "aaaaa")
    bench.acknowledge(target=home)
    assert not bench.worker.idle
    bench.acknowledge()
    assert bench.worker.idle


def test_a_gateway_hears_at_once_of_an_answer_that_has_no_text_yet() -> None:
    bench = Bench()
    job = bench.accept(0, output=5, created_unix_ms=int(now_unix_ms()))
    adopt(bench, job)
    assert [reply.delta for reply in bench.publisher.by_target[THERE] if isinstance(reply, ReplyDelta)] == [""]
    bench.run()
    assert text_at(bench, THERE) == "aaaaa"


def test_an_answer_that_has_ended_is_told_to_the_gateway_that_its_client_has_come_to() -> None:
    bench = Bench()
    job = bench.accept(0, created_unix_ms=int(now_unix_ms()))
    bench.run()
    [end] = bench.ends()
    bench.acknowledge()
    adopt(bench, job)
    assert bench.publisher.by_target[THERE] == [end]
    bench.acknowledge()
    assert bench.worker.idle


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
        bench.worker.adopt(Adopt(request_id="r9", reply_partition=1, created_unix_ms=1))
    else:
        adopt(bench, job, earlier_ms=1 if what == "asked earlier" else 0)
    bench.run()
    assert THERE not in bench.publisher.by_target


CANCEL = Cancel(request_id="r0")


def _whole(end: ReplyDone) -> ReplyDelta:
    return ReplyDelta(request_id="r0", session_id="s", attempt=1, seq=0, offset=0, delta=end.output_text)


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


def test_an_answer_that_nobody_waits_for_is_leaving_until_its_end_is_acknowledged() -> None:
    """Who asks for the same then would be told that it was cancelled."""
    bench = Bench()
    bench.accept(0, output=30)
    assert bench.step()
    assert not bench.worker.leaving("r0", AGAIN)
    assert bench.worker.cancel(CANCEL)
    assert bench.worker.leaving("r0", AGAIN)
    assert not bench.worker.leaving("r0", (TOPIC, 0)), "its own record, read again"
    assert not bench.worker.cancel(CANCEL), "one that comes now may be for who asks again"
    bench.run()
    assert bench.worker.leaving("r0", AGAIN)
    bench.acknowledge()
    assert not bench.worker.leaving("r0", AGAIN)
    assert not repeat(bench)


def test_an_answer_that_was_cancelled_before_it_came_is_leaving_from_the_start() -> None:
    bench = Bench()
    decided(bench, cancelled=True)
    assert bench.worker.leaving("r0", AGAIN)


def test_an_answer_that_ended_before_its_cancel_took_effect_is_told() -> None:
    bench = Bench()
    job = bench.accept(0)
    bench.run()
    job.withdrawn = True
    assert not bench.worker.leaving("r0", AGAIN)


def test_an_erased_conversations_answer_is_leaving_while_it_is_written_and_after() -> None:
    bench = Bench()
    bench.accept(0)
    bench.erase()
    assert bench.worker.leaving("r0", AGAIN)
    bench.run()
    assert bench.worker.leaving("r0", AGAIN)
    bench.acknowledge()
    assert not bench.worker.leaving("r0", AGAIN)


def test_what_failed_is_leaving_and_what_was_answered_is_not() -> None:
    bench = Bench()
    bench.accept(0, output=30)
    assert bench.step()
    bench.engine_loop._fail(EngineError("out of memory"))
    assert bench.worker.leaving("r0", AGAIN)
    bench.accept(1)
    bench.run()
    assert not bench.worker.leaving("r1", AGAIN)


def test_an_erased_conversations_answer_is_not_told_again() -> None:
    bench = Bench()
    bench.accept(0)
    bench.run()
    bench.acknowledge()
    bench.erase()
    assert not repeat(bench)


def test_nor_is_one_of_a_conversation_that_is_erased_while_it_is_written() -> None:
    bench = Bench()
    bench.accept(0)
    bench.accept(1)
    bench.erase("another")
    bench.run()
    bench.acknowledge()
    assert repeat(bench)
    bench.accept(2)
    bench.erase()
    bench.run()
    bench.acknowledge()
    assert not repeat(bench, 2)


def test_nor_is_one_of_a_conversation_that_is_erased_while_its_question_is_prepared() -> None:
    bench = Bench()
    generation = bench.erase()
    job = bench.accept(0)
    assert job.sequence.erased, "nor does its slot serve the next prompt"
    later = bench.accept(1, generation=generation)
    bench.run()
    bench.acknowledge()
    assert not repeat(bench, 0)
    assert (later.erased, later.sequence.erased) == (False, False)
    assert repeat(bench, 1)


def test_what_was_asked_of_the_new_conversation_before_this_process_heard_of_it_is_not_erased() -> None:
    """A request may be read before the erasure that came before it: by what its gateway knew, not by the clock."""
    bench = Bench()
    later = bench.accept(0, generation=int(now_unix_ms()) + 60_000)
    bench.erase()
    bench.run()
    assert not later.erased
    assert [turn.request_id for turn in bench.history.turns] == ["r0"]


@pytest.mark.parametrize("when", ["before it comes", "while it is written"])
def test_an_erased_conversations_turn_is_not_remembered(when: str) -> None:
    """Redis may have lost the mark that would keep it out."""
    bench = Bench()
    if when == "before it comes":
        bench.erase()
    bench.accept(0)
    assert bench.step()
    if when == "while it is written":
        bench.erase()
    bench.run()
    assert len(bench.ends()) == 1
    assert bench.history.turns == []
    assert [session.session_id for session, _ in bench.history.forgotten] == ["s"]


def test_a_cancel_is_of_the_request_that_it_names() -> None:
    """The same gateway has asked again since; what it took back before is not what it waits for now."""
    bench = Bench()
    job = bench.accept(0, output=9)
    target, again = next(iter(job.targets)), 7
    bench.worker._tell_also(job, target, again)
    old = Cancel(request_id="r0", created_unix_ms=job.order.created_unix_ms)
    assert bench.worker.cancel(old)
    assert not job.withdrawn
    assert bench.worker.cancel(Cancel(request_id="r0", created_unix_ms=again))
    assert job.withdrawn


def test_a_cancel_ends_the_work_when_nobody_is_left_to_wait() -> None:
    bench = Bench()
    request = ChatRequest(id="r0", session_id="s", input="hi", reply_topic="chat.replies", reply_partition=0)
    job = bench.accept(0, output=30)
    job.targets = {("chat.replies", request.reply_partition): None}
    repeat(bench)
    assert bench.step()
    assert bench.worker.cancel(Cancel(request_id="r0", reply_partition=0))
    assert bench.step()
    assert bench.worker.cancel(Cancel(request_id="r0", reply_partition=0)), "who was let go has no say any more"
    assert bench.step()
    assert list(job.targets) == [THERE]
    assert bench.publisher.forgotten == [(("chat.replies", 0), "r0")]
    assert bench.worker.cancel(Cancel(request_id="r0", reply_partition=1))
    bench.run()
    assert [(end.status, end.reason) for end in bench.ends()] == [("cancelled", "client")]
    assert bench.publisher.by_target[THERE][-1] == bench.ends()[0]
    assert len(bench.publisher.forgotten) == 1, "the last has the end yet to come"


def test_a_decided_answer_is_told_again_like_any_other() -> None:
    bench = Bench()
    decided(bench)
    assert repeat(bench), "while its end is on its way"
    bench.acknowledge()
    assert repeat(bench, partition=2)
    assert bench.publisher.by_target["chat.replies", 2] == [bench.ends()[0]]
    assert len(bench.history.turns) == 1


def test_another_services_reader_is_not_told_twice_of_a_request_that_is_delivered_twice() -> None:
    bench = Bench()
    job = bench.accept(0, output=3)
    job.targets = {("chat.replies.crm", None): None}
    assert bench.step()
    bench.worker._tell_also(job, ("chat.replies.crm", None), None)
    bench.run()
    assert bench.deltas() == ["a", "a", "a"]
    assert len(bench.ends()) == 1
