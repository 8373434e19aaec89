"""The ledger's questions reach the model, but for those that no entry answers."""

import pytest

from shared.faq import FaqIndex
from shared.faq.answer_policy import AnswerPolicy, Ground
from tests.chaos.ledger.questions import OPENINGS


@pytest.fixture(scope="module")
def index() -> FaqIndex:
    return FaqIndex.load()


@pytest.mark.parametrize("text", OPENINGS)
def test_an_entry_answers_each_opening(index: FaqIndex, text: str) -> None:
    assert isinstance(AnswerPolicy().decide(text, index.search(text)), Ground)
