"""A check names what is wrong before anything is asked, and holds a version against the champion's figures."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ops.evaluation.judging.judge import Given, Verdict
from ops.evaluation.judging.questions import Exchange, Question
from ops.evaluation.judging.result import Judged
from ops.lifecycle.checking.check import Scope, check, verdict_of
from ops.lifecycle.versions.adding import About, add
from shared.errors import SettingsError, VersionError
from shared.model.folder import TOKENIZER
from shared.settings import Settings, load_settings
from shared.versions.registry import Added, Checked, Registry
from shared.versions.state import Move, State
from shared.versions.store import StoredVersion
from shared.versions.version import Version
from tests.support.builders.versions import write_folder, write_version


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(model={"versions_dir": tmp_path / "store"}, worker={"engine": "fake"})


@pytest.fixture
def stored(tmp_path: Path, settings: Settings) -> StoredVersion:
    write_folder(tmp_path / "prepared")
    return add(settings, tmp_path / "prepared", About(), 7)


async def test_other_golden_tokens_fail_with_their_share(settings: Settings) -> None:
    version = write_version(settings.model.versions_dir)
    checked = await check(settings, Registry(), version, Scope(), author="ann")
    assert checked.failures == ("golden prompts: 0.00 of the tokens agree, 0.8 are needed",)
    assert (checked.revision, checked.numbers) == (version.id, {"golden": 0.0})


async def test_a_damaged_version_fails_by_its_reason(settings: Settings, stored: StoredVersion) -> None:
    (stored.path / TOKENIZER).unlink()
    [failure] = (await check(settings, Registry(), stored.version, Scope(), author="ann")).failures
    assert "truncated" in failure


async def test_a_check_on_a_machine_without_the_versions_folder_says_nothing_of_it(settings: Settings) -> None:
    """Else it would bar a version from traffic that passes elsewhere, and freeze its rollout."""
    with pytest.raises(VersionError, match="bring the version's folder to this machine"):
        await check(settings, Registry(), A, Scope(), author="ann")


A, B = (Version(name=name, model="m", model_revision="r", manifest_sha256=name * 64) for name in "ab")


def answered(right: str) -> list[Judged]:
    """Return a judged answer to an English question for each digit: 1 is right."""
    return [
        Judged(
            question=Question(
                id=f"q{number}", language="en", kind="paraphrase", split="dev", question=f"q{number}?", entries=("e",)
            ),
            given=Given(text="", source="faq"),
            verdict=Verdict(right=digit == "1"),
            found=(),
        )
        for number, digit in enumerate(right)
    ]


def judged_by(registry: Registry, version: Version, right: str, *, whole: bool = True) -> Checked:
    checked = Checked(revision=version.id, author="ann", unix_ms=1, whole=whole)
    return verdict_of(checked, answered(right), registry, 0.5)


def registry_of(champions: Checked | None) -> Registry:
    registry = Registry()
    registry.apply(Added(version=A, author="ann"))
    registry.apply(Move(state=State(epoch=1, aliases={"champion": A.id}), author="ann", reason="", unix_ms=0))
    if champions is not None:
        registry.apply(champions)
    return registry


def test_a_version_is_compared_with_a_champion_that_was_asked_the_same_and_with_no_other() -> None:
    by_the_same = judged_by(Registry(), A, "1" * 60)
    assert (by_the_same.failures, by_the_same.size) == ((), 60)
    registry = registry_of(by_the_same)
    assert judged_by(registry, B, "1" * 55 + "0" * 5).failures == ("en_right is 0.917, the champion's 1.000",)
    assert judged_by(registry, B, "1" * 60).failures == ()
    assert judged_by(registry, A, "1" * 50 + "0" * 10).failures == ()
    other = f"first run: replyline versions check {A.id}"
    for champions in (by_the_same, None, Checked(revision=A.id, author="ann", unix_ms=1, numbers={"en_right": 0.9})):
        [failure] = judged_by(registry_of(champions), B, "1" * 61).failures
        assert other in failure
        assert judged_by(registry_of(champions), B, "1" * 61, whole=False).failures == ()


def test_a_set_of_few_questions_opens_no_gate() -> None:
    with pytest.raises(SettingsError, match="59 different questions cannot show a loss of five points; name a set"):
        judged_by(Registry(), B, "1" * 59)
    assert judged_by(Registry(), B, "1" * 59, whole=False).failures == ()


@pytest.mark.parametrize(
    "spelling", ["Where is it?", "where is  it", "ＷＨＥＲＥ is it!", "Where — is “it”?"], ids=range(4)
)
def test_a_question_that_occurs_several_times_counts_once(spelling: str) -> None:
    """Sixty greetings would say no more of a version than one."""
    once = answered("1" * 59 + "0")
    spelled = [spelling, "Where is it?"] * 30
    judged = [
        replace(one, question=replace(one.question, id=f"c{number}", question=text))
        for number, (one, text) in enumerate(zip(once, spelled, strict=True))
    ]
    whole = Checked(revision=B.id, author="ann", unix_ms=1)
    with pytest.raises(SettingsError, match="1 different question cannot"):
        verdict_of(whole, judged, Registry(), 0.5)
    checked = verdict_of(whole, [*answered("1" * 60), *judged], Registry(), 0.5)
    assert (checked.size, checked.outcomes["en_right"]) == (61, "1" * 61)
    turns = [
        replace(one, question=replace(one.question, history=(Exchange(one.question.id, "Yes."),))) for one in judged
    ]
    assert verdict_of(whole, turns, Registry(), 0.5).size == 60, "after other turns it is another question"


@pytest.mark.parametrize(
    ("scope", "whole"),
    [
        (Scope(), True),
        (Scope(quick=True), False),
        (Scope(questions=Path("hello.jsonl")), False),
        (Scope(faq=Path("f")), False),
    ],
)
def test_only_the_named_set_at_its_full_size_is_whole(scope: Scope, whole: bool) -> None:
    assert scope.whole is whole
