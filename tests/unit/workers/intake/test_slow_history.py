"""A conversation whose turns Redis returns late is no new conversation; a Redis that is away delays no answer."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from shared.conversation.history import History
from shared.conversation.turn import Turn, encode_turn
from shared.process.clock import CLOCKS
from shared.settings.redis import RedisSettings
from shared.telemetry import metrics
from shared.wire.messages import ChatRequest, Said
from shared.wire.requests import settle
from tests.support.builders.gateway import done
from tests.support.fakes.instant_loop import at_once
from tests.support.samples.prompts import readable, said
from tests.unit.workers.intake.test_prepare import MODEL, NOW, SETTINGS, preparer
from workers.request.job import Job
from workers.schedule.sequence import Finished
from workers.telemetry.answer_metrics import count_end
from workers.telemetry.tracer import times_of

EARLIER: Final = said("Question 1?", "The earlier answer.", name="r0", asked_unix_ms=NOW - 900)
FIRST_TOKEN_MS: Final = SETTINGS.promise.first_token_ms
PATIENT_S: Final = min(1.0, FIRST_TOKEN_MS / 4_000)


@pytest.fixture(autouse=True)
def _loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", lambda: asyncio.get_running_loop().time())


@dataclass
class SlowRedis:
    """Each call takes `delay_s`, is refused until `refuses_until_s`, and shows the turn from `written_at_s` on."""

    delay_s: float = 0.0
    refuses_until_s: float = 0.0
    written_at_s: float = 0.0
    calls: int = 0

    def history(self) -> History:
        history = History(RedisSettings())
        history._redis = self  # type: ignore[assignment]
        return history

    async def call(self, _: object) -> list[bytes]:
        self.calls += 1
        if self._now_s() < self.refuses_until_s:
            raise RedisConnectionError("away")
        turns: list[Turn] = [EARLIER] if self._now_s() >= self.written_at_s else []
        await asyncio.sleep(self.delay_s)
        return [encode_turn(turn) for turn in turns]

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


async def asked(history: History, **fields: Any) -> tuple[str, float, bool]:
    """Return the prompt of a conversation's second question, how long preparing it took, and whether it is marked."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    request = ChatRequest(**({"id": "r1", "session_id": "s", "input": "And then?", "after": "r0"} | fields))
    order = settle(request, SETTINGS.request_defaults, NOW)
    job = await preparer(history=history, policy=MODEL).prepare(order, NOW)
    assert isinstance(job, Job)
    return readable(job.sequence.prompt_ids), loop.time() - begun_s, is_marked(job)


def is_marked(job: Job) -> bool:
    """Return whether the answer's log line and trace say that turns are missing."""
    with capture_logs() as lines:
        count_end(job, Finished(job.sequence, "completed", "stop"), done("Hello."), NOW)
    in_trace = times_of(job, "w-1", NOW).turns_missing
    assert lines[0]["turns_missing"] == in_trace
    return in_trace


def short() -> float:
    return float(metrics.history_unavailable.labels("read")._value.get())


@pytest.mark.parametrize(
    "redis",
    [
        pytest.param(SlowRedis(delay_s=0.08), id="slower than its time limit"),
        pytest.param(SlowRedis(delay_s=PATIENT_S - 0.1), id="much slower"),
        pytest.param(SlowRedis(refuses_until_s=0.3), id="restarting"),
        pytest.param(SlowRedis(written_at_s=0.3), id="another process still writes the turn"),
        pytest.param(SlowRedis(delay_s=0.06, written_at_s=0.3), id="slow, and still being written"),
    ],
)
@at_once
async def test_a_question_is_answered_with_the_turns_that_redis_returns_late(redis: SlowRedis) -> None:
    before = short()
    prompt, took_s, marked = await asked(redis.history())
    assert ("The earlier answer." in prompt, marked) == (True, False)
    assert took_s <= PATIENT_S
    assert short() == before


@pytest.mark.parametrize(
    ("redis", "fields", "at_most_s"),
    [
        pytest.param(SlowRedis(delay_s=3_600), {}, PATIENT_S, id="silent"),
        pytest.param(SlowRedis(refuses_until_s=3_600), {}, PATIENT_S + 0.05, id="away"),
        pytest.param(SlowRedis(written_at_s=3_600), {}, PATIENT_S + 0.02, id="turn lost"),
        pytest.param(
            SlowRedis(written_at_s=3_600), {"first_token_unix_ms": NOW + 200}, 0.07, id="turn lost, answer due soon"
        ),
    ],
)
@at_once
async def test_an_answer_without_its_turns_is_counted_and_marked_and_waits_a_quarter_of_its_time(
    redis: SlowRedis, fields: dict[str, Any], at_most_s: float
) -> None:
    before = short()
    prompt, took_s, marked = await asked(redis.history(), **fields)
    assert ("The earlier answer." in prompt, marked) == (False, True)
    assert took_s <= at_most_s
    assert short() == before + 1


@at_once
async def test_a_redis_that_is_away_is_waited_for_once() -> None:
    redis = SlowRedis(refuses_until_s=3_600)
    history = redis.history()
    await asked(history)
    await asyncio.sleep(1.0)
    num_calls = redis.calls
    for number in range(5):
        _, took_s, _ = await asked(history, id=f"later-{number}")
        assert took_s == 0
    assert redis.calls == num_calls + 1, "it is tried again after a pause"


@at_once
async def test_turns_told_with_the_question_are_not_read() -> None:
    told = (Said(user="Question 0?", assistant="As told."),)
    prompt, took_s, marked = await asked(SlowRedis(refuses_until_s=3_600).history(), turns=told)
    assert ("As told." in prompt, took_s, marked) == (True, 0, False)
