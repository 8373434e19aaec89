"""A fault of our own harms one asker: thrown at any call on the way from a client to the model and back."""

from typing import Any, Final

import pytest
from structlog.testing import capture_logs

import gateway.kafka.question_reader
import gateway.kafka.reply_consumer
import gateway.kafka.request_publisher
import gateway.people.people
import gateway.router
import gateway.serving.answering
import gateway.serving.erasure
import gateway.serving.gateway
import shared.records.dead_letters
import workers.intake.cancels
import workers.intake.prepare
import workers.intake.reader
import workers.request.reply_publisher
import workers.serving.engine_loop
import workers.serving.worker
from gateway.admission.control import Admission
from gateway.frontends.websocket import WebSocketConnection
from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.handoffs import Handoffs
from gateway.people.people import People
from gateway.people.session_answers import SessionAnswers
from gateway.request.cursor import CursorKey, Seal
from gateway.request.inflight import InflightTable
from gateway.request.outbox import Outbox
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.answering import Answering
from gateway.serving.deadline_timer import DeadlineTimer
from gateway.serving.gateway import Gateway
from gateway.session.connections import Connections
from gateway.session.protocol import Session
from gateway.session.resumption import Resumption
from gateway.telemetry.tracer import Tracer
from shared.faq import FaqIndex
from shared.faq.answer_policy import AnswerPolicy
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.telemetry import metrics
from shared.telemetry.logs import render_exception
from shared.wire.messages import (
    ErrorEvent,
)
from tests.support.fakes.gateways import FakeQuotas
from tests.support.fakes.memory_kafka import BrokerProducer
from tests.support.fakes.memory_redis import HandoffRedis, KvMemory, Redis
from tests.support.fakes.shoppers import Outcome, services_ends
from tests.support.fakes.shopping_day import Day, simulate
from tests.support.fakes.whole_path import SLOTS, TOPICS, Faq
from tests.support.hostile.faults import SECRET, Call, Injector, Thrown
from workers.answer.detokenizer import Detokenizer
from workers.answer.guard import FactGuard
from workers.answer.stream import Answer
from workers.engine.fake import FakeEngine
from workers.intake.lookahead import Lookahead
from workers.intake.prepare import Preparer
from workers.intake.reader import Intake
from workers.intake.triage import Triage
from workers.prompt.conversation import PromptBuilder
from workers.request.recent_answers import RecentAnswers
from workers.request.recent_cancels import RecentCancels
from workers.request.reply_publisher import ReplyPublisher, _Lane
from workers.schedule.costs import CostModel
from workers.schedule.scheduler import Scheduler
from workers.serving.engine_loop import EngineLoop
from workers.serving.worker import Worker
from workers.telemetry.tracer import Tracer as WorkersTracer

GATEWAYS: Final = (
    *(
        Admission,
        DeadlineTimer,
        People,
        Connections,
        CursorKey,
        Answering,
        AdmissionGate,
        Gateway,
        Handoffs,
    ),
    *(InflightTable, LogFollower, Outbox, QuestionReader, RequestPublisher, Resumption, Seal, Session, SessionAnswers),
    *(Tracer, WebSocketConnection),
)
WORKERS: Final = (
    *(Answer, CostModel, Detokenizer, EngineLoop, FactGuard, FakeEngine, Intake, Lookahead, Preparer, PromptBuilder),
    *(RecentAnswers, RecentCancels, ReplyPublisher, Scheduler, Triage, Worker, WorkersTracer, _Lane),
)
BOTH: Final = (AnswerPolicy, Commits, DeadLetters, FaqIndex, OffsetTracker)
EDGES: Final = (BrokerProducer, FakeQuotas, Faq, HandoffRedis, KvMemory, Redis)
FUNCTIONS: Final = (
    *((gateway.people.people, name) for name in ("wants_person", "detect_language")),
    *((gateway.serving.answering, name) for name in ("count_answer",)),
    *((gateway.serving.erasure, name) for name in ("refuse",)),
    *((gateway.serving.gateway, name) for name in ("check_length", "choose_fallback", "promise", "response_id")),
    (gateway.kafka.question_reader, "open_request"),
    (gateway.kafka.reply_consumer, "decode_reply"),
    *((gateway.kafka.request_publisher, name) for name in ("msgpack_encode", "request_headers", "settle")),
    *((gateway.router, name) for name in ("asker_of", "failed_end", "msgpack_encode", "open_request", "settle")),
    (shared.records.dead_letters, "letter_of"),
    (workers.intake.cancels, "decode_notice"),
    (workers.serving.engine_loop, "run_step"),
    *((workers.intake.reader, name) for name in ("asker_of", "failed_end", "open_request", "settle")),
    *((workers.intake.prepare, name) for name in ("answered_by", "choose_fallback", "detect_language")),
    (workers.request.reply_publisher, "msgpack_encode"),
    *((workers.serving.worker, name) for name in ("count_end", "failed_end")),
)
# Handlers themselves, and what raises nothing by its contract: what they call is thrown at.
HANDLERS: Final = (
    *("Answering.end", "Answering.show", "Gateway.replied", "Worker.hear", "Worker.settled"),
    *("DeadLetters.put", "Answering.beginning", "Answering.for_one", "_Lane.run"),
)
# A process's own books, kept for no single item: without them it ends, and another goes on with what it had.
BOOKS: Final = ("Lookahead.next", "Lookahead.resting", "OffsetTracker")
# Whose fault it was in a step nobody can tell: it is everybody's in the slots.
EVERYBODYS: Final = ("FakeEngine", "Scheduler", "run_step")
# Who is refused is told so once. A fault in that leaves a dead letter, which names the reason.
DEAD_LETTERS: Final = ("bad", "bad-routed")


