"""The prompt: system text, then each turn with the FAQ entries before it, then the question with its own.

A conversation's next prompt extends the last one: nothing that is new stands before what was there. So the KV of the
last one, the answer's included, serves the next (docs/decisions/0011).

What customers, the FAQ and the model have written is encoded as plain text: a delimiter such as `<|im_start|>` in it
becomes ordinary tokens and cannot open a role. Nothing else goes into a prompt: no name of a tenant or a session, and
nothing of the settings but the system text.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Final, Protocol

from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.model.chat_template import ChatTemplate, Ids
from shared.wire.outcome import BY_MODEL, Grounding
from shared.wire.session_key import SessionKey
from workers.engine.upstream.body import ChatMessage


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """Tokens, at most: of one FAQ entry; and of the earlier turns, with the entries that stand between them. None: what
    the slot leaves."""

    entry_tokens: int | None = None
    history_tokens: int | None = None


_SENTENCES: Final = re.compile(r".*?(?:[.!?](?=\s)|[。！？]|\n|$)", re.DOTALL)
# No token of a text is longer: what is longer by this cannot fit, and need not be counted.
_MAX_CHARS_PER_TOKEN: Final = 64


def whole_sentences(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the first sentences of a text that fit, or if none does its first words: never a part of one, as half of
    "100 days" would be wrong."""
    if len(text) <= max_tokens or count(text) <= max_tokens:
        return text
    text = text[: max_tokens * _MAX_CHARS_PER_TOKEN]
    ends = [found.end() for found in _SENTENCES.finditer(text) if found.end() < len(text)]
    return _longest(text, ends, max_tokens, count) or _longest(
        text, [found.start() for found in re.finditer(r"\s|(?<=[，、；])", text)], max_tokens, count
    )


