"""A fault of our own harms one asker: thrown at any call on the way from a client to the model and back."""

from typing import Any, Final

import pytest
from faults import SECRET, Call, Injector, Thrown
from gateways import FakeQuotas
from memory_kafka import BrokerProducer
from memory_redis import HandoffRedis, KvMemory, Redis
from shoppers import Outcome, services_ends
from shopping_day import Day, simulate
from structlog.testing import capture_logs
from whole_path import SLOTS, TOPICS, Faq

import gateway.care
import gateway.endings
import gateway.gateway
import gateway.generations
import gateway.questions
import gateway.reply_consumer
import gateway.request_publisher
import gateway.router
import shared.deadletters
import workers.cancels
import workers.engine_loop
import workers.intake
import workers.prepare
import workers.reply_publisher
import workers.worker
from gateway.admission import Admission
from gateway.alarm import Alarm
from gateway.background import Background
from gateway.care import Care
from gateway.connections import Connections
from gateway.cursor import CursorKey, Seal
from gateway.endings import Endings
from gateway.frontends.websocket import WebSocketConnection
from gateway.gatekeeper import Gatekeeper
from gateway.gateway import Gateway
from gateway.handoffs import Handoffs
from gateway.inflight import InflightTable
from gateway.log_follower import LogFollower
from gateway.outbox import Outbox
from gateway.questions import Questions
from gateway.request_publisher import RequestPublisher
from gateway.resumption import Resumption
from gateway.session import Session
from gateway.session_answers import SessionAnswers
from gateway.tracer import Tracer
from shared import metrics
from shared.answer_policy import AnswerPolicy
from shared.commits import Commits
from shared.deadletters import DeadLetters
from shared.faq import FaqIndex
from shared.logs import render_exception
from shared.messages import (
    ErrorEvent,
)
from shared.offsets import OffsetTracker
from workers.answer import Answer
from workers.conversation import PromptBuilder
from workers.costs import CostModel
from workers.detokenizer import Detokenizer
from workers.engine.fake import FakeEngine
from workers.engine_loop import EngineLoop
from workers.guard import FactGuard
from workers.intake import Intake
from workers.lookahead import Lookahead
from workers.prepare import Preparer
from workers.recent_answers import RecentAnswers
from workers.recent_cancels import RecentCancels
from workers.reply_publisher import ReplyPublisher, _Lane
from workers.scheduler import Scheduler
from workers.tracer import Tracer as WorkersTracer
from workers.triage import Triage
from workers.worker import Worker

GATEWAYS: Final = (
    *(Admission, Alarm, Background, Care, Connections, CursorKey, Endings, Gatekeeper, Gateway, Handoffs),
    *(InflightTable, LogFollower, Outbox, Questions, RequestPublisher, Resumption, Seal, Session, SessionAnswers),
    *(Tracer, WebSocketConnection),
)
WORKERS: Final = (
    *(Answer, CostModel, Detokenizer, EngineLoop, FactGuard, FakeEngine, Intake, Lookahead, Preparer, PromptBuilder),
    *(RecentAnswers, RecentCancels, ReplyPublisher, Scheduler, Triage, Worker, WorkersTracer, _Lane),
)
BOTH: Final = (AnswerPolicy, Commits, DeadLetters, FaqIndex, OffsetTracker)
EDGES: Final = (BrokerProducer, FakeQuotas, Faq, HandoffRedis, KvMemory, Redis)
FUNCTIONS: Final = (
    *((gateway.care, name) for name in ("wants_person", "detect_language")),
    *((gateway.endings, name) for name in ("count_answer",)),
    *((gateway.generations, name) for name in ("refuse",)),
    *((gateway.gateway, name) for name in ("check_length", "choose_fallback", "promise", "response_id")),
    (gateway.questions, "open_request"),
    (gateway.reply_consumer, "decode_reply"),
    *((gateway.request_publisher, name) for name in ("msgpack_encode", "request_headers", "settle")),
    *((gateway.router, name) for name in ("asker_of", "failed_end", "msgpack_encode", "open_request", "settle")),
    (shared.deadletters, "letter_of"),
    (workers.cancels, "decode_notice"),
    (workers.engine_loop, "run_step"),
    *((workers.intake, name) for name in ("asker_of", "failed_end", "open_request", "settle")),
    *((workers.prepare, name) for name in ("answered_by", "choose_fallback", "detect_language")),
    (workers.reply_publisher, "msgpack_encode"),
    *((workers.worker, name) for name in ("count_end", "failed_end")),
)
# Handlers themselves, and what raises nothing by its contract: what they call is thrown at.
HANDLERS: Final = (
    *("Endings.end", "Endings.show", "Gateway.replied", "Worker.hear", "Worker.settled"),
    *("DeadLetters.put", "Endings.beginning", "Endings.for_one", "_Lane.run"),
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


def day_with(at: Call | None, injector: Injector, monkeypatch: pytest.MonkeyPatch) -> Day:
    injector.begin(at)
    return simulate(monkeypatch)


def test_without_a_fault_each_ends_as_it_should(injector: Injector, monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as lines:
        day = day_with(None, injector, monkeypatch)
    assert {name: outcome[:3] for name, outcome in day.outcomes.items()} == ENDS
    assert wrongs(day) == []
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert not any(shopper.heard(ErrorEvent) for shopper in day.shoppers.values())
    called = {call.callee for call in injector.calls()}
    assert {"FakeEngine.import_kv", "FakeEngine.move", "FakeEngine.export_kv", "Questions.ask"} <= called


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


@pytest.mark.slow
@pytest.mark.parametrize(("number", "after"), [(0, False), (1, False), (0, True)])
def test_a_fault_at_any_call_harms_one_asker_at_most(
    number: int, after: bool, injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever it harms has one end too; all others are told what they would have been, and so is who comes later.
    `after`: what was called has done its work by then."""
    with capture_logs():
        usual = day_with(None, injector, monkeypatch).outcomes
    calls = [call for call in injector.calls(number, after=after) if not call.callee.startswith(BOOKS)]
    assert len(calls) > 150
    broken = [f"{at}: {'; '.join(found)}" for at in calls if (found := found_at(at, usual, injector, monkeypatch))]
    assert broken == [], "\n".join(broken)


def found_at(at: Call, usual: dict[str, Outcome], injector: Injector, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong where a fault is thrown there."""
    before = counted()
    with capture_logs() as lines:
        try:
            day = day_with(at, injector, monkeypatch)
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
