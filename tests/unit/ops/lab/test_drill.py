"""A drill does only what was confirmed, undoes it, stops in time, and reports what customers got."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ops.cli import app
from ops.lab.client.outcome import Outcome
from ops.lab.drill.faults import check, made
from ops.lab.drill.figures import fault_row, is_in_time, is_well, recovered_s, too_bad
from ops.lab.drill.page import page, table
from ops.lab.drill.schedule import Command, Drain, Fault, Kill, Pause, Schedule, read_schedule, refusal, wait_s
from ops.stack.processes import free_port
from shared.errors import SettingsError
from shared.sockets.listening import ListenAddress
from shared.telemetry.status import Drain as Drained
from shared.telemetry.status import Readiness, serve_status

PROMISE_MS = 3_000.0
HEAD = 'fleet = "staging"\nurl = "ws://g/ws"\n'
PAUSE = '[[drill]]\nfault = "pause"\npid = 4242\nseconds = 30\n'


def schedule(*faults: Fault) -> Schedule:
    return Schedule(fleet="staging", url="ws://g/ws", drill=faults)


def answer(at_s: float, *, source: str | None = "model", took_ms: float = 500, eta_ms: float | None = 100) -> Outcome:
    outcome = Outcome(scheduled_s=at_s, deadline_ms=10_000, eta_ms=eta_ms)
    if source is not None:
        outcome.source, outcome.status, outcome.reason = source, "completed", "stop"  # type: ignore[assignment]
        outcome.first_s = outcome.done_s = at_s + took_ms / 1_000
    return outcome


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD, "drill"),
        (HEAD + PAUSE.replace("pause", "pauze"), "pauze"),
        (HEAD + PAUSE.replace("4242", "1"), "pid"),
        (HEAD + PAUSE.replace("30", "601"), "fault 1 lasts 601 s; at most 600 are allowed"),
        (HEAD + PAUSE + "at = 2026-11-27T10:00:00\n", "add its offset"),
        (HEAD + "rates = 3\n" + PAUSE, "rates"),
        ("fleet =", "schedule.toml"),
        ("\udcff", "schedule.toml: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named(text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        read_schedule(text.encode(errors="surrogateescape"), "schedule.toml")


def test_nothing_is_made_that_was_not_agreed_to() -> None:
    paused, killed = Pause(pid=4242, seconds=1), Kill(pid=4242, seconds=1)
    assert "--consent staging" in (refusal(schedule(paused), None, for_good=True) or "")
    assert "is for staging" in (refusal(schedule(paused), "production", for_good=True) or "")
    assert refusal(schedule(paused), "staging", for_good=False) is None
    assert "--irreversible" in (refusal(schedule(paused, killed), "staging", for_good=False) or "")
    assert refusal(schedule(paused, killed), "staging", for_good=True) is None
    lasting = Command(start=("true",), seconds=1)
    assert "--irreversible" in (refusal(schedule(lasting), "staging", for_good=False) or "")


def test_a_schedule_without_consent_is_only_listed(tmp_path: Path) -> None:
    path = tmp_path / "drill.toml"
    path.write_text(HEAD + PAUSE)
    result = CliRunner().invoke(app, ["drill", "--schedule", str(path)])
    assert "process 4242 is stopped for 30 s" in result.output
    assert isinstance(result.exception, SettingsError)


def test_a_time_that_has_passed_is_refused() -> None:
    later = read_schedule(f"{HEAD}{PAUSE}at = 2026-11-27T10:00:00+01:00\n".encode(), "a").drill[0]
    at_ms = 1_795_770_000_000.0
    assert wait_s(later, at_ms - 5_000) == 5.0
    for now_ms, why in ((at_ms + 1_000, "has passed"), (at_ms - 2 * 86_400_000, "more than a day ahead")):
        with pytest.raises(SettingsError, match=why):
            wait_s(later, now_ms)


def test_an_entry_that_a_worker_chose_is_well_and_one_that_stood_in_is_not() -> None:
    assert is_well(answer(0, source="faq"), PROMISE_MS)
    assert not is_well(answer(0, source="faq", eta_ms=None), PROMISE_MS), "admission kept it from the workers"
    assert not is_well(answer(0, source="faq", took_ms=3_004), PROMISE_MS), "the first deadline's timer gave it"
    assert not is_well(answer(0, source="busy"), PROMISE_MS)
    assert is_in_time(answer(0, source="busy"))
    assert not is_in_time(answer(0, source=None))


def test_a_drill_stops_once_too_many_have_no_answer_in_time() -> None:
    asked = [answer(number, source="model" if number < 12 else None) for number in range(20)]
    assert too_bad(asked, 0.8, now_s=15.0) is None, "they may still have one"
    assert too_bad(asked, 0.8, now_s=40.0) == "12 of the last 20 questions had an answer in time; 80% are required"
    assert too_bad(asked, 0.6, now_s=40.0) is None
    assert too_bad(asked[1:], 0.8, now_s=40.0) is None, "too few to judge"


def test_each_phase_has_its_own_row_and_a_question_without_an_answer_breaks_the_promise() -> None:
    before, during = [answer(at) for at in range(10)], [answer(at, source="busy") for at in range(10, 20)]
    after = [answer(20, source="busy"), *(answer(at) for at in range(21, 40))]
    row = fault_row("f", [*before, *during, *after], (10.0, 20.0), well=0.9, first_token_ms=PROMISE_MS)
    assert [(each.asked, each.by_workers, each.instead, each.nothing) for each in row.phases] == [
        (10, 10, 0, 0),
        (10, 0, 10, 0),
        (20, 19, 1, 0),
    ]
    assert (row.recovered_s, row.holds) == (1.0, True)
    lost = fault_row("f", [*before, answer(15, source=None), *after], (10.0, 20.0), well=0.9, first_token_ms=PROMISE_MS)
    assert (lost.phases[1].nothing, lost.holds) == (1, False)
    assert "BROKEN: f: 1 question had no answer in time" in table([lost])
    assert "1 of 2 faults left every promise kept" in page(schedule(Pause(pid=2, seconds=1)), [row, lost], "c", "today")


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_fleet_has_recovered_only_where_it_is_well(well: list[bool]) -> None:
    asked = [answer(number / 2, source="model" if good else "busy") for number, good in enumerate(well)]
    back = recovered_s(asked, 0.0, 0.9, PROMISE_MS)
    if back is not None:
        stretch = [good for number, good in enumerate(well) if 0 <= number / 2 - back < 5]
        assert sum(stretch) >= 0.9 * len(stretch)


def test_faults_are_taken_back_whatever_happens(tmp_path: Path) -> None:
    """A process of this test is stopped, and continues even if the surrounding code fails."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def state() -> str:
        return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]

    async def fail_while(fault: Fault) -> None:
        async with made(fault):
            if isinstance(fault, Pause):
                await asyncio.to_thread(os.waitpid, child.pid, os.WUNTRACED)
                assert state() == "T"
            raise ValueError("around it")

    try:
        paused = Pause(pid=child.pid, seconds=1)
        check(paused)
        with pytest.raises(ValueError, match="around it"):
            asyncio.run(fail_while(paused))
        assert state() != "T"
        made_, undone = tmp_path / "made", tmp_path / "undone"
        with pytest.raises(ValueError, match="around it"):
            asyncio.run(fail_while(Command(start=("touch", str(made_)), undo=("touch", str(undone)), seconds=1)))
        assert made_.exists()
        assert undone.exists()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with pytest.raises(SettingsError, match=f"process {child.pid} does not exist"):
        check(paused)


