"""`ops/docker/smoke`: bring the compose file up, scale it, kill in it under load, look what was lost, take it down."""

import argparse
import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ops.stack.processes import ServiceError, free_port
from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.client.telling import ConnectFailed, Refused
from shared.process.lifetime import fail
from shared.wire.messages import ResponseCreate, ResponseCreated, ResponseDelta, ResponseDone

ROOT: Final = Path(__file__).resolve().parents[1]
QUESTIONS: Final = ("How do I return an item?", "Where is my order?", "Can I pay by card?", "How long is delivery?")
_WANTED: Final = dict.fromkeys(
    ("kafka", "redis", "redis-kv", "gateway-0", "gateway-1", "proxy", "topics", "model", "secret"), 1
)
_UP_S: Final = 600.0
_BACK_S: Final = 120.0
_MOMENT_S: Final = 4.0
_READS_S: Final = 2.0  # the answer; a session may say a hundred things a minute
_PATIENCE_S: Final = 45.0
_KILL_ALL: Final = "import os, signal; os.kill(-1, signal.SIGKILL)"


def listed(text: str) -> list[dict[str, Any]]:
    """The containers of `ps --format json`: an object a line, or one array (before Compose 2.21)."""
    found: list[dict[str, Any]] = (
        json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    )
    return found


def not_well(containers: Sequence[Mapping[str, Any]], wanted: Mapping[str, int]) -> str:
    """Return the containers that failed or are missing, given how many each service should have; empty if all are
    well."""
    told = [
        f"{one['Name']} is {one['Health'] or one['State']}"
        for one in containers
        if (one["State"], one["Health"]) not in {("running", "healthy"), ("running", "")}
        and (one["State"], one["ExitCode"]) != ("exited", 0)
    ]
    up = Counter(one["Service"] for one in containers)
    told += [f"{up[name]} of {count} containers of {name}" for name, count in wanted.items() if up[name] != count]
    return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Compose:
    """`files`: in addition to docker-compose.yml. The command is the variable COMPOSE, `docker compose` without it."""

    project: str
    port: int
    files: Sequence[Path] = ()

    def run(self, *arguments: str, check: bool = True) -> str:
        """Its output. Raises `ServiceError` with the end of what it said."""
        command = shlex.split(os.environ.get("COMPOSE", "docker compose"))
        files = [part for file in (ROOT / "docker-compose.yml", *self.files) for part in ("--file", str(file))]
        env = {**os.environ, "PORT": str(self.port)}
        whole = [*command, "--project-name", self.project, *files, *arguments]
        try:
            done = subprocess.run(whole, cwd=ROOT, env=env, text=True, capture_output=True, check=False)
        except OSError as error:
            raise ServiceError(f"cannot start {command[0]}: {error.strerror}; install Docker with Compose") from None
        if check and done.returncode != 0:
            said = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise ServiceError(f"{shlex.join([*command, *arguments])} ended with {done.returncode}: {said}")
        return done.stdout

    def wait_until_well(self, num_workers: int, timeout_s: float) -> float:
        """Seconds until every container serves or has ended well. Raises `ServiceError`."""
        began = time.monotonic()
        while missing := not_well(
            listed(self.run("ps", "--all", "--format", "json")), _WANTED | {"worker": num_workers}
        ):
            if time.monotonic() - began > timeout_s:
                raise ServiceError(f"after {timeout_s:.0f} s: {missing}")
            time.sleep(0.5)
        return time.monotonic() - began

    def kill(self, service: str) -> None:
        """SIGKILL to the process in it, from inside: a crash, after which its restart policy holds. (`docker kill`
        counts as stopped by hand.)"""
        self.run("exec", "--no-TTY", service, "python", "-c", _KILL_ALL, check=False)


@dataclass(slots=True)
class Outcome:
    """`ends`: answers by who gave them. `faults`: what must not be, a line each."""

    asked: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


