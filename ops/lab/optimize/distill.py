"""`replyline optimize distill`: train a model with LoRA, on answers or on a teacher's logits (transformers, peft)."""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from torch.nn import functional as F  # noqa: N812 - as everyone calls it
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, GgufConfig, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from ops.lab.optimize.lessons import Encoder, Lesson, faq_examples, read_examples
from ops.lab.optimize.options import DistillOptions
from ops.lifecycle.learn.examples import Example
from ops.model.prepare import DEFAULT_MODEL, default_source
from shared.errors import ModelError, SettingsError
from shared.model.chat_template import ChatTemplate
from shared.model.folder import sha256_of
from shared.model.tokenizer import Tokenizer
from workers.graph.sources.adapter import CONFIG, LORA_MODULES, MANIFEST, TENSORS, AdapterManifest
from workers.graph.sources.opening import open_source, source_sha256

LOG: Final = "loss.jsonl"
DEMO: Final = "demo"

_NOT_LEARNED: Final = -100  # the label that cross-entropy ignores
_MOST_ANSWER_TOKENS: Final = 160


def distill(options: DistillOptions, console: Console) -> int:
    """Train, write the adapter, and print a summary. Return the exit status. Raises `ModelError` and
    `SettingsError`."""
    path = options.student or default_source()
    source = open_source(path)
    positions = source.checkpoint.architecture.max_positions
    if options.max_length > positions:
        raise SettingsError(f"--max-length {options.max_length}: the student has {positions} positions; lower it")
    tokenizer = Tokenizer(source.tokenizer)
    begun = _checkpoints(options)
    if options.resume and not (begun.is_dir() and get_last_checkpoint(str(begun))):
        raise SettingsError(f"--resume: {begun} has no checkpoint; start without --resume")
    teacher = None if options.teacher is None else _teacher(options.teacher, tokenizer, options.dtype)
    encoder = Encoder(ChatTemplate.for_tokenizer(tokenizer, source.chat_template))
    shown, kept = _examples(options)
    shown, kept = (_answered(part, options, encoder, tokenizer, teacher) for part in (shown, kept))
    learned, measured = (encoder.lessons(part, max_tokens=options.max_length) for part in (shown, kept))
    if not learned:
        raise SettingsError(f"--max-length {options.max_length}: no example fits; raise it")
    torch.manual_seed(options.seed)
    lora = LoraConfig(
        task_type="CAUSAL_LM", r=options.rank, lora_alpha=options.alpha, target_modules=sorted(LORA_MODULES)
    )
    student = get_peft_model(_model(path, options.dtype), lora)
    trainer = _Distilling(student, _arguments(options), _padded, learned, measured or None)
    trainer.teacher = teacher
    before = trainer.evaluate()["eval_loss"] if measured else None
    trainer.train(resume_from_checkpoint=options.resume)
    after = trainer.evaluate()["eval_loss"] if measured else None
    (options.out / LOG).write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in trainer.state.log_history))
    manifest = _write(student, options, source_sha256(path), shown, trainer.state.global_step)
    held = "" if before is None else f"; loss on {len(measured)} held-out examples {before:.3f}, then {after:.3f}"
    console.print(f"adapter ready: {options.out} ({manifest.name}), {manifest.steps} steps{held}")
    return 0


class _Distilling(Trainer):  # type: ignore[misc]
    """Trains on answers, or on a teacher's logits if there is a teacher."""

    teacher: Any = None

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        """Return the cross-entropy of the answers' tokens, or the KL divergence from the teacher's distribution."""
        if self.teacher is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        wanted = inputs["labels"][:, 1:] != _NOT_LEARNED
        outputs = model(**inputs)
        with torch.no_grad():
            taught = self.teacher.to(outputs.logits.device)(inputs["input_ids"], inputs["attention_mask"])
        # With the same vocabulary, one model may have more rows than the other; they belong to no token.
        shared = min(outputs.logits.shape[-1], taught.logits.shape[-1])
        found, sought = (F.log_softmax(one.logits[:, :-1, :shared][wanted].float(), -1) for one in (outputs, taught))
        loss = F.kl_div(found, sought, log_target=True, reduction="batchmean")
        return (loss, outputs) if return_outputs else loss


def _model(path: Path, dtype: Literal["bf16", "fp32"]) -> Any:
    how = {"dtype": torch.bfloat16 if dtype == "bf16" else torch.float32}
    if path.is_dir():
        return AutoModelForCausalLM.from_pretrained(path, local_files_only=True, **how)
    read = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, quantization_config=GgufConfig(dequantize=True), local_files_only=True, **how
    )
    # The trainer rejects a model read from GGUF as quantised, although its weights are plain.
    plain = AutoModelForCausalLM.from_config(read.config, **how)
    plain.load_state_dict(read.state_dict())
    return plain


