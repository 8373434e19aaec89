"""What `replyline up` says of a port, how long it waits for its parts to end, and that it watches all of them."""

import asyncio
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ops import cli
from ops.model import terminal
from ops.operate import edge, up
from ops.operate.doctor.rows import PortUse
from ops.operate.up import EmbeddedSystem
from ops.stack.port_use import another_port, port_use
from ops.stack.processes import ServiceError
from shared.settings import Settings
from shared.settings.gateway import GatewaySettings


def refused(monkeypatch: pytest.MonkeyPatch, number: int, port: int = 8_080) -> str:
    """As Python words it where a socket cannot be bound."""
    words = f"{os.strerror(number)} (while attempting to bind on address ('::1', {port}))"
    monkeypatch.setattr(up, "listen_problem", lambda *_: OSError(number, words))
    with pytest.raises(ServiceError) as caught:
        up._check_port("::1", port)
    return str(caught.value)


@pytest.mark.parametrize(
    ("ours", "remedy"),
    [
        (False, "port 8080 is in use on ::1; choose another: make demo PORT=8081"),
        (True, "port 8080 is in use on ::1 by another Replyline; use that one, or choose another: make demo PORT=8081"),
    ],
)
def test_a_used_port_is_refused_with_its_user_and_a_free_one(
    monkeypatch: pytest.MonkeyPatch, ours: bool, remedy: str
) -> None:
    monkeypatch.setattr(up, "is_replyline", lambda *_: ours)
    assert refused(monkeypatch, errno.EADDRINUSE) == remedy


async def test_a_demo_that_cannot_start_leaves_the_log_of_the_one_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two demos at one port have the same log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(up, "listen_problem", lambda *_: OSError(errno.EADDRINUSE, "in use"))
    monkeypatch.setattr(up, "is_replyline", lambda *_: True)
    log = tmp_path / ".run" / "demo-9000.log"
    log.parent.mkdir()
    log.write_text("what the first has logged\n")
    with pytest.raises(ServiceError, match="port 9000 is in use"):
        await up.up(Settings.model_validate({"gateway": {"port": 9_000}}), asyncio.Event(), as_json=False)
    assert log.read_text() == "what the first has logged\n"


def test_a_refused_port_of_an_edge_names_the_edges_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "listen_problem", lambda *_: OSError(errno.EADDRINUSE, "in use"))
    monkeypatch.setattr(up, "is_replyline", lambda *_: False)
    with pytest.raises(ServiceError, match="another: REPLYLINE_GATEWAY__PORT=8086 replyline edge"):
        up.check_ports(GatewaySettings(port=8_085), edge.command_at)


def test_a_used_port_is_refused_before_the_model_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing takes minutes on a new machine, and leaves hundreds of megabytes."""
    prepared = list[Settings]()
    monkeypatch.setattr(up, "listen_problem", lambda *_: OSError(errno.EADDRINUSE, "in use"))
    monkeypatch.setattr(up, "is_replyline", lambda *_: False)
    monkeypatch.setattr(terminal, "ensure_engine", lambda settings, _console: prepared.append(settings))
    with pytest.raises(ServiceError, match="is in use"):
        cli.up(as_json=True)
    assert prepared == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EADDRNOTAVAIL])
def test_another_reason_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    told = refused(monkeypatch, number, port=80)
    assert told.startswith(
        f"the gateway cannot listen on [::1]:80 ({os.strerror(number)}); set REPLYLINE_GATEWAY__HOST"
    )
    assert told.endswith("make demo PORT=8080")


def test_the_doctor_does_not_say_that_somebody_listens_where_nobody_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.stack.port_use.listen_problem", lambda *_: OSError(errno.EACCES, "Permission denied"))
    assert port_use("127.0.0.1", 80) is PortUse.UNUSABLE


@pytest.mark.parametrize(("port", "another"), [(8_080, 8_081), (65_534, 65_535), (65_535, 8_080), (80, 8_080)])
def test_a_port_that_is_proposed_exists_and_is_anybodys(port: int, another: int) -> None:
    assert another_port(port) == another


@dataclass
class Part:
    """A child, or the embedded Redis."""

    running: bool = True
    limits_s: list[float] = field(default_factory=list)

    def stop(self, *, timeout_s: float) -> None:
        self.limits_s.append(timeout_s)


def system(**parts: Any) -> EmbeddedSystem:
    settings = Settings.model_validate(
        {"gateway": {"drain_s": 1}, "worker": {"drain_s": 60}, "kafka": {"request_timeout_ms": 7_000}}
    )
    made = EmbeddedSystem(settings)
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def test_each_part_has_its_own_time_to_drain_and_a_requests_more() -> None:
    gateway, worker = Part(), Part()
    system(gateway=gateway, worker=worker).stop()
    assert gateway.limits_s[0] > 1 + 7
    assert worker.limits_s[0] > 60 + 7


async def test_an_embedded_redis_that_ends_is_noticed() -> None:
    watched = system(gateway=Part(), worker=Part(), _redis=Part(running=False))
    async with asyncio.timeout(5):
        with pytest.raises(ServiceError, match="the embedded Redis ended"):
            await watched.watch(asyncio.Event())
