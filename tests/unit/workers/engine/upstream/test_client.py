"""An upstream's effect on its client: a streamed answer, or a failure with a name and a remedy, in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from tests.support.fakes.upstream import (
    HEAD,
    FakeUpstream,
    Say,
    answers,
    chunk,
    endless_chunks,
    endless_line,
    sends,
    status,
    upstream,
)
from workers.engine import Sampling
from workers.engine.upstream.body import ChatMessage, chat_body
from workers.engine.upstream.client import UpstreamClient
from workers.engine.upstream.events import Piece
from workers.engine.upstream.failures import UpstreamFailure

BODY = chat_body(
    model="tiny",
    messages=[ChatMessage("system", "Be kind."), ChatMessage("user", "Returns?")],
    max_tokens=8,
    sampling=Sampling(temperature=0.5, top_p=0.9, seed=2**63 - 1),
    stop=("\n\n",),
)


@asynccontextmanager
async def speaking(*script: Say, key: str | None = None) -> AsyncIterator[tuple[UpstreamClient, FakeUpstream]]:
    client = UpstreamClient(key=key, silence_s=0.3)
    try:
        async with upstream(*script) as fake:
            yield client, fake
    finally:
        await client.close()


async def read(client: UpstreamClient, url: str) -> list[Piece]:
    return [piece async for piece in client.pieces(url, BODY)]


async def test_an_answer_comes_in_pieces_with_its_end_and_usage() -> None:
    async with speaking(answers("Within ", "30 days."), key="s3cret") as (client, fake):
        *pieces, last, counted = await read(client, fake.url)
    assert ([piece.text for piece in pieces], last) == (["Within ", "30 days."], Piece("", "stop"))
    assert counted.usage["completion_tokens"] == 2
    assert fake.keys == ["Bearer s3cret"]
    assert fake.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Returns?"}],
            "max_tokens": 8,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 2**31 - 1,
            "stop": ["\n\n"],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


async def test_closing_the_pieces_ends_the_answer_at_the_upstream() -> None:
    async with speaking(answers(*["word "] * 50, pause_s=0.05)) as (client, fake):
        async with aclosing(client.pieces(fake.url, BODY)) as pieces:
            assert (await anext(pieces)).text == "word "
        async with asyncio.timeout(5):
            while fake.open:  # noqa: ASYNC110 - the other side's socket
                await asyncio.sleep(0.01)
    assert fake.aborted == 1


@pytest.mark.parametrize(
    ("say", "cause"),
    [
        (sends(then=60), "silent"),
        (sends(HEAD, then=60), "silent"),
        (sends(HEAD, chunk("You "), then=60), "silent"),
        (sends(b""), "broken_stream"),
        (sends(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "broken_stream"),
        (sends(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000), "broken_stream"),
        (sends(HEAD, chunk("You ")), "broken_stream"),
        (sends(HEAD, chunk("You "), b"data: [DONE]\n\n"), "broken_stream"),
        (sends(HEAD, b"data: <html>\n\n"), "broken_stream"),
        (sends(HEAD.replace(b"event:", b"event"), b"data: {]\n\n"), "broken_stream"),
        (sends(HEAD.replace(b"text/event-stream", b"application/json"), b"{}"), "broken_stream"),
        (endless_line, "line_too_long"),
        (endless_chunks, "too_much"),
        (status(302, "location: http://127.0.0.1:1/"), "redirects"),
        (status(307, "location: /v1/chat/completions"), "redirects"),
        (status(400), "refused"),
        (status(401), "key_refused"),
        (status(404), "not_found"),
        (status(418), "failed"),
        (status(429, "retry-after: 2"), "busy"),
        (status(500), "failed"),
        (status(503), "busy"),
    ],
)
async def test_a_bad_upstream_is_a_failure_with_a_name(say: Say, cause: str) -> None:
    async with speaking(say) as (client, fake):
        with pytest.raises(UpstreamFailure) as caught:
            async with asyncio.timeout(20):
                await read(client, fake.url)
    assert caught.value.cause == cause
    assert len(fake.bodies) == 1 + (cause == "refused"), "neither followed nor tried again, but in another form"


async def test_one_that_is_not_there_is_unreachable() -> None:
    async with speaking() as (client, fake):
        url = fake.url
    client = UpstreamClient(key=None, silence_s=1)
    with pytest.raises(UpstreamFailure, match="start it") as caught:
        await client.first_model(url)
    await client.close()
    assert caught.value.cause == "unreachable"


@pytest.mark.parametrize("listed", [b"", b"{}", b'{"data": []}', b"<html>", b"[" * 5_000, b" " * 2_000_000])
async def test_a_probe_names_what_lists_no_model(listed: bytes) -> None:
    async with speaking() as (client, fake):
        assert await client.first_model(fake.url) == "tiny"
        fake.models = sends(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + listed)
        with pytest.raises(UpstreamFailure, match="REPLYLINE_UPSTREAM__URL") as caught:
            await client.first_model(fake.url)
    assert caught.value.cause == "not_found"
