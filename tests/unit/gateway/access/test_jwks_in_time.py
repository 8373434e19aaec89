"""A fetch of keys that never ends: no caller waits longer than the timeout, and only one fetch runs."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gateway.access import jwks
from gateway.access.identity import TokenGate
from gateway.access.jwks import Jwks
from gateway.access.token_keys import KeySet, TokenKey
from shared.errors import ProtocolError
from tests.support.tokens import KEYS, NOW_UNIX_MS, RULES, token


@dataclass
class Fetches:
    """Replaces `read_keys`: each fetch lasts until it may `end`."""

    begun: int = 0
    end: threading.Event = field(default_factory=threading.Event)

    def read(self, source: str, timeout_s: float) -> tuple[TokenKey, ...]:
        self.begun += 1
        self.end.wait(30)
        return KEYS.keys


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fetches]:
    fetches = Fetches()
    monkeypatch.setattr(jwks, "read_keys", fetches.read)
    yield fetches
    fetches.end.set()


def reader() -> Jwks:
    gate = TokenGate(RULES, KeySet(complete=False))
    return Jwks(source="https://keys.invalid/", gate=gate, timeout_s=0.01, cooldown_s=0)


async def test_a_caller_is_told_that_the_keys_cannot_be_read(fetches: Fetches) -> None:
    keys = reader()
    await keys.prepare(token("ES256"))
    with pytest.raises(ProtocolError) as caught:
        keys.gate.identify(token("ES256"), NOW_UNIX_MS)
    assert (caught.value.code, caught.value.retriable) == ("keys_unavailable", True)
    fetches.end.set()


async def test_the_next_caller_waits_for_the_same_fetch(fetches: Fetches) -> None:
    """Otherwise a server that never ends its headers would occupy one thread after the other."""
    keys = reader()
    for _ in range(3):
        await keys.prepare(token("ES256"))
    assert fetches.begun == 1
    fetches.end.set()
    keys.timeout_s = 30.0
    await keys.prepare(token("ES256"))
    assert keys.gate.identify(token("ES256"), NOW_UNIX_MS).subject == "alice"
