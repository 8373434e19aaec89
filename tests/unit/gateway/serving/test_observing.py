"""Each answer of a rollout is evidence: once, without text, and a success only of the version that gave it."""

from typing import Any, get_args

import pytest
from msgspec import msgpack

from gateway.destination.destination import Destination
from gateway.destination.partitions import Claimed
from gateway.request.entry import Entry
from gateway.telemetry.observation import has_moved, observation_of
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.versions.state import Rule
from shared.versions.state import State as Versions
from shared.wire.deadline import Deadline
from shared.wire.messages import Feedback, HandoffRequest, ResponseCreate, Resume, SessionStart
from shared.wire.outcome import Source, Timings
from shared.wire.reports import Observation
from tests.support.builders.gateway import answer, make_entry, report
from tests.support.fakes.gateways import MINUTE_MS, TOPICS, Edge, delta, done, quiet

IN_TIME = Timings(ttft_ms=100.0, total_ms=500.0)


LATE = Timings(ttft_ms=201.0, total_ms=500.0)


def ended(*, asked: Any = "canary", stood_in: bool = False, text: str = "Hello", **fields: Any) -> Observation | None:
    entry: Entry = make_entry(destination=Destination(asked, "new", 3), stood_in=stood_in)
    own = {"timings": IN_TIME, "lane": asked, "revision": "new"}
    return observation_of(entry, answer(entry.response_id, text, **(own | fields)), 7)


def judged(**fields: Any) -> tuple[bool, bool, bool, float | None]:
    seen = ended(**fields)
    assert seen is not None
    assert (seen.lane, seen.revision, seen.epoch, seen.unix_ms) == ("canary", "new", 3, 7)
    return seen.failed, seen.missed, seen.unsure, seen.ttft_ms


def test_an_answer_is_judged_by_its_promise_source_and_end() -> None:
    assert judged() == (False, False, False, 100.0)
    assert judged(timings=LATE) == (False, True, False, 201.0)
    assert judged(timings=Timings(ttft_ms=100.0, total_ms=1_001.0)) == (False, True, False, 100.0)
    assert judged(reason="deadline", status="incomplete") == (False, True, False, 100.0)
    assert judged(source="unsure", revision=None) == (False, False, True, 100.0)
    assert judged(status="failed", reason="internal") == (True, True, False, 100.0)
    assert judged(source="faq", stood_in=True, lane=None, revision=None) == (False, True, False, None)


def test_an_answer_that_ended_since_a_person_took_the_conversation_is_no_evidence() -> None:
    assert ended(status="cancelled", reason="client") is not None
    assert ended(status="cancelled", reason="person") is None


@pytest.mark.parametrize("source", get_args(Source))
def test_an_answer_that_claims_nothing_counts_as_unsure(source: Source) -> None:
    seen = ended(source=source)
    assert seen is not None
    assert seen.unsure == (source in {"quote", "unsure"})


def test_an_observation_names_the_worker_that_was_asked() -> None:
    entry: Entry = make_entry(destination=Destination("canary", "new", 3, worker_id="pod-3"))
    seen = observation_of(entry, answer(entry.response_id, "", lane=None, revision=None, timings=LATE), 7)
    assert seen is not None
    assert seen.worker_id == "pod-3"


OTHERS = [
    {"lane": None, "revision": "old"},
    {"lane": None, "revision": "new"},
    {"lane": None, "revision": None, "source": "faq"},
    {"lane": "light", "revision": "small"},
    {"revision": "old"},
    {"revision": None, "source": "model"},
]


