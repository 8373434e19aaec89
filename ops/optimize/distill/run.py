"""`replyline optimize distill`: from examples and one or two models to an adapter, with what a terminal shows of it."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ops.model.numerics.answers import greedy_answers
from ops.model.prepare import DEFAULT_MODEL, default_source, prepare_model
from ops.optimize.distill.artefact import write_adapter
from ops.optimize.distill.examples import Encoder, Example, Lesson, digest, lessons_of, read_examples
from ops.optimize.distill.loss_plot import loss_plot
from ops.optimize.distill.shop_texts import shop_examples
from ops.optimize.distill.steps import Recipe
from shared.errors import ModelError, SettingsError
from shared.model.tokenizer import Tokenizer
from shared.process.extras import install_command
from workers.graph.sources.opening import ModelSource, open_source, source_sha256
from workers.loading import chat_template

if TYPE_CHECKING:
    import torch

    from ops.optimize.distill.training import Training

CHECKPOINT: Final = "training.safetensors"
LOG: Final = "loss.jsonl"
PLOT: Final = "loss.svg"
DEMO: Final = "demo"

_INSTALL: Final = f"run: {install_command('torch')}"
_MOST_ANSWER_TOKENS: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions:
    """`targets` is a file of examples or "demo"; `student` and `teacher` as `replyline model prepare` takes a source,
    the student None for the demo's model. `threads` 0 is one a core."""

    out: Path
    student: Path | None = None
    teacher: Path | None = None
    targets: str = DEMO
    name: str | None = None
    examples: int = 960
    epochs: int = 1
    rank: int = 8
    alpha: float = 16.0
    learning_rate: float = 1.5e-3
    batch_tokens: int = 1_792
    max_length: int = 512
    dtype: Literal["bf16", "fp32"] = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = 0
    seed: int = 1
    checkpoint_every: int = 20
    resume: bool = False
    models: Path = Path(".models")

    @property
    def command(self) -> dict[str, str]:
        """What an adapter's manifest keeps of them: all that decides its numbers."""
        told = {
            "command": "replyline optimize distill",
            "student": DEFAULT_MODEL if self.student is None else self.student.resolve().name,
            "teacher": "none" if self.teacher is None else self.teacher.resolve().name,
            "targets": self.targets if self.targets == DEMO else Path(self.targets).name,
        }
        numbers = ("examples", "epochs", "rank", "alpha", "learning_rate", "batch_tokens", "max_length", "dtype")
        return told | {name: str(getattr(self, name)) for name in numbers}


def distill(options: DistillOptions, console: Console) -> int:
    """Train, write the adapter, and say so. Raises `ModelError` and `SettingsError`. Exit status."""
    try:
        import torch
    except ImportError as error:
        raise SettingsError(f"torch is not installed ({error.name}), by which the student learns; {_INSTALL}") from None
    path = options.student or default_source()
    source, sha256 = open_source(path), source_sha256(path)
    positions = source.checkpoint.architecture.max_positions
    if options.max_length > positions:
        raise SettingsError(f"--max-length {options.max_length}: the student has {positions} positions; lower it")
    teacher, teacher_sha256 = _teacher(options, source)
    tokenizer = Tokenizer(source.tokenizer)
    encoder = Encoder(chat_template(tokenizer, source.chat_template))
    examples = _examples(options, encoder, tokenizer, console)
    lessons = lessons_of(encoder, examples, max_tokens=options.max_length)
    recipe = Recipe(
        data=digest(examples),
        models=(sha256, teacher_sha256),
        loss="cross-entropy" if teacher is None else "kl",
        rank=options.rank,
        alpha=options.alpha,
        learning_rate=options.learning_rate,
        epochs=options.epochs,
        batch_tokens=options.batch_tokens,
        max_length=options.max_length,
        dtype=options.dtype,
        seed=options.seed,
    )
    device = _device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    training = _training(recipe, source, teacher, lessons, device)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.resume:
        _resume(training, options.out / CHECKPOINT, console)
    _train(training, options, console)
    _write(training, options, sha256, console)
    return 0


def _teacher(options: DistillOptions, student: ModelSource) -> tuple[ModelSource | None, str]:
    """Raises `ModelError` where the teacher's tokens are not the student's."""
    if options.teacher is None:
        return None, ""
    teacher = open_source(options.teacher)
    if not _same_tokens(teacher, student):
        raise ModelError(
            f"--teacher {options.teacher} has another vocabulary than the student; its answers can be learned from "
            "as --targets, its logits cannot"
        )
    return teacher, source_sha256(options.teacher)


