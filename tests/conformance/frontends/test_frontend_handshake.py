"""The start of a connection: subprotocol, origin, `session.start`; and other paths of the port."""

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.conformance.frontends.front_ends import PAGE, FrontEnd
from tests.support.system import OPERATORS_PAGES, Service, get
from tests.support.wire import Client


async def test_session_start_is_answered_with_the_sessions_limits(gateway: Service, front: FrontEnd) -> None:
    async with Client.connect(gateway.ws, front.form) as client:
        (created,) = client.events
    assert client.socket.subprotocol == front.name
    assert created.keys() == {
        "type",
        "session_id",
        "connection_id",
        "recovered",
        "replayed",
        "limits",
        "heartbeat_s",
        "handoff",
    }
    assert (created["recovered"], created["replayed"], created["heartbeat_s"]) == (False, 0, 25.0)
    assert created["limits"] == {
        "max_message_bytes": 65_536,
        "max_input_tokens": 1_024,
        "max_output_tokens": 2_000,
        "max_inflight": 4,
        "messages_per_minute": 100_000,
        "first_token_ms": 8_000,
        "deadline_ms": 15_000,
    }


async def test_session_and_connection_ids_are_unique(gateway: Service, front: FrontEnd) -> None:
    async with Client.connect(gateway.ws, front.form) as one, Client.connect(gateway.ws, front.form) as other:
        assert one.events[0]["session_id"] != other.events[0]["session_id"]
        assert one.events[0]["connection_id"] != other.events[0]["connection_id"]


async def test_without_a_subprotocol_the_encoding_is_json(gateway: Service) -> None:
    async with connect(gateway.ws, proxy=None) as socket:
        assert socket.subprotocol is None
        await socket.send('{"type":"session.start"}')
        assert json.loads(await socket.recv())["type"] == "session.created"


async def test_an_unknown_subprotocol_is_refused_with_400(gateway: Service) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        await connect(gateway.ws, subprotocols=[Subprotocol("chat.v9.xml")], proxy=None)
    assert refusal.value.response.status_code == 400


async def test_of_several_subprotocols_a_known_one_is_chosen(gateway: Service, front: FrontEnd) -> None:
    async with connect(
        gateway.ws, subprotocols=[Subprotocol("chat.v9.xml"), Subprotocol(front.name)], proxy=None
    ) as socket:
        assert socket.subprotocol == front.name


async def test_compression_is_not_negotiated(gateway: Service, front: FrontEnd) -> None:
    """It costs 40 KiB per connection."""
    async with connect(gateway.ws, subprotocols=[Subprotocol(front.name)], compression="deflate", proxy=None) as socket:
        assert socket.protocol.extensions == []


async def test_an_origin_that_is_not_allowed_is_refused_with_403(strict: Service, front: FrontEnd) -> None:
    """The refusal comes before the upgrade. The allowed origin, and a client without an origin, may connect."""
    options: dict[str, Any] = {"subprotocols": [Subprotocol(front.name)], "proxy": None}
    for origin in ("https://elsewhere.example", "null", "https://shop.example.evil.example"):
        with pytest.raises(InvalidStatus) as refusal:
            await connect(strict.ws, origin=Origin(origin), **options)
        assert refusal.value.response.status_code == 403
    async with connect(strict.ws, origin=Origin(PAGE), **options):
        pass
    async with connect(strict.ws, **options):
        pass


async def test_a_missing_session_start_closes_with_4502(strict: Service, front: FrontEnd) -> None:
    async with Client.connect(strict.ws, front.form, start=False) as client:
        assert await client.closed() == 4502


@pytest.mark.parametrize(
    "first",
    [
        {"type": "response.create", "event_id": "e", "input": "Hello"},
        {"type": "response.cancel", "response_id": "r"},
        {"type": "session.delete"},
        {"type": "session.refresh", "token": "t"},
    ],
    ids=lambda first: first["type"],
)
async def test_any_other_first_message_closes_with_4502(
    gateway: Service, front: FrontEnd, first: dict[str, str]
) -> None:
    async with Client.connect(gateway.ws, front.form, start=False) as client:
        await client.send(first)
        assert await client.closed(limit_s=5) == 4502
        assert client.events == []