@pytest.mark.parametrize("asked", ["canary", "control"])
@pytest.mark.parametrize("other", OTHERS)
def test_an_answer_by_another_version_is_no_success_of_the_requested_one(asked: Any, other: dict[str, Any]) -> None:
    for fields in ({}, {"source": "unsure"}, {"status": "cancelled"}):
        seen = ended(asked=asked, **(fields | other))
        assert seen is not None
        assert (seen.revision, seen.answered_by) == ("new", other.get("revision") or "")
        assert (seen.censored, seen.missed, seen.unsure, seen.cancelled, seen.ttft_ms) == (True, *[False] * 3, None)
    late, failed = ended(asked=asked, timings=LATE, **other), ended(asked=asked, status="failed", **other)
    assert late is not None
    assert (late.censored, late.failed, late.missed, late.ttft_ms) == (False, False, True, None)
    assert failed is not None
    assert (failed.censored, failed.failed) == (False, True)


def test_a_cancel_or_a_wish_for_a_person_is_recorded_apart_from_the_promise() -> None:
    stopped = ended(status="cancelled", reason="client", timings=LATE)
    person = ended(source="handoff", lane=None, revision=None, timings=LATE)
    assert stopped is not None
    assert person is not None
    assert [(each.cancelled, each.handed_over) for each in (stopped, person)] == [(True, False), (False, True)]
    assert {(each.failed, each.missed, each.unsure, each.censored) for each in (stopped, person)} == {(False,) * 4}


@pytest.mark.parametrize("side", ["canary", "control"])
@pytest.mark.parametrize("named", [{}, {"lane": None, "revision": None}], ids=["of its worker", "of no worker yet"])
def test_who_stops_an_answer_before_its_first_text_is_counted(side: Any, named: dict[str, Any]) -> None:
    """A version that says nothing for long is stopped: without them it would be judged by patient customers alone."""
    seen = ended(asked=side, text="", status="cancelled", reason="client", **named)
    assert seen is not None
    assert (seen.cancelled, seen.censored, seen.failed, seen.missed, seen.unsure) == (True, *[False] * 4)


@pytest.mark.parametrize(("total_ms", "asked_unix_ms"), [(400.0, 9_600), (None, 0), (20_000.0, 0)])
def test_the_time_of_the_question_is_by_the_clock_of_the_answers_end(
    total_ms: float | None, asked_unix_ms: int
) -> None:
    """The process's own clock may differ from that: setting a clock does not move it."""
    entry = make_entry(destination=Destination("canary", "new", 3))
    own = {"timings": Timings(ttft_ms=100.0, total_ms=total_ms), "lane": "canary", "revision": "new"}
    seen = observation_of(entry, answer(entry.response_id, "Hello", status="failed", **own), 10_000)
    assert total_ms is None or (seen is not None and seen.asked_unix_ms == asked_unix_ms)


def test_an_answer_of_another_lane_is_not_observed() -> None:
    assert ended(asked="champion", lane=None) is None


@pytest.mark.parametrize("side", ["canary", "control"])
@pytest.mark.parametrize("given_up", [False, True], ids=["never got it", "gave it up"])
@pytest.mark.parametrize(
    "end",
    [
        {},
        {"timings": LATE},
        {"status": "failed", "reason": "internal"},
        {"source": "faq", "stood_in": True, "revision": None},
        {"source": "unsure"},
        {"source": "handoff"},
        {"status": "cancelled", "reason": "client"},
        {"status": "cancelled", "reason": "client", "text": ""},
    ],
    ids=str,
)
def test_a_diverted_question_is_no_evidence_and_one_that_was_given_up_is_missed(
    side: Any, given_up: bool, end: dict[str, Any]
) -> None:
    """On both sides alike, however the champion's answer ends, whose version is the control's too."""
    asked = Destination(side, "new" if side == "canary" else "old", 3)
    to = Destination("champion", "old", 3, diverted_from=asked, given_up=given_up)
    entry = make_entry(destination=to, stood_in=end.get("stood_in", False))
    own = {"timings": IN_TIME, "revision": "old", "text": "Hello"} | end
    own.pop("stood_in", None)
    seen = observation_of(entry, answer(entry.response_id, **own), 7)
    assert seen is not None
    assert (seen.lane, seen.revision, seen.epoch) == (side, asked.revision, 3)
    outcomes = (seen.failed, seen.unsure, seen.cancelled, seen.handed_over, seen.ttft_ms)
    assert (*outcomes, seen.missed, seen.censored) == (False, False, False, False, None, given_up, not given_up)
    assert seen.answered_by in ({""} if given_up else {"old", ""})


