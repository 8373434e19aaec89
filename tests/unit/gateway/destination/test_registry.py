"""Gateways follow the registry: each request goes to its lane's topic, and names its version."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.choose import by_rule
from gateway.destination.gate import AdmissionGate
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from gateway.destination.report import Report
from gateway.request.cursor import Place
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.versions.registry import Added, Registry
from shared.versions.state import Move, Rule, State
from shared.versions.version import Version
from shared.wire.lanes import LANES
from shared.wire.messages import Bucket, ResponseCreate, Resume, SessionStart
from shared.wire.reports import Refusal
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS
from tests.support.builders.gateway import report
from tests.support.fakes.gateways import TOPICS, Edge, quiet
from tests.unit.gateway.forwarding.test_router import Bench, record

START = SessionStart(session_id="s")
TO_CANARY = State(epoch=1, aliases={"champion": "old", "canary": "new"}, rule=Rule(salt="a", share=1.0))


def with_canary(edge: Edge) -> Edge:
    now = int(now_unix_ms())
    edge.serving.admission_gate.update_worker("w", report("w", lane="canary", revisions=("new",), unix_ms=now))
    return edge


async def ask(edge: Edge, event_id: str) -> tuple[str, str | None, int | None]:
    """Ask; return the topic of the request, and what it names."""
    before = len(edge.asked)
    await edge.connect().say(START, ResponseCreate(event_id=event_id, input="How do I return an item?"))
    await quiet()
    (asked,) = edge.asked[before:]
    topics = [each.topic for each in edge.producer.published if each.topic.startswith("chat.requests")]
    return topics[-1], asked.revision, asked.epoch


async def test_a_request_goes_to_its_lane_until_the_rollback() -> None:
    edge = with_canary(Edge())
    edge.move(TO_CANARY)
    assert await ask(edge, "e1") == (TOPICS.requests("short", "canary"), "new", 1)
    assert await ask(edge, "e2") == (TOPICS.requests("short", "canary"), "new", 1)
    edge.move(State(aliases={"champion": "old"}))
    assert await ask(edge, "e3") == (TOPICS.requests("short"), "old", 2)


CLASSES = st.sampled_from([*BUCKETS, "lang:zh", "lang:en"])


@given(
    st.lists(st.sampled_from(BUCKETS), min_size=2, max_size=8),
    st.dictionaries(CLASSES, st.floats(0.0, 0.5)),
    st.floats(0.0, 0.5),
    st.integers(0, 999),
)
def test_turns_of_any_class_keep_their_conversation_on_one_side(
    turns: list[Bucket], shares: dict[str, float], share: float, number: int
) -> None:
    registry, admissions = Registry(), LaneAdmissions(AdmissionPolicy())
    for lane in LANES:
        admissions.observe(report(lane, lane=lane, revisions=("old", "new")), now_unix_ms())
    ruled = msgspec.structs.replace(TO_CANARY, rule=Rule(salt="a", share=share, shares=shares, control=True))
    registry.apply(Move(state=ruled, author="t", reason="r", unix_ms=0))
    view = AdmissionGate(admissions, registry=registry).view(now_unix_ms())
    sides = [by_rule(SessionKey("t", f"s{number}"), bucket, view) for bucket in turns]
    assert len({(side.lane, side.revision) for side in sides}) == 1


async def test_a_canary_that_has_not_loaded_the_version_is_not_asked() -> None:
    edge = Edge()
    edge.move(TO_CANARY)
    refused = {"new": Refusal(epoch=1, reason="not in this store")}
    loaded = report("w", lane="canary", revisions=("yesterday",), refused=refused, unix_ms=int(now_unix_ms()))
    edge.serving.admission_gate.update_worker("w", loaded)
    assert await ask(edge, "e1") == (TOPICS.requests("short"), "old", 1)


async def test_a_canary_without_workers_and_a_future_state_change_nothing() -> None:
    edge = Edge()
    edge.move(TO_CANARY)
    assert await ask(edge, "e1") == (TOPICS.requests("short"), "old", 1)
    later = msgspec.structs.replace(TO_CANARY, effective_unix_ms=int(wire_unix_ms()) + 60_000)
    edge = with_canary(Edge())
    edge.move(later)
    assert await ask(edge, "e1") == (TOPICS.requests("short"), None, None)


async def test_the_question_of_an_adopted_answer_is_read_from_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = with_canary(Edge()), Edge(partition=1)
    first.move(TO_CANARY)
    client = await first.connect().say(START, ResponseCreate(event_id="e", input="How do I return an item?"))
    await quiet()
    read: list[tuple[object, ...]] = []
    look = second.questions.read
    monkeypatch.setattr(second.questions, "read", lambda *asked: (read.append(asked), look())[1])
    await second.connect().say(SessionStart(session_id="s", resume=Resume(cursor=client.cursor)))
    await quiet()
    assert read[0][1:] == (TOPICS.requests("short", "canary"), Place(0, 1))


async def test_the_inbox_uses_the_champion_because_no_gateway_observes_its_answers() -> None:
    bench = Bench()
    bench.registry.apply(Move(state=TO_CANARY, author="t", reason="r", unix_ms=0))
    bench.admissions.observe(report("w", lane="canary", revisions=("new",)), now_unix_ms())
    await bench.forward(record(0))
    (copy,) = bench.producer.of(TOPICS.requests("short"))
    sent = msgspec.msgpack.decode(copy.value or b"")
    assert (sent["revision"], sent["epoch"]) == ("old", 1)


def test_requests_are_counted_by_versions_that_the_registry_has() -> None:
    """Other tenants share one series, because their number is unbounded."""
    registry = Registry()
    report = Report(registry, LaneAdmissions(AdmissionPolicy()), Ladder())
    version = Version(name="v", model="m", model_revision="r", manifest_sha256="0")
    registry.apply(Added(version=version, author="t"))
    labels = [report._label(each) for each in (version.id, "foreign", "unknown", None)]
    assert labels == [version.id, "other", "other", "none"]
