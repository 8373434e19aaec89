"""The next prompt of a conversation begins with the last one and its answer, exactly as in the slot."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation.turn import Turn
from shared.wire.outcome import Grounding
from tests.support.samples.prompts import BYTE_0, ENTRIES, HOSTILE, OUTPUT_IDS, TEMPLATE, TOKENIZER, build, readable
from workers.answer.stream import Answer
from workers.prompt.conversation import Prompt


@dataclass
class Exchange:
    """What one request brings: its question, the entries found for it, what the model will decode."""

    question: str
    entries: list[Grounding]
    output_ids: tuple[int, ...]


# A special token that a model writes out is left out of its answer, and the next prompt encodes the rest again.
SHOWN_IDS = OUTPUT_IDS.filter(lambda ids: "<|" not in readable(ids))
EXCHANGES = st.lists(st.builds(Exchange, question=HOSTILE, entries=ENTRIES, output_ids=SHOWN_IDS), max_size=12)


@dataclass
class Session:
    """A conversation as workers hold it: prompt, answer, record; each record through its bytes."""

    most: int = 5
    turns: list[Turn] = field(default_factory=list)

    def ask(self, exchange: Exchange) -> tuple[Prompt, list[int]]:
        """Return the prompt, and the slot's tokens after the answer and the end of its message."""
        prompt = build(
            exchange.question,
            turns=self.turns[-self.most :],
            grounding=exchange.entries,
            max_tokens=100_000,
            most_turns=self.most,
        )
        answer = Answer(request_id="r", session_id="s", attempt=1, token_bytes=TOKENIZER.token_bytes, stops=())
        for token_id in exchange.output_ids:
            answer.add(token_id)
        answer.finish()
        name = f"r{len(self.turns)}"
        turn = Turn(
            request_id=name,
            user=exchange.question,
            output_text=answer.text,
            source="model",
            grounding=prompt.grounding,
            output_ids=exchange.output_ids,
            window_start=prompt.window_start or name,
        )
        self.turns.append(msgspec.msgpack.decode(msgspec.msgpack.encode(turn), type=Turn))
        return prompt, [*prompt.ids, *exchange.output_ids, *TEMPLATE.end]


def extended(session: Session, exchanges: list[Exchange]) -> list[bool]:
    """Return, for each prompt but the first, whether it begins with all tokens of the slot."""
    found: list[bool] = []
    standing: list[int] | None = None
    for exchange in exchanges:
        prompt, then = session.ask(exchange)
        if standing is not None:
            found.append(prompt.ids[: len(standing)] == standing)
        standing = then
    return found


@given(EXCHANGES)
def test_a_prompt_extends_the_last_one_and_its_answer_until_the_window_is_full(exchanges: list[Exchange]) -> None:
    assert all(extended(Session(), exchanges[:6]))


@given(EXCHANGES, st.integers(0, 5), ENTRIES)
def test_a_turn_that_the_faq_answered_stands_between_and_takes_nothing_back(
    exchanges: list[Exchange], place: int, quoted: list[Grounding]
) -> None:
    """The prompt after it begins with the last prompt and its answer; its entry is there as the answer alone."""
    session = Session(most=50)
    standing: list[int] = []
    for number, exchange in enumerate(exchanges[:6]):
        if number == place and number:
            answer = "Quoted!"
            faq = Turn(request_id="faq", user="?", output_text=answer, source="faq", grounding=tuple(quoted))
            session.turns.append(faq)
        prompt, then = session.ask(exchange)
        assert prompt.ids[: len(standing)] == standing
        standing = then


@given(EXCHANGES.filter(bool), st.lists(HOSTILE, min_size=12, max_size=12))
def test_shared_tokens_are_the_same_whatever_customers_say(exchanges: list[Exchange], other_words: list[str]) -> None:
    one, other = Session(2), Session(2)
    for exchange, words in zip(exchanges, other_words, strict=False):
        prompt, _ = one.ask(exchange)
        others, _ = other.ask(Exchange(words, exchange.entries, (BYTE_0 + 65,)))
        shared = prompt.shared_tokens
        assert shared == others.shared_tokens
        assert prompt.ids[:shared] == others.ids[:shared]
        assert readable(prompt.ids[shared : shared + 6]) == "⟨user\n"
