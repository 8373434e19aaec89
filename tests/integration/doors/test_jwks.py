"""Public keys over HTTP: read at the start, read again when a token names a new one, kept when the read fails."""

import asyncio
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from gateway.access.identity import TokenGate
from gateway.access.jwks import Jwks
from gateway.access.token_keys import KeySet, secret_key
from shared.errors import ProtocolError, SettingsError
from tests.support.servers.key_server import KeyServer
from tests.support.system import eventually
from tests.support.tokens import JWKS, KID, NOW_UNIX_MS, RULES, SECRET, jwk, jwks, token

NEW = token("RS256", headers={"kid": "new"})


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer(JWKS).serve() as server:
        yield server


def reader(source: str, *, timeout_s: float = 10.0, cooldown_s: float = 60.0) -> Jwks:
    """A reader that has read no keys yet, with the secret's key."""
    own = (secret_key(SECRET),)
    gate = TokenGate(RULES, KeySet(own, complete=False))
    return Jwks(source=source, gate=gate, own_keys=own, timeout_s=timeout_s, cooldown_s=cooldown_s)


def names(keys: Jwks) -> set[str | None]:
    return {key.kid for key in keys.gate.keys.keys}


async def test_the_first_token_triggers_a_read_of_the_keys(server: KeyServer) -> None:
    keys = reader(server.url)
    assert keys.missing() == f"no JWKS at {server.url}"
    await keys.prepare(token("ES256"))
    assert keys.missing() is None
    assert names(keys) == {None, *KID.values()}
    for algorithm in ("HS256", "RS256", "ES256", "EdDSA"):
        assert keys.gate.identify(token(algorithm), NOW_UNIX_MS).subject == "alice"


async def test_known_keys_bad_tokens_and_the_secret_trigger_no_read(server: KeyServer) -> None:
    keys = reader(server.url)
    for text in (token(), "nonsense", "", "a.b.c"):
        await keys.prepare(text)
    assert server.asked == 0
    for _ in range(3):
        await keys.prepare(token("ES256"))
    assert server.asked == 1


async def test_a_new_key_is_found_and_a_withdrawn_one_removed(server: KeyServer) -> None:
    keys = reader(server.url, cooldown_s=0)
    await keys.prepare(token("RS256"))
    old = json.loads(JWKS)["keys"]
    server.body = jwks(*(key | {"kid": "new"} for key in old if key["kty"] == "RSA"))
    await keys.prepare(NEW)
    assert names(keys) == {None, "new"}
    assert keys.gate.identify(NEW, NOW_UNIX_MS).subject == "alice"
    with pytest.raises(ProtocolError):
        keys.gate.identify(token("RS256"), NOW_UNIX_MS)


async def test_invented_key_ids_cause_one_request_in_the_cool_down(server: KeyServer) -> None:
    keys = reader(server.url)
    await keys.prepare(token("RS256"))
    keys._tried_s = -math.inf
    invented = [token("EdDSA", headers={"kid": f"k{number}"}) for number in range(40)]
    await asyncio.gather(*(keys.prepare(text) for text in invented))
    for text in invented:
        await keys.prepare(text)
    assert server.asked == 2


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"status": 500}, "HTTP 500"),
        ({"status": 404}, "HTTP 404"),
        ({"status": 302, "location": "http://127.0.0.1:1/"}, "HTTP 302"),
        ({"body": b"<html>"}, "not a JWKS"),
        ({"body": b'{"keys":[]}'}, "no RSA"),
        ({"body": b" " * 300_000}, "more than"),
    ],
)
async def test_the_last_good_keys_stay_when_new_ones_cannot_be_read(
    server: KeyServer, capsys: pytest.CaptureFixture[str], fault: dict[str, Any], cause: str
) -> None:
    keys = reader(server.url, cooldown_s=0)
    await keys.prepare(token("RS256"))
    for name, value in fault.items():
        setattr(server, name, value)
    await keys.prepare(NEW)
    await keys.prepare(NEW)
    assert keys.gate.identify(token("RS256"), NOW_UNIX_MS).subject == "alice"
    with pytest.raises(ProtocolError) as caught:
        keys.gate.identify(NEW, NOW_UNIX_MS)
    assert caught.value.code == "keys_unavailable"
    said = capsys.readouterr().out
    assert said.count("unavailable") == 1  # once, not at each try
    assert cause in said


async def test_a_silent_or_slow_server_costs_the_timeout_and_does_not_block_the_loop(server: KeyServer) -> None:
    keys = reader(server.url, cooldown_s=0, timeout_s=1.5)
    server.pause_s = 0.01  # of a body that would take ten seconds
    ticks, began = 0, time.monotonic()

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await keys.prepare(NEW)
    ticking.cancel()
    assert time.monotonic() - began < 9, "it was not read to its end"
    assert ticks > 20
    assert keys.missing() is not None
    server.stop()
    await keys.prepare(NEW)
    assert keys.gate.identify(token(), NOW_UNIX_MS).subject == "alice"


async def test_one_cancelled_caller_does_not_cancel_the_read_for_others(server: KeyServer) -> None:
    keys = reader(server.url)
    waiting = asyncio.create_task(keys.prepare(token("ES256")))
    await asyncio.sleep(0)
    other = asyncio.create_task(keys.prepare(token("ES256")))
    await asyncio.sleep(0)
    waiting.cancel()
    await other
    assert keys.missing() is None


async def test_keys_are_read_again_at_the_configured_interval(server: KeyServer) -> None:
    keys = reader(server.url)
    keys.refresh_s = 0.01
    watching = asyncio.create_task(keys.watch())
    await eventually(lambda: server.asked >= 3)
    watching.cancel()


async def test_a_key_file_is_read_at_the_start_and_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(JWKS)
    keys = reader(str(file))
    await keys.start()
    assert names(keys) == {None, *KID.values()}
    file.write_bytes(jwks(jwk(ed25519.Ed25519PrivateKey.generate(), kid="new")))
    await keys.prepare(token("EdDSA", headers={"kid": "new"}))
    assert names(keys) == {None, "new"}


@pytest.mark.parametrize("text", [None, "", "nonsense", '{"keys":[]}'])
async def test_a_key_file_without_keys_stops_the_process(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "keys.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=r"^REPLYLINE_AUTH__JWKS=.*keys\.json: \S"):
        await reader(str(file)).start()
