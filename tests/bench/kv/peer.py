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
from urllib.error import HTTPError
from urllib.request import Request

import msgspec

from ops.stack.own_pages import open_page
from ops.stack.processes import ServiceError
from shared.faq import FaqIndex
from tests.bench.kv.client import DEADLINE_MS, Answered, Conversed, at_once
from tests.bench.kv.conversations import Conversation

SystemText = Callable[[str], str]
Message = dict[str, str]
_DATA: Final = b"data: "
_END: Final = b"[DONE]"
_SHOWN_BYTES: Final = 200


def ask_peer(url: str, messages: Sequence[Message], max_output_tokens: int) -> Answered:
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
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url.rstrip('/')}/v1/chat/completions", msgspec.json.encode(body), headers)
    asked_s = time.monotonic()
    try:
        with open_page(request, timeout_s=DEADLINE_MS / 1_000) as response:
            for line in response:
                if line.startswith(_DATA) and not line.startswith(_DATA + _END):
                    _take(answer, msgspec.json.decode(line[len(_DATA) :]), asked_s)
    except HTTPError as error:
        said = error.read(_SHOWN_BYTES).decode(errors="replace")
        raise ServiceError(f"--peer {url} answers {error.code}: {said}") from None
    except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError, TypeError) as error:
        raise ServiceError(f"--peer {url}: {error}; is a llama-server there?") from error
    return answer


def _take(answer: Answered, chunk: Any, asked_s: float) -> None:
    for choice in chunk["choices"]:
        if text := choice["delta"].get("content"):
            answer.text += text
            if answer.ttft_ms is None:
                answer.ttft_ms = (time.monotonic() - asked_s) * 1_000
        answer.by_model = answer.by_model or choice.get("finish_reason") is not None
    if usage := chunk.get("usage"):
        answer.prompt_tokens = usage["prompt_tokens"]
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def grounded_system_text(faq: FaqIndex, system: str, entries: int) -> SystemText:
    """The shop's words for a first question: the system text and as many FAQ entries as a worker puts into a prompt."""

    def text(question: str) -> str:
        grounding = [hit.entry.as_grounding() for hit in faq.search(question, k=entries)] if entries else []
        parts = [system, *(f"Q: {entry.question}\nA: {entry.answer}" for entry in grounding)]
        return "\n\n".join(part for part in parts if part)

    return text


async def converse_with_peer(
    url: str, conversations: Sequence[Conversation], *, clients: int, max_output_tokens: int, system_text: SystemText
) -> Conversed:
    """As `converse_all`, with the peer; each turn carries all that was said before. Raises `ServiceError`."""

    async def converse(conversation: Conversation, told: Callable[[Answered], None]) -> None:
        messages = [{"role": "system", "content": system_text(conversation.turns[0])}]
        for question in conversation.turns:
            messages.append({"role": "user", "content": question})
            answer = await asyncio.to_thread(ask_peer, url, messages, max_output_tokens)
            messages.append({"role": "assistant", "content": answer.text})
            told(answer)

    return await at_once(conversations, converse, clients=clients)
