"""OpenAI's own Python client, with only its base address changed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio

from ops.stack.processes import free_port
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System

pytestmark = STANDARD
MODEL = "replyline"
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Door:
    service: Service
    url: str

    def client(self, **options: object) -> openai.AsyncOpenAI:
        given: dict[str, object] = {"base_url": self.url, "api_key": "any", "max_retries": 0} | options
        return openai.AsyncOpenAI(**given)  # type: ignore[arg-type]


@pytest_asyncio.fixture(scope="module")
async def doors(system: System, gateway: Service) -> list[Door]:
    """Two gateways that can replace each other."""
    del gateway
    found = []
    for partition in (2, 3):
        port = free_port()
        service = system.gateway(gateway__reply_partition=partition, gateway__http_port=port)
        found.append(Door(await service.ready(), f"http://127.0.0.1:{port}/v1"))
    return found


@pytest_asyncio.fixture
async def client(doors: list[Door]) -> AsyncIterator[openai.AsyncOpenAI]:
    async with doors[0].client() as client:
        yield client


async def test_a_streamed_completion_equals_the_whole_one(client: openai.AsyncOpenAI) -> None:
    messages = [{"role": "user", "content": "Tell me all of it"}]
    whole = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=300)  # type: ignore[arg-type]
    text = whole.choices[0].message.content
    assert text
    assert whole.choices[0].finish_reason in {"stop", "length"}
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=messages,  # type: ignore[arg-type]
        max_tokens=300,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == text
    assert len([piece for piece in pieces if piece]) > 1
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


async def test_models_and_refusals_have_the_clients_own_types(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in await client.models.list()] == [MODEL]
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "Hi"}])
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], n=2)
    assert bad.value.param == "n"


async def test_a_named_answer_continues_and_a_strangers_instructions_are_ignored(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL, input="How do I return an item?")
    got = await client.responses.with_raw_response.create(
        model=MODEL,
        input=[
            {"role": "user", "content": "How do I return an item?"},
            {"type": "item_reference", "id": first.output[0].id or ""},
            {"role": "user", "content": "And how long does that take?"},
        ],
        instructions="Obey",
    )
    assert got.headers["replyline-ignored"] == "instructions"
    assert got.parse().output_text


@pytest.mark.parametrize("named", [{}, {"Replyline-Session": "s-once"}], ids=["unnamed", "named"])
async def test_an_app_that_gives_up_and_retries_gets_one_answer(
    doors: list[Door], worker: Service, named: dict[str, str]
) -> None:
    """The retry goes to another gateway: by its key it is the same question."""
    before = await worker.metric("infer_total")
    headers = {"Idempotency-Key": "once-and-only-once", **named}

    async def ask(door: Door) -> str:
        async with door.client() as client:
            answer = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Once?"}], max_tokens=30, extra_headers=headers
            )
        return str(answer.choices[0].message.content)

    first, second = await asyncio.gather(*map(ask, doors))
    assert first == second
    assert await worker.metric("infer_total") == before + 1


async def test_a_responses_conversation_continues_at_any_gateway(doors: list[Door]) -> None:
    async with doors[0].client() as one, doors[1].client() as other:
        first = await one.responses.create(model=MODEL, input="Tell me", max_output_tokens=8)
        assert first.output_text
        second = await other.responses.create(
            model=MODEL, input="And then?", previous_response_id=first.id, max_output_tokens=8
        )
        assert second.previous_response_id == first.id
        fetched = await other.responses.retrieve(first.id)
        assert (fetched.status, fetched.output_text) == (first.status, first.output_text)
        await one.responses.delete(second.id)
        for client in (one, other):
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(first.id)


async def test_the_clients_own_helper_reads_every_event(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL, input="Tell me all", max_output_tokens=30) as stream:
        events = [event async for event in stream]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert len(text) == 30
    end = events[-1]
    assert end.type == "response.incomplete"
    assert end.response.output_text == text


async def test_a_killed_gateways_stream_resumes_at_the_other(system: System, doors: list[Door]) -> None:
    port = free_port()
    dying = system.gateway(gateway__reply_partition=4, gateway__http_port=port)
    lost = Door(await dying.ready(), f"http://127.0.0.1:{port}/v1")
    seen: list[Any] = []
    async with lost.client() as client:
        stream = await client.responses.create(model=MODEL, input="Tell me all", max_output_tokens=400, stream=True)
        with suppress(openai.APIError, httpx2.HTTPError):
            async for event in stream:
                seen.append(event)
                if len(seen) == 9:
                    dying.kill()
    name, last = seen[0].response.id, seen[-1].sequence_number
    assert seen[-1].type == "response.output_text.delta"
    async with doors[0].client() as client:
        following = await client.responses.retrieve(name, stream=True, starting_after=last)
        events = [event async for event in following]
        whole = await client.responses.retrieve(name)
    assert [event.sequence_number for event in events] == list(range(last + 1, last + 1 + len(events)))
    pieces = [event.delta for event in [*seen, *events] if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text
    assert len(whole.output_text) == 400


async def test_a_draining_gateway_finishes_its_streams(system: System) -> None:
    port = free_port()
    service = await system.gateway(gateway__reply_partition=5, gateway__http_port=port).ready()
    async with Door(service, f"http://127.0.0.1:{port}/v1").client() as client:
        stream = await client.responses.create(model=MODEL, input="Tell me all", max_output_tokens=200, stream=True)
        events = []
        async for event in stream:
            events.append(event)
            if len(events) == 9:
                service.child.signal(signal.SIGTERM)
    assert events[-1].type == "response.incomplete"
    assert len(events[-1].response.output_text) == 200
    assert await service.ended() == 0


async def test_a_background_response_is_cancelled_at_another_gateway(doors: list[Door]) -> None:
    async with doors[0].client() as one, doors[1].client() as other:
        running = await one.responses.create(model=MODEL, input="Tell me", max_output_tokens=2_000, background=True)
        assert running.status == "in_progress"
        assert (await other.responses.cancel(running.id)).status == "cancelled"


@pytest.mark.parametrize("language", ["bash", "python"])
async def test_the_lines_of_the_doors_page_work(doors: list[Door], tmp_path: Path, language: str) -> None:
    """Run docs/doors.md line by line as printed."""
    block, *_ = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "doors.md").read_text(), re.DOTALL)
    (tmp_path / ".run").mkdir()
    (tmp_path / ".run" / "demo.env").write_text(f"export OPENAI_BASE_URL={doors[0].url}\n")
    program = ["bash", "-e", "-c", block] if language == "bash" else [sys.executable, "-c", block]
    env = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": doors[0].url}
    run = await asyncio.to_thread(
        subprocess.run, program, cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    expected = ['"id":"replyline"', '"choices":[', "data: [DONE]"] if language == "bash" else [" model"]
    assert [text for text in expected if text not in run.stdout] == []
    assert '"error":{' not in run.stdout
