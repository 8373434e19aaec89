"""`replyline optimize prune`: remove the parts of a model that its answers need least, and measure what that costs."""

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from ops.lab.optimize.lessons import Encoder, Lesson, faq_examples, read_examples
from ops.lab.optimize.options import PruneOptions
from ops.lab.optimize.prune.choosing import Chooser, Size, Speed, Step, probes, speed_of
from ops.lab.optimize.prune.importance import predicted, shares_of
from ops.lab.optimize.prune.pace import ROWS, Pace, paces
from ops.lab.optimize.prune.parts import Kept, smaller
from ops.lab.optimize.prune.vocabulary import trimmed, without_tokens
from ops.lab.optimize.prune.writing import write_folder
from ops.model.prepare import default_source
from ops.model.terminal import adapter_of
from shared.errors import SettingsError
from shared.model.chat_template import ChatTemplate
from shared.model.folder import refuse_experts
from shared.model.tokenizer import Tokenizer
from workers.graph.sources.adapter import Adapter
from workers.graph.sources.checkpoint import Checkpoint, Weight
from workers.graph.sources.opening import ModelSource, open_source, source_sha256

DEMO: Final = "demo"
_FEWEST: Final = 4  # examples
_BLOCK: Final = 32

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Opened:
    """The whole model with its adapter merged and its vocabulary trimmed, and the texts to measure on."""

    source: ModelSource
    lessons: list[Lesson]

    @property
    def checkpoint(self) -> Checkpoint:
        return self.source.checkpoint


def prune(options: PruneOptions, console: Console) -> int:
    """Prune, write the folder, and print what was removed and what it costs. Return the exit status.

    Raises:
        ModelError: the source or adapter cannot be used, or the disk is full.
        SettingsError: a size that the model does not have, too few examples, or a speed that is out of reach.
    """
    with console.status("opening the model") as status, tempfile.TemporaryDirectory(prefix="replyline-prune-") as name:
        scratch, opened = Path(name), _open(options)
        wanted = _wanted(options, Size.of(opened.checkpoint.architecture))
        status.update("measuring what each part adds")
        chooser = Chooser(
            checkpoint=opened.checkpoint,
            lessons=opened.lessons,
            shares=shares_of(opened.checkpoint, opened.lessons),
            reference=predicted(opened.checkpoint, opened.lessons),
            report=lambda what: status.update(f"measuring {what}"),
        )
        steps: list[Step] = []
        if wanted is None:
            speed = _speed(opened, chooser, scratch, status.update)
            steps = list(chooser.steps(speed, speed.whole_ms / options.faster))
            wanted = steps[-1].size if steps else speed.whole
        pruned = _pruned(opened, chooser, wanted, scratch, status.update)
        status.update("writing")
        for out, checkpoint, report in (
            (options.whole, opened.checkpoint, {"removed": "nothing"}),
            (options.out, smaller(opened.checkpoint, pruned.kept), pruned.report(opened, steps)),
        ):
            if out is not None:
                write_folder(out, checkpoint, opened.source.tokenizer, opened.source.stop_token_ids, report)
    console.print(f"{pruned.text(opened)}\nmodel ready: {options.out}", soft_wrap=True, highlight=False)
    return 0


@dataclass(frozen=True, slots=True)
class _Pruned:
    """What is kept; the divergence and agreement on the texts, and the pace before and after."""

    kept: Kept
    size: Size
    divergence: float
    agreement: float
    whole: Pace
    now: Pace

    def report(self, opened: _Opened, steps: Sequence[Step]) -> dict[str, Any]:
        """Return the content of `pruned.json`."""
        return {
            "whole": Size.of(opened.checkpoint.architecture),
            "kept": self.size,
            "layers": self.kept.layers,
            "vocabulary": opened.checkpoint.architecture.vocab_size,
            "texts": len(opened.lessons),
            "divergence": self.divergence,
            "agreement": self.agreement,
            "faster_decode": self.whole.decode_ms / self.now.decode_ms,
            "faster_prefill": self.whole.prefill_ms / self.now.prefill_ms,
            "steps": steps,
        }

    def text(self, opened: _Opened) -> str:
        """Return the report in two lines."""
        architecture = opened.checkpoint.architecture
        whole, now = self.whole, self.now
        return (
            f"{_said(self.size)} of {_said(Size.of(architecture))}, {architecture.vocab_size} tokens; divergence "
            f"{self.divergence:.3f} nats a token, the same most likely token at {self.agreement:.3f} of the positions\n"
            f"decode of {ROWS} rows {whole.decode_ms:.1f} → {now.decode_ms:.1f} ms "
            f"({whole.decode_ms / now.decode_ms:.2f} times as fast), a prompt of 128 tokens "
            f"{whole.prefill_ms:.1f} → {now.prefill_ms:.1f} ms ({whole.prefill_ms / now.prefill_ms:.2f} times)"
        )


