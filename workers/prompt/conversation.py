"""Build a prompt: system text, then each turn with the FAQ entries before it, then the question with its entries.

A conversation's next prompt extends the last one: new text is only added at the end. So the KV of the last prompt and
its answer can be reused (docs/decisions/0011).

Text from customers, the FAQ and the model is encoded as plain text: a delimiter such as `<|im_start|>` in it becomes
ordinary tokens and cannot open a role. A prompt contains nothing else: no tenant or session name, and no setting but
the system text.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain
from typing import Final, Protocol

from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.model.chat_template import ChatTemplate, Ids
from shared.wire.outcome import BY_MODEL, Grounding
from shared.wire.session_key import SessionKey
from workers.engine.upstream.body import ChatMessage


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """Limits in tokens. None for no limit besides the slot's.

    Attributes:
        entry_tokens: for one FAQ entry.
        history_tokens: for the earlier turns together with the entries between them.
    """

    entry_tokens: int | None = None
    history_tokens: int | None = None


_SENTENCES: Final = re.compile(r".*?(?:[.!?](?=\s)|[。！？]|\n|$)", re.DOTALL)
# A token has at most this many characters, so a longer text cannot fit and need not be encoded.
MAX_CHARS_PER_TOKEN: Final = 64


def whole_sentences(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the first whole sentences of a text that fit, or if none does its first whole words.

    A part of a sentence or word could be wrong, such as half of "100 days".
    """
    if len(text) <= max_tokens or count(text) <= max_tokens:
        return text
    text = text[: max_tokens * MAX_CHARS_PER_TOKEN]
    ends = [found.end() for found in _SENTENCES.finditer(text) if found.end() < len(text)]
    return _longest(text, ends, max_tokens, count) or _longest(
        text, [found.start() for found in re.finditer(r"\s|(?<=[，、；])", text)], max_tokens, count
    )


def _longest(text: str, ends: list[int], max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning that fits and ends at one of these positions, by bisection, since counting is
    slow."""
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
_TURNS: Final = 64  # more than a prompt contains


class EncodedTurns:
    """Caches encoded turns of the most recent conversations, in memory only.

    One thread owns this; an encoder may be used on another thread.
    """

    def __init__(self, encode: TurnEncoder, *, conversations: int = _CONVERSATIONS) -> None:
        self._encode = encode
        self._most = conversations
        self._encoders: OrderedDict[SessionKey, TurnEncoder] = OrderedDict()

    def encoder_for(self, session: SessionKey) -> TurnEncoder:
        """Return the encoder that caches a conversation's turns until it is forgotten.

        An encoder obtained before the turns are read cannot add erased turns to a later encoder.
        """
        encoder = self._encoders.get(session)
        if encoder is None:
            encoder = self._encoders[session] = lru_cache(_TURNS)(self._encode)
        self._encoders.move_to_end(session)
        if len(self._encoders) > self._most:
            self._encoders.popitem(last=False)
        return encoder

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation."""
        self._encoders.pop(session, None)


_REMEMBERED_ENTRIES = 1_024

Entries = tuple[Grounding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt.

    Attributes:
        ids: token ids; for an upstream a range with the estimated length.
        shared_tokens: length of the beginning that contains only the shop's text.
        shop_spans: where the shop's text is, as starts and stops.
        messages: the messages for an upstream.
        grounding: the FAQ entries for the question that are in the prompt, including those of earlier turns.
        window_start: `request_id` of its first turn; None without a turn.
    """

    ids: Sequence[int]
    shared_tokens: int
    shop_spans: tuple[tuple[int, int], ...] = ()
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
        """Build a conversation's next prompt.

        Drops the oldest turns first, then the lowest-ranked FAQ entries, until it fits.

        Args:
            turns: the earlier turns.
            grounding: the question's FAQ entries, best first.
            question: the question.
            max_tokens: maximum length of the prompt.
            instructions: replaces the system text.

        Raises:
            ProtocolError: `input_too_long` if the question alone does not fit.
        """


class Prompts(Protocol):
    """Builders of prompts of one kind, for any conversation."""

    def builder_for(self, session: SessionKey) -> BuildPrompt:
        """Return the builder of a conversation's next prompt.

        Call this before its turns are read, since they may be erased before they are encoded.
        """

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation."""


class PromptBuilder:
    """Builds prompts with one system text.

    Text that many prompts contain is encoded once: the system text, each FAQ entry (separately, so that text before it
    has the same tokens with and without it), and each turn. The caches are bounded and only in memory.
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

    def builder_for(self, session: SessionKey) -> BuildPrompt:
        return partial(self.build, encode_turn=self._encoded_turns.encoder_for(session))

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
        """Build a prompt as `BuildPrompt` describes. `encode_turn`: the conversation's caching encoder; None for no
        cache."""
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
                    shop_spans=_every_other(parts),
                    grounding=entries,
                    window_start=turns[start].request_id if start < len(turns) else None,
                )
        raise too_long(num_tokens, max_tokens)

    def _affords(self, parts: Sequence[Ids]) -> bool:
        """Return whether the turns and the entries between them are within their budget."""
        most = self._budget.history_tokens
        return most is None or sum(map(len, parts[1:-2])) <= most

    def _before(
        self, turns: Sequence[Turn], entries: Entries, system: Ids, *, recalled: bool, encode_turn: TurnEncoder
    ) -> list[Ids]:
        """Return the messages before the question, the opening first.

        An entry is placed once, where the model first needed it. Entries of earlier questions are included only if
        `recalled`: a prompt that does not begin like the last one is shorter without them. An entry that was itself an
        answer is already in a turn.
        """
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
        """Return the shop's text as a system message; empty if the shop has no text."""
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


def _every_other(parts: Sequence[Ids]) -> tuple[tuple[int, int], ...]:
    """Return where the parts are that have the shop's text, as starts and stops in the prompt: the first, the third and
    so on."""
    stops = list(accumulate(map(len, parts)))
    spans = zip([0, *stops[1::2]], stops[::2], strict=False)
    return tuple([span for span in spans if span[0] < span[1]])


def narrower(turns: Sequence[Turn], entries: Sequence[Grounding], *, most_turns: int) -> Iterator[tuple[int, Entries]]:
    """Yield smaller and smaller contents of a prompt: the index of its first turn, and its FAQ entries."""
    start, kept = max(0, len(turns) - most_turns), tuple(entries)
    for first in range(start, len(turns) + 1):
        yield first, kept
    for count in reversed(range(len(kept))):
        yield len(turns), kept[:count]


def too_long(num_tokens: int, max_tokens: int) -> ProtocolError:
    """Return the error for a question that does not fit."""
    return ProtocolError(
        "input_too_long",
        f"the question and the system prompt take {num_tokens} tokens, the slot leaves {max_tokens}; shorten it",
        param="input",
    )


def window_begun(turns: Sequence[Turn]) -> int | None:
    """Return the index of the turn with which the last prompt began; None if that turn is missing.

    Counting the turns would not work, since the history is bounded and Redis may have been unavailable.
    """
    first = next((turn.window_start for turn in reversed(turns) if turn.window_start is not None), None)
    if first is None:
        return 0
    return next((at for at, turn in enumerate(turns) if turn.request_id == first), None)


def new_entries(entries: Entries, standing: set[Grounding]) -> Entries:
    """Return the entries that are not in the prompt yet, and add them to `standing`."""
    new = tuple([entry for entry in entries if entry not in standing])
    standing.update(new)
    return new
