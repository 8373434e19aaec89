"""The example of a service that asks through Kafka works as it stands."""

import asyncio
import sys
from pathlib import Path

from ops.operate.up import EmbeddedSystem
from shared.settings import Settings
from shared.settings.gateway import GatewaySettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "producer.py"
# What the scripted engine says stands in no FAQ.
ENV = {
    "REPLYLINE_WORKER__ENGINE": "fake",
    "REPLYLINE_ANSWERS__POLICY": "model",
    "REPLYLINE_ANSWERS__GUARD": "false",
}


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
