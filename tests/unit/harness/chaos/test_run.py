"""The questions that a run asks, the right answers, the printed verdict, and contradictory options."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from ops.cli import main
from ops.measure.environment import Environment
from shared.errors import SettingsError
from shared.wire.messages import ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import Response, Timings, Usage
from tests.chaos.faults.schedule import Kind
from tests.chaos.ledger.questions import make_questions
from tests.chaos.ledger.requests import Breach, Ledger, Line, Question, conversation_of
from tests.chaos.ledger.verdict import Rights, judge
from tests.chaos.run import ChaosOptions, PromiseBroken, PromiseLate, tell
from tests.chaos.table import Conditions, FaultRow, report, tables


def the_oracle(question: Question) -> Rights:
    """Return an answer that a model might give, containing the question's name."""
    return Rights(question.event_id, "the fallback")


def options(**changed: object) -> ChaosOptions:
    usual = {"seed": 1, "minutes": 1.0, "rate": 20.0, "clients": 40, "brokers": 1, "faults": None, "json_path": None}
    return ChaosOptions(**{**usual, **changed})  # type: ignore[arg-type]


def test_a_seed_decides_a_conversation_with_two_tabs_and_impatient_customers() -> None:
    """An answer is drawn from its response's id, so none equals another."""
    asked = make_questions(7, 500, 40)
    assert len({question.event_id for question in asked}) == 500
    assert len({question.session for question in asked}) == 40
    conversations = [conversation_of(question.session) for question in asked]
    assert len(set(conversations)) == 20
    assert sum(one == other for one, other in pairwise(conversations)) > 100
    assert {question.temperature for question in asked} == {1.0}
    assert asked == make_questions(7, 500, 40)
    assert asked != make_questions(8, 500, 40)


def test_two_brokers_are_refused() -> None:
    with pytest.raises(SettingsError, match="--brokers 2: must be 1 or 3"):
        options(brokers=2, faults="worker=2").plan()


def test_a_broken_promise_is_printed_with_its_story_and_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the command that repeats the run and where the process logs are; the table marks the broken promise."""
    ledger = Ledger()
    question = make_questions(9, 1, 1)[0]
    ledger.asked(question, 100.0)
    verdict = judge(ledger, the_oracle)
    system = [Line(100.5, "gateway-1 killed")]
    with pytest.raises(PromiseBroken, match=r"1 invariant .* of 1 request.*/logs.*--seed 9 --minutes 2"):
        tell(verdict, ledger, system, 100.0, Path("/logs"), "replyline chaos run --seed 9 --minutes 2")
    told = capsys.readouterr().out
    assert question.event_id in told
    assert "0.500  system   gateway-1 killed" in told
    assert Breach.UNHEARD.value in told
    machine = Environment(
        date="", cpu="", cores=2, load_1min=0.0, system="", python="", versions={}, engine="fake", broker=""
    )
    conditions = Conditions(
        seed=1,
        minutes=1.0,
        rate=20.0,
        clients=1,
        brokers=1,
        silence_s=0.1,
        client_lag_s=0.001,
        environment=machine,
    )
    found = report(verdict, [FaultRow(kind=Kind.WORKER, count=3, back_s=2.5)], conditions)
    assert (found.holds, found.invariants["unheard"], found.invariants["lost"]) == (False, 1, 0)
    assert {f"| {Breach.UNHEARD.value} | 1 | no |", "| worker | 3 | 2.50 |"} <= set(tables(found).splitlines())


def answered(after_s: float) -> Ledger:
    """Return the messages received for one question: the right answer, this long after it was asked."""
    ledger, question = Ledger(), make_questions(9, 1, 1)[0]
    text = the_oracle(question).model
    response = Response(
        id="r",
        status="incomplete",
        reason="max_output_tokens",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
    )
    ledger.asked(question, 100.0)
    for message in (
        ResponseCreated(response_id="r", event_id=question.event_id, bucket="short"),
        ResponseDelta(response_id="r", seq=0, offset=0, delta=text, cursor="c"),
        ResponseDone(response=response, cursor="c"),
    ):
        ledger.heard(question.session, message, 100.0 + after_s)
    return ledger


def test_a_run_whose_only_fault_is_lateness_is_distinguished() -> None:
    ledger = answered(60.0)
    verdict = judge(ledger, the_oracle)
    with pytest.raises(PromiseLate, match="1 invariant "):
        tell(verdict, ledger, [], 100.0, Path("/logs"), "replyline chaos run")
    ledger.asked(make_questions(9, 2, 1)[1], 100.0)
    with pytest.raises(PromiseBroken, match="2 invariants") as raised:
        tell(judge(ledger, the_oracle), ledger, [], 100.0, Path("/logs"), "replyline chaos run")
    assert not isinstance(raised.value, PromiseLate)


@pytest.mark.parametrize(("broken", "status"), [(PromiseLate, 3), (PromiseBroken, 1), (None, 0)])
def test_only_a_run_without_other_faults_than_lateness_has_status_3(
    broken: type[PromiseBroken] | None,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With this status a caller on a machine that pauses may repeat the run."""

    async def run_chaos(*_: object) -> None:
        if broken is not None:
            raise broken("1 invariant does not hold")

    monkeypatch.setattr("tests.chaos.run.run_chaos", run_chaos)
    monkeypatch.setattr(sys, "argv", ["replyline", "chaos", "run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    assert capsys.readouterr().err == ("replyline: 1 invariant does not hold\n" if broken else "")
