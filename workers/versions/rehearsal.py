"""Test a model version in a separate process before a worker loads it, so that a version that crashes does not end the
worker.

    settings, revision → verify the files → load → answer the golden prompts → the failure, if any

The test process has the lowest CPU priority and one thread, and Linux ends it first if memory runs out.
"""

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from shared.errors import ReplylineError
from shared.process.modules import module_command
from shared.settings import Settings
from shared.versions.golden import Golden
from shared.wire.fields import Revision
from workers.engine.greedy import answer_greedily, golden_failure
from workers.engine.load_model import load_model
from workers.serving.watchdog import limited
from workers.versions.candidate import Candidate, open_candidate

LIMIT_S: Final = 900.0
"""Beside engines that take all of the processors, at the lowest priority, it takes minutes."""
_LOWEST_PRIORITY: Final = 19
_FIRST_TO_END: Final = "1000"
_WARM_UP: Final = Golden(prompt_ids=(1, 2, 3), output_ids=(0, 0))


class _Given(msgspec.Struct):
    settings: str
    revision: Revision | None


class _Found(msgspec.Struct):
    failure: str | None


async def rehearse(settings: Settings, candidate: Candidate, *, limit_s: float = LIMIT_S) -> str | None:
    """Return why a version cannot be served; None where it can. `settings` are the worker's own."""
    given = _Given(settings.model_dump_json(), candidate.revision if candidate.registered else None)
    with tempfile.TemporaryFile() as stdin:  # a pipe to a child that is killed early fails in uvloop's own way
        stdin.write(msgspec.json.encode(given))
        stdin.seek(0)
        child = await asyncio.create_subprocess_exec(
            *module_command(__name__), stdin=stdin, stdout=asyncio.subprocess.PIPE
        )
    try:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, child.pid, _LOWEST_PRIORITY)
        async with asyncio.timeout(limit_s):
            output, _ = await child.communicate()
    except TimeoutError:
        return f"its rehearsal did not end within {limit_s:.0f} s"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return _failure(child.returncode or 0, output)


def _failure(status: int, output: bytes) -> str | None:
    if status < 0:
        return f"its rehearsal was ended by {signal.Signals(-status).name}"
    try:
        return msgspec.json.decode(output, type=_Found).failure
    except msgspec.MsgspecError:
        return f"its rehearsal ended with status {status}; what it wrote on stderr says why"


def warm_up_failure(candidate: Candidate) -> str | None:
    """Load a version and ask it its golden prompts; return why it cannot be served."""
    worker = candidate.settings.worker.model_copy(update={"threads": 1})
    model = load_model(candidate.settings.model_copy(update={"worker": worker}), verify=False)
    if candidate.golden is not None:
        return golden_failure(model.engine, candidate.golden)
    answer_greedily(model.engine, [_WARM_UP.prompt_ids], len(_WARM_UP.output_ids))
    return None


def main() -> int:
    """Rehearse what stdin asks for; say on stdout what failed."""
    found = os.dup(1)
    os.dup2(2, 1)  # what libraries and logs write is not what was found
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END)
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=_Given)
    with limited(LIMIT_S):
        try:
            candidate = open_candidate(Settings.model_validate_json(given.settings), given.revision, verify=True)
            failure = warm_up_failure(candidate)
        except ReplylineError as error:
            failure = str(error)
    os.write(found, msgspec.json.encode(_Found(failure)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