# What becomes of each where nothing is wrong: whose words it has, its status and why it ended.
BY_MODEL, BY_FAQ = ("model", "incomplete", "max_output_tokens"), ("faq", "completed", "stop")
REFUSED = ("model", "failed", "internal")
ENDS: Final = {
    **dict.fromkeys(("plain first", "plain second", "plain third", "moved first"), BY_MODEL),
    **dict.fromkeys(("late-0 first", "late-1 first", "direct", "routed", "late"), BY_MODEL),
    **dict.fromkeys(("slow first", "stranded first"), BY_FAQ),
    **dict.fromkeys(("stopped first", "erased first"), ("model", "cancelled", "client")),
    **dict.fromkeys(("bad", "bad-routed"), REFUSED),
    "cut first": ("model", "incomplete", "deadline"),
    "person first": ("handoff", "completed", "stop"),
    "hello": ("courtesy", "completed", "stop"),
}
# How much of a text there is by then is a matter of time.
TIMELY: Final = ("cut first", "stopped first", "erased first")


@pytest.fixture
def injector(monkeypatch: pytest.MonkeyPatch) -> Injector:
    made = Injector()
    made.stand_before(monkeypatch, (*GATEWAYS, *WORKERS, *BOTH, *EDGES), FUNCTIONS, but=HANDLERS)
    return made


def day_with(at: Call | None, injector: Injector) -> Day:
    injector.begin(at)
    return simulate()


def test_without_a_fault_each_ends_as_it_should(injector: Injector) -> None:
    with capture_logs() as lines:
        day = day_with(None, injector)
    assert {name: outcome[:3] for name, outcome in day.outcomes.items()} == ENDS
    assert wrongs(day) == []
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert not any(shopper.heard(ErrorEvent) for shopper in day.shoppers.values())
    called = {call.callee for call in injector.calls()}
    assert {"FakeEngine.import_kv", "FakeEngine.move", "FakeEngine.export_kv", "QuestionReader.ask"} <= called


def wrongs(day: Day) -> list[str]:
    """What is wrong whoever was harmed."""
    shop = day.shop
    found = [wrong for shopper in day.shoppers.values() for wrong in shopper.wrongs]
    untold = [name for name, outcome in day.outcomes.items() if outcome[1] == "no end" and name not in DEAD_LETTERS]
    found += [f"{name} has no end" for name in untold]
    if (number := len(shop.broker.logs[TOPICS.dead_letters, 0])) < len(DEAD_LETTERS):
        found.append(f"there are only {number} dead letters")
    for number, frontend in enumerate(shop.frontends):
        if len(frontend.gateway.inflight):
            found.append(f"{len(frontend.gateway.inflight)} answers stay in gateway {number}")
        found += [f"{each.session.session_id}'s books are open" for each in frontend._connections if each.num_inflight]
    if not shop.worker.idle:
        found.append("the worker owes somebody an end")
    if lag := shop.requests.lag | shop.inbox.lag:
        found.append(f"records are not committed: {lag}")
    return found


def harmed(day: Day, usual: dict[str, Outcome]) -> set[str]:
    """Who asked and has another end than usual."""
    found = set()
    for name, outcome in day.outcomes.items():
        compared = 3 if name in TIMELY else 4
        if outcome[:compared] != usual[name][:compared]:
            found.add(name.partition(" ")[0])
        # Of two ends a service keeps the first.
        if len(services_ends(day.shop, name)) > 1:
            found.add(name)
    return found | (usual.keys() - day.outcomes.keys())


def counted() -> float:
    return sum(
        sample.value for each in metrics.faults.collect() for sample in each.samples if sample.name.endswith("_total")
    )


def quotes(line: dict[str, Any]) -> bool:
    """Whether a customer's words stand in it."""
    return SECRET in str(render_exception(None, "", {**line}))


@pytest.mark.long
@pytest.mark.parametrize(("number", "after"), [(0, False), (1, False), (0, True)])
def test_a_fault_at_any_call_harms_one_asker_at_most(number: int, after: bool, injector: Injector) -> None:
    """Whoever it harms has one end too; all others are told what they would have been, and so is who comes later.
    `after`: what was called has done its work by then."""
    with capture_logs():
        usual = day_with(None, injector).outcomes
    calls = [call for call in injector.calls(number, after=after) if not call.callee.startswith(BOOKS)]
    assert len(calls) > 150
    broken = [f"{at}: {'; '.join(found)}" for at in calls if (found := found_at(at, usual, injector))]
    assert broken == [], "\n".join(broken)


def found_at(at: Call, usual: dict[str, Outcome], injector: Injector) -> list[str]:
    """What is wrong where a fault is thrown there."""
    before = counted()
    with capture_logs() as lines:
        try:
            day = day_with(at, injector)
        except (AssertionError, LookupError, Thrown) as error:
            return [repr(error)]
    found = wrongs(day)
    most = SLOTS if at.callee.startswith(EVERYBODYS) else 1
    if len(others := harmed(day, usual)) > most:
        found.append(f"it harms {sorted(others)}")
    if injector.threw and counted() == before:
        found.append("it is not counted")
    if injector.threw and not any(line["log_level"] == "error" for line in lines):
        found.append("nobody hears of it")
    if any(map(quotes, lines)):
        found.append("a customer's words are logged")
    return found
