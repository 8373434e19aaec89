"""What a model is measured by is the same each time."""

import pytest

from ops.model.prepare import default_source
from ops.texts.served_prompts import fixed_prompts
from shared.errors import SettingsError
from shared.model.tokenizer import Tokenizer
from workers.graph.sources.opening import open_source
from workers.loading import chat_template
from workers.prompt.conversation import ChatTemplate


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    source = open_source(default_source())
    return chat_template(Tokenizer(source.tokenizer), source.chat_template)


def test_prompts_are_the_same_each_time(template: ChatTemplate) -> None:
    """Nothing is drawn."""
    assert fixed_prompts(template, 7, max_tokens=1_024) == fixed_prompts(template, 7, max_tokens=1_024)


def test_more_prompts_than_there_are_texts_are_refused(template: ChatTemplate) -> None:
    """By the option's name and what is to be had."""
    with pytest.raises(SettingsError, match="--prompts 100000: there are"):
        fixed_prompts(template, 100_000, max_tokens=1_024)