async def converse(url: str, number: int, enough: asyncio.Event, outcome: Outcome) -> None:
    """One question after the other, until it is `enough`. Never raises: what fails is a fault."""
    try:
        async with AsyncReplyline(url, patience_s=_PATIENCE_S) as client:
            turn = 0
            while not enough.is_set():
                await _ask(client, QUESTIONS[(number + turn) % len(QUESTIONS)], f"{number}.{turn}", outcome)
                turn += 1
                await asyncio.sleep(_READS_S)
    except ConnectFailed as error:
        outcome.faults.append(f"conversation {number}: {error}")


async def _ask(client: AsyncReplyline, question: str, name: str, outcome: Outcome) -> None:
    heard, said = "", list[str]()
    outcome.asked += 1
    request = ResponseCreate(event_id=new_event_id(), input=question, deadline_ms=60_000, first_token_ms=30_000)
    try:
        async for event in client.ask(request):
            match event:
                case ResponseCreated():
                    heard = ""
                case ResponseDelta():
                    heard += event.delta
                case ResponseDone():
                    said.append(event.response.output_text)
                    outcome.ends[event.response.source] += 1
    except Refused as refused:
        outcome.faults.append(f"question {name}: {refused}")
    if said != [heard]:
        outcome.faults.append(f"question {name}: {len(heard)} characters heard; of its ends {[*map(len, said)]}")


async def smoke(compose: Compose, conversations: int) -> bool:
    """Return whether everything was as promised. Raises `ServiceError`."""
    print("building and starting (docker compose up)", flush=True)
    await asyncio.to_thread(compose.run, "up", "--build", "--detach", "--quiet-pull")
    print(f"all healthy {await asyncio.to_thread(compose.wait_until_well, 2, _UP_S):.0f} s after they were started")
    outcome, enough = Outcome(), asyncio.Event()
    url = f"ws://127.0.0.1:{compose.port}/ws"
    load = asyncio.gather(*(converse(url, number, enough, outcome) for number in range(conversations)))
    print(f"{conversations} conversations at once through the one port; workers scaled to 3", flush=True)
    await asyncio.to_thread(compose.run, "up", "--detach", "--no-build", "--no-recreate", "--scale", "worker=3")
    await asyncio.to_thread(compose.wait_until_well, 3, _BACK_S)
    for service in ("worker", "gateway-0"):
        print(f"SIGKILL: {service}", flush=True)
        await asyncio.to_thread(compose.kill, service)
        await asyncio.sleep(_MOMENT_S)
    print(f"all healthy again, {await asyncio.to_thread(compose.wait_until_well, 3, _BACK_S):.0f} s later")
    enough.set()
    await load
    print(f"{outcome.asked} asked, {outcome.ends.total()} answered: {dict(outcome.ends)}", *outcome.faults, sep="\n")
    return not outcome.faults and outcome.ends.total() == outcome.asked


def main() -> int:
    parser = argparse.ArgumentParser(prog="ops/docker/smoke", description=__doc__)
    parser.add_argument("--file", type=Path, action="append", default=[], help="a further compose file")
    parser.add_argument("--conversations", type=int, default=8, help="how many run concurrently")
    parser.add_argument("--keep", action="store_true", help="do not take it down at the end")
    options = parser.parse_args()
    if options.conversations < 1:
        return fail(f"--conversations {options.conversations}: at least 1", 2)
    compose = Compose("replyline-smoke", free_port(), options.file)
    try:
        held = asyncio.run(smoke(compose, options.conversations))
    except ServiceError as error:
        held = False
        fail(str(error), 1)
        sys.stderr.write(compose.run("logs", "--no-color", "--tail", "20", check=False))
    finally:
        if options.keep:
            print(f"left up: http://127.0.0.1:{compose.port} (docker compose -p {compose.project} down --volumes)")
        else:
            compose.run("down", "--volumes", "--remove-orphans", "--timeout", "20", check=False)
    print("nothing was lost" if held else "not as promised")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
