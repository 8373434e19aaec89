"""The terminal client at a silent gateway: it waits for a bounded time, then opens another connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from shared.client.session import AsyncReplyline
from shared.client.telling import ConnectFailed
from shared.wire.messages import (
    Ping,
    Pong,
    ResponseCreate,
    SessionStart,
)
from tests.browser.scripted_gateway import CODEC, Script, ScriptedGateway, ask, client_of, url_of
from tests.support.system import eventually


@dataclass(slots=True)
class Still:
    """Accepts the WebSocket and sends nothing."""

    url: str = ""
    opened: int = 0
    open: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Still"]:
        async def listen(connection: ServerConnection) -> None:
            self.opened, self.open = self.opened + 1, self.open + 1
            with suppress(ConnectionClosed):
                while True:
                    await connection.recv()
            self.open -= 1

        protocols = [Subprotocol(CODEC.name)]
        async with serve(listen, "127.0.0.1", 0, subprotocols=protocols, ping_interval=None) as server:
            self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            yield self


@pytest.mark.timeout(20)
async def test_a_gateway_silent_after_the_handshake_is_given_up_and_its_socket_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.client.socket._OPEN_S", 0.3)
    async with Still().serve() as still:
        with pytest.raises(ConnectFailed, match=r"did not answer within 0.3 s"):
            async with AsyncReplyline(still.url, codec="chat.v1.json"):
                pass
        assert still.opened == 1
        await eventually(lambda: still.open == 0)


@pytest.mark.timeout(20)
async def test_a_silent_gateway_does_not_exceed_the_patience_of_a_reconnecting_client(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.scripts["?"] = Script(deltas=("Half, ", "and whole."), pause_before=1)
    async with Still().serve() as still:
        async with AsyncReplyline(url_of(gateway), codec="chat.v1.json", patience_s=4) as client:
            asking = asyncio.create_task(ask(client))
            await gateway.expect(ResponseCreate)
            monkeypatch.setattr("shared.client.socket._OPEN_S", 0.3)
            client._urls = (still.url,)
            await gateway.hang_up(4001)
            with pytest.raises(ConnectFailed):
                await asking
        assert still.opened > 1
        await eventually(lambda: still.open == 0)


@pytest.mark.timeout(20)
async def test_an_answer_resumes_over_another_socket_when_the_first_falls_silent(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.client.socket._SLACK_S", 0.2)
    gateway.heartbeat_s = 0.2
    gateway.scripts["?"] = Script(deltas=("Half, ", "and whole."), pause_before=1)
    async with client_of(gateway) as client:
        asking = asyncio.create_task(ask(client))
        await gateway.expect(SessionStart, 2)
        gateway.release()
        assert await asking == "Half, and whole."
    assert gateway.num_computed == 1


@pytest.mark.timeout(20)
async def test_a_client_without_patience_reports_the_silence(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.client.socket._SLACK_S", 0.1)
    gateway.heartbeat_s = 0.1
    gateway.scripts["?"] = Script(deltas=("Half, ", "and whole."), pause_before=1)
    async with AsyncReplyline(url_of(gateway), codec="chat.v1.json", patience_s=0) as client:
        with pytest.raises(ConnectFailed, match=r"nothing was received for 0.3 s"):
            await ask(client)


@pytest.mark.timeout(20)
async def test_a_socket_that_only_pings_is_kept(gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.client.socket._SLACK_S", 1.0)
    gateway.heartbeat_s = 1.0
    async with client_of(gateway):
        for _ in range(40):
            await gateway.broadcast(Ping())
            await asyncio.sleep(0.1)
    assert len(gateway.starts) == 1


@pytest.mark.timeout(20)
async def test_a_question_on_a_silent_connection_is_repeated_on_another(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.client.session._SILENCE_S", 0.2)
    async with client_of(gateway) as client:
        await ask(client, "First")
        gateway.fall_silent()
        assert await ask(client) == "You asked: ?"
        gateway.fall_silent()
        assert (await client.hand_off()).reason == "requested"
    assert len(gateway.starts) == 3


@pytest.mark.timeout(20)
async def test_a_slow_but_live_gateway_is_waited_for(gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any frame counts as a sign of life."""
    monkeypatch.setattr("shared.client.session._SILENCE_S", 0.5)
    gateway.scripts["?"] = Script(deltas=("Well.",), waits_to_confirm=True)
    async with client_of(gateway) as client:
        asking = asyncio.create_task(ask(client))
        await gateway.expect(ResponseCreate)
        await gateway.broadcast(Ping())
        await gateway.expect(Pong)
        await asyncio.sleep(0.8)  # beyond the limit
        gateway.release()
        assert await asking == "Well."
    assert len(gateway.starts) == 1
