"""Build the prompt for an upstream as messages; the upstream applies its own chat template. Pure.

The system text is first and never changes, then each turn. FAQ entries are inside the customer's message that first
needed them, because many templates accept only one system message and need user and assistant to alternate. So a
conversation's next prompt extends the last one, and the upstream's prefix cache can be used.

A template's delimiters in text from customers, turns and instructions are broken up with spaces: an upstream may parse
them, and they would open a role.
"""

import re
from collections.abc import Sequence
from typing import Final

from shared.conversation.turn import Turn
from shared.model.tokenizer import estimate_tokens
from shared.wire.outcome import BY_MODEL, Grounding
from shared.wire.session_key import SessionKey
from workers.engine.upstream.body import ChatMessage
from workers.prompt.conversation import (
    BuildPrompt,
    Prompt,
    PromptBudget,
    narrower,
    new_entries,
    too_long,
    whole_sentences,
    window_begun,
)

# a template adds a few tokens to each message
_FRAME_TOKENS: Final = 8
# Texts that tokenizers represent as one token: `<|im_end|>`, `[|system|]`, `<<SYS>>`, `<start_of_turn>`, `<seed:bos>`,
# `<0x0A>`, `[INST]`, `[gMASK]`. Not `a < b`, `[1]`, `<3`, `<joe@shop.example>`.
_DELIMITERS: Final = re.compile(
    r"[<\[](?=[|\uff5c])|(?<=[|\uff5c])[>\]]"
    r"|<(?=</?[A-Za-z_]{1,30}>>)|(?<=[A-Za-z_]>)>"
    r"|<(?=/?(?:[A-Za-z_\u2581]|0x)[\w:\u2581\-]{0,40}>)|\u25c1"
    r"|\[(?=/?(?:[A-Z][A-Z0-9_]{1,30}|[gs]MASK)\])"
)
# Templates without such tokens open a role with a word at the beginning of a line.
_ROLES: Final = re.compile(
    r"^([ \t]*(?:#{2,4}[ \t]*(?i:system|user|assistant|human|instruction|response|input)"
    r"|(?:SYSTEM|USER|ASSISTANT|HUMAN|System|User|Assistant|Human)))(?=:)",
    re.MULTILINE,
)


class MessageBuilder:
    """Builds prompts with one system text."""

    def __init__(self, *, system: str, most_turns: int, budget: PromptBudget | None = None) -> None:
        self._opening = (ChatMessage("system", system),) if system else ()
        self._most_turns = most_turns
        self._budget = budget or PromptBudget()

    def builder_for(self, session: SessionKey) -> BuildPrompt:
        del session  # nothing is cached
        return self.build

    def forget(self, session: SessionKey) -> None:
        """Do nothing, since no prompt is cached."""

    def build(
        self,
        *,
        turns: Sequence[Turn],
        grounding: Sequence[Grounding],
        question: str,
        max_tokens: int,
        instructions: str | None = None,
    ) -> Prompt:
        """Build a prompt as `BuildPrompt` describes."""
        opening = self._opening if instructions is None else (ChatMessage("system", _plain(instructions)),)
        begun, num_tokens = window_begun(turns), 0
        for start, entries in narrower(turns, grounding, most_turns=self._most_turns):
            earlier, asked = self._messages(turns[start:], entries, question, recalled=start == begun)
            num_earlier = _count(earlier)
            num_tokens = _count(opening) + num_earlier + _count((asked,))
            most = self._budget.history_tokens
            if num_tokens <= max_tokens and (most is None or num_earlier <= most):
                return Prompt(
                    ids=range(num_tokens),
                    shared_tokens=0,
                    messages=(*opening, *earlier, asked),
                    grounding=entries,
                    window_start=turns[start].request_id if start < len(turns) else None,
                )
        raise too_long(num_tokens, max_tokens)

    def _messages(
        self, turns: Sequence[Turn], entries: Sequence[Grounding], question: str, *, recalled: bool
    ) -> tuple[list[ChatMessage], ChatMessage]:
        """Return the earlier messages, and the question's. Entries of earlier questions only if `recalled`, as in
        `conversation.py`.
        """
        standing = set[Grounding]()
        earlier: list[ChatMessage] = []
        for turn in turns:
            needed = turn.grounding if recalled and turn.source in BY_MODEL else ()
            earlier.append(self._user(new_entries(needed, standing), turn.user))
            earlier.append(ChatMessage("assistant", _plain(turn.output_text)))
        return earlier, self._user(new_entries(tuple(entries), standing), question)

    def _user(self, entries: Sequence[Grounding], words: str) -> ChatMessage:
        most = self._budget.entry_tokens
        texts = [f"Q: {entry.question}\nA: {entry.answer}" for entry in entries]
        if most is not None:
            texts = [whole_sentences(text, most, estimate_tokens) for text in texts]
        return ChatMessage("user", _plain("\n\n".join((*texts, words))))


def _plain(text: str) -> str:
    return _ROLES.sub(r"\1 ", _DELIMITERS.sub(lambda found: f" {found[0]} ", text))


def _count(messages: Sequence[ChatMessage]) -> int:
    return sum([estimate_tokens(message.content) + _FRAME_TOKENS for message in messages])
