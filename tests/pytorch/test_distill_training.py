"""Distillation on tiny random models: what falls, what rises, and that nothing is lost on the way to the folder."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from rich.console import Console

from ops.model.prepare import prepare_model
from ops.optimize.distill.artefact import write_adapter
from ops.optimize.distill.decoder import LowRank, TrainedDecoder
from ops.optimize.distill.examples import Encoder, Example, Lesson, lessons_of
from ops.optimize.distill.run import CHECKPOINT, LOG, PLOT, DistillOptions, distill
from ops.optimize.distill.steps import Recipe
from ops.optimize.distill.training import Training
from shared.errors import ModelError, SettingsError
from shared.model.folder import GRAPH_DATA
from shared.model.tokenizer import Tokenizer
from tests.support.models.fixtures import TINY, write_llama
from workers.graph.sources.adapter import MANIFEST, TENSORS, Adapter
from workers.graph.sources.opening import ModelSource, open_source, source_sha256
from workers.loading import chat_template

QUIET = Console(quiet=True)
CPU = torch.device("cpu")
# The prompts of the command have a token a byte here.
LONG = msgspec.structs.replace(TINY, max_positions=1_024)
QUESTIONS = ("where is it?", "when do you open", "how much?", "can I return it", "which colour", "is it free", "hello")


@pytest.fixture(scope="module")
def student_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student") / "tiny"
    write_llama(folder, LONG, seed=7)
    return folder


@pytest.fixture(scope="module")
def student(student_path: Path) -> ModelSource:
    return open_source(student_path)


@pytest.fixture(scope="module")
def teacher_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of other numbers than the student, with the same vocabulary."""
    folder = tmp_path_factory.mktemp("teacher") / "other"
    write_llama(folder, msgspec.structs.replace(LONG, num_layers=1), seed=8)
    return folder


@pytest.fixture(scope="module")
def lessons(student: ModelSource) -> list[Lesson]:
    template = chat_template(Tokenizer(student.tokenizer), student.chat_template)
    examples = [Example(question=text, answer=f"It is {index} days.") for index, text in enumerate(QUESTIONS)]
    return lessons_of(Encoder(template, system="S."), examples, max_tokens=200)


