"""Distil a tiny random model with transformers and peft; the prepared model has what it learned."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from peft import PeftModel
from rich.console import Console
from transformers import AutoModelForCausalLM

from ops.lab.optimize.distill import LOG, distill
from ops.lab.optimize.options import DistillOptions
from ops.model.prepare import prepare_model
from shared.errors import ModelError, SettingsError
from shared.model.folder import GRAPH_DATA
from tests.support.models.fixtures import TINY, write_llama
from workers.graph.sources.adapter import CONFIG, MANIFEST, TENSORS, Adapter
from workers.graph.sources.opening import open_source

# peft asks transformers by a name that it renames in version 6.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
QUIET = Console(quiet=True)
LONG = msgspec.structs.replace(TINY, max_positions=1_024)  # a prompt has a token a byte here
QUESTIONS = ("where is it?", "when do you open", "how much?", "can I return it", "which colour", "is it free", "hello")


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student") / "tiny"
    write_llama(folder, LONG, seed=7)
    return folder


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a teacher with the student's vocabulary, other weights, and more rows of logits."""
    folder = tmp_path_factory.mktemp("teacher") / "other"
    write_llama(folder, msgspec.structs.replace(LONG, num_layers=1, vocab_size=384), seed=8)
    return folder


def targets(path: Path, *, answered: bool = True) -> str:
    rows = [{"question": text} | ({"answer": "Yes, it is."} if answered else {}) for text in QUESTIONS]
    path.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    return str(path)


def options(out: Path, student: Path, **changes: Any) -> DistillOptions:
    made = DistillOptions(
        out=out,
        student=student,
        teacher=None,
        targets="demo",
        name=None,
        held_out=0.15,
        epochs=4,
        rank=4,
        alpha=8,
        learning_rate=2e-2,
        batch=2,
        max_length=512,
        dtype="fp32",
        device="cpu",
        seed=1,
        checkpoint_every=5,
        resume=False,
    )
    return msgspec.structs.replace(made, **changes)


def losses(out: Path) -> list[float]:
    steps = [msgspec.json.decode(line) for line in (out / LOG).read_bytes().splitlines()]
    return [step["loss"] for step in steps if "loss" in step]


@pytest.mark.parametrize("taught", [False, True], ids=["answers", "logits"])
def test_the_loss_falls(student: Path, teacher: Path, tmp_path: Path, *, taught: bool) -> None:
    """The loss falls in training on answers and on a teacher's logits; the teacher writes missing answers."""
    out = tmp_path / "taught"
    file = targets(tmp_path / "targets.jsonl", answered=not taught)
    assert distill(options(out, student, targets=file, teacher=teacher if taught else None), QUIET) == 0
    found = losses(out)
    assert np.mean(found[-3:]) < 0.7 * np.mean(found[:3])
    manifest = msgspec.json.decode((out / MANIFEST).read_bytes())
    assert manifest["made_by"]["teacher"] == ("other" if taught else "none")


def test_the_adapter_is_merged_as_peft_merges_it(student: Path, tmp_path: Path) -> None:
    """`model prepare --adapter` writes the weights that peft's `merge_and_unload` returns."""
    out = tmp_path / "taught"
    distill(options(out, student, targets=targets(tmp_path / "targets.jsonl")), QUIET)
    assert {CONFIG, TENSORS, MANIFEST, LOG} <= {file.name for file in out.iterdir()}
    base = AutoModelForCausalLM.from_pretrained(student, dtype="float32")
    wanted = PeftModel.from_pretrained(base, out).merge_and_unload().state_dict()
    found = Adapter.open(out).merged(open_source(student).checkpoint)
    for name in ("layers.1.self_attn.q_proj", "layers.0.mlp.down_proj"):
        np.testing.assert_allclose(found.read(name), wanted[f"model.{name}.weight"].numpy(), rtol=1e-5, atol=1e-6)
    plain = prepare_model(tmp_path, "fp32", source=student)
    taught = prepare_model(tmp_path, "fp32", source=student, adapter=out)
    assert taught.manifest.name == "tiny-taught"
    assert taught.read(GRAPH_DATA) != plain.read(GRAPH_DATA)


def test_a_run_goes_on_from_its_checkpoint(student: Path, tmp_path: Path) -> None:
    file = targets(tmp_path / "targets.jsonl")
    whole = options(tmp_path / "whole", student, targets=file, epochs=4)
    distill(whole, QUIET)
    begun = options(tmp_path / "begun", student, targets=file, epochs=2)
    distill(begun, QUIET)
    distill(msgspec.structs.replace(begun, epochs=4, resume=True), QUIET)
    assert len(losses(tmp_path / "begun")) == len(losses(tmp_path / "whole"))


def test_what_cannot_be_is_refused_in_a_line(student: Path, tmp_path: Path) -> None:
    file = targets(tmp_path / "targets.jsonl")
    other = tmp_path / "other"
    write_llama(other, LONG, seed=1)
    tokenizer = msgspec.json.decode((other / "tokenizer.json").read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
    (other / "tokenizer.json").write_bytes(msgspec.json.encode(tokenizer))
    out = tmp_path / "out"
    with pytest.raises(ModelError, match="another vocabulary than the student"):
        distill(options(out, student, teacher=other), QUIET)
    with pytest.raises(SettingsError, match=r"--resume: .* has no checkpoint; start without --resume"):
        distill(options(out, student, targets=file, resume=True), QUIET)
    with pytest.raises(SettingsError, match=r"--max-length 2000: the student has 1024 positions"):
        distill(options(out, student, max_length=2_000), QUIET)
    with pytest.raises(SettingsError, match="no example fits"):
        distill(options(out, student, targets=file, max_length=16), QUIET)
