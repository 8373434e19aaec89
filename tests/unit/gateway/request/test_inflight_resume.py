"""A client gets one text, once, and one end, at any break of its socket and any gateway to which it reconnects."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gateway.destination.destination import Destination
from gateway.request.cursor import CursorKey, Place, ResumePoint
from gateway.request.entry import Entry, Item, Publication, RequestTrace
from gateway.request.outbox import Outbox
from shared.tracing.context import TraceContext
from shared.wire.deadline import Deadline
from shared.wire.messages import Reply, ReplyDelta, ReplyDone, ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import FAQ, Requests, delta, done, make_entry, texts
from tests.unit.examples import examples

SEAL = CursorKey(b"secret").seal(SessionKey("t", "s"))
SESSION = SessionKey("t", "s")


def told(text: str = "", *, number: int = 1, soft: int = 200, hard: int = 1_000, age: int = 0) -> ResumePoint:
    """Received at 0; of that age."""
    each = make_entry(number, soft=soft, hard=hard, log=Place(0, 0))
    opened = each.opened().resume_point
    if text:
        opened.add_text(text)
    opened.age_ms = age
    return opened


def adopted(table: Requests, text: str = "", *, now: float = 100.0) -> Entry:
    return table.adopt(told(text, age=int(now)), SESSION, "c2", now)


# --- the gateway that began it


def test_a_returning_client_gets_the_rest(table: Requests) -> None:
    entry = make_entry()
    table.accept(entry)
    entry.answer.admit(1)
    entry.acknowledge()
    table.delta(delta("Hello"), 2)
    table.detach("c")
    assert texts(table.resume(entry, "c2", told("He"))) == [(2, "llo")]
    assert table.resume(entry, "c3", told("Hello")) == []
    assert texts(table.delta(delta(" you", 5), 3)) == [(5, " you")]
    table.finish(entry, done("Hello you!"), 4)
    assert texts(table.resume(entry, "c4", told("Hello"))) == [(5, " you!"), ("completed", "stop", "Hello you!")]
    assert texts(table.resume(entry, "c5", told("Hello you!"))) == [("completed", "stop", "Hello you!")]
    assert entry.connection_id == "c5"


def test_a_repeated_answer_that_is_not_confirmed_here_is_sent_from_its_beginning(
    table: Requests,
) -> None:
    entry = make_entry()
    table.accept(entry)
    entry.answer.admit(1)
    table.delta(delta("Hello"), 2)
    assert table.resume(entry, "c2", told("He")) == []
    assert texts(table.fall_back(entry, FAQ, 3)) == [
        entry.opened().created,
        (0, FAQ.text),
        ("completed", "stop", FAQ.text),
    ]


def test_a_client_that_returns_with_less_text_has_the_soft_deadline_again(table: Requests) -> None:
    entry = adopted(table, "Hel", now=0.0)
    table.end_recall(entry)
    assert [*table.due_times.late(300)] == [], "its client has text"
    table.resume(entry, "c3", told())
    assert table.due_times.next_unix_ms() == entry.deadline.first_token_unix_ms
    assert [*table.due_times.late(301)] == [entry]


def test_a_client_that_repeats_its_event_has_the_soft_deadline_again(table: Requests) -> None:
    """The text shown elsewhere is not sent any more, and none has arrived here yet."""
    entry = adopted(table, "Hel", now=0.0)
    table.end_recall(entry)
    assert [*table.due_times.late(300)] == [], "its client has text"
    assert texts(table.reattach(entry, "c3")) == [entry.opened().created]
    assert [*table.due_times.late(301)] == [entry]


# --- another one


def test_an_adopted_answer_continues_at_its_clients_position(table: Requests) -> None:
    entry = adopted(table, "Hel")
    assert table.delta(delta("He"), 101) == []
    assert texts(table.delta(delta("llo", 2), 102)) == [(3, "lo")]
    items = table.finish(entry, done("Hello you"), 103)
    assert texts(items) == [(5, " you"), ("completed", "stop", "Hello you")]


def test_the_log_may_be_read_twice(table: Requests) -> None:
    adopted(table, "Hel")
    for _ in range(2):
        assert table.delta(delta("He"), 101) == []
    assert texts(table.delta(delta("llo", 2), 102)) == [(3, "lo")]
    assert table.delta(delta("He"), 103) == table.delta(delta("llo", 2), 103) == []


def test_a_client_that_was_shown_another_text_gets_a_restart(table: Requests) -> None:
    """The first gateway showed its fallback, and died before the log had it."""
    entry = adopted(table, "We are busy")
    assert table.delta(delta("Hello"), 101) == []
    created = entry.opened().created
    assert texts(table.delta(delta(" you there", 5), 102)) == [created, (0, "Hello you there")]
    assert texts(table.finish(entry, done("Hello you there"), 103)) == [("completed", "stop", "Hello you there")]


def test_an_end_shorter_than_the_shown_text_is_a_restart(table: Requests) -> None:
    entry = adopted(table, "We are busy")
    assert texts(table.finish(entry, done("Hi"), 101)) == [
        entry.opened().created,
        (0, "Hi"),
        ("completed", "stop", "Hi"),
    ]


def test_the_same_fallback_continues_where_the_first_gateway_stopped(table: Requests) -> None:
    entry = adopted(table, FAQ.text[:6])
    assert texts(table.fall_back(entry, FAQ, 300)) == [(6, FAQ.text[6:]), ("completed", "stop", FAQ.text)]


def test_a_gateways_own_end_is_the_answer_whatever_was_read_before(table: Requests) -> None:
    entry = adopted(table)
    assert texts(table.delta(delta("Hel"), 101)) == [(0, "Hel")]
    end = ReplyDone(**{**_fields(done(FAQ.text)), "origin": "gateway"})
    items = table.finish(entry, end, 102)
    assert texts(items) == [entry.opened().created, (0, FAQ.text), ("completed", "stop", FAQ.text)]


def test_an_earlier_cut_elsewhere_keeps_the_shown_text(table: Requests) -> None:
    entry = adopted(table)
    table.delta(delta("Hello"), 101)
    items = table.finish(entry, done("Hel", status="incomplete", reason="deadline"), 102)
    assert texts(items) == [("incomplete", "deadline", "Hello")]


def _fields(message: ReplyDone) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


# --- its deadlines


def test_an_adopted_answer_keeps_its_deadlines(table: Requests) -> None:
    entry = adopted(table, now=100)
    table.end_recall(entry)
    assert [*table.due_times.late(199)] == []
    assert [*table.due_times.late(200)] == [entry]


def test_while_the_log_is_read_the_deadlines_wait_a_little(table: Requests) -> None:
    entry = adopted(table, "Hello", now=950)
    assert [*table.due_times.late(1_000)] == [*table.due_times.late(1_199)] == []
    assert [*table.due_times.late(1_200)] == [entry]
    assert entry.adoption is not None
    assert entry.adoption.latest_unix_ms == 1_200, "no deadline is waited for after that"


@pytest.mark.parametrize("now", [1_000, 50_000])
def test_an_ended_answer_is_first_read_from_the_log_for_a_second_at_most(table: Requests, now: int) -> None:
    entry = adopted(table, "Hello", now=now)
    assert [*table.due_times.late(now + 999)] == []
    table.end_recall(entry)
    assert [*table.due_times.late(now + 999)] == [entry]
    other = Requests()
    entry = adopted(other, "Hello", now=now)
    assert [*other.due_times.late(now + 999)] == []
    assert [*other.due_times.late(now + 1_000)] == [entry]
    assert entry.adoption is not None
    assert entry.adoption.latest_unix_ms == now + 1_200


def test_with_text_shown_elsewhere_the_soft_deadline_is_kept(table: Requests) -> None:
    entry = adopted(table, "Hello", now=100)
    table.end_recall(entry)
    assert [*table.due_times.late(999)] == []
    assert [*table.due_times.late(1_000)] == [entry]


def test_a_cursor_contains_all_that_another_gateway_needs_of_an_answer(table: Requests) -> None:
    """The log's and the request's positions, its generation, its trace, and its promised time."""
    begun = make_entry(
        soft=7_200,
        hard=8_000,
        received=7_000.0,
        bucket="long",
        generation=3,
        clock_ms=60_000,
        log=Place(1, 5),
        place=Place(2, 6),
        trace=RequestTrace(context=TraceContext(1, 2), recorded=True),
    )
    each = begun.opened().resume_point
    assert each.trace == TraceContext(1, 2).packed()
    each.age_ms = 150
    entry = table.adopt(each, SESSION, "c2", 150.0)
    assert entry.publication == Publication(destination=Destination(bucket="long"), place=Place(2, 6), published=True)
    assert not adopted(table).publication.published, "the request's position is unknown"
    deadline = Deadline(first_token_unix_ms=200, deadline_unix_ms=1_000)
    assert entry.request == replace(
        begun.request, input="", received_unix_ms=0, deadline=deadline, clock_ms=67_000, trace=None
    )
    assert (entry.connection_id, begun.adoption, entry.input) == ("c2", None, "")
    assert entry.request.asked_unix_ms == 67_000


def test_the_cursor_of_an_adopted_answer_is_as_good_as_the_first(table: Requests) -> None:
    entry = table.adopt(told(age=950), SESSION, "c2", 950)
    assert entry.opened().resume_point == told(), "its age is written with it"
    table.end_recall(entry)
    assert entry.opened().resume_point == told()


@pytest.mark.parametrize("off_ms", [-3_600_000, -60_000, 0, 60_000, 3_600_000])
def test_an_adopted_answers_deadlines_use_its_age_and_not_the_first_gateways_clock(
    table: Requests, off_ms: int
) -> None:
    """Its cursor, its request and its cancel have the first gateway's time."""
    each = told(age=150)
    each.received_unix_ms = 1_800_000_000_000 + off_ms
    entry = table.adopt(each, SESSION, "c2", 7_000)
    table.end_recall(entry)
    assert (entry.deadline.first_token_unix_ms, entry.deadline.deadline_unix_ms) == (7_050, 7_850)
    assert entry.request.asked_unix_ms == each.received_unix_ms
    assert entry.opened().resume_point.received_unix_ms == each.received_unix_ms


