"""Admission's conclusions from the replies."""

import pytest

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.gate import AdmissionGate
from gateway.destination.lanes import LaneAdmissions
from shared.process.clock import now_unix_ms
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION
from shared.wire.reports import WorkerReport
from tests.support.builders import gateway as builders
from tests.support.builders.gateway import R1, delta, done


def admission_gate() -> AdmissionGate:
    """A gate that has sent one request to the workers, at 0 ms."""
    keeper = AdmissionGate(LaneAdmissions(AdmissionPolicy()))
    deadline = Deadline(first_token_unix_ms=200, deadline_unix_ms=1_000)
    decision = keeper.admissions.of(CHAMPION).decide(
        R1, "demo", "short", deadline, partition=0, received_unix_ms=0, now_unix_ms=0
    )
    assert decision.fallback is None
    return keeper


def test_a_workers_first_reply_is_measured_and_a_gateways_own_end_in_the_log_is_not() -> None:
    """Otherwise a fallback would count as the reply of a worker that hangs."""
    keeper, words = admission_gate(), list[int]()
    for reply in (done("Within 5 days.", origin="gateway"), delta("Hi"), done("Hi")):
        keeper.note_reply(reply, 50)
        words.append(keeper.admissions.of(CHAMPION).breaker.words)
    assert words == [0, 1, 1]


def report(name: str) -> WorkerReport:
    return builders.report(name, unix_ms=int(now_unix_ms()))


def test_a_workers_arrival_and_departure_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """Once each, however often it reports."""
    keeper = admission_gate()
    for said in (report("w1"), report("w1"), report("w1"), None, None):
        keeper.update_worker("w1", said)
    told = capsys.readouterr().out
    assert (told.count("worker_found"), told.count("worker_left")) == (1, 1)


def test_a_silent_worker_is_logged_although_others_report(capsys: pytest.CaptureFixture[str]) -> None:
    keeper = admission_gate()
    keeper.update_worker("w1", report("w1"))
    later = now_unix_ms() + 10_000
    keeper.admissions.of(CHAMPION).fleet.observe(report("w2"), later)
    keeper.forget_silent(later)
    said = capsys.readouterr().out
    assert said.count("worker_silent") == 1
    assert "w1" in said.partition("worker_silent")[2]