@pytest.mark.parametrize("given_up", [False, True])
def test_a_question_with_a_sooner_deadline_is_not_observed_where_it_was_diverted(given_up: bool) -> None:
    """There may have been time enough for the promise, on either side."""
    to = Destination("champion", "old", 3, diverted_from=Destination("canary", "new", 3), given_up=given_up)
    entry, promised = make_entry(destination=to), Deadline(first_token_unix_ms=2_000, deadline_unix_ms=10_000)
    sooner = Deadline(first_token_unix_ms=200, deadline_unix_ms=1_000, promised=promised)
    entry.deadline = sooner
    assert observation_of(entry, answer(entry.response_id, "Hello", timings=IN_TIME, revision="old"), 7) is None


def seen_by(edge: Edge) -> list[Observation]:
    return [msgpack.decode(each.value or b"", type=Observation) for each in edge.producer.of(TOPICS.observations)]


async def asked(edge: Edge, **fields: Any) -> Any:
    edge.move(Versions(aliases={"champion": "old", "canary": "new"}, rule=Rule(salt="a", share=1.0)))
    edge.serving.admission_gate.update_worker(
        "w", report("w", lane="canary", revisions=("new",), unix_ms=int(now_unix_ms()))
    )
    client = await edge.connect().say(
        SessionStart(session_id="s"), ResponseCreate(event_id="e", input="How long?", **fields)
    )
    await quiet()
    return client


SILENT = [{"reason": "stop"}, {"reason": "max_output_tokens"}, {"status": "failed", "reason": "internal"}]
TOO_LATE = [{"status": "incomplete", "reason": "infeasible"}, {"status": "incomplete", "reason": "deadline"}]


@pytest.mark.parametrize("sooner_ms", [0, 1, 5_000])
@pytest.mark.parametrize("end", [*SILENT, *TOO_LATE], ids=lambda end: end["reason"])
async def test_a_model_without_text_misses_the_promise_under_any_client_deadline(
    end: dict[str, Any], sooner_ms: int
) -> None:
    """Only an end for lack of time may come from an earlier deadline. One that is earlier by a millisecond is the
    promise, sent by a client that counts it down.
    """
    edge = Edge()
    await asked(edge, deadline_ms=MINUTE_MS - sooner_ms)
    edge.receive_replies([done(edge.asked[0].id, "", revision="new", lane="canary", **end)])
    await quiet()
    found = [(each.revision, each.missed, each.censored) for each in seen_by(edge)]
    assert found == ([("new", True, False)] if end in SILENT or sooner_ms <= 1 else [])


async def test_an_answer_and_each_new_rating_of_it_are_written_once() -> None:
    edge = Edge()
    client = await asked(edge)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.", revision="new", lane="canary")])
    for rating in ("up", "up", "down"):
        await client.say(Feedback(response_id=edge.asked[0].id, rating=rating))
    await quiet()
    first, *ratings = seen_by(edge)
    assert (first.lane, first.revision) == ("canary", "new")
    assert (first.rating, first.failed, first.missed) == (None, False, False)
    assert [each.rating for each in ratings] == ["up", "down"]
    assert {each.conversation for each in ratings} == {first.conversation}
    assert {each.ttft_ms for each in ratings} == {None}
    assert {each.partition for each in edge.producer.of(TOPICS.observations)} == {0}


