"""The addresses a server listens on, and its error if it cannot."""

import errno
import os
import socket
from contextlib import ExitStack

import pytest

from shared.errors import ListenError
from shared.process.lifetime import run_until_signal
from shared.settings.gateway import GatewaySettings
from shared.sockets import listening
from shared.sockets.listening import ListenAddress, bind, host_port
from shared.telemetry.status import Readiness, serve_status


def problem_of(address: ListenAddress) -> str:
    with pytest.raises(ListenError) as caught:
        address.listen().close()
    return str(caught.value)


@pytest.mark.parametrize("taken_at", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_port_taken_at_one_address_is_refused_at_every_address(taken_at: str) -> None:
    family = socket.AF_INET6 if ":" in taken_at else socket.AF_INET
    with socket.create_server((taken_at, 0), family=family) as taken:
        port = taken.getsockname()[1]
        settings = GatewaySettings(host="::", http_port=port)
        said = problem_of(ListenAddress.of_settings("gateway", settings, "http_port"))
    assert said == (
        f"port {port} is in use on :: (REPLYLINE_GATEWAY__HTTP_PORT); stop the process that listens there, or set "
        "REPLYLINE_GATEWAY__HTTP_PORT to another port"
    )


@pytest.mark.parametrize("number", [errno.EACCES, errno.EADDRNOTAVAIL])
def test_any_other_bind_error_names_both_settings(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(number, f"{os.strerror(number)} (while attempting to bind)")

    monkeypatch.setattr(listening, "bind", refuse)
    settings = GatewaySettings(metrics_host="fd00::1", metrics_port=80)
    said = problem_of(ListenAddress.of_settings("gateway", settings, "metrics_port"))
    assert said.startswith(
        f"cannot listen on [fd00::1]:80 ({os.strerror(number)}); set REPLYLINE_GATEWAY__METRICS_HOST"
    )
    assert "\n" not in said


def test_an_unknown_host_name_gives_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    async def serve(_: object) -> None:
        ListenAddress("gatway", 8_080, "--metrics-host", "--metrics-port").listen()

    assert run_until_signal(serve) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("replyline: cannot listen on gatway:8080 (Name or service not known); set --metrics-host")


@pytest.mark.parametrize(
    ("host", "reached"),
    [("::", {"127.0.0.1", "::1"}), ("", {"127.0.0.1"}), ("0.0.0.0", {"127.0.0.1"}), ("::1", {"::1"})],
)
def test_one_setting_listens_on_both_address_families(host: str, reached: set[str]) -> None:
    with bind(host, 0) as listening_socket:
        port = listening_socket.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            try:
                socket.create_connection((address, port), timeout=5).close()
            except OSError:
                assert address not in reached
            else:
                assert address in reached


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
async def test_clients_that_connect_while_the_loop_is_busy_all_wait_to_be_accepted(host: str) -> None:
    """A client that finds the queue full believes that it is connected, and is never closed if it sends no byte."""
    with ExitStack() as stack:
        server = await serve_status(ListenAddress(host, 0, "", ""), Readiness({}))
        port = server.sockets[0].getsockname()[1]
        for _ in range(300):  # the loop does not run during this time
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        server.close()


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bind("::", 0) as listening_socket:
        assert listening_socket.family is socket.AF_INET


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "127.0.0.1:1"), ("shop.example", "shop.example:1"), ("::1", "[::1]:1")]
)
def test_an_ipv6_address_is_printed_in_brackets(host: str, text: str) -> None:
    assert host_port(host, 1) == text