# --- anywhere, any time


@dataclass
class Shop:
    """A gateway: its table, the part of the log it has read, whether it is alive."""

    table: Requests = field(default_factory=Requests)
    read: int = 0
    alive: bool = True


class Resuming(RuleBasedStateMachine):
    """One answer in one log, two gateways that read it when they like, a client that moves between them."""

    @initialize(text=st.text("ab你", min_size=1, max_size=12))
    def ask(self, text: str) -> None:
        self.text = text
        self.log: list[Reply] = []
        self.shops = [Shop(), Shop()]
        self.at, self.connection, self.num_connections = 0, "c", 1
        self.outbox = Outbox()
        self.outbox.start_session(SEAL, (), 0.0)
        self.cursor: str | None = None
        self.seen, self.seq, self.ends = "", 0, 0
        entry = make_entry(soft=10_000, hard=10_000, log=Place(0, 0))
        table = self.shops[0].table
        table.accept(entry)
        entry.answer.admit(1)
        self.show(entry.acknowledge())
        self.arrive()

    def show(self, items: list[Item]) -> None:
        for item in items:
            self.outbox.put(item)

    def hear(self, shop: Shop, reply: Reply) -> list[Item]:
        if isinstance(reply, ReplyDelta):
            return shop.table.delta(reply, 2)
        entry = shop.table.get(reply.request_id)
        return shop.table.finish(entry, reply, 3) if entry is not None else []

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """A worker writes on, or again; a delta may be lost."""
        start = data.draw(st.integers(0, len(self.text)))
        stop = data.draw(st.integers(start, len(self.text)))
        self.log.append(delta(self.text[start:stop], start))

    @rule()
    def end(self) -> None:
        self.log.append(done(self.text))

    @rule(shop=st.integers(0, 1), records=st.integers(1, 5))
    def follow(self, shop: int, records: int) -> None:
        reader = self.shops[shop]
        for reply in self.log[reader.read : reader.read + records]:
            entry = reader.table.get(reply.request_id)
            items = self.hear(reader, reply)
            if shop == self.at and entry is not None and entry.connection_id == self.connection:
                self.show(items)
        reader.read = min(len(self.log), reader.read + records)

    @rule()
    def arrive(self) -> None:
        """All that was written to the socket reaches the client."""
        for message in self.outbox.drain(0.0):
            if isinstance(message, ResponseCreated):
                assert self.seen == "", "no text is sent twice"
            elif isinstance(message, ResponseDelta):
                assert (message.seq, message.offset) == (self.seq, len(self.seen))
                self.seen += message.delta
                self.seq += 1
            elif isinstance(message, ResponseDone):
                assert message.response.output_text == self.seen == self.text
                self.ends += 1
            self.cursor = getattr(message, "cursor", self.cursor)

    @rule(shop=st.integers(0, 1), lost=st.booleans())
    def move(self, shop: int, lost: bool) -> None:
        """The socket breaks, before or after its buffer has arrived; the client reconnects to either gateway. A gateway
        that does not know the answer reads the log from its beginning.
        """
        if not lost:
            self.arrive()
        self.outbox = Outbox()
        self.shops[self.at].table.detach(self.connection)
        self.at, self.connection = shop, f"c{self.num_connections}"
        self.num_connections += 1
        assert self.cursor is not None
        open_ = SEAL.read(self.cursor)
        assert open_ is not None
        self.outbox.start_session(SEAL, open_, 0.0)
        for each in open_:
            reader = self.shops[shop]
            entry = reader.table.get_any(each.response_id)
            if entry is None:
                reader.table.adopt(each, SESSION, self.connection, 2)
                reader.read = 0
            else:
                self.show(reader.table.resume(entry, self.connection, each))

    @rule(shop=st.integers(0, 1))
    def die(self, shop: int) -> None:
        """Replace the process; its client, if any, reconnects to it or the other."""
        self.shops[shop] = Shop(read=len(self.log))
        if shop == self.at:
            self.move(1 - shop, lost=True)

    def teardown(self) -> None:
        if not hasattr(self, "text"):
            return
        self.end()
        self.follow(self.at, 10_000)
        self.arrive()
        assert (self.seen, self.ends) == (self.text, 1)


TestResuming = Resuming.TestCase
TestResuming.settings = settings(max_examples=examples(200), stateful_step_count=30)