def _longest(text: str, ends: list[int], max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning that ends at one of these places and fits; by halves, for counting takes its
    time."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if count(text[: ends[middle]].rstrip()) <= max_tokens:
            low = middle + 1
        else:
            high = middle
    return text[: ends[low - 1]].rstrip() if low else ""


TurnEncoder = Callable[[str, str, Ids], Ids]

_CONVERSATIONS: Final = 256
_TURNS: Final = 64  # more than a prompt has


class EncodedTurns:
    """Encoded turns of the last so many conversations; in memory only. Owned by one thread; an encoder may be used on
    another."""

    def __init__(self, encode: TurnEncoder, *, conversations: int = _CONVERSATIONS) -> None:
        self._encode = encode
        self._most = conversations
        self._encoders: OrderedDict[SessionKey, TurnEncoder] = OrderedDict()

    def of(self, session: SessionKey) -> TurnEncoder:
        """Return the encoder that remembers a conversation's turns, until it is forgotten. Who holds it from before its
        turns are read leaves nothing of them in a later one."""
        encoder = self._encoders.get(session)
        if encoder is None:
            encoder = self._encoders[session] = lru_cache(_TURNS)(self._encode)
        self._encoders.move_to_end(session)
        if len(self._encoders) > self._most:
            self._encoders.popitem(last=False)
        return encoder

    def forget(self, session: SessionKey) -> None:
        """Forget a conversation that was erased."""
        self._encoders.pop(session, None)


_REMEMBERED_ENTRIES = 1_024

Entries = tuple[Grounding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The first `shared_tokens` of `ids` hold the shop's words alone. `grounding` are the FAQ entries in it for the
    question, its own or an earlier turn's; `window_start` is the `request_id` of its first turn, None without one. An
    upstream gets `messages`; then `ids` is a range of the estimated number of tokens."""

    ids: Sequence[int]
    shared_tokens: int
    messages: tuple[ChatMessage, ...] = ()
    grounding: Entries = ()
    window_start: str | None = None


class BuildPrompt(Protocol):
    def __call__(
        self,
        *,
        turns: Sequence[Turn],
        grounding: Sequence[Grounding],
        question: str,
        max_tokens: int,
        instructions: str | None = None,
    ) -> Prompt:
        """Build a conversation's next prompt of at most `max_tokens`, its turns within their budget: drop the oldest
        turns first, then the lowest-ranked FAQ entries. `instructions` replace the system text. Raises `ProtocolError`
        (`input_too_long`) if the question alone does not fit."""


class Prompts(Protocol):
    """Prompts of one kind, for any conversation."""

    def of(self, session: SessionKey) -> BuildPrompt:
        """Return what builds a conversation's next prompt. To be asked for before its turns are read: they may be
        erased until they are encoded."""

    def forget(self, session: SessionKey) -> None:
        """Forget a conversation that was erased."""


class PromptBuilder:
    """Prompts with one system text. What is in many prompts is encoded once: the system text, each FAQ entry by itself
    (so what stands before it has the same tokens with and without it), a turn for the questions after it
    (`encoded_turns`). The caches are bounded, in memory only.
    """

    def __init__(
        self, template: ChatTemplate, *, system: str, most_turns: int, budget: PromptBudget | None = None
    ) -> None:
        self._template = template
        self._system = template.begun("system", system) if system else ()
        self._most_turns = most_turns
        self._budget = budget or PromptBudget()
        self._entry = lru_cache(_REMEMBERED_ENTRIES)(self._encode_entry)
        self._encoded_turns = EncodedTurns(self._encode_turn)

    def of(self, session: SessionKey) -> BuildPrompt:
        return partial(self.build, encode_turn=self._encoded_turns.of(session))

    def forget(self, session: SessionKey) -> None:
        self._encoded_turns.forget(session)

    def build(
        self,
        *,
        turns: Sequence[Turn],
        grounding: Sequence[Grounding],
        question: str,
        max_tokens: int,
        instructions: str | None = None,
        encode_turn: TurnEncoder | None = None,
    ) -> Prompt:
        """Build as `BuildPrompt` says. `encode_turn`: the conversation's; None: nothing is remembered."""
        asked = (*self._template.message("user", question), *self._template.answer)
        begun = window_begun(turns)
        encode_turn = encode_turn or self._encode_turn
        system = self._system if instructions is None else self._template.begun("system", instructions)
        num_tokens = 0
        for start, entries in narrower(turns, grounding, most_turns=self._most_turns):
            recalled = start == begun
            before = self._before(turns[start:], entries, system, recalled=recalled, encode_turn=encode_turn)
            parts = [*before, asked]
            num_tokens = sum(map(len, parts))
            if num_tokens <= max_tokens and self._affords(parts):
                return Prompt(
                    ids=list(chain.from_iterable(parts)),
                    shared_tokens=len(parts[0]) if instructions is None else 0,
                    grounding=entries,
                    window_start=turns[start].request_id if start < len(turns) else None,
                )
        raise too_long(num_tokens, max_tokens)

    def _affords(self, parts: Sequence[Ids]) -> bool:
        """Return whether the turns, and the entries between them, keep to their budget."""
        most = self._budget.history_tokens
        return most is None or sum(map(len, parts[1:-2])) <= most

    def _before(
        self, turns: Sequence[Turn], entries: Entries, system: Ids, *, recalled: bool, encode_turn: TurnEncoder
    ) -> list[Ids]:
        """Return the messages before the question; the opening first. An entry stands where the model first needed it,
        once; those of earlier questions only where they are `recalled`: a prompt that does not begin as the last one
        did is shorter without them. One that was an answer itself stands there already."""
        standing = set[Grounding]()
        parts: list[Ids] = []
        opening = system
        for turn in turns:
            needed = turn.grounding if recalled and turn.source in BY_MODEL else ()
            parts.append(self._shops_words(opening, new_entries(needed, standing)))
            parts.append(encode_turn(turn.user, turn.output_text, turn.output_ids))
            opening = ()
        parts.append(self._shops_words(opening, new_entries(entries, standing)))
        parts[0] = (*self._template.start, *parts[0])
        return parts

    def _shops_words(self, opening: Ids, entries: Entries) -> Ids:
        """Return the shop's words as a system message; nothing where there is nothing to say."""
        message = list(opening)
        for entry in entries:
            message += self._entry(entry, bool(message))
        return (*message, *self._template.end) if message else ()

    def _encode_entry(self, entry: Grounding, follows: bool) -> Ids:
        text = f"Q: {entry.question}\nA: {entry.answer}"
        if self._budget.entry_tokens is not None:
            text = whole_sentences(text, self._budget.entry_tokens, lambda part: len(self._template.encode(part)))
        return tuple(self._template.encode(f"\n\n{text}")) if follows else self._template.begun("system", text)

    def _encode_turn(self, user: str, assistant: str, output_ids: Ids) -> Ids:
        return (*self._template.message("user", user), *self._template.answered(assistant, output_ids))


def narrower(turns: Sequence[Turn], entries: Sequence[Grounding], *, most_turns: int) -> Iterator[tuple[int, Entries]]:
    """Give what a prompt may hold, each time less: the first turn in it, and the FAQ entries."""
    start, kept = max(0, len(turns) - most_turns), tuple(entries)
    for first in range(start, len(turns) + 1):
        yield first, kept
    for count in reversed(range(len(kept))):
        yield len(turns), kept[:count]


def too_long(num_tokens: int, max_tokens: int) -> ProtocolError:
    """Return what is raised for a question that does not fit by itself."""
    return ProtocolError(
        "input_too_long",
        f"the question and the system prompt take {num_tokens} tokens, the slot leaves {max_tokens}; shorten it",
        param="input",
    )


def window_begun(turns: Sequence[Turn]) -> int | None:
    """Return where the last prompt began, as far as anybody has written it down; None where that turn is not there. A
    count of the turns would not do: history is bounded, and Redis may have been away."""
    first = next((turn.window_start for turn in reversed(turns) if turn.window_start is not None), None)
    if first is None:
        return 0
    return next((at for at, turn in enumerate(turns) if turn.request_id == first), None)


def new_entries(entries: Entries, standing: set[Grounding]) -> Entries:
    """Return the entries that do not stand there yet; from now on they do."""
    new = tuple([entry for entry in entries if entry not in standing])
    standing.update(new)
    return new
