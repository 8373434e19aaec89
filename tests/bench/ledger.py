"""The CPU of running processes by step of a question's journey: what the kernel counts, shared out by samples of the
code that holds Python's lock."""

import asyncio
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.stack.processes import ServiceError
from tests.bench.steps import step_of

_RATE_HZ: Final = 250
_WRITTEN_S: Final = 30.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_FRAME: Final = re.compile(r"\((?P<file>[^()]+):\d+\)$")
_BIN: Final = "py-spy"


@dataclass(slots=True)
class Ledger:
    """The CPU of a question, in µs by process and step, once `sampled` has ended.

    Args:
        pids: the processes by name.
    """

    pids: Mapping[str, int]
    us: dict[str, dict[str, float]] = field(default_factory=dict)

    @asynccontextmanager
    async def sampled(self, questions: int) -> AsyncIterator[None]:
        """Sample the processes while they answer this many questions.

        Raises:
            ServiceError: py-spy is not installed, or may not look into the processes.
        """
        spy = shutil.which(_BIN)
        if spy is None:
            raise ServiceError(f"--profile: {_BIN} is not installed. Type: pip install {_BIN}")
        with tempfile.TemporaryDirectory() as folder:
            files = {name: Path(folder, name) for name in self.pids}
            options = (
                "--gil",
                "--rate",
                str(_RATE_HZ),
                "--format",
                "raw",
                "--full-filenames",
                "--duration",
                "unlimited",
            )
            spies = [
                await asyncio.create_subprocess_exec(
                    *(spy, "record", "--pid", str(pid), *options, "--output", str(files[name])),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                )
                for name, pid in self.pids.items()
            ]
            before = {name: cpu_s(pid) for name, pid in self.pids.items()}
            try:
                yield
            finally:
                spent = {name: cpu_s(pid) - before[name] for name, pid in self.pids.items()}
                told = await asyncio.gather(*map(_end, spies))
            for name, file in files.items():
                if not file.exists():
                    raise ServiceError(f"--profile: {_BIN} could not sample the {name}: {told[0].strip()[-200:]}")
                self.us[name] = shared_out(spent[name] * 1e6 / questions, file.read_text().splitlines())

    def __str__(self) -> str:
        lines = []
        for name, steps in self.us.items():
            lines.append(f"{name}: {sum(steps.values()):.0f} µs of CPU a question")
            lines += [f"  {us:7.0f}  {step}" for step, us in sorted(steps.items(), key=lambda item: -item[1])]
        return "\n".join(lines)


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def _end(spy: asyncio.subprocess.Process) -> str:
    """End a recorder, which writes its file then; return what it said."""
    if spy.returncode is None:
        spy.send_signal(signal.SIGINT)
    async with asyncio.timeout(_WRITTEN_S):
        _, said = await spy.communicate()
    return said.decode(errors="replace")


def shared_out(us: float, stacks: Iterable[str]) -> dict[str, float]:
    """Share `us` out by step. Each line is a call stack, outermost first, and the number of its samples."""
    samples: Counter[str] = Counter()
    for line in stacks:
        stack, _, num = line.rpartition(" ")
        files = [found["file"] for frame in reversed(stack.split(";")) if (found := _FRAME.search(frame))]
        samples[step_of(files)] += int(num)
    total = samples.total() or 1
    return {step: us * num / total for step, num in samples.items()}
