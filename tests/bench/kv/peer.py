"""The same conversations with a llama-server and its prompt cache, streaming.

**Its prompts**: OpenAI's chat completions, with the shop's system text and the FAQ entries of the conversation's first
question, which stay: nothing before the new turn changes, which is the best case for its cache.

**The same prompts**: exactly the tokens that our worker computed, turn by turn, and as many tokens of each answer as
ours has. They contain our answers, which its cache does not hold, because it has generated others.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shared.faq import FaqIndex
from tests.bench.kv.client import Answered, Conversed, at_once
from tests.bench.kv.conversations import Conversation
from tests.bench.kv.prompts import Asked
from tests.bench.llama_client import completion, streamed

SystemText = Callable[[str], str]
Message = dict[str, str]


def ask_peer(url: str, messages: Sequence[Message], max_output_tokens: int) -> Answered:
    """Ask and wait for the whole answer; blocks. Raises `ServiceError`."""
    answer, asked_s = Answered(), time.monotonic()
    body = {"messages": messages, "max_tokens": max_output_tokens, "stream_options": {"include_usage": True}}
    for chunk in streamed(url, "/v1/chat/completions", body):
        for choice in chunk["choices"]:
            _wrote(answer, choice["delta"].get("content"), asked_s)
            answer.by_model = answer.by_model or choice.get("finish_reason") is not None
        if usage := chunk.get("usage"):
            answer.prompt_tokens, answer.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
            answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return answer


def ask_same(url: str, asked: Asked) -> Answered:
    """Have a prompt of ours answered; blocks. Raises `ServiceError`."""
    answer, asked_s = Answered(), time.monotonic()
    for chunk in completion(url, asked.ids, asked.new_tokens):
        _wrote(answer, chunk["content"], asked_s)
        if chunk["stop"]:
            timings: Any = chunk["timings"]
            answer.prompt_tokens, answer.cached_tokens = chunk["tokens_evaluated"], timings["cache_n"]
            answer.output_tokens = chunk["tokens_predicted"]
            answer.by_model = answer.output_tokens == asked.new_tokens
    return answer


def _wrote(answer: Answered, text: str | None, asked_s: float) -> None:
    if text:
        answer.text += text
        if answer.ttft_ms is None:
            answer.ttft_ms = (time.monotonic() - asked_s) * 1_000


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
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(clients)

    async def converse(conversation: Conversation, told: Callable[[Answered], None]) -> None:
        messages = [{"role": "system", "content": system_text(conversation.turns[0])}]
        for question in conversation.turns:
            messages.append({"role": "user", "content": question})
            answer = await loop.run_in_executor(pool, ask_peer, url, messages, max_output_tokens)
            messages.append({"role": "assistant", "content": answer.text})
            told(answer)

    with pool:
        return await at_once(conversations, converse, clients=clients)


async def converse_the_same(
    url: str, conversations: Sequence[Conversation], prompts: Mapping[str, Sequence[Asked]], *, clients: int
) -> Conversed:
    """As `converse_all`, with the peer and our prompts. Raises `ServiceError`."""
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(clients)

    async def converse(conversation: Conversation, told: Callable[[Answered], None]) -> None:
        for asked in prompts[conversation.id]:
            told(await loop.run_in_executor(pool, ask_same, url, asked))

    with pool:
        return await at_once(conversations, converse, clients=clients)
