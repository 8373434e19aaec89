"""A hand-off reaches the operator's webhook, although the webhook is away at first and its gateway is killed."""

import hmac
import json
from base64 import b64encode

import pytest

from tests.support.servers.called_server import Call, CalledServer, Reply
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System, eventually
from tests.support.wire import Client

pytestmark = [STANDARD, pytest.mark.usefixtures("running")]
KEY = b"k" * 32
SECRET = b"whsec_" + b64encode(KEY) + b"\n"


async def has_failed_twice(gateway: Service) -> bool:
    """A call counts once its answer has arrived."""
    return await gateway.metric("replyline_gateway_webhooks_total", outcome="failed") > 1


async def test_a_hand_off_is_posted_although_its_gateway_dies(system: System) -> None:
    answers = [Reply(500), Reply(302, headers={"Location": "/inside"})]

    def answer(_: Call) -> Reply:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    with CalledServer(answer).serve() as desk:
        settings = {
            "handoff__webhook_url": f"{desk.url}/replyline",
            "handoff__webhook_secret_file": SECRET,
            "kafka__session_timeout_ms": 6_000,
        }
        first = await system.gateway(gateway__reply_partition=2, **settings).ready()
        async with Client.connect(first.ws) as client:
            await client.send({"type": "handoff.request"})
            created = await client.of_type("handoff.created")

            def tries() -> list[Call]:
                return [call for call in desk.calls if call.headers["webhook-id"] == created["handoff_id"]]

            await eventually(lambda: len(tries()) > 1)
            await eventually(lambda: has_failed_twice(first))
            first.kill()
        answers.append(Reply(204))
        second = await system.gateway(gateway__reply_partition=3, **settings).ready()
        await eventually(lambda: second.metric("replyline_gateway_webhooks_total", outcome="taken"))
    last = tries()[-1]
    assert {call.path for call in desk.calls} == {"/replyline"}
    assert json.loads(last.body)["data"]["session_id"] == client.session_id
    content = f"{created['handoff_id']}.{last.headers['webhook-timestamp']}.".encode() + last.body
    assert last.headers["webhook-signature"] == "v1," + b64encode(hmac.digest(KEY, content, "sha256")).decode()
