"""`replyline optimize quantize`: round an MLP to 8 bits with nvidia-modelopt's steps, measure it, and publish or reject
it."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from rich.console import Console

from ops.lab.optimize.options import QuantizeOptions
from ops.lab.optimize.steps import activation_steps, left_by, mlp_matrices
from ops.lab.texts.calibration_set import DEMO, KINDS, CalibrationSet, CalibrationText, calibration_set, read_texts
from ops.model.numerics.answers import greedy_answers
from ops.model.numerics.forward import PlainProducts, RoundedProducts, predict
from ops.model.prepare import default_source, prepare_model, put_in_place, workshop_of
from shared.errors import SettingsError
from shared.model.chat_template import ChatTemplate
from shared.model.folder import GRAPH, GRAPH_DATA, TOKENIZER, ModelFolder, file_entry, write_manifest
from shared.model.tokenizer import Tokenizer
from shared.process.lifetime import fail
from workers.engine.device.slots import slot_capacity
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.eight_bit.quantize import GRIDS, GridName, quantize_rows
from workers.graph.sources.checkpoint import Checkpoint, Weight
from workers.graph.sources.opening import open_source
from workers.graph.tensorrt import write_tensorrt_decoder

_ANSWER_TOKENS: Final = 32
_PRECISIONS: Final[dict[GridName, Literal["int8-mlp", "fp8-mlp"]]] = {"int8": "int8-mlp", "fp8": "fp8-mlp"}
Rounded = Mapping[str, RoundedLinear]


@dataclass(frozen=True, slots=True)
class Original:
    """The float32 model: its folder for the CPU engine, and its weights."""

    folder: ModelFolder
    checkpoint: Checkpoint
    template: ChatTemplate


def quantize(options: QuantizeOptions, console: Console) -> int:
    """Quantize. Return the exit status: 1, with nothing published, if the agreement on a kind of text is below the
    bound.

    Raises `SettingsError` for unsuitable texts or options, `ModelError` for the source.
    """
    texts = _texts(options.calibration)
    with console.status("preparing the float32 model") as status:
        return _quantize(options, texts, console, status.update)


def _quantize(
    options: QuantizeOptions, texts: Sequence[CalibrationText], console: Console, tell: Callable[[str], None]
) -> int:
    original = _original(options)
    names = mlp_matrices(original.checkpoint.architecture)
    sets = _sets(options, original, texts)
    template = original.template
    calibration = [(*template.start, *template.begun(text.role, text.text), *template.end) for text in sets.calibration]
    tell(f"calibrating on {len(calibration)} texts")
    exclude = [pattern.strip() for pattern in options.exclude.split(",") if pattern.strip()]
    steps = activation_steps(original.checkpoint, calibration, left_by(names, exclude), options.mlp)
    rounded = {
        name: RoundedLinear(quantize_rows(original.checkpoint.read(name), GRIDS[options.mlp]), steps.get(name))
        for name in names
    }
    tell(f"measuring on {len(sets.held_out)} held-out texts")
    found = agreement(original, sets.held_out, rounded)
    numbers = ", ".join(f"{kind} {share:.4f}" for kind, share in found.items())
    if not min(found.values()) >= options.bound:
        return fail(
            f"agreement with the original ({numbers}) is below --bound {options.bound}: nothing was published; "
            f"use --mlp fp8, or keep more activations in fp16: --exclude '*.down_proj,layers.0.*'",
            1,
        )
    folder = publish(options, original, rounded)
    console.print(
        f"activations of {len(steps)} of {len(rounded)} matrices in 8 bits, all weights of them; agreement: {numbers}\n"
        f"model ready: {folder.path}",
        soft_wrap=True,
        highlight=False,
    )
    return 0


def _texts(calibration: str) -> list[CalibrationText]:
    path = DEMO if calibration == "demo" else Path(calibration)
    try:
        return read_texts(path.read_bytes(), calibration)
    except OSError as error:
        raise SettingsError(f"--calibration {calibration}: {error.strerror}; use a JSONL file, or demo") from None


def _original(options: QuantizeOptions) -> Original:
    folder = prepare_model(options.models, "fp32", source=options.source)
    positions = folder.manifest.architecture.max_positions
    if options.max_length > positions:
        raise SettingsError(f"--max-length {options.max_length}: {folder.manifest.name} has {positions} positions")
    checkpoint = open_source(options.source or default_source()).checkpoint
    weights = {name: Weight(weight.shape, cache(weight.read)) for name, weight in checkpoint.weights.items()}
    template = ChatTemplate.for_tokenizer(Tokenizer.load(folder.path), folder.manifest.chat_template)
    return Original(folder, Checkpoint(architecture=checkpoint.architecture, weights=weights), template)


def _sets(options: QuantizeOptions, original: Original, texts: Sequence[CalibrationText]) -> CalibrationSet:
    """Return the sets of those texts that fit in a slot together with an answer."""
    return calibration_set(
        [text for text in texts if len(_question(original, text)) + _ANSWER_TOKENS <= options.max_length],
        Tokenizer.load(original.folder.path).count,
        name=f"--calibration {options.calibration}",
        count=options.texts,
        held_out=options.held_out,
        seed=options.seed,
    )


def _question(original: Original, text: CalibrationText) -> tuple[int, ...]:
    template = original.template
    return (*template.start, *template.begun("user", text.text), *template.end, *template.answer)


def agreement(original: Original, held_out: Sequence[CalibrationText], rounded: Rounded) -> dict[str, float]:
    """Return, by kind of text, the share of positions in the original's greedy answers at which the most likely token
    is the same, given the same preceding tokens."""
    asked = [text for text in held_out if text.role == "user"]
    prompts = [_question(original, text) for text in asked]
    answers = greedy_answers(original.folder, prompts, num_tokens=_ANSWER_TOKENS)
    whole = [(*prompt, *answer) for prompt, answer in zip(prompts, answers, strict=True)]
    wanted = predict(original.checkpoint, whole, PlainProducts()).top
    found = predict(original.checkpoint, whole, RoundedProducts(rounded)).top
    same: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
    start = 0
    for text, prompt, tokens in zip(asked, prompts, whole, strict=True):
        here = slice(start + len(prompt) - 1, start := start + len(tokens) - 1)
        same[text.kind].append(wanted[here] == found[here])
    return {kind: float(np.concatenate(parts).mean()) for kind, parts in same.items() if parts}


def publish(options: QuantizeOptions, original: Original, rounded: Rounded) -> ModelFolder:
    """Write `options.out` atomically, replacing an existing folder."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = original.folder.manifest
    capacity = slot_capacity(options.max_length, about.architecture.max_positions)
    with workshop_of(options.out) as workshop:
        folder = workshop.path
        write = partial(write_tensorrt_decoder, max_length=capacity, rounded=rounded)
        write(original.checkpoint, folder, progress=lambda _: None)
        (folder / TOKENIZER).write_bytes(original.folder.read(TOKENIZER))
        files = tuple(file_entry(folder / file) for file in (GRAPH, GRAPH_DATA, TOKENIZER))
        manifest = msgspec.structs.replace(
            about,
            # The result depends on the calibration, so the revision is a digest of the files written.
            revision=hashlib.sha256(f"{files[0].sha256}/{files[1].sha256}".encode()).hexdigest(),
            recipe=None,
            precision=_PRECISIONS[options.mlp],
            files=files,
            dialect="tensorrt",
            max_length=capacity,
        )
        write_manifest(folder, manifest)
        put_in_place(workshop, options.out)
    return ModelFolder.open(options.out)