def _teacher(path: Path, student: Tokenizer, dtype: Literal["bf16", "fp32"]) -> Any:
    """Load the teacher. Raises `ModelError` if its vocabulary differs from the student's."""
    tokenizer = Tokenizer(open_source(path).tokenizer)
    sizes = {student.vocab_size, tokenizer.vocab_size}
    if len(sizes) > 1 or any(student.token_bytes(at) != tokenizer.token_bytes(at) for at in range(sizes.pop())):
        raise ModelError(
            f"--teacher {path} has another vocabulary than the student; its answers can be learned from "
            "as --targets, its logits cannot"
        )
    return _model(path, dtype).eval()


def _examples(options: DistillOptions) -> tuple[list[Example], list[Example]]:
    """Return the examples to learn from and those used only for measuring: for the FAQ its held-out half, for a file a
    share."""
    if options.targets == DEMO:
        return faq_examples("dev"), faq_examples("held_out")
    examples = read_examples(Path(options.targets), answered=options.teacher is None)
    random.Random(options.seed).shuffle(examples)  # noqa: S311 - reproducible, not a secret
    kept = min(round(options.held_out * len(examples)), len(examples) - 1)
    return examples[kept:], examples[:kept]


def _answered(
    examples: list[Example], options: DistillOptions, encoder: Encoder, tokenizer: Tokenizer, teacher: Any
) -> list[Example]:
    """Have the teacher answer, greedily, the examples without an answer."""
    room = min(_MOST_ANSWER_TOKENS, options.max_length // 2)
    answered = []
    for example in examples:
        if not (example.answer or "").strip():
            prompt = encoder.prompt(example, max_tokens=options.max_length - room)
            ids = torch.tensor([prompt])
            made = teacher.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=room, do_sample=False)
            # An embedding may have more rows than the vocabulary has tokens.
            known = [token for token in made[0, len(prompt) :].tolist() if token < tokenizer.vocab_size]
            text = tokenizer.decode_bytes(known).decode(errors="replace").strip()
            answered.append(msgspec.structs.replace(example, answer=text))
        else:
            answered.append(example)
    return answered


def _checkpoints(options: DistillOptions) -> Path:
    return options.out / "checkpoints"


def _arguments(options: DistillOptions) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(_checkpoints(options)),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=options.batch,
        learning_rate=options.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        logging_steps=1,
        save_steps=options.checkpoint_every,
        save_total_limit=1,
        seed=options.seed,
        use_cpu=options.device == "cpu",
        remove_unused_columns=False,
        report_to="none",
    )


def _padded(lessons: Sequence[Lesson]) -> dict[str, torch.Tensor]:
    """Return `[B, T]` tensors, padded on the right: attention is causal, so tokens do not see the padding."""
    ids = [torch.tensor(lesson.ids) for lesson in lessons]
    labels = [torch.tensor((_NOT_LEARNED,) * one.start + one.ids[one.start :]) for one in lessons]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(one) for one in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=_NOT_LEARNED),
    }


def _made_by(options: DistillOptions, base: str) -> dict[str, str]:
    """Return the options that determine the adapter's weights, for its manifest."""
    numbers = ("held_out", "epochs", "rank", "alpha", "learning_rate", "batch", "max_length", "dtype")
    return {
        "command": "replyline optimize distill",
        "student": base,
        "teacher": "none" if options.teacher is None else options.teacher.resolve().name,
        "targets": Path(options.targets).name,
    } | {name: str(getattr(options, name)) for name in numbers}


def _write(
    student: Any, options: DistillOptions, base_sha256: str, shown: list[Example], steps: int
) -> AdapterManifest:
    """Write PEFT's files, then the manifest that lists them."""
    base = DEFAULT_MODEL if options.student is None else options.student.resolve().name
    (options.out / MANIFEST).unlink(missing_ok=True)
    student.peft_config["default"].base_model_name_or_path = base
    student.save_pretrained(options.out, save_embedding_layers=False)
    manifest = AdapterManifest(
        name=options.name or f"{base}-{options.out.resolve().name}",
        base=base,
        base_sha256=base_sha256,
        files={file: sha256_of(options.out / file) for file in (CONFIG, TENSORS)},
        made_by=_made_by(options, base),
        data_sha256=hashlib.sha256(msgspec.json.encode(shown)).hexdigest(),
        seed=options.seed,
        steps=steps,
    )
    (options.out / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest
