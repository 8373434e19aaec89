"""The benches' connection to a gateway."""

from collections.abc import Coroutine
from typing import Any

import pytest

from ops.lab.client.wire import Wire
from shared.client.socket import Socket
from shared.client.telling import ConnectFailed
from shared.errors import SettingsError
from shared.wire.codec import CLIENT_CODECS
from shared.wire.messages import SessionStart


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/ws", "ws://127.0.0.1:808O/ws", "ws://127.0.0.1:80800/ws", "ws:///ws", ""]
)
async def test_what_is_no_websocket_address_is_said_in_one_line(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        await Wire.connect(url, subprotocol="chat.v1.json", on_frame=lambda *_: None, on_lost=lambda _: None)
    told, shown = str(raised.value), url or "''"
    assert told.startswith(f"{shown} is not a gateway's address: ")
    assert told.endswith(" write ws://host:port/ws")
    assert "\n" not in told


def _connect(client: str, url: str) -> Coroutine[Any, Any, object]:
    if client == "client":
        return Socket.open(url, CLIENT_CODECS["chat.v1.json"], SessionStart())
    return Wire.connect(url, subprotocol="chat.v1.json", on_frame=lambda *_: None, on_lost=lambda _: None)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [("ws://no.invalid/ws", "check the host's name"), ("ws://127.0.0.1:1/ws", "is it up? (replyline up)")],
)
@pytest.mark.parametrize("client", ["client", "load"])
async def test_a_connection_that_is_not_made_has_its_remedy(url: str, remedy: str, client: str) -> None:
    with pytest.raises(ConnectFailed) as failed:
        await _connect(client, url)
    assert str(failed.value).endswith(f"; {remedy}")
