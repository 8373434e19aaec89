"""Each client at its pinned version, with only its address changed: one question's text is the same through each."""

import json
import re
from typing import Any

import openai
import pytest_asyncio

from shared.client.session import AsyncReplyline
from tests.proofs.doors.conftest import CLIENTS, Tried, last_json, node_client, python_client, run_client, with_version
from tests.support.rows import Rows

QUESTION = "How do I return an item?"
SAME = "the WebSocket's text, byte for byte"


@pytest_asyncio.fixture(scope="module")
async def text(shop: Tried) -> str:
    """Return the text that the WebSocket's client receives."""
    async with AsyncReplyline(shop.gateways[0].service.ws, token=shop.token) as client:
        answer = await client.answer(QUESTION)
    assert (answer.status, answer.source) == ("completed", "model")
    assert answer.output_text
    return answer.output_text


def _compare(rows: Rows, client: str, told: dict[str, Any], text: str) -> None:
    """A row for a client: each way in which it asked gave that text."""
    others = {way: value for way, value in told.items() if value != text}
    ways = ", ".join(told)
    rows.found(client, figure=f"{ways}: {others or 'the same'}", target=SAME, holds=not others)


async def test_openai_in_python(shop: Tried, rows: Rows, text: str) -> None:
    messages: Any = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI(base_url=shop.gateways[1].openai, api_key=shop.token) as client:
        whole = await client.chat.completions.create(model="replyline", messages=messages)
        chunks = await client.chat.completions.create(model="replyline", messages=messages, stream=True)
        chat = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        async with client.responses.stream(model="replyline", input=QUESTION) as events:
            response = await events.get_final_response()
    told = {"whole": whole.choices[0].message.content, "chat": chat, "responses": response.output_text}
    _compare(rows, f"openai {openai.__version__} (Python)", told, text)


async def test_openai_in_node(shop: Tried, rows: Rows, text: str) -> None:
    told = await run_client(node_client("openai.mjs"), shop.gateways[0].openai, QUESTION, token=shop.token)
    _compare(rows, f"{with_version('openai')} (Node)", last_json(told), text)


async def test_langchain(shop: Tried, rows: Rows, text: str) -> None:
    told = await run_client(python_client("langchain_chat.py"), shop.gateways[0].openai, QUESTION, token=shop.token)
    _compare(rows, with_version("langchain-openai"), last_json(told), text)


async def test_litellm(shop: Tried, rows: Rows, text: str) -> None:
    told = await run_client(python_client("litellm_chat.py"), shop.gateways[0].openai, QUESTION, token=shop.token)
    _compare(rows, with_version("litellm"), last_json(told), text)


async def test_the_ai_sdks_providers(shop: Tried, rows: Rows, text: str) -> None:
    told = await run_client(node_client("ai_sdk.mjs"), shop.gateways[0].openai, QUESTION, token=shop.token)
    _compare(
        rows, f"{with_version('@ai-sdk/openai-compatible')}, {with_version('@ai-sdk/openai')}", last_json(told), text
    )


async def test_use_chats_transports(shop: Tried, rows: Rows, text: str) -> None:
    url = f"{shop.gateways[0].http}/ai-sdk"
    told = await run_client(node_client("ai_sdk_chat.mjs"), url, QUESTION, token=shop.token)
    _compare(rows, f"{with_version('ai')}, useChat's transports", last_json(told), text)


async def test_grpcurl(shop: Tried, rows: Rows, text: str) -> None:
    told = await run_client(
        [str(CLIENTS / "bin" / "grpcurl")],
        *("-plaintext", "-H", f"authorization: Bearer {shop.token}", "-d", json.dumps({"input": QUESTION})),
        *(shop.gateways[1].grpc, "replyline.v1.Replyline/Respond"),
    )
    messages, decoder, at = list[Any](), json.JSONDecoder(), 0
    while at < len(told.rstrip()):
        message, at = decoder.raw_decode(told, at)
        messages.append(message)
        at += len(told[at:]) - len(told[at:].lstrip())
    deltas = "".join(message.get("response_output_text_delta", {}).get("delta", "") for message in messages)
    whole = messages[-1]["response_done"]["response"]["output_text"]
    _compare(rows, "grpcurl 1.9.4", {"deltas": deltas, "whole": whole}, text)


async def test_the_health_probe(shop: Tried, rows: Rows) -> None:
    """It prints on stderr, and its status is 0 where the service serves."""
    await run_client([str(CLIENTS / "bin" / "grpc-health-probe")], f"-addr={shop.gateways[0].grpc}")
    rows.found("grpc-health-probe 0.4.61", figure="status 0", target="status 0: SERVING", holds=True)


# What they ask for is not there: tools, images, a summary of reasoning, compaction.
_NOT_OURS = {"tool-calling", "image-input", "reasoning-summary", "compact-response", "compact-missing-model"}


async def test_the_suites_of_llm_comply(shop: Tried, rows: Rows) -> None:
    """With state at two gateways: each suite asks the one and the other."""
    program = str(CLIENTS / "python" / "bin" / "llm-comply")
    for form, doors in zip(("openai-chat", "open-responses"), shop.gateways, strict=True):
        listed = await run_client([program], "--format", form, "--list")
        names = re.findall(r"^\s+([a-z][a-z-]+)\s{2,}", listed, re.MULTILINE)
        ours = [name for name in names if name.removeprefix("chat-") not in _NOT_OURS]
        assert len(ours) > len(names) / 2
        told = await run_client(
            [program],
            *("--format", form, "--base-url", doors.openai, "--api-key", shop.token, "--model", "replyline"),
            *("--filter", ",".join(ours), "--json"),
        )
        found = json.loads(told)
        passed = [result for result in found["results"] if result["status"] == "passed"]
        figure, target = f"{len(passed)} of {len(ours)} pass", f"all {len(ours)} that apply, of {len(names)}"
        rows.found(
            f"{with_version('llm-comply')}, {form}", figure=figure, target=target, holds=len(passed) == len(ours)
        )