def _pruned(opened: _Opened, chooser: Chooser, size: Size, scratch: Path, report: Report) -> _Pruned:
    """Measure the decoder of this size, and its pace in turns with the whole one."""
    kept = chooser.of_size(size)
    found = predicted(smaller(opened.checkpoint, kept), opened.lessons)
    whole, now = _measured(opened, [Kept.all_of(opened.checkpoint.architecture), kept], scratch, report)
    reference = chooser.reference
    return _Pruned(kept, size, reference.divergence(found), reference.agreement(found), whole, now)


def _open(options: PruneOptions) -> _Opened:
    path = options.source or default_source()
    source = open_source(path)
    checkpoint = source.checkpoint
    refuse_experts(checkpoint.architecture, "optimize prune", "give a model with one MLP a layer")
    if (adapter := adapter_of(options.adapter, options.source)) is not None:
        checkpoint = Adapter.open(adapter, source_sha256=source_sha256(path)).merged(checkpoint)
    weights = {name: Weight(weight.shape, cache(weight.read)) for name, weight in checkpoint.weights.items()}
    source = replace(source, checkpoint=Checkpoint(architecture=checkpoint.architecture, weights=weights))
    lessons = _lessons(options, source)
    if options.vocabulary is not None:
        whole = checkpoint.architecture.vocab_size
        if options.vocabulary >= whole:
            raise SettingsError(f"--vocabulary {options.vocabulary}: the model has {whole} tokens; name fewer")
        used = {token for lesson in lessons for token in lesson.ids} | {*source.stop_token_ids}
        vocabulary = trimmed(source.tokenizer, used, options.vocabulary)
        source = replace(
            source,
            checkpoint=without_tokens(source.checkpoint, vocabulary.ids),
            tokenizer=vocabulary.definition,
            stop_token_ids=tuple(vocabulary.renumbered(source.stop_token_ids)),
        )
        lessons = [Lesson(tuple(vocabulary.renumbered(lesson.ids)), lesson.start) for lesson in lessons]
    random.Random(options.seed).shuffle(lessons)  # noqa: S311 - reproducible, not a secret
    return _Opened(source, lessons[: options.texts])


def _lessons(options: PruneOptions, source: ModelSource) -> list[Lesson]:
    """Return all examples in tokens. Raises `SettingsError` for fewer than four that fit."""
    examples = faq_examples("dev") if options.targets == DEMO else read_examples(Path(options.targets), answered=True)
    template = ChatTemplate.for_tokenizer(Tokenizer(source.tokenizer), source.chat_template)
    longest = min(options.max_length, source.checkpoint.architecture.max_positions)
    lessons = Encoder(template).lessons(examples, max_tokens=longest)
    if len(lessons) < _FEWEST:
        raise SettingsError(
            f"--targets {options.targets}: {len(lessons)} of {len(examples)} examples fit in {longest} tokens, at "
            f"least {_FEWEST} are needed; add examples, or raise --max-length"
        )
    return lessons


def _wanted(options: PruneOptions, whole: Size) -> Size | None:
    """Return the size that the options name; None if speed decides. Raises `SettingsError` if the model is smaller."""
    named = {"layers": options.layers, "groups": options.kv_groups, "channels": options.channels}
    for field, count in named.items():
        most = getattr(whole, field)
        if count is not None and count > most:
            option = {"groups": "--kv-groups"}.get(field, f"--{field}")
            raise SettingsError(f"{option} {count}: the model has {most}; name at most as many")
    if options.channels is not None and options.channels % _BLOCK and options.channels != whole.channels:
        raise SettingsError(f"--channels {options.channels}: the engines' blocks hold {_BLOCK}; name a multiple")
    given = {field: count for field, count in named.items() if count is not None}
    if not given and options.vocabulary is None:
        return None
    return msgspec.structs.replace(whole, **given)


def _speed(opened: _Opened, chooser: Chooser, scratch: Path, report: Report) -> Speed:
    """Measure a few shapes. Which layers they have does not matter for speed."""
    sizes = probes(Size.of(opened.checkpoint.architecture))
    shapes = [_shape(chooser, size) for size in sizes]
    return speed_of(sizes, [pace.decode_ms for pace in _measured(opened, shapes, scratch, report)])


def _shape(chooser: Chooser, size: Size) -> Kept:
    whole = Size.of(chooser.checkpoint.architecture)
    kept = chooser.of_size(msgspec.structs.replace(size, layers=whole.layers))
    return Kept(kept.layers[: size.layers], kept.groups, kept.channels)


def _measured(opened: _Opened, shapes: Sequence[Kept], scratch: Path, report: Report) -> list[Pace]:
    sources = []
    for number, shape in enumerate(shapes):
        sources.append(scratch / f"shape-{len(shapes)}-{number}")
        source = opened.source
        write_folder(sources[-1], smaller(opened.checkpoint, shape), source.tokenizer, source.stop_token_ids, {})
    return paces(sources, scratch, report)


def _said(size: Size) -> str:
    return f"{size.layers} layers × ({size.groups} KV groups, {size.channels} channels)"
