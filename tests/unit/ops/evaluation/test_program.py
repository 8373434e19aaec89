"""What is asked follows from the options, and options that contradict each other are refused before anything starts."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from ops.evaluation.in_process import as_set
from ops.evaluation.judging.questions import Question
from ops.evaluation.own_system import Variant
from ops.evaluation.program import Options, chosen, evaluate, variants_of
from shared.errors import SettingsError
from shared.settings import Settings

OPTIONS = Options(command="replyline eval")
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
    some = chosen(QUESTIONS, replace(OPTIONS, split="all", language="zh"))
    assert {(one.split, one.language) for one in some} == {("dev", "zh"), ("held_out", "zh")}


@pytest.mark.parametrize("limit", [1, 3, 10, 99])
def test_a_limit_takes_questions_from_all_over_the_file_each_once(limit: int) -> None:
    some = [one.id for one in chosen(QUESTIONS, replace(OPTIONS, limit=limit))]
    assert len(some) == len(set(some)) == min(limit, 10)
    assert limit < 2 or {one[:2] for one in some} == {"en", "zh"}


def test_a_file_without_such_a_question_is_refused() -> None:
    with pytest.raises(SettingsError, match="no question of split held_out in zh"):
        chosen(QUESTIONS[:5], replace(OPTIONS, language="zh"))


def test_each_rung_of_a_ladder_has_one_thing_more_than_the_one_before() -> None:
    raw, own = Path("raw"), Path("own")
    variants = variants_of(replace(OPTIONS, ladder=True, raw_model_dir=raw, variant=Variant(model_dir=own)))
    assert list(variants.values()) == [
        Variant(model_dir=raw, policy="model", guard=False, grounding_entries=0),
        Variant(model_dir=raw, policy="model", guard=False),
        Variant(model_dir=own, policy="model", guard=False),
        Variant(model_dir=own),
    ]


def test_a_variant_is_the_settings_with_what_it_names() -> None:
    settings = Settings()
    variant = Variant(model_dir=Path("m"), policy="model", guard=False, grounding_entries=0)
    changed = as_set(settings, variant, clients=3)
    assert (changed.model.dir, changed.answers.policy, changed.answers.guard) == (Path("m"), "model", False)
    assert (changed.worker.grounding_entries, changed.worker.slots) == (0, 3)
    same = as_set(settings, Variant(), clients=3)
    assert (same.model, same.answers, same.faq) == (settings.model, settings.answers, settings.faq)


@pytest.mark.parametrize(
    "changes",
    [
        {"ladder": True},
        {"alone": True},
        {"guard_cost": True},
        {"variant": Variant(guard=False)},
        {"variant": Variant(model_dir=Path("m"))},
    ],
)
async def test_a_running_system_is_asked_as_it_is(changes: dict[str, object]) -> None:
    options = replace(OPTIONS, url="ws://127.0.0.1:9/ws", **changes)
    with pytest.raises(SettingsError, match="what runs there is as it is"):
        await evaluate(Settings(), options, Console(quiet=True))