def test_a_worker_is_asked_to_drain_at_its_port_for_operators() -> None:
    async def drained() -> tuple[bool, int]:
        asked, port = Drained(), free_port()
        worker = Drain(worker=f"127.0.0.1:{port}", seconds=1)
        async with await serve_status(ListenAddress("127.0.0.1", port, "", ""), Readiness(drain=asked)), made(worker):
            pass
        return asked.asked.is_set(), port

    asked, port = asyncio.run(drained())
    assert asked
    with pytest.raises(SettingsError, match=f"127.0.0.1:{port} did not drain"):
        asyncio.run(_make(Drain(worker=f"127.0.0.1:{port}", seconds=1)))


async def _make(fault: Fault) -> None:
    async with made(fault):
        pytest.fail("the fault was not made")


def test_a_command_that_fails_is_named_and_the_next_is_not_run() -> None:
    for start, told in ((("false",), "no output"), (("no-such-command",), "No such file")):
        with pytest.raises(SettingsError, match=told):
            asyncio.run(_make(Command(start=start, seconds=1)))


def test_rows_have_stable_keys() -> None:
    row = fault_row("f", [answer(0)], (1.0, 2.0), well=0.9, first_token_ms=PROMISE_MS)
    assert list(msgspec.to_builtins(row)) == ["fault", "phases", "recovered_s", "holds", "stopped"]
