"""One answer through each door: begun at one gateway, continued at another after the first is dead."""

import asyncio
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import httpx2
import openai
from grpc import aio

from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from shared.client.session import AsyncReplyline
from shared.wire.messages import ResponseCreate, ResponseCreated, ResponseDelta, ResponseDone
from tests.proofs.doors.conftest import Doors


class DoorStream(ABC):
    """`text` is what its client shows; `again_s` is how long the client saw nothing new, from `lost`."""

    name: str

    def __init__(self, question: str) -> None:
        self.question = question
        self.stopped = False
        self.text = ""
        self.shows = asyncio.Event()
        self.lost_s: float | None = None
        self.again_s: float | None = None

    def show(self, text: str) -> None:
        """Note the text that is on the client's screen now."""
        if self.lost_s is not None and self.again_s is None and len(text) > len(self.text):
            self.again_s = time.monotonic() - self.lost_s
        self.text = text
        if text:
            self.shows.set()

    def lost(self) -> None:
        self.lost_s = time.monotonic()

    @abstractmethod
    async def run(self, dying: Doors, other: Doors) -> None:
        """Ask at `dying`; if it dies, resume at `other`, to the end."""

    @abstractmethod
    async def stop(self, other: Doors) -> None:
        """Cancel the answer at `other`, once it has continued there."""


class WebSocketStream(DoorStream):
    name = "WebSocket"

    async def run(self, dying: Doors, other: Doors) -> None:
        asked = ResponseCreate(event_id=self._event, input=self.question)
        async with AsyncReplyline(dying.service.ws, other.service.ws) as self._client:
            async for event in self._client.ask(asked):
                match event:
                    case ResponseCreated():
                        self.show("")
                    case ResponseDelta():
                        self.show(self.text[: event.offset] + event.delta)
                    case ResponseDone():
                        self.show(event.response.output_text)

    async def stop(self, other: Doors) -> None:
        del other
        await self._client.cancel(self._event)

    _client: AsyncReplyline

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self._event = f"e-{secrets.token_hex(8)}"


class ResponsesStream(DoorStream):
    name = "OpenAI Responses"
    _id = ""
    _last = -1

    async def run(self, dying: Doors, other: Doors) -> None:
        with suppress(openai.APIError, httpx2.HTTPError):
            async with _openai(dying) as client:
                events = await client.responses.create(model="replyline", input=self.question, stream=True)
                await self._read(events)
        if self.lost_s is None:
            return
        async with _openai(other) as client:
            try:
                await self._read(await client.responses.retrieve(self._id, stream=True, starting_after=self._last))
            except openai.APIError as error:
                if not self.stopped or "cancelled" not in str(error):
                    raise

    async def _read(self, events: AsyncIterator[object]) -> None:
        async for event in events:
            number = event.sequence_number  # type: ignore[attr-defined]
            assert number == self._last + 1, f"event {number} behind {self._last}"
            self._last = number
            kind = event.type  # type: ignore[attr-defined]
            if kind == "response.created":
                self._id = event.response.id  # type: ignore[attr-defined]
            elif kind == "response.output_text.delta":
                self.show(self.text + event.delta)  # type: ignore[attr-defined]

    async def stop(self, other: Doors) -> None:
        self.stopped = True
        async with _openai(other) as client:
            await client.responses.cancel(self._id)


class ChatCompletionStream(DoorStream):
    """It cannot be reattached: its client asks again with the same key, and gets the same answer from its beginning."""

    name = "OpenAI chat completions, asked again by its key"

    async def run(self, dying: Doors, other: Doors) -> None:
        key = {"Idempotency-Key": secrets.token_hex(8)}
        for doors in (dying, other):
            with suppress(openai.APIError, httpx2.HTTPError):
                async with _openai(doors) as client:
                    chunks = await client.chat.completions.create(
                        model="replyline",
                        messages=[{"role": "user", "content": self.question}],
                        stream=True,
                        extra_headers=key,
                    )
                    text = ""
                    async for chunk in chunks:
                        text += chunk.choices[0].delta.content or ""
                        if len(text) >= len(self.text):
                            self.show(text)
                        assert self.text.startswith(text), "another answer was sent"
            if self.lost_s is None:
                return

    async def stop(self, other: Doors) -> None:
        raise NotImplementedError