async def test_a_second_session_start_is_an_error_and_changes_nothing(client: Client) -> None:
    await client.send({"type": "session.start", "session_id": "another"})
    assert (await client.error())["code"] == "already_started"
    assert client.count("session.created") == 1


@pytest.mark.parametrize("kind", ["session.start", "session.refresh"])
async def test_a_token_is_refused_by_a_gateway_that_does_not_check_tokens(
    gateway: Service, front: FrontEnd, kind: str
) -> None:
    """Without the token the session can start."""
    async with Client.connect(gateway.ws, front.form, start=kind == "session.refresh") as client:
        await client.send({"type": kind, "token": "not-checked"})
        error = await client.error()
        assert (error["type"], error["code"]) == ("authentication_error", "tokens_not_supported")
        assert error["retryable"] is False
        if kind == "session.start":
            await client.send({"type": "session.start"})
            await client.of_type("session.created")


@pytest.mark.parametrize(("given", "read"), [("", None), (None, None), (7, "7")])
async def test_a_session_id_is_read_as_serializers_write_it(
    gateway: Service, front: FrontEnd, given: object, read: str | None
) -> None:
    """An empty id counts as missing, and a number is read as text."""
    async with Client.connect(gateway.ws, front.form, start=False) as client:
        await client.send({"type": "session.start", "session_id": given})
        session_id = (await client.of_type("session.created"))["session_id"]
        assert session_id == read or (read is None and session_id.startswith("sess_"))


@pytest.mark.parametrize("session_id", [" ", "a b", "x" * 65, "demo/other", "{tag}"])
async def test_an_invalid_session_id_is_refused(gateway: Service, front: FrontEnd, session_id: str) -> None:
    async with Client.connect(gateway.ws, front.form, start=False) as client:
        await client.send({"type": "session.start", "session_id": session_id})
        error = await client.error()
        assert (error["code"], error["param"]) == ("invalid_field", "session_id")


async def test_a_resume_with_a_foreign_cursor_is_answered_with_recovered_false(
    gateway: Service, front: FrontEnd
) -> None:
    """The session continues by its id; nothing is replayed, and the client can see that."""
    async with Client.connect(gateway.ws, front.form, start=False) as client:
        await client.send({"type": "session.start", "session_id": "kept", "resume": {"cursor": "resp_1@12"}})
        created = await client.of_type("session.created")
    assert (created["session_id"], created["recovered"], created["replayed"]) == ("kept", False, 0)


# --- other paths of the port


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/", 200, "text/html; charset=utf-8"),
        ("/widget/replyline-chat.js", 200, "text/javascript; charset=utf-8"),
        ("/nothing", 404, "text/plain"),
        ("/widget/../__main__.py", 404, "text/plain"),
    ],
)
async def test_pages_are_served_next_to_the_socket(gateway: Service, path: str, status: int, kind: str) -> None:
    page = await gateway.get(path)
    assert page is not None
    assert (page.status, page.headers["Content-Type"]) == (status, kind)
    assert page.body


DRAIN = "/drain"  # the gateway that all tests share would drain


@pytest.mark.parametrize("path", [path for path in OPERATORS_PAGES if path != DRAIN])
async def test_operator_pages_are_on_a_separate_port(gateway: Service, path: str) -> None:
    shown = await asyncio.gather(
        *(asyncio.to_thread(get, f"http://{at}{path}") for at in (gateway.operators, gateway.address))
    )
    assert [page and page.status for page in shown] == [200, 404]


async def test_a_customer_cannot_drain_a_gateway(gateway: Service) -> None:
    page = await asyncio.to_thread(get, f"http://{gateway.address}{DRAIN}")
    assert page is not None
    assert page.status == 404
    assert await gateway.status_of("/ready") == 200


async def test_a_plain_get_of_the_sockets_path_gets_upgrade_required(gateway: Service) -> None:
    assert await gateway.status_of("/ws") == 426
