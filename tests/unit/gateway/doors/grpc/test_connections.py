"""The connections of a port that another library accepts are counted by address, and one too many is shut down."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.doors.grpc.connections import GrpcConnections, open_files
from shared.sockets.open_sockets import OpenSockets


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_connection_over_an_addresss_limit_is_closed_and_another_address_is_served(stack: ExitStack) -> None:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    connections = GrpcConnections(OpenSockets(most=100, spare=2), listener.getsockname()[1])

    def connect(address: str) -> socket.socket:
        made = stack.enter_context(socket.create_connection(listener.getsockname(), source_address=(address, 0)))
        stack.enter_context(listener.accept()[0])
        made.setblocking(False)
        return made

    made = [connect("127.0.0.7") for _ in range(15)]
    other = connect("127.0.0.8")
    connections.update(open_files())
    assert [is_open(each) for each in made].count(True) == 10
    assert is_open(other)
    connections.update({})
    again = [each for each in made if is_open(each)]
    connections.update(open_files())
    assert all(is_open(each) for each in again), "its place was given back"


def test_a_reused_descriptor_is_neither_counted_nor_closed_nor_kept(stack: ExitStack) -> None:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    sockets = OpenSockets(most=0)
    connections = GrpcConnections(sockets, listener.getsockname()[1])
    others = stack.enter_context(socket.create_connection(listener.getsockname()))
    others.setblocking(False)
    accepted = stack.enter_context(listener.accept()[0])
    file = os.open(os.devnull, os.O_RDONLY)
    stack.callback(os.close, file)
    before = len(list(Path("/proc/self/fd").iterdir()))
    connections.update({1: accepted.fileno(), 2: file, os.fstat(file).st_ino: file})
    assert is_open(others)
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "no duplicate stays open"
    assert file not in open_files().values()


def is_open(made: socket.socket) -> bool:
    try:
        return made.recv(1) != b""
    except BlockingIOError:
        return True
