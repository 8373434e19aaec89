"""A script that knows the protocol and uses no code of this project gets streamed answers of the real model."""

import asyncio
import json
import sys
from pathlib import Path

from tests.support.shared_system import REAL_MODEL
from tests.support.system import Service
from tests.support.wire import MSGPACK, Client

HERE = Path(__file__).parents[1]
QUESTION = "How do I return an item?"


pytestmark = REAL_MODEL


async def run(*command: str, limit_s: float = 60) -> tuple[int | None, str]:
    """Run a script; return its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(limit_s):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, out.decode()


async def ask(*command: str) -> tuple[list[str], dict[str, object]]:
    """Return the deltas that the script printed, and the response."""
    status, out = await run(*command)
    assert status == 0, out
    *deltas, (name, response) = [line.split(" ", 1) for line in out.splitlines()]
    assert name == "done"
    return [json.loads(text) for _, text in deltas], json.loads(response)


def check(deltas: list[str], response: dict[str, object]) -> None:
    assert len(deltas) > 1
    assert "".join(deltas) == response["output_text"]
    assert response["source"] == "model"
    assert str(response["model"]).lower().startswith("smollm2")


async def test_a_python_script_gets_its_answer(gateway: Service) -> None:
    check(*await ask(sys.executable, str(HERE / "support" / "plain_client.py"), gateway.ws, QUESTION))


async def test_the_models_greedy_answers_are_the_same_alone_and_together(gateway: Service) -> None:
    """Four at the same time and one after another, token for token; one question is in Chinese."""
    questions = [QUESTION, "Where is my order?", "How long does delivery take to Spain?", "怎么退货？"]

    async def ask_model(question: str) -> str:
        async with Client.connect(gateway.ws, MSGPACK) as client:
            answer = await client.ask(question, max_output_tokens=16)
            assert answer.outcome[2] == "model"
            return answer.text

    alone = [await ask_model(question) for question in questions]
    assert await asyncio.gather(*map(ask_model, questions)) == alone
