"""`ops/docker/smoke`: bring the compose file up, ask in the page, scale, kill, look what was lost, take it down."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.stack.processes import ServiceError, free_port
from shared.process.lifetime import fail
from tests.smoke.compose import Compose
from tests.smoke.load import QUESTIONS, Outcome, converse
from tests.smoke.page import ask_in_page

_UP_S: Final = 600.0
_BACK_S: Final = 120.0
_JOBS: Final = {"topics": 1, "model": 1, "secret": 1}
_SERVICES: Final = {"kafka": 1, "redis": 1, "redis-kv": 1, "gateway-0": 1, "gateway-1": 1, "proxy": 1, **_JOBS}
_MOMENT_S: Final = 4.0


async def smoke(compose: Compose, out: Console, *, conversations: int) -> bool:
    """Whether everything was as promised. Raises `ServiceError`."""
    out.print("building and starting (docker compose up)")
    await asyncio.to_thread(compose.run, "up", "--build", "--detach", "--quiet-pull")
    took_s = await asyncio.to_thread(compose.wait_until_well, {**_SERVICES, "worker": 2}, _UP_S)
    out.print(f"all healthy {took_s:.0f} s after they were started")
    origin = f"http://127.0.0.1:{compose.port}"
    shown = await ask_in_page(origin, QUESTIONS[0])
    out.print(f"the page: {shown.badge} · {shown.text[:100]!r}", markup=False)
    outcome = Outcome()
    enough = asyncio.Event()
    load = asyncio.create_task(converse(f"ws://127.0.0.1:{compose.port}/ws", conversations, enough, outcome))
    out.print(f"{conversations} conversations at once through the one port; workers scaled to 3")
    await asyncio.to_thread(compose.run, "up", "--detach", "--no-build", "--no-recreate", "--scale", "worker=3")
    await asyncio.to_thread(compose.wait_until_well, {**_SERVICES, "worker": 3}, _BACK_S)
    for service in ("worker", "gateway-0"):
        out.print(f"SIGKILL: {service}")
        await asyncio.to_thread(compose.kill, service)
        await asyncio.sleep(_MOMENT_S)
    back_s = await asyncio.to_thread(compose.wait_until_well, {**_SERVICES, "worker": 3}, _BACK_S)
    out.print(f"all healthy again, {back_s:.0f} s later")
    enough.set()
    await load
    answered = ", ".join(f"{count} by {source}" for source, count in sorted(outcome.ends.items()))
    out.print(f"{outcome.asked} asked, {outcome.ends.total()} answered ({answered}), {len(outcome.faults)} faults")
    for fault in outcome.faults:
        out.print(fault, markup=False)
    return outcome.whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="ops/docker/smoke", description=__doc__)
    parser.add_argument("--file", type=Path, action="append", default=[], help="a further compose file")
    parser.add_argument("--conversations", type=int, default=8, help="at once")
    parser.add_argument("--keep", action="store_true", help="do not take it down at the end")
    options = parser.parse_args()
    if options.conversations < 1:
        return fail(f"--conversations {options.conversations}: at least 1", 2)
    out = Console(highlight=False, soft_wrap=True)
    compose = Compose(project="replyline-smoke", port=free_port(), files=options.file)
    try:
        held = asyncio.run(smoke(compose, out, conversations=options.conversations))
    except ServiceError as error:
        held = False
        fail(str(error), 1)
        sys.stderr.write(compose.run("logs", "--no-color", "--tail", "20", check=False))
    finally:
        if options.keep:
            out.print(f"left up: http://127.0.0.1:{compose.port} (docker compose -p {compose.project} down --volumes)")
        else:
            compose.run("down", "--volumes", "--remove-orphans", "--timeout", "20", check=False)
    out.print("nothing was lost" if held else "[red]not as promised[/]")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
