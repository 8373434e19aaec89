"""The demo's embeddings: what is prepared computes what the distribution's table says, and nothing else is taken."""

import importlib.metadata
import stat
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tokenizers import Tokenizer

from ops.model import embeddings
from ops.model.embedding_files import prepare_embeddings
from ops.model.embeddings import (
    E5,
    WORDLLAMA,
    embeddings_env,
    searched_by,
    with_prepared_embeddings,
)
from ops.model.terminal import prepare_installed_embeddings
from shared.errors import ModelError, SettingsError
from shared.faq.embedder import Encoder
from shared.settings import FaqSettings, Settings
from workers.building import open_embedder
from workers.graph.sources.safetensors import tensors_of

TEXTS = [
    "Where is my order?",
    "What about AX-3391-B, café & naïve? 🙂",
    "怎么退货，运费谁出？",
    "x",
    "I would like to know how long a delivery to the islands takes " * 3,
]


def test_a_worker_whose_embeddings_are_not_there_refuses_or_searches_by_terms_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "wordllama-256"
    with pytest.raises(SettingsError, match=r"wordllama-256: holds no model\.onnx"):
        open_embedder(FaqSettings(embeddings_dir=folder))
    assert open_embedder(FaqSettings(embeddings_dir=folder, embeddings_missing="terms")) is None
    said = capsys.readouterr().out
    assert "embeddings_missing" in said
    assert str(folder) in said
    folder.mkdir()
    with pytest.raises(SettingsError, match=r"holds no model\.onnx"):
        open_embedder(FaqSettings(embeddings_dir=folder, embeddings_missing="terms"))
    assert open_embedder(FaqSettings(embeddings_missing="terms")) is None


def test_a_worker_searches_by_the_embeddings_that_are_there(folder: Path) -> None:
    embed = open_embedder(FaqSettings(embeddings_dir=folder, embeddings_missing="terms"))
    assert embed is not None
    vectors = embed(TEXTS[:2], "en")
    assert vectors is not None
    assert vectors.shape == (2, 256)


def settings_beside(models: Path, **faq: Path) -> Settings:
    settings = Settings()
    model = settings.model.model_copy(update={"dir": models / "model"})
    return settings.model_copy(update={"model": model, "faq": FaqSettings(**faq)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_embeddings(tmp_path_factory.mktemp("models"), WORDLLAMA)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In its place stands one whose files are in this folder, of which it has none."""

    class Elsewhere:
        def locate_file(self, name: str) -> Path:
            return tmp_path / "site" / name

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Elsewhere())
    return tmp_path / "site"


def test_vectors_are_the_plain_means_of_the_distribution_s_table(folder: Path) -> None:
    installed = importlib.metadata.distribution("wordllama")
    (weight,) = tensors_of(Path(str(installed.locate_file(embeddings.TABLE)))).values()
    table = weight.read()
    tokenizer = Tokenizer.from_file(str(installed.locate_file(embeddings.TOKENIZER)))
    means = [table[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text in TEXTS]
    wanted = np.array([mean / np.linalg.norm(mean) for mean in means])
    assert np.allclose(Encoder(folder)(TEXTS), wanted, atol=1e-6)


def test_preparing_again_writes_nothing_and_needs_no_distribution(folder: Path, distribution: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert prepare_embeddings(folder.parent, WORDLLAMA) == folder
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_a_folder_of_another_recipe_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "wordllama-256").mkdir()
    (tmp_path / "wordllama-256" / "recipe").write_text("older")
    assert Encoder(prepare_embeddings(tmp_path, WORDLLAMA))(["hello"]).shape == (1, 256)
    assert [path.name for path in tmp_path.iterdir()] == ["wordllama-256"]
    assert stat.S_IMODE((tmp_path / "wordllama-256").stat().st_mode) == 0o755


def test_without_the_distribution_the_command_is_named_and_preparing_a_model_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ModelError, match=r"not installed; run: pip install --no-deps wordllama==0\.4\.0\.post1$"):
        prepare_embeddings(tmp_path / "models", WORDLLAMA)
    prepare_installed_embeddings(tmp_path / "models", Console(quiet=True))
    assert not (tmp_path / "models").exists()


def test_another_or_a_damaged_version_is_refused_in_one_line(tmp_path: Path, distribution: Path) -> None:
    for why in ("installed without its l2_supercat_256.safetensors", "is not that of version"):
        with pytest.raises(ModelError, match=f"{why}.*; run: pip install --no-deps wordllama") as caught:
            prepare_embeddings(tmp_path / "models", WORDLLAMA)
        assert len(str(caught.value).splitlines()) == 1
        (distribution / embeddings.TABLE).parent.mkdir(parents=True, exist_ok=True)
        (distribution / embeddings.TABLE).write_bytes(b"other")
    assert not (tmp_path / "models").exists()


def test_what_is_prepared_beside_the_model_is_searched_by_unless_others_are_set(folder: Path, tmp_path: Path) -> None:
    without = settings_beside(tmp_path)
    assert with_prepared_embeddings(without) == without
    assert (embeddings_env(without), searched_by(without)) == ({}, "terms alone")
    found = with_prepared_embeddings(settings_beside(folder.parent))
    assert (embeddings_env(found), searched_by(found)) == (
        {"FAQ__EMBEDDINGS_DIR": str(folder)},
        "terms and wordllama-256",
    )
    own = settings_beside(folder.parent, embeddings_dir=tmp_path / "own")
    assert searched_by(with_prepared_embeddings(own)) == "terms and own"


def test_the_better_embeddings_are_taken_where_both_are_prepared(folder: Path, tmp_path: Path) -> None:
    for source in (WORDLLAMA, E5):
        (tmp_path / source.name).mkdir()
        (tmp_path / source.name / "recipe").write_text(source.recipe)
    assert searched_by(with_prepared_embeddings(settings_beside(tmp_path))) == f"terms and {E5.name}"