class AiSdkStream(DoorStream):
    """Like `useChat`: the chat's stream is requested again, and starts at its beginning."""

    name = "AI SDK UI message stream"

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self._chat = f"chat-{secrets.token_hex(8)}"
        self._message_ids = set[str]()

    async def run(self, dying: Doors, other: Doors) -> None:
        message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": self.question}]}
        async with httpx2.AsyncClient(timeout=60) as client:
            with suppress(httpx2.HTTPError):
                body = {"id": self._chat, "messages": [message], "trigger": "submit-message"}
                async with client.stream("POST", f"{dying.http}/ai-sdk/chat", json=body) as stream:
                    await self._read(stream)
            if self.lost_s is None:
                return
            async with client.stream("GET", f"{other.http}/ai-sdk/chat/{self._chat}/stream") as stream:
                await self._read(stream)
        assert len(self._message_ids) == 1

    async def _read(self, stream: httpx2.Response) -> None:
        assert stream.status_code == 200, stream.status_code
        text = ""
        async for line in stream.aiter_lines():
            if not line.startswith("data: {"):
                continue
            part = json.loads(line.removeprefix("data: "))
            if part["type"] == "start":
                self._message_ids.add(part["messageId"])
            elif part["type"] == "text-delta":
                text += part["delta"]
                if len(text) >= len(self.text):
                    self.show(text)

    async def stop(self, other: Doors) -> None:
        async with httpx2.AsyncClient() as client:
            (await client.post(f"{other.http}/ai-sdk/chat/{self._chat}/stop")).raise_for_status()


class GrpcStream(DoorStream):
    name = "gRPC"
    _session = ""
    _cursor = ""

    async def run(self, dying: Doors, other: Doors) -> None:
        with suppress(aio.AioRpcError):
            async with aio.insecure_channel(dying.grpc) as channel:
                await self._read(_call(channel, "Respond", v1.RespondRequest(input=self.question)))
        if self.lost_s is None:
            return
        async with aio.insecure_channel(other.grpc) as channel:
            resume = v1.ResumeRequest(session_id=self._session, cursor=self._cursor)
            try:
                await self._read(_call(channel, "Resume", resume))
            except aio.AioRpcError as error:
                if not self.stopped or error.code() != grpc.StatusCode.ABORTED:  # it is cancelled by the stop
                    raise

    async def _read(self, call: Any) -> None:
        async for message in call:
            match message.WhichOneof("message"):
                case "session_created":
                    self._session = message.session_created.session_id
                case "response_created":
                    self._response = message.response_created.response_id
                    self._keep(message.response_created)
                case "response_output_text_delta":
                    delta = message.response_output_text_delta
                    self._keep(delta)
                    self.show(self.text[: delta.offset] + delta.delta)

    def _keep(self, message: Any) -> None:
        self._cursor = message.cursor or self._cursor

    async def stop(self, other: Doors) -> None:
        self.stopped = True
        async with aio.insecure_channel(other.grpc) as channel:
            chat = channel.stream_stream(
                "/replyline.v1.Replyline/Chat",
                request_serializer=v1.ClientMessage.SerializeToString,
                response_deserializer=v1.ServerMessage.FromString,
            )()
            resumed = v1.SessionStart(session_id=self._session, resume=v1.Resume(cursor=self._cursor))
            await chat.write(v1.ClientMessage(session_start=resumed))
            await chat.read()
            cancel = v1.ResponseCancel(response_id=self._response)
            await chat.write(v1.ClientMessage(response_cancel=cancel))
            await chat.done_writing()
            while await chat.read() is not aio.EOF:
                pass


def _call(channel: aio.Channel, method: str, request: Any) -> Any:
    made = channel.unary_stream(
        f"/replyline.v1.Replyline/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=v1.ServerMessage.FromString,
    )
    return made(request)


def _openai(doors: Doors) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=doors.openai, api_key="any", max_retries=0, timeout=60)


ALL = (WebSocketStream, ResponsesStream, ChatCompletionStream, AiSdkStream, GrpcStream)
