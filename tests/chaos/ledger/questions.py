"""The questions: from two tabs of each conversation, sometimes a second one while the first is open. Pure.

Most are wordings of the FAQ, so that the model is asked, with entries. No two answers are alike: each is drawn
by its question's seed.
"""

import random
from typing import Final

from tests.chaos.ledger.requests import Question

OPENINGS: Final = (
    "How long does delivery take?",
    "How do I return an item?",
    "Do you ship abroad?",
    "怎么退货？",
    "Can I change the delivery address?",
    "Which payment methods do you accept?",
    "How long is the warranty" + " ?" * 40,
)
# If the FAQ has no answer, the model is not asked.
_UNKNOWN: Final = "Tell me about the oak table (canary-{:012x})"
_UNKNOWN_SHARE: Final = 0.1
_TABS: Final = 2
_IMPATIENT_SHARE: Final = 0.25
_DEADLINES_MS: Final = (2_000, 5_000, 10_000)
_FIRST_TOKEN_MS: Final = 3_000
_OUTPUT_TOKENS: Final = (20, 100)


def make_questions(seed: int, count: int, sessions: int) -> list[Question]:
    """Return `count` questions from this number of tabs, two per conversation. Half allow the first token as long as
    the whole answer."""
    chance = random.Random(f"{seed}/questions")
    questions: list[Question] = []
    session = 0
    for number in range(count):
        if chance.random() >= _IMPATIENT_SHARE:
            session = chance.randrange(max(1, sessions // _TABS))
        text = chance.choice(OPENINGS)
        if chance.random() < _UNKNOWN_SHARE:
            text = _UNKNOWN.format(chance.getrandbits(48))
        deadline_ms = chance.choice(_DEADLINES_MS)
        questions.append(
            Question(
                event_id=f"ask-{number}",
                session=f"chaos-{seed}-{session}~{chance.randrange(_TABS)}",
                text=text,
                temperature=1.0,
                max_output_tokens=chance.randint(*_OUTPUT_TOKENS),
                first_token_ms=chance.choice((_FIRST_TOKEN_MS, deadline_ms)),
                deadline_ms=deadline_ms,
            )
        )
    return questions
