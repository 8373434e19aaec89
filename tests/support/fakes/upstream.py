"""A server that speaks OpenAI's chat completions, well or badly, on this machine."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PAGE: Final = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
MODELS: Final = PAGE + b'{"data": [{"id": "tiny", "object": "model", "max_model_len": 4096}]}'
DONE: Final = b"data: [DONE]\n\n"
ASKED: Final[ContextVar[dict[str, Any]]] = ContextVar("asked")
WORDS: Final = ("You ", "can ", "return ", "it ", "within ", "30 ", "days.")


def chunk(text: str = "", finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice], **more}).encode() + b"\n\n"


def usage(prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": cached}
    return {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}


def answers(*words: str, finish: str = "stop", pause_s: float = 0.0, before_s: float = 0.0, told: Any = None) -> Say:
    """Answer well: a chunk a word, then the usage; `before_s`: after so long."""

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b": a comment\n\n" + chunk())
        await asyncio.sleep(before_s)
        for word in words or WORDS:
            writer.write(chunk(word))
            await writer.drain()
            await asyncio.sleep(pause_s)
        counted = usage(50, len(words or WORDS), 20) if told is None else told
        writer.write(chunk(finish=finish) + chunk().replace(b"[{", b'[], "x": [{') + chunk(usage=counted) + DONE)

    return say


def sends(*parts: bytes, then: float = 0.0) -> Say:
    """Send these bytes, and hold the connection so long."""

    async def say(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        await asyncio.sleep(then)

    return say


def status(code: int, *headers: str) -> Say:
    lines = "".join(f"{header}\r\n" for header in (*headers, "content-length: 0", "connection: close"))
    return sends(f"HTTP/1.1 {code} No\r\n{lines}\r\n".encode())


def asking(say: Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]) -> Say:
    """Answer according to the request."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        await say(writer, ASKED.get())

    return answer


async def endless_line(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"data: ")
    while True:
        writer.write(b"x" * 8_192)
        await writer.drain()


async def endless_chunks(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while True:
        writer.write(chunk() * 100)
        await writer.drain()


@dataclass
class FakeUpstream:
    """A fake upstream. `script` answers the requests in turn, its last entry all further ones. `bodies` are the
    requests; `open` counts the running answers, `aborted` those whose client left before their end."""

    script: list[Say]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    aborted: int = 0
    models: Say = field(default_factory=lambda: sends(MODELS))
    props: Say = field(default_factory=lambda: status(404))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.keys += [line[15:] for line in head.splitlines() if line.lower().startswith("authorization:")]
            if head.startswith("GET"):
                await (self.models if head.startswith("GET /v1/models ") else self.props)(writer)
                return
            length = next(int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:"))
            self.bodies.append(json.loads(await reader.readexactly(length)))
            ASKED.set(self.bodies[-1])
            await self._answer(self.script.pop(0) if len(self.script) > 1 else self.script[0], reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, say: Say, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the asker goes away."""
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        saying, leaving = asyncio.ensure_future(say(writer)), asyncio.ensure_future(reader.read())
        await asyncio.wait((saying, leaving), return_when=asyncio.FIRST_COMPLETED)
        self.aborted += not saying.done()
        for task in (saying, leaving):
            task.cancel()
        await asyncio.gather(saying, leaving, return_exceptions=True)
        self.open -= 1


@asynccontextmanager
async def upstream(*script: Say) -> AsyncIterator[FakeUpstream]:
    fake = FakeUpstream(list(script) or [answers()])
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as server:
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield fake
