"""Access control: a page by its origin, a person by a token, each only to their own conversations."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from shared.wire.session_key import owned_session_id
from tests.conformance.frontends.front_ends import FrontEnd
from tests.support.reliability import Reliability
from tests.support.servers.key_server import KeyServer
from tests.support.system import Service, System
from tests.support.tokens import JWKS, RSA, SECRET, by_hand, claims, public_pem
from tests.support.tokens import token as signed
from tests.support.wire import Client

ALLOWED = (
    "https://shop.example",
    "https://shop.example:8443",
    "http://localhost:3000",
    "http://[::1]:8080",
    "capacitor://localhost",
)
NOT_ALLOWED = (
    "",
    " ",
    "null",
    "NULL",
    "*",
    "shop.example",
    "//shop.example",
    "https://",
    "https://shop.example/",
    "https://shop.example.",
    "https://shop.example:443",
    "https://shop.example:",
    "https://shop.example:8444",
    "https://shop.example:84430",
    "https://shop.example:8443.evil.example",
    "http://shop.example",
    "wss://shop.example",
    "https:/shop.example",
    "https:shop.example",
    "HTTPS://shop.example",
    "https://Shop.example",
    "https://SHOP.EXAMPLE",
    "https://www.shop.example",
    "https://evilshop.example",
    "https://shop.example.evil.example",
    "https://shop.exampl",
    "https://shop.example2",
    "https://shop.example@evil.example",
    "https://user@shop.example",
    "https://evil.example/https://shop.example",
    "https://evil.example?https://shop.example",
    "https://evil.example#https://shop.example",
    "https://shop.example https://shop.example",
    "https://shop.example,https://shop.example",
    "https://shop.example%00.evil.example",
    "https://xn--sho-tdd.example",
    "http://localhost",
    "http://127.0.0.1:3000",
    "http://[::1]",
    "file://",
)


@pytest.fixture(scope="module")
def key_server() -> Iterator[KeyServer]:
    with KeyServer(JWKS).serve() as server:
        yield server


PER_MINUTE = 40


@pytest_asyncio.fixture(scope="module")
async def guarded(system: System, worker: Service, key_server: KeyServer) -> Service:
    """A gateway that requires tokens, by a secret and by an identity provider's keys."""
    secret = system.folder / "secret"
    secret.write_bytes(SECRET + b"\n")
    return await system.gateway(
        gateway__reply_partition=2,
        gateway__allowed_origins=",".join(ALLOWED),
        gateway__messages_per_minute=100_000,
        quotas__subject_per_minute=PER_MINUTE,
        auth__mode="token",
        auth__secret_file=secret,
        auth__jwks=key_server.url,
        log__level="debug",
    ).ready()


def token(ttl_s: float = 60, **changed: Any) -> str:
    return signed(changed.pop("algorithm", "HS256"), **{"exp": time.time() + ttl_s} | changed)


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256", "EdDSA"])
async def test_a_good_token_is_accepted_with_its_expiry(guarded: Service, front: FrontEnd, algorithm: str) -> None:
    before = time.time() * 1_000
    async with Client.connect(guarded.ws, front.form, token=token(algorithm=algorithm)) as client:
        assert before + 59_000 < client.events[0]["expires_at"] < time.time() * 1_000 + 60_000
        assert (await client.ask("Hello?", max_output_tokens=2)).text


@pytest.mark.parametrize(
    ("text", "code", "close"),
    [
        (None, "unauthorized", 4500),
        ("nonsense", "unauthorized", 4500),
        (by_hand({"alg": "none"}, claims(exp=2**33)), "unauthorized", 4500),
        (by_hand({"alg": "HS256", "kid": "rsa"}, claims(exp=2**33), public_pem(RSA)), "unauthorized", 4500),
        (signed(exp=2**33, aud="billing"), "unauthorized", 4500),
        (signed("RS256", exp=2**33, headers={"kid": "../../etc/passwd"}), "unauthorized", 4500),
        (signed(exp=10), "token_expired", 4005),
    ],
)
async def test_a_missing_or_bad_token_gets_an_error_and_a_close(
    guarded: Service, front: FrontEnd, text: str | None, code: str, close: int
) -> None:
    async with Client.connect(guarded.ws, front.form, start=False) as client:
        await client.send({"type": "session.start", **({"token": text} if text is not None else {})})
        await client.send({"type": "response.create", "event_id": "e", "input": "Hello?"})
        assert await client.closed() == close
    (event,) = client.events
    assert (event["error"]["type"], event["error"]["code"]) == ("authentication_error", code)
    assert event["error"]["retryable"] is False


