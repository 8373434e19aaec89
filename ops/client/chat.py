"""The terminal's side of a conversation: `replyline ask` and `replyline chat`."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from ops.client.prompt import Prompt
from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.client.telling import AnswerEvent, Refused
from shared.nouns import counted
from shared.wire.codec import json_encode
from shared.wire.messages import (
    Consent,
    HandoffCreated,
    Rating,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
)
from shared.wire.outcome import CLAIM_NOTHING, Response, Source

_SOURCES: dict[Source, str] = {
    "model": "AI answer",
    "mixed": "AI answer, in part the help pages' words",
    "faq": "from the help pages",
    "quote": "quoted from the help pages: it may not answer the question",
    "clarify": "which one? reply with its number",
    "courtesy": "automatic reply",
    "unsure": "no answer found",
    "busy": "busy",
    "handoff": "handed to a person",
}
_RATINGS: dict[str, Rating] = {"/up": "up", "/down": "down"}

# An answer can be resumed for two minutes, but a user at a terminal gives up sooner.
_PATIENCE_S = 30.0

_HELP = (
    "[dim]/person asks for a person · /up, /down rate an answer · /new starts over · /quit ends · "
    "Ctrl-C stops an answer, or ends the chat at the prompt[/]"
)


@dataclass(slots=True)
class Screen:
    """Prints an answer's text while it streams. An answer that restarts gets a new line."""

    console: Console
    is_begun: bool = False

    def show(self, event: AnswerEvent) -> None:
        """Print an event's text. Other events have none."""
        if isinstance(event, ResponseDelta):
            self.console.print(event.delta, end="", markup=False)
            self.is_begun = True
        elif isinstance(event, ResponseCreated) and self.is_begun:
            self.console.print()
            self.is_begun = False


async def ask_once(
    url: str, request: ResponseCreate, *, token: str | None, session_id: str | None, as_json: bool
) -> int:
    """Ask one question. Return 0 if there was an answer, 1 if it failed. Raises `ConnectFailed` and `Refused`."""
    out = Console(highlight=False, soft_wrap=True)
    screen = Screen(out)
    async with AsyncReplyline(url, token=token, session_id=session_id, patience_s=_PATIENCE_S) as client:
        async for event in client.ask(request):
            if not as_json:
                screen.show(event)
            if isinstance(event, ResponseDone):
                if as_json:
                    out.print(json_encode(event.response).decode(), markup=False)
                else:
                    out.print()
                    _print_caption(event.response, Console(stderr=True, highlight=False, soft_wrap=True))
                return 1 if event.response.status == "failed" else 0
    return 1


async def converse(url: str, *, token: str | None, session_id: str | None, consent_training: bool = False) -> int:
    """Chat until /quit, the end of input, or Ctrl-C at the prompt. Raises `ConnectFailed`."""
    console = Console(highlight=False, soft_wrap=True)
    prompt = Prompt(sys.stdin.fileno(), lambda: console.print("\n› ", end=""), encoding=sys.stdin.encoding)
    console.print(_HELP)
    consent = Consent(training=True) if consent_training else None
    async with AsyncReplyline(
        url, token=token, session_id=session_id, patience_s=_PATIENCE_S, consent=consent
    ) as client:
        last: str | None = None
        while True:
            question = await prompt.line()
            if question is None:
                console.print()
                return 0
            if question == "/quit":
                return 0
            if question == "/new":
                last = None if await _forget(client, console) else last
            elif question == "/person":
                with _showing_refusals(console):
                    _print_handoff(await client.hand_off(), console)
            elif question in _RATINGS and last is None:
                console.print("[dim]there is no answer to rate yet[/]")
            elif question in _RATINGS and last is not None:
                with _showing_refusals(console):
                    await client.rate(last, _RATINGS[question])
                    console.print("thank you", style="dim")
            elif question.startswith("/"):
                console.print(f"{question}: no such command", style="dim", markup=False)
                console.print(_HELP)
            elif question:
                last = await _answer(client, question, console) or last


async def _forget(client: AsyncReplyline, console: Console) -> bool:
    """Return whether the conversation was erased."""
    forgotten = False
    with _showing_refusals(console, "the history could not be erased: "):
        await client.erase()
        forgotten = True
        console.print("forgotten; a new conversation", style="dim")
    return forgotten


@contextlib.contextmanager
def _showing_refusals(console: Console, what: str = "") -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        console.print(f"{what}{refused}", style="red", markup=False)


async def _answer(client: AsyncReplyline, question: str, console: Console) -> str | None:
    """Print an answer while it streams; return the response's id."""
    request = ResponseCreate(event_id=new_event_id(), input=question)
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []
    before, answered = client.handoff, None
    screen = Screen(console)
    loop.add_signal_handler(signal.SIGINT, lambda: stopping.append(loop.create_task(client.cancel(request.event_id))))
    try:
        async for event in client.ask(request):
            screen.show(event)
            if isinstance(event, ResponseDone):
                answered = event.response.id
                console.print()
                _print_caption(event.response, console)
                if event.response.source in CLAIM_NOTHING and client.session is not None and client.session.handoff:
                    console.print("/person asks for a person", style="dim", markup=False)
    except Refused as refused:
        console.print(str(refused), style="red", markup=False)
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(*stopping, return_exceptions=True)
    if client.handoff is not None and client.handoff != before:
        _print_handoff(client.handoff, console)
    return answered


def _print_handoff(handoff: HandoffCreated, console: Console) -> None:
    console.print(f"a person has been asked to take over: {handoff.handoff_id}", style="dim", markup=False)


def _print_caption(response: Response, console: Console) -> None:
    for line in (*_replaced(response), _caption(response)):
        console.print(line, style="dim", markup=False)


def _replaced(response: Response) -> list[str]:
    """Return a line for each place where the model's text was replaced."""
    text = response.output_text
    return [
        f"from the help pages: “{text[each.offset : each.offset + each.length].strip()}”"
        if each.length
        else "a sentence was left out: the help pages do not say so"
        for each in response.replaced
    ]


def _caption(response: Response) -> str:
    """Return the answer's source, grounding and timings."""
    parts = [_SOURCES[response.source]]
    if response.status != "completed":
        parts.append(f"{response.status}: {response.reason}")
    timings = response.timings
    if timings.ttft_ms is not None:
        parts.append(f"first text {timings.ttft_ms:.0f} ms")
    if timings.total_ms is not None:
        parts.append(f"whole {timings.total_ms:.0f} ms")
    if response.usage.output_tokens:
        parts.append(counted(response.usage.output_tokens, "token"))
    if response.grounding:
        parts.append("based on: " + "; ".join(entry.question for entry in response.grounding))
    return " · ".join(parts)
