"""What is asked follows from the options, and options that contradict each other are refused before anything starts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from ops.evaluation.asking import env_of
from ops.evaluation.judging.questions import Question
from ops.evaluation.options import EvaluationOptions
from ops.evaluation.program import chosen, evaluate
from shared.errors import SettingsError
from shared.settings import Settings

OPTIONS = EvaluationOptions()
QUESTIONS = [
    msgspec.convert(
        {"id": f"{language}-{at}", "language": language, "kind": "unanswerable", "split": split, "question": "?"},
        Question,
    )
    for language in ("en", "zh")
    for split in ("dev", "held_out")
    for at in range(5)
]


def test_held_out_questions_of_both_languages_are_asked_unless_told_otherwise() -> None:
    assert {(one.split, one.language) for one in chosen(QUESTIONS, OPTIONS)} == {("held_out", "en"), ("held_out", "zh")}
    some = chosen(QUESTIONS, msgspec.structs.replace(OPTIONS, split="all", language="zh"))
    assert {(one.split, one.language) for one in some} == {("dev", "zh"), ("held_out", "zh")}


@pytest.mark.parametrize("limit", [1, 3, 10, 99])
def test_a_limit_takes_questions_from_all_over_the_file_each_once(limit: int) -> None:
    some = [one.id for one in chosen(QUESTIONS, msgspec.structs.replace(OPTIONS, limit=limit))]
    assert len(some) == len(set(some)) == min(limit, 10)
    assert limit < 2 or {one[:2] for one in some} == {"en", "zh"}


def test_a_variant_is_the_settings_with_what_it_names() -> None:
    settings = Settings()
    asked = EvaluationOptions(model_dir=Path("m"), policy="model", guard=False, faq=Path("f"), clients=3)
    changed = env_of(settings, asked)
    assert (changed["MODEL__DIR"], changed["FAQ__PATH"]) == ("m", "f")
    assert (changed["ANSWERS__POLICY"], changed["ANSWERS__GUARD"], changed["WORKER__SLOTS"]) == ("model", "False", "3")
    same = env_of(settings, OPTIONS)
    assert (same["ANSWERS__POLICY"], same["ANSWERS__GUARD"]) == (settings.answers.policy, str(settings.answers.guard))
    assert same.keys().isdisjoint({"MODEL__DIR", "FAQ__PATH"})


@pytest.mark.parametrize("variant", [{"guard": False}, {"policy": "model"}, {"model_dir": Path("m")}])
async def test_a_running_system_is_asked_as_it_is(variant: dict[str, Any]) -> None:
    options = EvaluationOptions(url="ws://127.0.0.1:9/ws", **variant)
    with pytest.raises(SettingsError, match="what runs there is as it is"):
        await evaluate(Settings(), options, "replyline eval", Console(quiet=True))
