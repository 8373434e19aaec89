"""A hand-off is posted until it is taken or too old, signed so that any library of Standard Webhooks verifies it."""

import hmac
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.outbound import signed_webhook
from gateway.outbound.calls import CallError
from gateway.outbound.outbound import post_handoff
from gateway.outbound.signed_webhook import SignedWebhook
from gateway.outbound.standard_webhook import signed
from shared.conversation.handoffs import Handoff
from shared.kafka import Record
from shared.process.clock import wire_unix_ms
from shared.settings.gateway import HandoffSettings
from shared.telemetry import metrics
from shared.wire.codec import msgpack_encode

KEY = b"k" * 32
GOOD = "whsec_" + b64encode(KEY).decode()


def test_a_signature_is_the_specifications_own() -> None:
    """The vector that Standard Webhooks' libraries are tested with."""
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1_614_265_330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=24, max_size=64), st.text(max_size=64), st.binary(), st.integers(0, 2**33))
def test_every_signature_can_be_verified(key: bytes, event_id: str, body: bytes, now: int) -> None:
    headers = signed(key, event_id, body, now)
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    assert headers["webhook-signature"].removeprefix("v1,") == b64encode(hmac.digest(key, content, "sha256")).decode()


@dataclass
class Desk:
    """Fails each call with the next of these; accepts it once none is left."""

    answers: list[CallError]
    calls: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)

    async def call(self, *call: Any) -> bytes:
        self.calls.append(call)
        if self.answers:
            raise self.answers.pop(0)
        return b""


def record_of(created_unix_ms: float) -> Record:
    handoff = Handoff(
        id="handoff_1",
        tenant="t",
        session_id="s",
        reason="text",
        language="en",
        created_unix_ms=int(created_unix_ms),
        transcript="replyline:{t/s}:turns",
        response_ids=("resp_1",),
    )
    return Record("chat.handoffs", 0, 0, b"t/s", msgpack_encode(handoff), {})


@pytest.fixture
def settings(tmp_path: Path) -> HandoffSettings:
    (tmp_path / "secret").write_text(GOOD + "\n")
    return HandoffSettings(
        enabled=True, webhook_url="http://desk/", webhook_secret_file=tmp_path / "secret", webhook_give_up_s=60
    )


def webhook_to(desk: Desk, settings: HandoffSettings) -> SignedWebhook:
    calls: Any = desk
    return SignedWebhook(settings, calls, "replyline handoffs list", metrics.webhooks)


async def test_a_hand_off_is_posted_until_accepted(settings: HandoffSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_webhook, "_FIRST_PAUSE_S", 0.0)
    desk = Desk([CallError(cause) for cause in ("status 500", "ConnectError", "status 302", "status 429")])
    await post_handoff(webhook_to(desk, settings), record_of(wire_unix_ms()), again=False)
    assert len(desk.calls) == 5
    assert {call[3]["webhook-id"] for call in desk.calls} == {"handoff_1"}
    event = json.loads(desk.calls[0][2])
    assert event["type"] == "handoff.created"
    assert event["data"]["session_id"] == "s"
    assert event["data"]["response_ids"] == ["resp_1"]


@pytest.mark.parametrize("record", [record_of(wire_unix_ms() - 60_001), Record("chat.handoffs", 0, 0, None, b"{", {})])
async def test_an_expired_or_unreadable_hand_off_is_not_posted(record: Record, settings: HandoffSettings) -> None:
    desk = Desk([])
    await post_handoff(webhook_to(desk, settings), record, again=True)
    assert desk.calls == []


@pytest.mark.parametrize(
    ("url", "secret", "enabled", "told"),
    [
        ("desk", GOOD, True, "write https://desk.example/replyline"),
        ("http://me:x@desk/", GOOD, True, "must not contain a user or a password; events are signed"),
        ("http://desk/", "s" * 32, True, "whsec_"),
        ("http://desk/", "whsec_c2hvcnQ=", True, "whsec_"),
        ("http://desk/", None, True, "belong together"),
        ("http://desk/", GOOD, False, "handoff.enabled"),
    ],
)
def test_settings_that_are_not_whole_are_refused(
    tmp_path: Path, url: str, secret: str | None, enabled: bool, told: str
) -> None:
    file = tmp_path / "secret"
    file.write_text((secret or "") + "\n")
    with pytest.raises(ValidationError, match=told):
        HandoffSettings(enabled=enabled, webhook_url=url, webhook_secret_file=file if secret else None)


def test_a_secret_is_read_from_its_file(settings: HandoffSettings) -> None:
    assert settings.webhook_key() == KEY
