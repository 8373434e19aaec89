"""Workers and Redis fail while answers are open at doors other than the WebSocket, and some of their clients leave.

Each answer has one end, with the text that was streamed, and none fails.
"""

import asyncio
import itertools
import json
import secrets
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import msgpack
import pytest
from grpc import aio

from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from ops.stack.processes import free_port
from tests.support.switches import SHIPPED
from tests.support.system import CURSOR_SECRET, MakeSystem, Service, System, eventually

_QUESTIONS: Final = ("How long does delivery take?", "How do I return an item?", "Do you ship abroad?", "怎么退货？")
_TOKENS: Final = 120
_ROUNDS: Final = 6
_LEAVES_AFTER: Final = 20  # characters
_LIMIT_S: Final = 40.0
_REPLIES: Final = "chat.replies.external"
_SETTINGS: Final[dict[str, Any]] = {
    **SHIPPED,
    "worker__slots": 32,
    "worker__fake_decode_ms_per_step": 12,
    "kafka__request_partitions": 6,
    "kafka__session_timeout_ms": 3_000,
    "gateway__cursor_secret_file": CURSOR_SECRET,
    "gateway__messages_per_minute": 100_000,
    "promise__first_token_ms": 20_000,
    "promise__deadline_ms": 30_000,
}


@dataclass(slots=True)
class Shown:
    """What one client has of its answer."""

    text: str = ""
    whole: str | None = None
    ends: list[str] = field(default_factory=list)

    def place(self, offset: int, delta: str) -> None:
        """Place a delta by its offset. Two workers may write the same text."""
        assert offset <= len(self.text), f"text from {len(self.text)} to {offset} is missing"
        known = self.text[offset : offset + len(delta)]
        assert delta.startswith(known), f"{delta!r} where {known!r} was shown"
        self.text = self.text[:offset] + delta + self.text[offset + len(delta) :]

    def check(self) -> None:
        assert len(self.ends) == 1, self.ends
        assert self.ends[0] != "failed"
        assert self.whole in {None, self.text}


@dataclass(frozen=True, slots=True)
class Shop:
    system: System
    gateway: Service
    http: str
    grpc: str
    workers: list[Service]

    async def complete(self, question: str, *, leaves: bool) -> None:
        """Ask by chat completions."""
        shown = Shown()
        body = {"model": "replyline", "stream": True, "max_tokens": _TOKENS}
        messages = [{"role": "user", "content": question}]
        async with (
            httpx2.AsyncClient(timeout=_LIMIT_S) as client,
            client.stream("POST", f"{self.http}/v1/chat/completions", json=body | {"messages": messages}) as stream,
        ):
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk:
                    shown.ends.append("failed")
                for choice in chunk.get("choices", ()):
                    shown.text += choice["delta"].get("content") or ""
                    shown.ends += [choice["finish_reason"]] if choice["finish_reason"] else []
                if leaves and len(shown.text) > _LEAVES_AFTER:
                    return
        shown.check()

    async def respond(self, question: str, *, leaves: bool) -> None:
        """Ask by gRPC."""
        shown = Shown()
        async with aio.insecure_channel(self.grpc) as channel:
            call = channel.unary_stream(
                "/replyline.v1.Replyline/Respond",
                request_serializer=v1.RespondRequest.SerializeToString,
                response_deserializer=v1.ServerMessage.FromString,
            )(v1.RespondRequest(input=question, max_output_tokens=_TOKENS), timeout=_LIMIT_S)
            async for message in call:
                delta, response = message.response_output_text_delta, message.response_done.response
                match message.WhichOneof("message"):
                    case "response_output_text_delta":
                        shown.place(delta.offset, delta.delta)
                    case "response_done":
                        shown.ends.append("failed" if response.status == v1.STATUS_FAILED else "ended")
                        shown.whole = response.output_text
                if leaves and len(shown.text) > _LEAVES_AFTER:
                    call.cancel()
                    return
        shown.check()

    async def produce(self, shown: dict[str, Shown]) -> None:
        """Ask as another service: two questions in one conversation."""
        session = f"crm-{secrets.token_hex(4)}"
        for question in _QUESTIONS[:2]:
            name = secrets.token_hex(8)
            shown[name] = Shown()
            asked = {"type": "chat.request", "id": name, "session_id": session, "input": question}
            value = json.dumps(asked | {"max_output_tokens": _TOKENS}).encode()
            await self.system.produce("chat.requests", value, key=session.encode())

    @asynccontextmanager
    async def replies(self, shown: dict[str, Shown]) -> AsyncIterator[None]:
        """Read the replies to the other service; the first end of each counts."""

        async def read() -> None:
            async with self.system.reading(_REPLIES) as tap:
                async for record in tap.consumer:
                    reply = msgpack.unpackb(record.value)
                    known = shown[reply["request_id"]]
                    if reply["type"] == "chat.delta":
                        known.place(reply["offset"], reply["delta"])
                    elif not known.ends:
                        known.ends.append(reply["status"])
                        known.whole = reply["output_text"] if reply["source"] == "model" else None

        reading = asyncio.create_task(read())
        yield
        await eventually(lambda: reading.done() or all(each.ends for each in shown.values()), limit_s=_LIMIT_S)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _kill(shop: Shop) -> None:
    shop.workers.pop(0).kill()
    shop.workers.append(shop.system.worker())


async def _drain(shop: Shop) -> None:
    shop.workers.pop(0).child.signal(signal.SIGTERM)
    shop.workers.append(shop.system.worker())


async def _pause(shop: Shop) -> None:
    shop.workers[0].pause()
    await asyncio.sleep(2)
    shop.workers[0].resume()


async def _empty_redis(shop: Shop) -> None:
    shop.system.redis.kill()
    await asyncio.to_thread(shop.system.redis.start)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("strike", [_kill, _drain, _pause, _empty_redis])
async def test_every_answer_has_one_end_and_its_whole_text(
    new_system: MakeSystem, strike: Callable[[Shop], Coroutine[Any, Any, None]]
) -> None:
    system, http, grpc = await new_system(**_SETTINGS), free_port(), free_port()
    gateway = system.gateway(gateway__http_port=http, gateway__grpc_port=grpc)
    shop = Shop(system, gateway, f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", [system.worker() for _ in range(2)])
    await asyncio.gather(*(service.ready() for service in (gateway, *shop.workers)))
    produced = defaultdict[str, Shown](Shown)
    async with shop.replies(produced), asyncio.TaskGroup() as asking:
        for number, question in zip(range(_ROUNDS), itertools.cycle(_QUESTIONS), strict=False):
            for ask in (shop.complete, shop.respond):
                asking.create_task(ask(question, leaves=number % 3 == 0))
            await shop.produce(produced)
            if number == _ROUNDS // 2:
                await strike(shop)
            await asyncio.sleep(0.4)
    for each in produced.values():
        each.check()
