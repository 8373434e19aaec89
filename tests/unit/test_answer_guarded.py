"""A guarded answer: deltas, the text so far and its end are of one text; one that is cut frees its slot at once."""

from hypothesis import given
from hypothesis import strategies as st

from shared.clock import now_unix_ms
from shared.deadline import Deadline
from shared.fallback import Fallback
from shared.messages import ChatRequest, Grounding, ReplyDone, Timings, Usage
from shared.requests import Defaults, settle
from shared.settings import Settings
from shared.tokenizer import Tokenizer
from workers.answer import Answer
from workers.conversation import Prompt
from workers.costs import CostModel
from workers.engine import Sampling
from workers.engine.fake import FakeEngine
from workers.engine_loop import Ended, EngineLoop, News, run_step
from workers.guard import FactGuard
from workers.job import Job
from workers.lengths import OutputLengths
from workers.policies import build_scheduler
from workers.scheduler import SchedulerLimits
from workers.sequence import Sequence

TOKENIZER = Tokenizer.byte_level()
ENTRY = Grounding(id="cost", question="What is delivery?", answer="Delivery costs €4.90. Express is €12.90.")
TEXTS = st.lists(
    st.sampled_from(
        ["Delivery costs €4.90. ", "It is €9. ", "你好。", "😀", "Well, ", "30 days", "\n", "END", "E", "."]
    ),
    max_size=20,
).map("".join)


def answer(*stops: str, guard: FactGuard | None = None) -> Answer:
    return Answer(
        request_id="r", session_id="s", attempt=7, token_bytes=TOKENIZER.token_bytes, stops=stops, guard=guard
    )


def guarded(*stops: str) -> Answer:
    return answer(*stops, guard=FactGuard([ENTRY], ()))


def done(written: Answer) -> ReplyDone:
    return written.done(status="completed", reason="stop", usage=Usage(), timings=Timings(), model="m")


def write(written: Answer, text: str, taken: list[bool] | None = None) -> list[str]:
    takes, deltas = iter(taken or []), []
    for token_id in TOKENIZER.encode_text(text):
        written.add(token_id)
        if next(takes, False) and (delta := written.take_delta()) is not None:
            deltas.append(delta)
        if written.stopped:
            break
    written.finish()
    if (delta := written.take_delta()) is not None:
        deltas.append(delta)
    offset = 0
    for delta in deltas:
        assert delta.offset == offset
        offset += len(delta.delta)
    return [delta.delta for delta in deltas]


@given(TEXTS, st.lists(st.booleans(), max_size=200))
def test_deltas_so_far_and_the_end_are_of_one_text(text: str, taken: list[bool]) -> None:
    written = guarded("END")
    deltas = write(written, text, taken)
    ended = done(written)
    assert "".join(deltas) == written.text == ended.output_text
    so_far = written.so_far()
    assert (so_far.delta if so_far is not None else "") == written.text
    alone = FactGuard([ENTRY], ())
    assert ended.output_text == alone.feed(text.partition("END")[0]) + alone.finish()
    assert ended.replaced == alone.replaced
    assert "END" not in written.text


@given(TEXTS, st.lists(st.booleans(), max_size=200))
def test_the_same_tokens_again_make_the_same_answer(text: str, taken: list[bool]) -> None:
    first, second = guarded(), guarded()
    write(first, text)
    write(second, text, taken)
    assert done(first) == done(second)


def test_who_wrote_the_answer_is_told() -> None:
    for text, source in {
        "Delivery costs €4.90.": "model",
        "Hello! It is €9.": "mixed",
        "It is €9.": "faq",
    }.items():
        written = guarded()
        write(written, text)
        assert done(written).source == source, text
        assert [each.id for each in done(written).replaced] == ([] if source == "model" else ["cost"])


def test_an_answer_of_which_nothing_is_left_says_so() -> None:
    written = answer(guard=FactGuard([], ()))
    write(written, "It is €9.")
    assert (written.withheld, written.text, written.so_far()) == (True, "", None)
    assert not guarded().withheld


def test_the_first_text_is_waiting_once_its_sentence_has_ended() -> None:
    written = guarded()
    for token_id in TOKENIZER.encode_text("Hello!"):
        written.add(token_id)
        assert not written.begins
    written.add(TOKENIZER.encode_text(" ")[0])
    assert written.begins
    written.take_delta()
    assert not written.begins


def test_half_a_number_is_not_shown_where_an_answer_is_cut_off() -> None:
    written = guarded()
    for token_id in TOKENIZER.encode_text("Delivery costs €4.90. Express is €12"):
        written.add(token_id)
    written.finish(whole=False)
    assert written.text == "Delivery costs €4.90. Express is"


def test_an_answer_that_is_cut_frees_its_slot_in_that_step() -> None:
    loop, news = circling_loop()
    steps = 0
    while (step := loop.next_step()) is not None:
        loop.take_in(step, run_step(loop.engine, step, loop.keep))
        steps += 1
    assert steps == 2, "the second sentence is the first again"
    (ended,) = [item.finished for item in news if isinstance(item, Ended)]
    assert (ended.status, ended.reason) == ("completed", "stop")
    assert loop.scheduler.num_running == 0


def circling_loop() -> tuple[EngineLoop, list[News]]:
    """One sequence whose every token is the same sentence."""
    engine, costs, news = FakeEngine(num_slots=1, max_length=64), CostModel.prior(), list[News]()
    limits = SchedulerLimits(
        num_slots=1, prefill_chunk_tokens=16, max_prefill_rows=1, stop_token_ids=engine.info.stop_token_ids
    )
    loop = EngineLoop(
        engine=engine,
        scheduler=build_scheduler("goodput", limits=limits, costs=costs, lengths=OutputLengths()),
        costs=costs,
        tell=news.extend,
        interval_s=0.0,
        keep=lambda sequence, start, values: None,
    )
    now = now_unix_ms()
    request = ChatRequest(id="r", session_id="s", input="hi", reply_topic="chat.replies")
    loop.add(
        Job(
            order=settle(request, Defaults.of(Settings()), now),
            bucket="short",
            sequence=Sequence(
                request_id="r",
                prompt_ids=[5, 6, 7],
                max_output_tokens=40,
                sampling=Sampling(),
                deadline=Deadline.after(now, first_token_ms=60_000, whole_ms=60_000),
                arrived_unix_ms=now,
            ),
            answer=Answer(
                request_id="r",
                session_id="s",
                attempt=1,
                token_bytes=lambda _: b"We are so very glad to help you. ",
                stops=(),
                guard=FactGuard([ENTRY], ()),
            ),
            prompt=Prompt(ids=[5, 6, 7], shared_tokens=0),
            fallback=Fallback(source="busy", text="busy", language="en"),
        )
    )
    return loop, news
