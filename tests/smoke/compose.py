"""One project of docker compose: up, looked at, scaled, a process of it killed, down."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct

from ops.stack.processes import ServiceError

ROOT: Final = Path(__file__).resolve().parents[2]
_KILL_ALL: Final = "import os, signal; os.kill(-1, signal.SIGKILL)"


class Container(Struct, frozen=True):
    """What is read of a line of `docker compose ps --format json`. `health` is empty where there is no check."""

    name: str
    service: str
    state: str
    health: str
    exit_code: int

    @property
    def well(self) -> bool:
        """It serves, or it has done what it was started for."""
        if self.state == "running":
            return self.health in {"healthy", ""}
        return self.state == "exited" and self.exit_code == 0


def containers_of(text: str) -> list[Container]:
    """Of `ps --format json`: an object a line, or one array (before Compose 2.21). Raises `ValueError`."""
    lines = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    return [
        Container(
            name=line["Name"],
            service=line["Service"],
            state=line["State"],
            health=line["Health"],
            exit_code=line["ExitCode"],
        )
        for line in lines
    ]


def not_well(containers: Sequence[Container], wanted: Mapping[str, int]) -> str:
    """What is still missing of so many containers of each service; empty when nothing is."""
    told = [f"{found.name} is {found.health or found.state}" for found in containers if not found.well]
    for service, count in wanted.items():
        up = sum(found.service == service for found in containers)
        if up != count:
            told.append(f"{up} of {count} containers of {service}")
    return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Compose:
    """`files`: beside docker-compose.yml. The command is the variable COMPOSE, `docker compose` without it."""

    project: str
    port: int
    files: Sequence[Path] = ()

    def run(self, *arguments: str, check: bool = True) -> str:
        """Its output. Raises `ServiceError` with the end of what it said."""
        command = shlex.split(os.environ.get("COMPOSE", "docker compose"))
        files = [part for file in (ROOT / "docker-compose.yml", *self.files) for part in ("--file", str(file))]
        try:
            done = subprocess.run(
                [*command, "--project-name", self.project, *files, *arguments],
                cwd=ROOT,
                env={**os.environ, "PORT": str(self.port)},
                text=True,
                capture_output=True,
                check=False,
            )
        except OSError as error:
            raise ServiceError(f"cannot start {command[0]}: {error.strerror}; install Docker with Compose") from None
        if check and done.returncode != 0:
            said = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise ServiceError(f"{shlex.join([*command, *arguments])} ended with {done.returncode}: {said}")
        return done.stdout

    def wait_until_well(self, wanted: Mapping[str, int], timeout_s: float) -> float:
        """Seconds until every container serves or has ended well. Raises `ServiceError`."""
        began = time.monotonic()
        while True:
            missing = not_well(containers_of(self.run("ps", "--all", "--format", "json")), wanted)
            took_s = time.monotonic() - began
            if not missing:
                return took_s
            if took_s > timeout_s:
                raise ServiceError(f"after {timeout_s:.0f} s: {missing}")
            time.sleep(0.5)

    def kill(self, service: str, index: int = 1) -> None:
        """SIGKILL to the process in it, from inside: a crash, after which its restart policy holds. (`docker kill`
        counts as stopped by hand.)"""
        self.run("exec", "--no-TTY", "--index", str(index), service, "python", "-c", _KILL_ALL, check=False)
