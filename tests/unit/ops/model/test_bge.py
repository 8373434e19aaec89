"""The encoders that Maven brings: only what is pinned is taken, and a folder appears whole or not at all."""

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from ops.model import bge
from ops.model.bge import BGE, prepare_bge
from ops.model.embeddings import EMBEDDINGS, prepared_beside
from ops.model.terminal import prepare_embeddings_of
from shared.errors import ModelError

CONTENT = {"en": b"english", "zh": "中文".encode()}


def jar_of(folder: Path, language: str, content: bytes) -> None:
    with zipfile.ZipFile(folder / f"{bge._ARTIFACTS[language]}-{bge._VERSION}.jar", "w") as archive:
        for member, _ in bge._MEMBERS[language].values():
            archive.writestr(member, content + member.encode())


@pytest.fixture
def central(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven that copies from this folder the artifact it is asked for, and pins to match what it brings."""
    central = tmp_path / "central"
    central.mkdir()
    pins = {
        language: {
            name: (member, hashlib.sha256(CONTENT[language] + member.encode()).hexdigest())
            for name, (member, _) in members.items()
        }
        for language, members in bge._MEMBERS.items()
    }
    monkeypatch.setattr(bge, "_MEMBERS", pins)
    for language, content in CONTENT.items():
        jar_of(central, language, content)
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        "said = dict(word[2:].split('=', 1) for word in sys.argv if word.startswith('-D'))\n"
        "group, artifact, version = said['artifact'].split(':')\n"
        f"jar = pathlib.Path({str(central)!r}) / f'{{artifact}}-{{version}}.jar'\n"
        "if not jar.exists():\n"
        "    print('[ERROR] cannot reach the repository')\n"
        "    sys.exit(1)\n"
        "shutil.copy(jar, said['outputDirectory'])\n"
    )
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent))
    return central


def refused(models: Path) -> str:
    with pytest.raises(ModelError) as caught:
        prepare_bge(models)
    assert len(str(caught.value).splitlines()) == 1
    assert not models.exists() or list(models.iterdir()) == []
    return str(caught.value)


def test_each_language_s_folder_holds_what_the_artifact_has_and_says_how_it_pools(
    tmp_path: Path, central: Path
) -> None:
    folder = prepare_bge(tmp_path / "models")
    assert [path.name for path in folder.parent.iterdir()] == [BGE]
    for language, content in CONTENT.items():
        for name, (member, _) in bge._MEMBERS[language].items():
            assert (folder / language / name).read_bytes() == content + member.encode()
        assert '"pooling_mode_cls_token": true' in (folder / language / "1_Pooling" / "config.json").read_text()


def test_preparing_again_needs_no_maven(tmp_path: Path, central: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare_bge(tmp_path / "models")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert prepare_bge(tmp_path / "models") == folder


def test_without_maven_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert refused(tmp_path / "models").endswith("Type: apt-get install openjdk-17-jre-headless maven")


def test_what_maven_cannot_fetch_is_said_in_its_words(tmp_path: Path, central: Path) -> None:
    next(central.glob("*-zh-*")).unlink()
    assert "-zh-v15-q" in (line := refused(tmp_path / "models"))
    assert line.endswith("[ERROR] cannot reach the repository")


def test_another_content_than_the_pinned_one_is_refused(tmp_path: Path, central: Path) -> None:
    jar_of(central, "zh", b"other")
    assert "is not that of version" in refused(tmp_path / "models")


def test_a_damaged_artifact_is_refused(tmp_path: Path, central: Path) -> None:
    next(central.glob("*-en-*")).write_bytes(b"no archive")
    assert "cannot be read" in refused(tmp_path / "models")


def test_it_is_what_is_searched_by_where_it_is_prepared_beside_the_demo_s(tmp_path: Path, central: Path) -> None:
    models, quiet = tmp_path / "models", Console(quiet=True)
    assert prepared_beside(models) is None
    prepare_embeddings_of("wordllama", models, quiet)
    assert prepared_beside(models) == models / EMBEDDINGS
    prepare_embeddings_of("bge", models, quiet)
    assert prepared_beside(models) == models / BGE
