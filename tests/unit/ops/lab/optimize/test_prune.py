"""`replyline optimize prune` on a tiny model: the folder that it writes, and what it refuses."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from ops.lab.optimize.options import PruneOptions
from ops.lab.optimize.prune.program import prune
from ops.lab.optimize.prune.writing import REPORT
from ops.model.prepare import prepare_model
from shared.errors import ModelError, SettingsError
from tests.support.models.fixtures import TINY, write_llama
from workers.graph.sources.opening import open_source

QUIET = Console(quiet=True)
LONG = msgspec.structs.replace(TINY, max_positions=2_048)  # a prompt has a token a byte here
QUESTIONS = ("where is it?", "when do you open", "how much?", "can I return it", "which colour")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "tiny"
    write_llama(folder, LONG, seed=7)
    return folder


def options(tmp_path: Path, source: Path, **changes: Any) -> PruneOptions:
    targets = tmp_path / "targets.jsonl"
    rows = [msgspec.json.encode({"question": text, "answer": "Yes."}) for text in QUESTIONS]
    targets.write_bytes(b"\n".join(rows[: changes.pop("examples", len(rows))]))
    made = PruneOptions(out=tmp_path / "small", source=source, targets=str(targets), texts=4, max_length=1_500)
    return msgspec.structs.replace(made, **changes)


def test_the_named_size_is_written_and_can_be_prepared(source: Path, tmp_path: Path) -> None:
    """The unpruned model is written too: with the smaller vocabulary, which a teacher has to share."""
    sizes = {"layers": 1, "kv_groups": 1, "channels": 64, "vocabulary": 300}
    assert prune(options(tmp_path, source, whole=tmp_path / "whole", **sizes | {"vocabulary": 310}), QUIET) == 0
    small, whole = (open_source(tmp_path / name).checkpoint.architecture for name in ("small", "whole"))
    assert (small.num_layers, small.num_kv_heads, small.num_heads, small.intermediate_size) == (1, 1, 2, 64)
    assert (whole.num_layers, whole.num_kv_heads, whole.intermediate_size) == (2, 2, 96)
    assert small.vocab_size == whole.vocab_size < LONG.vocab_size
    report = msgspec.json.decode((tmp_path / "small" / REPORT).read_bytes())
    assert (report["kept"], report["texts"]) == ({"layers": 1, "groups": 1, "channels": 64}, 4)
    assert report["divergence"] > 0
    assert prepare_model(tmp_path, "int8", source=tmp_path / "small").manifest.architecture == small


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": 3}, r"--layers 3: the model has 2; name at most as many"),
        ({"kv_groups": 4}, r"--kv-groups 4: the model has 2; name at most as many"),
        ({"channels": 512}, r"--channels 512: the model has 96; name at most as many"),
        ({"channels": 70}, r"--channels 70: the engines' blocks hold 32; name a multiple"),
        ({"vocabulary": 320}, r"--vocabulary 320: the model has 320 tokens; name fewer"),
        ({"layers": 1, "examples": 3}, r"3 of 3 examples fit in 1500 tokens, at least 4 are needed"),
        ({"layers": 1, "max_length": 40}, r"0 of 5 examples fit in 40 tokens"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(source: Path, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        prune(options(tmp_path, source, **changes), QUIET)
    assert not (tmp_path / "small").exists()


def test_a_full_disk_leaves_nothing_behind(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("", (), {"free": 1_000})())
    with pytest.raises(ModelError, match=r"has 0 MB free, the model takes \d+ MB"):
        prune(options(tmp_path, source, layers=1), QUIET)
    assert not (tmp_path / "small").exists()
