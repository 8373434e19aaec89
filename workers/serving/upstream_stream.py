"""Receive one request's text from an upstream server, and decide how much of it may be shown yet."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from shared.process.clock import monotonic_s
from workers.answer.thoughts import Habit, Thoughts
from workers.engine.upstream.failures import UpstreamFailure
from workers.request.job import Job
from workers.schedule.streams import Pace

# What to do if an upstream marks no thoughts as such
PARSE_THOUGHTS: Final = (
    "its model writes its thoughts into the text, which costs customers time: start vLLM or SGLang with "
    "--reasoning-parser, llama-server with --reasoning-format deepseek, or turn thinking off"
)


@dataclass(slots=True, eq=False)
class UpstreamStream:
    """A request.

    Attributes:
        address: the upstream at which it has a place.
        sent_unix_ms: when it was sent there.
        text: the text that upstreams wrote for it.
        place: the position of the current upstream's text in `text`.
        late: nothing arrived by its deadline.
    """

    job: Job
    task: asyncio.Task[None] | None = None
    address: str | None = None
    sent_unix_ms: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace(monotonic_s()))
    text: str = ""
    place: int = 0
    num_bytes: int = 0
    usage: Any = None
    late: bool = False
    thoughts: Thoughts = field(default_factory=Thoughts)

    def sent(self, now_unix_ms: float, habit: Habit) -> None:
        """Reset the state for sending it to an upstream."""
        self.thoughts = Thoughts(habit)
        self.sent_unix_ms, self.pace = now_unix_ms, Pace(monotonic_s())
        self.place, self.num_bytes, self.usage = 0, 0, None

    @property
    def conversation(self) -> str:
        return conversation_of(self.job)

    @property
    def words(self) -> str:
        """Return what the customer wrote in the conversation."""
        return "\n".join([each.content for each in self.job.prompt.messages if each.role == "user"])

    def is_silent(self, now_unix_ms: float, patience_ms: float) -> bool:
        """Return whether an upstream without text has had the time that the shop promises."""
        return self.job.sequence.deadline.promised is None and now_unix_ms - self.sent_unix_ms >= patience_ms

    def visible(self, text: str) -> str:
        """Return what may be shown with more text. An answer begins with what is not blank."""
        return self._from_words_on(self.thoughts.feed(text))

    def rest(self, *, whole: bool) -> str:
        """Return what is still to be shown at the end of the answer. Not `whole`: it was cut off."""
        return self._from_words_on(self.thoughts.finish(whole=whole))

    def _from_words_on(self, text: str) -> str:
        return text if self.place else text.lstrip()

    def new_text(self, text: str) -> str:
        """Return the new part of a piece of text, which may repeat text written before.

        Raises:
            UpstreamFailure: it differs from the text written before.
        """
        begin, self.place = self.place, self.place + len(text)
        known = self.text[begin : self.place]
        if not text.startswith(known):
            raise UpstreamFailure("other_words", "it starts again with other words than were shown")
        new = text[len(known) :]
        self.text += new
        return new


def conversation_of(job: Job) -> str:
    """Return the conversation by which an upstream is chosen, so that its prefix cache serves the next question."""
    return f"{job.session.tenant}/{job.session.session_id}"