async def test_an_observation_has_language_tenant_and_whether_the_conversation_moved() -> None:
    edge = Edge()
    client = await asked(edge)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.", revision="new", lane="canary")])
    for number, share in enumerate((1.0, 0.0, 1.0)):
        edge.move(Versions(aliases={"champion": "old", "canary": "new"}, rule=Rule(salt="a", share=share)))
        await client.say(ResponseCreate(event_id=f"e{number}", input="多久能退货？"))
        await quiet()
        own = {"revision": "new", "lane": "canary"} if share else {"revision": "old"}
        edge.receive_replies([done(edge.asked[-1].id, "Two weeks.", **own)])
        await quiet()
    found = [(each.language, each.tenant, each.moved) for each in seen_by(edge)]
    assert found == [("en", "demo", None), ("zh", "demo", False), ("zh", "demo", True)]


@pytest.mark.parametrize(
    ("is_new", "turns", "before", "moved"),
    [
        (True, None, None, False),
        (True, (), None, None),
        (False, None, None, None),
        (False, None, "canary", False),
        (True, None, "champion", True),
    ],
    ids=["new", "the client has its own turns", "asked elsewhere", "stays", "moved"],
)
def test_a_conversation_that_redis_did_not_know_has_not_moved(
    is_new: bool, turns: Any, before: Any, moved: bool | None
) -> None:
    destination = Destination("canary", "new", 3, claimed=Claimed(1, "hash", is_new=is_new))
    entry = make_entry(destination=destination, asked=ResponseCreate(event_id="e", input="Hi", turns=turns))
    assert has_moved(entry, before) is moved


async def test_a_rating_of_another_versions_answer_is_no_evidence() -> None:
    edge = Edge()
    client = await asked(edge)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.", revision="old")])
    await client.say(Feedback(response_id=edge.asked[0].id, rating="down"))
    await quiet()
    assert [(each.censored, each.answered_by, each.rating) for each in seen_by(edge)] == [(True, "old", None)]


async def test_a_rating_at_another_gateway_and_a_wish_for_a_person_name_the_conversation() -> None:
    edge = Edge(people=True)
    client = await asked(edge)
    await client.say(Feedback(response_id="resp_elsewhere", rating="down"), HandoffRequest(event_id="h"))
    await quiet()
    rated, wish = seen_by(edge)
    assert (rated.response_id, rated.revision, rated.rating) == ("resp_elsewhere", "", "down")
    assert (wish.revision, wish.handed_over, wish.rating) == ("", True, None)
    assert rated.conversation == wish.conversation
    edge.move(Versions(aliases={"champion": "old"}))
    await client.say(Feedback(response_id="resp_elsewhere", rating="up"), HandoffRequest(event_id="h2"))
    await quiet()
    assert len(seen_by(edge)) == 2, "without a rollout nothing is written"


async def test_what_a_customer_does_at_will_names_it_under_the_rules_salt_and_nothing_else_does() -> None:
    """All conversations of a client without a token are one customer's: those of its network."""
    edge = Edge(people=True)
    await asked(edge)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.", revision="new", lane="canary")])
    clients = []
    for number, address in enumerate(("192.0.2.7", "192.0.2.7", "192.0.2.8")):
        clients.append(edge.connect())
        clients[-1].session._address = address
        await clients[-1].say(SessionStart(session_id=f"s{number}"))
        await clients[-1].say(Feedback(response_id="resp_elsewhere", rating="down"))
    client = clients[0]
    await client.say(Feedback(response_id="resp_elsewhere", rating="up"))
    edge.move(Versions(aliases={"champion": "old", "canary": "new"}, rule=Rule(salt="b", share=1.0)))
    await client.say(HandoffRequest(event_id="h"))
    await quiet()
    answered, one, two, three, up, salted = seen_by(edge)
    assert (answered.customer, up.customer) == ("", "")
    assert one.customer == two.customer
    assert len({one.customer, three.customer, salted.customer, ""}) == 4
    assert "192" not in one.customer


