"""The terminal's side of a conversation: `replyline ask` and `replyline chat`."""

import asyncio
import contextlib
import signal

from rich.console import Console

from ops.client import ChatClient, new_event_id
from shared.codec import json_encode
from shared.messages import ErrorEvent, Response, ResponseCreate, ResponseDelta, ResponseDone

_SOURCES = {"model": "AI answer", "faq": "from the help pages", "busy": "busy"}

# An answer can be resumed for two minutes; who waits at a terminal gives up sooner.
_PATIENCE_S = 30.0

_HELP = "[dim]/new starts over · /quit ends · Ctrl-C stops an answer[/]"


async def ask_once(
    url: str, request: ResponseCreate, *, token: str | None, session_id: str | None, as_json: bool
) -> int:
    """0 when there was an answer, 1 when the gateway refused or the answer failed. Raises `ConnectFailed`."""
    out = Console(highlight=False, soft_wrap=True)
    async with ChatClient(url, token=token, session_id=session_id, patience_s=_PATIENCE_S) as client:
        async for event in client.ask(request):
            if isinstance(event, ResponseDelta) and not as_json:
                out.print(event.delta, end="", markup=False)
            elif isinstance(event, ErrorEvent):
                Console(stderr=True).print(f"replyline: {event.error.code}: {event.error.message}", markup=False)
                return 1
            elif isinstance(event, ResponseDone):
                if as_json:
                    out.print(json_encode(event.response).decode(), markup=False)
                else:
                    out.print()
                    Console(stderr=True, highlight=False).print(_caption(event.response), style="dim", markup=False)
                return 1 if event.response.status == "failed" else 0
    return 1


async def converse(url: str, *, token: str | None, session_id: str | None) -> int:
    """A conversation until /quit or the end of input. Raises `ConnectFailed`."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(_HELP)
    async with ChatClient(url, token=token, session_id=session_id, patience_s=_PATIENCE_S) as client:
        while True:
            question = await _read_line()
            if question is None or question == "/quit":
                return 0
            if question == "/new":
                await client.forget()
                console.print("[dim]forgotten; a new conversation[/]")
            elif question:
                await _answer(client, question, console)


async def _read_line() -> str | None:
    """A line from the terminal; None at its end."""
    try:
        return (await asyncio.to_thread(input, "\n› ")).strip()
    except (EOFError, KeyboardInterrupt):
        return None


async def _answer(client: ChatClient, question: str, console: Console) -> None:
    request = ResponseCreate(event_id=new_event_id(), input=question)
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []
    loop.add_signal_handler(signal.SIGINT, lambda: stopping.append(loop.create_task(client.cancel(request.event_id))))
    try:
        async for event in client.ask(request):
            if isinstance(event, ResponseDelta):
                console.print(event.delta, end="", markup=False)
            elif isinstance(event, ErrorEvent):
                console.print(f"{event.error.code}: {event.error.message}", style="red", markup=False)
            elif isinstance(event, ResponseDone):
                console.print()
                console.print(_caption(event.response), style="dim", markup=False)
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(*stopping, return_exceptions=True)


def _caption(response: Response) -> str:
    """Who answered, on what grounds, how quickly."""
    parts = [_SOURCES[response.source]]
    if response.status != "completed":
        parts.append(f"{response.status}: {response.reason}")
    timings = response.timings
    if timings.ttft_ms is not None:
        parts.append(f"first text {timings.ttft_ms:.0f} ms")
    if timings.total_ms is not None:
        parts.append(f"whole {timings.total_ms:.0f} ms")
    if response.usage.output_tokens:
        parts.append(f"{response.usage.output_tokens} tokens")
    if response.grounding:
        parts.append("based on: " + "; ".join(entry.question for entry in response.grounding))
    return " · ".join(parts)
