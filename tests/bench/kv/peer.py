"""The same conversations with a llama-server and its own prompt cache, by OpenAI's chat completions, streaming.

llama.cpp's sources lie in the llama-cpp-python sdist; build them as `tests/bench/engines/llama.py` says, with the
target llama-server, and start it:

    build/bin/llama-server -m q4_0.gguf -np 8 -cb -c 16384 -t 2 --port 8090

It is asked with the shop's system text and the FAQ entries of the conversation's first question, which stay: nothing
before the new turn changes, which is the best that its cache can have.
"""

import asyncio
import http.client
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ops.stack.processes import ServiceError
from ops.texts.conversations import Conversation
from shared.errors import SettingsError
from shared.faq import FaqIndex
from tests.bench.kv.client import DEADLINE_MS, Answered, Conversed, at_once

SystemText = Callable[[str], str]
Message = dict[str, str]

_OK: Final = 200
_DATA: Final = b"data: "
_END: Final = b"[DONE]"
_SHOWN_BYTES: Final = 200


class Peer:
    """`url` is `http://host:port`. Raises `SettingsError` where it is not."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            host, port = None, 80
        if host is None or parts.scheme != "http":
            raise SettingsError(f"--peer {url}: write the address of a llama-server: http://127.0.0.1:8090")
        self.url = url
        self._host, self._port = host, port
        self._path = f"{parts.path.rstrip('/').removesuffix('/v1')}/v1/chat/completions"

    def ask(self, messages: Sequence[Message], max_output_tokens: int) -> Answered:
        """Ask and wait for the whole answer; blocks. Raises `ServiceError`."""
        answer = Answered()
        body = {
            "messages": messages,
            "max_tokens": max_output_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_prompt": True,
        }
        connection = http.client.HTTPConnection(self._host, self._port, timeout=DEADLINE_MS / 1_000)
        asked_s = time.monotonic()
        try:
            connection.request("POST", self._path, msgspec.json.encode(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != _OK:
                said = response.read(_SHOWN_BYTES).decode(errors="replace")
                raise ServiceError(f"--peer {self.url} answers {response.status}: {said}")
            for line in response:
                if line.startswith(_DATA) and not line.startswith(_DATA + _END):
                    _take(answer, msgspec.json.decode(line[len(_DATA) :]), asked_s)
        except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError, TypeError) as error:
            raise ServiceError(f"--peer {self.url}: {error}; is a llama-server there?") from error
        finally:
            connection.close()
        return answer


def _take(answer: Answered, chunk: Any, asked_s: float) -> None:
    for choice in chunk["choices"]:
        if text := choice["delta"].get("content"):
            answer.text += text
            if answer.ttft_ms is None:
                answer.ttft_ms = (time.monotonic() - asked_s) * 1_000
        if (ended := choice.get("finish_reason")) is not None:
            answer.source = "model"
            whole = ended == "stop"
            answer.status, answer.reason = ("completed", "stop") if whole else ("incomplete", "max_output_tokens")
    if usage := chunk.get("usage"):
        answer.prompt_tokens, answer.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def grounded_system_text(faq: FaqIndex, system: str, entries: int) -> SystemText:
    """The shop's words for a first question: the system text and as many FAQ entries as a worker puts into a prompt."""

    def text(question: str) -> str:
        grounding = [hit.entry.as_grounding() for hit in faq.search(question, k=entries)] if entries else []
        parts = [system, *(f"Q: {entry.question}\nA: {entry.answer}" for entry in grounding)]
        return "\n\n".join(part for part in parts if part)

    return text


async def converse_with_peer(
    peer: Peer,
    conversations: Sequence[Conversation],
    *,
    clients: int,
    max_output_tokens: int,
    system_text: SystemText,
) -> Conversed:
    """As `converse_all`, with the peer; each turn carries all that was said before. Raises `ServiceError`."""

    async def converse(conversation: Conversation, told: Callable[[Answered], None]) -> None:
        messages = [_said("system", system_text(conversation.turns[0]))]
        for question in conversation.turns:
            messages.append(_said("user", question))
            answer = await asyncio.to_thread(peer.ask, messages, max_output_tokens)
            messages.append(_said("assistant", answer.text))
            told(answer)

    return await at_once(conversations, converse, clients=clients)


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
