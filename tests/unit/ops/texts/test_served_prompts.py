"""What a model is measured by is none of what it is fitted to."""

import pytest

from ops.model.prepare import default_source
from ops.texts.served_prompts import MEASURED, fixed_prompts, other_prompts
from shared.errors import SettingsError
from shared.model.tokenizer import Tokenizer
from workers.graph.sources.opening import open_source
from workers.loading import chat_template
from workers.prompt.conversation import ChatTemplate


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    source = open_source(default_source())
    return chat_template(Tokenizer(source.tokenizer), source.chat_template)


def test_other_prompts_are_none_of_the_measured_ones_and_each_is_another(template: ChatTemplate) -> None:
    """However many are asked for."""
    measured = {tuple(ids) for ids in fixed_prompts(template, MEASURED, max_tokens=1_024)}
    for count in (1, 16, 300):
        others = {tuple(ids) for ids in other_prompts(template, count, max_tokens=1_024)}
        assert len(others) == count
        assert not others & measured


def test_prompts_are_the_same_each_time(template: ChatTemplate) -> None:
    """Nothing is drawn."""
    assert fixed_prompts(template, 7, max_tokens=1_024) == fixed_prompts(template, 7, max_tokens=1_024)


def test_more_prompts_than_there_are_texts_are_refused(template: ChatTemplate) -> None:
    """By the option's name and what is to be had."""
    with pytest.raises(SettingsError, match="--prompts 100000: there are"):
        fixed_prompts(template, 100_000, max_tokens=1_024)