def recipe(**changes: object) -> Recipe:
    made = Recipe(
        data="d", models=("m",), loss="cross-entropy", rank=4, epochs=8, batch_tokens=160, dtype="fp32",
        learning_rate=2e-2,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def training(made: Recipe, student: ModelSource, lessons: Sequence[Lesson], teacher: Path | None = None) -> Training:
    taught_by = None if teacher is None else TrainedDecoder.of(open_source(teacher).checkpoint, torch.float32, CPU)
    return Training(made, TrainedDecoder.of(student.checkpoint, torch.float32, CPU), lessons, taught_by)


def learned(done: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in done._named()}


@pytest.mark.parametrize("kind", ["cross-entropy", "kl"])
def test_the_loss_falls_and_agreement_rises(
    student: ModelSource, lessons: list[Lesson], teacher_path: Path, kind: str
) -> None:
    """From answers as from a teacher's logits."""
    run = training(recipe(loss=kind), student, lessons, teacher_path if kind == "kl" else None)
    steps = list(run.run())
    first, last = steps[: len(steps) // 8], steps[-(len(steps) // 8) :]
    assert np.mean([step.loss for step in last]) < 0.5 * np.mean([step.loss for step in first])
    assert np.mean([step.agreement for step in last]) > np.mean([step.agreement for step in first])


def test_before_it_has_learned_the_student_is_the_model(student: ModelSource, lessons: list[Lesson]) -> None:
    """The matrices that are added begin as nothing: a teacher that is the student itself has nothing to teach."""
    run = training(recipe(loss="kl"), student, lessons)
    run._teacher = TrainedDecoder.of(student.checkpoint, torch.float32, CPU)
    assert next(run.run()).loss == pytest.approx(0, abs=1e-5)


def test_a_run_that_was_ended_goes_on_to_the_very_same_numbers(
    student: ModelSource, lessons: list[Lesson], tmp_path: Path
) -> None:
    whole = training(recipe(epochs=2), student, lessons)
    steps = list(whole.run())
    begun = training(recipe(epochs=2), student, lessons)
    for _ in zip(range(len(steps) // 2), begun.run(), strict=False):
        pass
    begun.save(tmp_path / CHECKPOINT)
    resumed = training(recipe(epochs=2), student, lessons)
    resumed.resume(tmp_path / CHECKPOINT)
    assert 0 < len(resumed.steps) < len(steps)
    list(resumed.run())
    assert resumed.steps == steps
    assert all(torch.equal(tensor, learned(whole)[name]) for name, tensor in learned(resumed).items())


def test_a_checkpoint_of_another_recipe_is_refused(student: ModelSource, lessons: list[Lesson], tmp_path: Path) -> None:
    training(recipe(), student, lessons).save(tmp_path / CHECKPOINT)
    with pytest.raises(ModelError, match="begun with other examples, models or options"):
        training(recipe(seed=2), student, lessons).resume(tmp_path / CHECKPOINT)


def test_a_checkpoint_that_was_cut_off_is_refused(student: ModelSource, lessons: list[Lesson], tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    training(recipe(), student, lessons).save(path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ModelError, match="is no whole safetensors file"):
        training(recipe(), student, lessons).resume(path)


def test_merged_by_numpy_is_computed_beside_by_torch(student_path: Path, student: ModelSource, tmp_path: Path) -> None:
    """Logits of the merged checkpoint are the base's with LoRA beside it, in float32."""
    low_rank = LowRank.fresh(LONG, rank=4, alpha=8.0, seed=3, device=CPU)
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for tensor in low_rank.up.values():
            tensor.copy_(torch.randn(tensor.shape, generator=random).half().float() / 20)
        for tensor in low_rank.down.values():
            tensor.copy_(tensor.half().float())
    write_adapter(
        tmp_path,
        *({name: tensor.detach().numpy() for name, tensor in part.items()} for part in (low_rank.down, low_rank.up)),
        alpha=8.0,
        name="tiny-taught",
        base="tiny",
        base_sha256=source_sha256(student_path),
        data_sha256="",
        made_by={},
        seed=3,
        steps=0,
    )
    beside = TrainedDecoder.of(student.checkpoint, torch.float32, CPU)
    ids = torch.arange(5, 35).view(2, 15)
    everywhere = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        plain = beside.logits(ids, everywhere)
        beside.low_rank = low_rank
        wanted = beside.logits(ids, everywhere)
        merged = Adapter.open(tmp_path).merged(student.checkpoint)
        found = TrainedDecoder.of(merged, torch.float32, CPU).logits(ids, everywhere)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-3)
    assert float((plain - wanted).abs().max()) > 0.1


def targets(path: Path, *, answered: bool = True) -> Path:
    rows = [{"question": text} | ({"answer": "Yes, it is."} if answered else {}) for text in QUESTIONS]
    path.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    return path


def options(out: Path, student: Path, **changes: object) -> DistillOptions:
    made: dict[str, object] = {"dtype": "fp32", "device": "cpu", "batch_tokens": 640, "rank": 2, "max_length": 512}
    return DistillOptions(out=out, student=student, **(made | changes))  # type: ignore[arg-type]


def test_the_command_leaves_an_adapter_that_its_model_is_prepared_with(student_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "taught"
    made = options(out, student_path, targets=str(targets(tmp_path / "targets.jsonl")))
    assert distill(made, QUIET) == 0
    assert {file.name for file in out.iterdir()} == {"adapter_config.json", TENSORS, MANIFEST, LOG, PLOT}
    steps = [msgspec.json.decode(line) for line in (out / LOG).read_bytes().splitlines()]
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert (out / PLOT).read_text().startswith("<svg")
    plain = prepare_model(tmp_path, "fp32", source=student_path)
    taught = prepare_model(tmp_path, "fp32", source=student_path, adapter=out)
    assert taught.manifest.name == "tiny-taught"
    assert taught.manifest.revision != plain.manifest.revision
    assert taught.read(GRAPH_DATA) != plain.read(GRAPH_DATA)


def test_the_command_makes_the_same_adapter_again_whether_it_was_ended_or_not(
    student_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(targets(tmp_path / "targets.jsonl"))
    distill(options(tmp_path / "whole", student_path, targets=file, epochs=3), QUIET)
    keep = Training.save

    def ended(self: Training, path: Path) -> None:
        keep(self, path)
        raise KeyboardInterrupt

    begun = options(tmp_path / "begun", student_path, targets=file, epochs=3, checkpoint_every=2)
    with monkeypatch.context() as patched:
        patched.setattr(Training, "save", ended)
        with pytest.raises(KeyboardInterrupt):
            distill(begun, QUIET)
    assert not (tmp_path / "begun" / MANIFEST).exists()
    distill(options(tmp_path / "begun", student_path, targets=file, epochs=3, resume=True), QUIET)
    assert (tmp_path / "begun" / TENSORS).read_bytes() == (tmp_path / "whole" / TENSORS).read_bytes()


def test_a_teacher_answers_what_has_no_answer(student_path: Path, teacher_path: Path, tmp_path: Path) -> None:
    made = options(
        tmp_path / "taught",
        student_path,
        teacher=teacher_path,
        targets=str(targets(tmp_path / "targets.jsonl", answered=False)),
        models=tmp_path,
    )
    assert distill(made, QUIET) == 0
    manifest = msgspec.json.decode((tmp_path / "taught" / MANIFEST).read_bytes())
    assert manifest["made_by"]["teacher"] == "other"


def test_a_teacher_of_another_vocabulary_is_refused(student_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "large"
    write_llama(other, msgspec.structs.replace(LONG, vocab_size=384), seed=1)
    with pytest.raises(ModelError, match="another vocabulary than the student"):
        distill(options(tmp_path / "out", student_path, teacher=other), QUIET)


def test_resume_needs_what_was_begun(student_path: Path, tmp_path: Path) -> None:
    file = str(targets(tmp_path / "targets.jsonl"))
    with pytest.raises(SettingsError, match=r"--resume: .* is not there; begin without --resume"):
        distill(options(tmp_path / "out", student_path, targets=file, resume=True), QUIET)


def test_examples_longer_than_the_student_s_positions_are_refused(student_path: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--max-length 2000: the student has 1024 positions"):
        distill(options(tmp_path / "out", student_path, max_length=2_000), QUIET)
