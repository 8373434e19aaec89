"""Two releases side by side before a real Prometheus: the one that misses its promises is named while it serves."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from ops.operate.diagnose.look import look
from ops.operate.diagnose.rules import found_in
from ops.operate.diagnose.system import Role
from shared.settings import Settings
from tests.integration.support.newer_worker import NEWER
from tests.integration.support.prometheus import RULES, Prometheus
from tests.support.system import MakeSystem, System, eventually
from tests.support.wire import MSGPACK, Client

CLIENTS: Final = 12
WITHIN_S: Final = 60.0
FIRING: Final = 'ALERTS{alertname="CanaryWorse",alertstate="firing"}'


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_the_worse_of_two_releases_is_named_until_its_worker_is_stopped(
    make_system: MakeSystem, tmp_path: Path
) -> None:
    """It takes longer for a prompt than a first word may; every customer has something all the same."""
    system = await make_system(
        promise__first_token_ms=1_000, admission__enabled=False, gateway__messages_per_minute=1_000_000
    )
    old, gateway = system.worker(), system.gateway()
    new = system.worker(module="tests.integration.support.newer_worker", worker__fake_prefill_ms_per_token=100)
    await asyncio.gather(old.ready(), new.ready(), gateway.ready())
    addresses = {"gateway": [gateway.operators], "worker": [old.operators, new.operators]}
    prometheus = Prometheus(tmp_path, addresses, rules=_impatient_rules(tmp_path))
    asking: list[asyncio.Task[None]] = []
    try:
        await prometheus.start()
        asking = [asyncio.create_task(_ask_on(gateway.ws)) for _ in range(CLIENTS)]
        await eventually(lambda: prometheus.knows(FIRING), limit_s=WITHIN_S)
        assert await prometheus.knows(FIRING.replace("}", f',release="{NEWER}"}}'))
        assert not await prometheus.knows(FIRING.replace("}", f',release!="{NEWER}"}}'))
        looked = [(Role.GATEWAY, gateway), (Role.WORKER, old), (Role.WORKER, new)]
        pages = [(role, f"http://{service.operators}/metrics") for role, service in looked]
        assert NEWER in (await _found(system, gateway.ws, pages))[0]
        assert await new.stop() == 0
        await eventually(lambda: _silent(prometheus), limit_s=WITHIN_S)
        assert await prometheus.knows('up{job="worker"} == 1'), "it still looks"
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await asyncio.to_thread(prometheus.stop)


def _impatient_rules(folder: Path) -> Path:
    """The rules, evaluated every second, and the alert fires two seconds after it is pending."""
    text = RULES.read_text()
    for theirs, ours in (("interval: 5s", "interval: 1s"), ("for: 10s", "for: 2s")):
        assert theirs in text
        text = text.replace(theirs, ours)
    rules = folder / "rules.yml"
    rules.write_text(text)
    return rules


async def _ask_on(url: str) -> None:
    """One question after the other, each a conversation's next."""
    async with Client.connect(url, MSGPACK) as client:
        while True:
            await client.ask("How do I return an item?", max_output_tokens=8)
            await asyncio.sleep(0.2)


async def _silent(prometheus: Prometheus) -> bool:
    return not await prometheus.knows(FIRING)


async def _found(system: System, url: str, processes: list[tuple[Role, str]]) -> list[str]:
    """What `replyline diagnose` says of the models."""
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": system.bootstrap, "topic_prefix": system.prefix},
            "redis": {"url": system.redis.url, "timeout_ms": 1_000},
        }
    )
    return found_in(await look(settings, processes, url=url, seconds=5.0))["model"]
