"""The example of a service that asks through Kafka works unchanged."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from ops.operate.up import EmbeddedSystem
from shared.settings import Settings
from shared.settings.gateway import GatewaySettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "producer.py"
# The scripted engine's text is in no FAQ.
ENV = {
    "REPLYLINE_WORKER__ENGINE": "fake",
    "REPLYLINE_ANSWERS__POLICY": "model",
    "REPLYLINE_ANSWERS__GUARD": "false",
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "usage: python producer.py"),
        *(((kafka,), f"no answer by Kafka at '{kafka}': ") for kafka in ("", "127.0.0.1:1", "127.0.0.1:port")),
    ],
)
def test_a_producer_failure_gives_one_line(given: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLE, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(said)
    assert "Traceback" not in done.stderr


async def test_the_producer_gets_its_answer_on_its_own_reply_topic() -> None:
    settings = Settings(gateway=GatewaySettings(port=0))
    with EmbeddedSystem(settings, env=ENV, share_output=False) as system:
        addresses = await system.start()
        producer = await asyncio.create_subprocess_exec(
            sys.executable, EXAMPLE, addresses.kafka, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(90):
            output, _ = await producer.communicate()
    assert producer.returncode == 0
    last = output.decode().splitlines()[-1]
    assert "'type': 'chat.done'" in last
    assert "'source': 'model'" in last
