"""A broker that closes its connection just before a request causes a broken-connection error for each error that
uvloop raises.
"""

import asyncio

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

import shared.kafka  # noqa: F401 - makes it so


async def ask_after_the_end() -> None:
    """Send a request on a closed transport before aiokafka has noticed."""
    gone = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = AIOKafkaConnection("127.0.0.1", port)
        connection._versions = {MetadataRequest.API_KEY: (1, 1)}
        connection._reader, connection._writer = await asyncio.open_connection("127.0.0.1", port)
        connection._read_task = asyncio.create_task(connection._reader.read())
        connection._writer.transport.abort()
        await connection._read_task
        with pytest.raises(KafkaConnectionError, match="broken: unable to perform operation"):
            connection.send(MetadataRequest([]))
        assert not connection.connected()
        await gone.wait()


def test_a_request_on_a_just_closed_connection_raises_a_connection_error() -> None:
    """aiokafka then reconnects; any other error ends its consumers for good, and the process with them."""
    uvloop.run(ask_after_the_end())