async def test_an_answer_of_another_conversation_cannot_be_rated() -> None:
    edge = Edge()
    await asked(edge)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.", revision="new", lane="canary")])
    other = await edge.connect().say(SessionStart(session_id="other"))
    await other.say(Feedback(response_id=edge.asked[0].id, rating="down"))
    await quiet()
    assert [each.rating for each in seen_by(edge)] == [None]


async def test_an_answer_whose_observation_cannot_be_written_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge()
    client = await asked(edge)

    async def refused(_: object) -> None:
        raise ProtocolError("unknown_topic", "there is none")

    monkeypatch.setattr(edge.producer, "enqueue", refused)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.")])
    await quiet()
    assert [end.output_text for end in client.ends] == ["Two weeks."]


async def test_a_diverted_conversation_comes_back_to_its_side_and_its_next_answer_counts_as_moved() -> None:
    edge = Edge(admits=True)
    client = await asked(edge)
    edge.receive_replies([done(edge.asked[0].id, "Two weeks.", revision="new", lane="canary")])
    gate = edge.serving.admission_gate
    gate.update_worker("c", report("c", revisions=("old",), unix_ms=int(now_unix_ms())))
    for number, first_token_ms in enumerate((60_000.0, 10.0, 10.0)):
        busy = {"first_token_ms": first_token_ms, "running": 8, "slots": 8}
        gate.update_worker("w", report("w", lane="canary", revisions=("new",), unix_ms=int(now_unix_ms()), **busy))
        await client.say(ResponseCreate(event_id=f"e{number}", input="How long?"))
        await quiet()
        own = {"revision": "old"} if number == 0 else {"revision": "new", "lane": "canary"}
        edge.receive_replies([done(edge.asked[-1].id, "Two weeks.", **own)])
        await quiet()
    assert [each.revision for each in edge.asked] == ["new", "old", "new", "new"]
    found = [(each.lane, each.censored, each.moved) for each in seen_by(edge)]
    assert found[1][:2] == ("canary", True)
    assert found[2:] == [("canary", False, True), ("canary", False, False)]


async def test_what_the_canarys_workers_give_up_is_answered_by_the_champion_and_is_missed() -> None:
    edge = Edge()
    client = await asked(edge)
    edge.serving.admission_gate.update_worker("c", report("c", revisions=("old",), unix_ms=int(now_unix_ms())))
    late = {"status": "incomplete", "reason": "infeasible", "revision": "new", "lane": "canary"}
    edge.receive_replies([done(edge.asked[0].id, "", **late)])
    await quiet()
    first, second = edge.asked
    assert (first.id, first.revision, second.revision) == (second.id, "new", "old")
    edge.receive_replies([done(second.id, "Two weeks.", revision="old", attempt=1)])
    await quiet()
    assert [end.output_text for end in client.ends] == ["Two weeks."]
    [seen] = seen_by(edge)
    assert (seen.lane, seen.revision, seen.missed, seen.censored, seen.answered_by) == (
        "canary",
        "new",
        True,
        False,
        "",
    )


@pytest.mark.parametrize("moves", [False, True], ids=["lost for good", "comes back to another gateway"])
async def test_a_lost_clients_answer_is_observed_once_by_the_gateway_that_published_its_question(moves: bool) -> None:
    """A version whose clients lose their connections more often loses no evidence."""
    first, second = Edge(), Edge(partition=1)
    client = await asked(first)
    question = first.asked[0]
    first.receive_replies([delta(question.id, "Two", revision="new")])
    client.lose()
    if moves:
        resuming = SessionStart(session_id="s", resume=Resume(cursor=client.cursor))
        await second.connect().say(resuming)
    for edge in (first, second):
        edge.receive_replies([done(question.id, "Two weeks.", revision="new", lane="canary")])
    await quiet()
    assert [len(seen_by(edge)) for edge in (first, second)] == [1, 0]
    [seen] = seen_by(first)
    assert (seen.response_id, seen.answered_by, seen.missed, seen.cancelled) == (question.id, "new", False, False)
