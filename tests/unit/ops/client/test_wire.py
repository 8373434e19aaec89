"""The benches' connection to a gateway."""

import pytest

from ops.client.wire import Wire
from shared.errors import SettingsError


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/ws", "ws://127.0.0.1:808O/ws", "ws://127.0.0.1:80800/ws", "ws:///ws", ""]
)
async def test_what_is_no_websocket_address_is_said_in_one_line(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        await Wire.connect(url, subprotocol="chat.v1.json", on_frame=lambda *_: None, on_lost=lambda _: None)
    told = str(raised.value)
    assert told.startswith(f"{url} is no gateway's address: ")
    assert told.endswith("; write ws://host:port/ws")
    assert "\n" not in told
