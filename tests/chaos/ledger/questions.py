"""What is asked: each question bears a word of its own, so that no two have the same answer. Pure."""

import random
from typing import Final

from tests.chaos.ledger.requests import Question

_OPENINGS: Final = (
    "Where is my parcel?",
    "How do I send a lamp back?",
    "Do you ship to Norway?",
    "我的订单什么时候发货？",
    "Tell me about the oak table",
    (
        "Can I pay by invoice, and when is it due? I have asked twice before and nobody has told me so far, "
        "and my accountant would like to close the year before he leaves"
    ),
)
_DEADLINES_MS: Final = (2_000, 5_000, 10_000)
_FIRST_TOKEN_MS: Final = 3_000
_OUTPUT_TOKENS: Final = (20, 60)


def make_questions(seed: int, count: int, sessions: int) -> list[Question]:
    """`count` of them over so many conversations. Half wait for the first token as long as for the whole answer."""
    chance = random.Random(f"{seed}/questions")
    questions: list[Question] = []
    for number in range(count):
        session = chance.randrange(sessions)
        deadline_ms = chance.choice(_DEADLINES_MS)
        questions.append(
            Question(
                event_id=f"ask-{number}",
                session=f"chaos-{seed}-{session}",
                text=f"{chance.choice(_OPENINGS)} (canary-{chance.getrandbits(48):012x})",
                max_output_tokens=chance.randint(*_OUTPUT_TOKENS),
                first_token_ms=chance.choice((_FIRST_TOKEN_MS, deadline_ms)),
                deadline_ms=deadline_ms,
            )
        )
    return questions
