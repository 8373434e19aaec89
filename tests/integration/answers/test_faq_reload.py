"""A shop rewrites its FAQ in operation: gateway and worker answer from the new file, and never from an invalid one."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.shared_system import Running
from tests.support.system import Service, eventually
from tests.support.wire import Client

QUESTION = "When does the shop open?"
RELOADS = "replyline_faq_reloads_total"


def faq(answer: str) -> bytes:
    wording = {"question": QUESTION, "alternatives": ["opening hours"], "answer": answer}
    return json.dumps([{"id": "hours", "topic": "store", "en": wording}]).encode()


pytestmark = pytest.mark.system(faq__path=faq("At nine o'clock."), answers__policy="grounded")


def rewrite(path: Path, content: bytes) -> None:
    """Replace the file atomically, so that no reader sees half of it."""
    written = path.with_name("written")
    written.write_bytes(content)
    written.replace(path)


async def counted(services: Sequence[Service], outcome: str, times: int) -> None:
    for service in services:

        async def is_counted(service: Service = service) -> bool:
            return await service.metric(RELOADS, outcome=outcome) == times

        await eventually(is_counted)


async def test_a_changed_faq_is_served_by_gateway_and_worker_and_an_invalid_one_by_neither(running: Running) -> None:
    path = running.system.folder / "faq__path"
    gateway, worker = both = running.gateways[0], running.workers[0]
    async with Client.connect(gateway.ws) as client:
        grounding = (await client.ask(QUESTION)).response["grounding"]
        assert [entry["answer"] for entry in grounding] == ["At nine o'clock."]

        rewrite(path, faq("At half past ten."))
        await counted(both, "reloaded", 1)
        grounding = (await client.ask(QUESTION)).response["grounding"]
        assert [entry["answer"] for entry in grounding] == ["At half past ten."]

        rewrite(path, faq("At <b>noon</b>."))
        await counted(both, "failed", 1)
        for service in both:
            (line,) = service.logged("faq_not_reloaded")
            assert '"hours" (en) has the HTML "<b>"' in line["cause"]
        grounding = (await client.ask(QUESTION)).response["grounding"]
        assert [entry["answer"] for entry in grounding] == ["At half past ten."]

        worker.kill()
        answer = await client.ask(QUESTION, first_token_ms=300)
        assert answer.outcome == ("completed", "stop", "faq")
        assert answer.text == "At half past ten."
