"""A shop rewrites its FAQ while it is asked: gateway and worker answer from the new one, and never from a bad one."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.system import MakeSystem, Service, eventually
from tests.support.wire import Client

QUESTION = "When does the shop open?"
RELOADS = "replyline_faq_reloads_total"


def write(path: Path, answer: str) -> None:
    wording = {"question": QUESTION, "alternatives": ["opening hours"], "answer": answer}
    path.write_text(json.dumps([{"id": "hours", "topic": "store", "en": wording}]), encoding="utf-8")


async def counted(services: Sequence[Service], outcome: str, times: int) -> None:
    for service in services:

        async def is_counted(service: Service = service) -> bool:
            return await service.metric(RELOADS, outcome=outcome) == times

        await eventually(is_counted)


async def test_a_changed_faq_is_served_by_gateway_and_worker_and_a_bad_one_by_neither(
    make_system: MakeSystem, tmp_path: Path
) -> None:
    path = tmp_path / "faq.json"
    write(path, "At nine o'clock.")
    system = await make_system(faq__path=path, answers__policy="grounded")
    both = await asyncio.gather(system.gateway().ready(), system.worker().ready())
    gateway, worker = both

    async with Client.connect(gateway.ws) as client:
        grounding = (await client.ask(QUESTION)).response["grounding"]
        assert [entry["answer"] for entry in grounding] == ["At nine o'clock."]

        write(path, "At half past ten.")
        await counted(both, "reloaded", 1)
        grounding = (await client.ask(QUESTION)).response["grounding"]
        assert [entry["answer"] for entry in grounding] == ["At half past ten."]

        write(path, "At <b>noon</b>.")
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