def _same_tokens(one: ModelSource, other: ModelSource) -> bool:
    first, second = Tokenizer(one.tokenizer), Tokenizer(other.tokenizer)
    if one.checkpoint.architecture.vocab_size != other.checkpoint.architecture.vocab_size:
        return False
    sizes = {first.vocab_size, second.vocab_size}
    return len(sizes) == 1 and all(first.token_bytes(i) == second.token_bytes(i) for i in range(sizes.pop()))


def _examples(options: DistillOptions, encoder: Encoder, tokenizer: Tokenizer, console: Console) -> Sequence[Example]:
    """What is to be learned from; what no answer is given to is answered by the teacher."""
    if options.targets == DEMO:
        return shop_examples(count=options.examples, seed=options.seed)
    examples = read_examples(Path(options.targets), answered=options.teacher is None)
    asked = [index for index, example in enumerate(examples) if not (example.answer or "").strip()]
    if not asked:
        return examples
    console.print(f"the teacher answers {len(asked)} questions first")
    folder = prepare_model(options.models, "fp32", source=options.teacher)
    room = min(_MOST_ANSWER_TOKENS, options.max_length // 2)
    prompts = [encoder.prompt(examples[index], max_tokens=options.max_length - room) for index in asked]
    answers = greedy_answers(folder, prompts, num_tokens=room, progress=lambda _fraction: None)
    for index, answer in zip(asked, answers, strict=True):
        # An embedding may have more rows than the vocabulary has tokens.
        known = [token for token in answer if token < tokenizer.vocab_size]
        text = tokenizer.decode_bytes(known).decode(errors="replace").strip()
        examples[index] = msgspec.structs.replace(examples[index], answer=text)
    return examples


def _device(wanted: Literal["auto", "cpu", "cuda"]) -> "torch.device":
    import torch

    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise SettingsError("--device cuda: torch finds no GPU; look at nvidia-smi, or leave --device out")
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def _training(
    recipe: Recipe,
    student: ModelSource,
    teacher: ModelSource | None,
    lessons: Sequence[Lesson],
    device: "torch.device",
) -> "Training":
    import torch

    from ops.optimize.distill.decoder import TrainedDecoder
    from ops.optimize.distill.training import Training

    dtype = torch.bfloat16 if recipe.dtype == "bf16" else torch.float32
    taught_by = None if teacher is None else TrainedDecoder.of(teacher.checkpoint, dtype, device)
    training = Training(recipe, TrainedDecoder.of(student.checkpoint, dtype, device), lessons, taught_by)
    gc.collect()  # the float32 weights that were read
    return training


def _resume(training: "Training", checkpoint: Path, console: Console) -> None:
    if not checkpoint.is_file():
        raise SettingsError(f"--resume: {checkpoint} is not there; begin without --resume")
    training.resume(checkpoint)
    console.print(f"going on from step {len(training.steps)} of {len(training.batches)}")


def _train(training: "Training", options: DistillOptions, console: Console) -> None:
    """Every step that is still to do; a checkpoint each so many, and when it is ended."""
    checkpoint = options.out / CHECKPOINT
    columns = (
        TextColumn("learning"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(training.batches), completed=len(training.steps), loss="…")
        try:
            for step in training.run():
                bar.update(task, completed=step.step + 1, loss=f"{step.loss:.3f}")
                if (step.step + 1) % options.checkpoint_every == 0:
                    _keep(training, options.out)
        except KeyboardInterrupt:
            _keep(training, options.out)
            console.print(f"kept in {checkpoint}; the same command with --resume goes on")
            raise
    _keep(training, options.out)


def _keep(training: "Training", out: Path) -> None:
    training.save(out / CHECKPOINT)
    lines = b"".join(msgspec.json.encode(step) + b"\n" for step in training.steps)
    (out / LOG).write_bytes(lines)
    (out / PLOT).write_text(loss_plot(training.steps, training.recipe.loss), encoding="utf-8")


def _write(training: "Training", options: DistillOptions, base_sha256: str, console: Console) -> None:
    low_rank = training.low_rank
    name = options.name or f"{options.command['student']}-{options.out.resolve().name}"
    manifest = write_adapter(
        options.out,
        *(
            {matrix: tensor.detach().cpu().numpy() for matrix, tensor in part.items()}
            for part in (low_rank.down, low_rank.up)
        ),
        alpha=low_rank.alpha,
        name=name,
        base=options.command["student"],
        base_sha256=base_sha256,
        data_sha256=training.recipe.data,
        made_by=options.command,
        seed=options.seed,
        steps=len(training.steps),
    )
    (options.out / CHECKPOINT).unlink()
    last = training.steps[-max(1, len(training.steps) // 20) :]
    loss = sum(step.loss * step.tokens for step in last) / sum(step.tokens for step in last)
    console.print(
        f"adapter ready: {options.out} ({manifest.name}); "
        f"loss {training.steps[0].loss:.3f} at first, {loss:.3f} at last"
    )