async def test_a_session_belongs_to_the_subject_that_began_it(
    system: System, guarded: Service, front: FrontEnd
) -> None:
    """Another subject that names it gets a new, empty session: no answer, no history, nothing to cancel or
    erase.
    """
    name = f"theirs-{front.form.is_text}"
    alice, bob = owned_session_id("alice", name), owned_session_id("bob", name)
    async with (
        Client.connect(guarded.ws, front.form, token=token(), session_id=name) as hers,
        Client.connect(guarded.ws, front.form, token=token(sub="bob"), session_id=name) as his,
    ):
        assert hers.session_id == his.session_id == name
        mine = await hers.ask("Where is my order?", event_id="same", max_output_tokens=3)
        other = await his.ask("Where is my order?", event_id="same", max_output_tokens=3)
        assert other.response["id"] != mine.response["id"]
        assert other.response["usage"]["input_tokens"] == mine.response["usage"]["input_tokens"]
        again = await hers.ask("And now?", max_output_tokens=3)
        assert again.response["usage"]["input_tokens"] > mine.response["usage"]["input_tokens"]
        assert [turn.user for turn in await system.turns(bob, at_least=1)] == ["Where is my order?"]

        running = await hers.create("Tell me a long story.", max_output_tokens=40)
        response_id = (await hers.created(running))["response_id"]
        await his.send({"type": "response.cancel", "response_id": response_id})
        assert (await his.error())["code"] == "unknown_response"
        await his.send({"type": "session.delete"})
        assert (await his.of_type("session.deleted"))["session_id"] == name
        assert (await hers.answer(running)).outcome == ("incomplete", "max_output_tokens", "model")
    assert await system.turns(bob) == []
    assert len(await system.turns(alice, at_least=3)) == 3


async def test_a_client_without_a_token_can_name_no_subjects_session(gateway: Service, front: FrontEnd) -> None:
    """It uses an open gateway on the same Kafka and Redis."""
    async with Client.connect(gateway.ws, front.form, start=False) as client:
        await client.send({"type": "session.start", "session_id": owned_session_id("alice", "theirs")})
        error = await client.error()
        assert (error["code"], error["param"]) == ("invalid_field", "session_id")


@pytest.mark.promise(16)
async def test_a_session_continues_with_a_newer_token_and_ends_with_the_last(
    guarded: Service, front: FrontEnd, reliability: Reliability
) -> None:
    began = time.time()
    async with Client.connect(guarded.ws, front.form, token=token(4.0)) as client:
        for wrong in (token(sub="bob"), token(tenant="shop"), "nonsense"):
            position = len(client.events)
            await client.send({"type": "session.refresh", "token": wrong})
            assert (await client.error(since=position))["code"] == "unauthorized"
        until = began + 5.0
        await client.send({"type": "session.refresh", "token": token(exp=until)})
        assert (await client.of_type("session.refreshed"))["expires_at"] == int(until * 1_000)
        closing = await client.of_type("session.closing")
        assert closing["reason"] == "token_expired"
        assert 0 <= closing["reconnect_after_ms"] < 1_000
        assert await client.closed() == 4005
        late_s = time.time() - until
    reliability.found(figure=f"closed 4005 after {late_s:.1f} s", target="expiry closes ≤ 5 s", holds=0 <= late_s <= 5)


