"""The connections of a port that another library accepts are counted by address, and one too many is shut down."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.doors.grpc.connections import GrpcConnections, open_files
from shared.sockets.open_sockets import OpenSockets


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_one_connection_too_many_of_an_address_is_shut_down_and_another_address_has_its_place(stack: ExitStack) -> None:
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


def is_open(made: socket.socket) -> bool:
    try:
        return made.recv(1) != b""
    except BlockingIOError:
        return True
