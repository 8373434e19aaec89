"""A process whose clock is wrong: as far off as its file says, its libraries' too, and its monotonic clock is right."""

import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.faults.clocks import READ_EVERY_S, Clock, turn

NS = 1_000_000_000


def test_a_clock_is_right_until_it_is_turned_and_again_when_it_is_turned_back(tmp_path: Path) -> None:
    """Its file is read ten times a second, not each time that somebody asks."""
    now_s = 100.0
    clock = Clock(tmp_path / "worker-0.clock", lambda: 7 * NS, lambda: now_s)
    assert clock.time() == 7.0
    turn(clock.file, 5.0)
    assert clock.time() == 7.0
    now_s += 2 * READ_EVERY_S
    assert (clock.time(), clock.time_ns()) == (12.0, 12 * NS)
    turn(clock.file, -5.0)
    now_s += 2 * READ_EVERY_S
    assert clock.time() == 2.0
    turn(clock.file, 0.0)
    now_s += 2 * READ_EVERY_S
    assert clock.time() == 7.0


def test_a_module_and_whoever_it_imports_reads_the_wrong_clock(tmp_path: Path) -> None:
    """By either name, and as it is run by itself; what is measured by the monotonic clock is not."""
    (tmp_path / "told.py").write_text("from time import time\n")
    (tmp_path / "asked.py").write_text(
        "import sys, time, told\nprint(told.time(), time.time_ns() / 1e9, time.monotonic(), __name__, *sys.argv[1:])\n"
    )
    file = tmp_path / "asked.clock"
    turn(file, -3_600.0)
    before_s, before_monotonic_s = time.time(), time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.chaos.faults.clocks", str(file), "asked"],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[4]}"},
        capture_output=True,
        text=True,
        check=True,
    )
    told_s, told_ns_s, monotonic_s, name = ran.stdout.split()
    for wrong_s in (float(told_s), float(told_ns_s)):
        assert before_s - 3_600 <= wrong_s <= time.time() - 3_600
    assert before_monotonic_s <= float(monotonic_s) <= time.monotonic()
    assert name == "__main__"
