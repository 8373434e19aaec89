"""A port that was given to one process is given to no other before its server has it."""

import socket
import sys

import pytest

from ops.stack.processes import free_port

HOST = "127.0.0.1"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a held port would keep its own server out")
def test_a_given_port_is_its_servers_and_nobody_elses_to_find_free() -> None:
    port = free_port()
    with socket.socket() as finding, pytest.raises(OSError, match="in use"):
        finding.bind((HOST, port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=5)
    with socket.create_server((HOST, port)):
        pass


def test_no_port_is_given_twice() -> None:
    assert len({free_port() for _ in range(100)}) == 100