async def test_a_subjects_requests_per_minute_are_limited_over_all_connections(
    guarded: Service, front: FrontEnd
) -> None:
    """A repeated event is not another request, and no other subject's limit shrinks."""
    eager = token(sub=f"eager-{front.name}")
    async with (
        Client.connect(guarded.ws, front.form, token=eager) as one,
        Client.connect(guarded.ws, front.form, token=eager) as other,
        Client.connect(guarded.ws, front.form, token=token(sub=f"calm-{front.name}")) as calm,
    ):
        began, number = time.monotonic(), 0
        while not (one.count("error") or other.count("error")):
            for client in (one, other):
                position = len(client.events)
                await client.create("Hello?", event_id=f"e{number}", max_output_tokens=1)
                await client.until(lambda event: event["type"] in {"error", "response.done"}, since=position)
            number += 1
        given_back = (time.monotonic() - began) * PER_MINUTE / 60
        passed = one.count("response.created") + other.count("response.created")
        assert PER_MINUTE <= passed <= PER_MINUTE + given_back + 1
        refused = one if one.count("error") else other
        error = await refused.error()
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limited")
        assert error["event_id"] == f"e{number - 1}"
        assert 0 < error["retry_after_ms"] <= 60_001
        position = len(one.events)
        await one.create("Hello?", event_id="e0")
        assert (await one.answer("e0", since=position)).text
        assert (await calm.ask("Hello?", max_output_tokens=1)).text


@pytest.mark.promise(15)
async def test_an_unlisted_origin_is_refused_before_the_upgrade(
    guarded: Service, front: FrontEnd, reliability: Reliability
) -> None:
    options: dict[str, Any] = {"subprotocols": [Subprotocol(front.name)], "proxy": None}
    refused = [*({"Origin": origin} for origin in NOT_ALLOWED), [("Origin", ALLOWED[0]), ("Origin", ALLOWED[0])]]
    for headers in refused:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(guarded.ws, additional_headers=headers, **options)
        assert refusal.value.response.status_code == 403, headers
    for headers in [*({"Origin": origin} for origin in ALLOWED), {}]:
        async with connect(guarded.ws, additional_headers=headers, **options):
            pass
    reliability.found(
        figure=f"{len(refused)} bad refused with 403, {len(ALLOWED)} good accepted",
        target="30 bad refused, 5 good accepted",
        holds=len(refused) >= 30 and len(ALLOWED) >= 5,
    )


async def test_the_last_keys_stay_while_new_ones_cannot_be_read(
    guarded: Service, front: FrontEnd, key_server: KeyServer
) -> None:
    key_server.stop()
    async with Client.connect(guarded.ws, front.form, token=token(algorithm="ES256")) as client:
        assert (await client.ask("Hello?", max_output_tokens=2)).text


async def test_no_part_of_a_token_is_ever_logged(system: System, guarded: Service, front: FrontEnd) -> None:
    """At the most verbose log level, with good and bad tokens, refused by the codec and by the check."""
    good = token(jti="a" * 64)
    tokens = [good, token(aud="billing", jti="b" * 64), by_hand({"alg": "none"}, claims(jti="c" * 64)), "nonsense" * 8]
    for text in tokens:
        for session_id in ("s", "no name"):
            async with Client.connect(guarded.ws, front.form, start=False) as client:
                await client.send({"type": "session.start", "token": text, "session_id": session_id})
                await client.send({"type": "session.refresh", "token": text[:-1]})
                await client.until(lambda event: event["type"] in {"session.created", "error"})
    page = await guarded.get("/metrics")
    assert page is not None
    told = page.body.decode() + "".join(service.log.read_text() for service in system.services)
    assert "gateway_ready" in told
    for part in {part for text in tokens for part in text.split(".")}:
        assert part not in told


async def test_the_command_line_makes_a_token_and_asks_with_it(guarded: Service, system: System) -> None:
    secret = {"REPLYLINE_AUTH__SECRET_FILE": str(system.folder / "secret")}
    status, made = await _typed("token", "--tenant", "demo", "--subject", "eve", "--ttl-s", "30", **secret)
    assert (status, made.count("\n")) == (0, 1)
    asking = ("ask", "Hello?", "--url", guarded.ws, "--max-output-tokens", "2")
    assert (await _typed(*asking, REPLYLINE_TOKEN=made.strip()))[0] == 0
    status, said = await _typed(*asking)
    assert (status, said.count("\n")) == (1, 1)
    assert "requires a token" in said
    assert "REPLYLINE_TOKEN" in said, "the remedy"


async def _typed(*arguments: str, **env: str) -> tuple[int | None, str]:
    """Run `replyline …`; return its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("replyline"),
        *arguments,
        env=os.environ | env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_the_start_log_says_who_is_admitted_without_a_token(gateway: Service, guarded: Service) -> None:
    (line,) = gateway.logged("anonymous")
    assert (line["level"], line["tenant"]) == ("warning", "demo")
    assert guarded.logged("anonymous") == []
