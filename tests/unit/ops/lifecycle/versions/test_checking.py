"""A check names what is wrong before anything is asked, and holds a version against the champion's figures."""

from pathlib import Path

import pytest

from ops.lifecycle.versions.adding import About, add
from ops.lifecycle.versions.checking import Scope, champions_figures, check
from shared.model.folder import TOKENIZER
from shared.settings import Settings, load_settings
from shared.versions.registry import Added, Checked, Registry
from shared.versions.state import Move, State
from shared.versions.store import StoredVersion
from shared.versions.version import Card, Version
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


def test_a_version_is_held_against_the_champions_check_and_else_its_card() -> None:
    card = Card(evaluations={"en_right": 0.5, "zh_right": 0.5})
    champion = Version(name="a", model="m", model_revision="r", manifest_sha256="a" * 64, card=card)
    registry = Registry()
    assert champions_figures(registry, "another") == {}
    registry.apply(Added(version=champion, author="ann"))
    registry.apply(Move(state=State(epoch=1, aliases={"champion": champion.id}), author="ann", reason="", unix_ms=0))
    assert champions_figures(registry, "another") == card.evaluations
    registry.apply(Checked(revision=champion.id, author="ann", unix_ms=1, numbers={"en_right": 0.9}))
    assert champions_figures(registry, "another") == {"en_right": 0.9, "zh_right": 0.5}
    assert champions_figures(registry, champion.id) == {}
