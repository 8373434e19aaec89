"""Choose the parts to remove: step by step the one that costs least divergence per millisecond that it saves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from ops.lab.optimize.lessons import Lesson
from ops.lab.optimize.prune.importance import Predicted, Shares, predicted
from ops.lab.optimize.prune.parts import Indices, Kept, smaller
from shared.errors import SettingsError
from shared.model.folder import Architecture
from workers.graph.sources.checkpoint import Checkpoint

What = Literal["layer", "channels", "groups"]
# MLP channels are removed in this many steps; the engines' blocks hold 32.
_STEPS: Final = 24
_BLOCK: Final = 32
_LEAST_MS: Final = 1e-6
_RANKED_BY: Final = 2  # lessons by which layers are ranked: each layer takes a run of nearly the whole decoder


class Size(Struct, frozen=True):
    """How many layers, KV groups a layer and MLP channels a layer a decoder has."""

    layers: int
    groups: int
    channels: int

    @classmethod
    def of(cls, architecture: Architecture) -> "Size":
        return cls(architecture.num_layers, architecture.num_kv_heads, architecture.intermediate_size)


class Step(Struct, frozen=True, kw_only=True):
    """One removal, the size after it, the divergence from the whole decoder in nats a token, and the predicted
    milliseconds of a decode step."""

    removed: What
    size: Size
    divergence: float
    decode_ms: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Predicts a decode step's milliseconds from a decoder's size, fitted to four measured shapes.

    Attributes:
        whole: the size of the whole decoder.
        whole_ms: its milliseconds.
        layer_ms: milliseconds of one whole layer.
        group_ms: of one KV group of one layer.
        channel_ms: of one MLP channel of one layer.
    """

    whole: Size
    whole_ms: float
    layer_ms: float
    group_ms: float
    channel_ms: float

    def ms(self, size: Size) -> float:
        """Return the predicted milliseconds."""
        w = self.whole
        less = (w.groups - size.groups) * self.group_ms + (w.channels - size.channels) * self.channel_ms
        return self.whole_ms - w.layers * self.layer_ms + size.layers * (self.layer_ms - less)


def probes(whole: Size) -> list[Size]:
    """Return the sizes to measure: the whole decoder, and one with fewer layers, groups and channels each."""
    layers = whole.layers - max(1, whole.layers // 8)
    channels = max(_BLOCK, whole.channels * 3 // 4 // _BLOCK * _BLOCK)
    return [
        whole,
        Size(max(1, layers), whole.groups, whole.channels),
        Size(whole.layers, max(1, whole.groups - 1), whole.channels),
        Size(whole.layers, whole.groups, min(whole.channels, channels)),
    ]


def speed_of(sizes: Sequence[Size], measured_ms: Sequence[float]) -> Speed:
    """Return the formula for the measured sizes, in the order of `probes`. A part that saves nothing has no cost."""
    whole, fewer_layers, fewer_groups, fewer_channels = sizes
    whole_ms, *others = measured_ms
    saved = [max(0.0, whole_ms - each) for each in others]
    return Speed(
        whole,
        whole_ms,
        layer_ms=saved[0] / max(1, whole.layers - fewer_layers.layers),
        group_ms=saved[1] / max(1, whole.layers * (whole.groups - fewer_groups.groups)),
        channel_ms=saved[2] / max(1, whole.layers * (whole.channels - fewer_channels.channels)),
    )


@dataclass(slots=True, kw_only=True)
class Chooser:
    """Removes parts of one decoder.

    Attributes:
        checkpoint: the whole decoder
        lessons: the texts on whose answers the divergence is measured
        shares: how much each group and channel adds
        reference: what the whole decoder predicts on `lessons`
        report: called with what is being measured
    """

    checkpoint: Checkpoint
    lessons: Sequence[Lesson]
    shares: Shares
    reference: Predicted
    report: Callable[[str], None] = lambda _: None
    _order: list[int] = field(default_factory=list, init=False)

    def of_size(self, size: Size) -> Kept:
        """Return the parts that are kept at this size: the layers whose absence alone diverges most, and in each the
        groups and channels that add most."""
        whole = Size.of(self.checkpoint.architecture)
        removed = set(self._removable()[: whole.layers - size.layers]) if size.layers < whole.layers else set()
        return Kept(
            tuple(layer for layer in range(whole.layers) if layer not in removed),
            tuple(_largest(each, size.groups) for each in self.shares.groups),
            tuple(_largest(each, size.channels) for each in self.shares.channels),
        )

    def divergence(self, size: Size) -> float:
        """Return the divergence of the decoder of this size."""
        self.report(f"{size.layers} layers, {size.groups} KV groups, {size.channels} channels")
        return self.reference.divergence(predicted(smaller(self.checkpoint, self.of_size(size)), self.lessons))

    def steps(self, speed: Speed, target_ms: float) -> Iterator[Step]:
        """Yield removals until a decode step takes `target_ms` at most. Raises `SettingsError` if nothing that saves
        time is left to remove."""
        size, differs = speed.whole, 0.0
        while speed.ms(size) > target_ms:
            options: list[tuple[float, Step]] = []
            for removed, next_size in _removals(size, speed.whole):
                saved_ms = speed.ms(size) - speed.ms(next_size)
                if saved_ms > _LEAST_MS:
                    found = self.divergence(next_size)
                    step = Step(removed=removed, size=next_size, divergence=found, decode_ms=speed.ms(next_size))
                    options.append(((found - differs) / saved_ms, step))
            if not options:
                raise SettingsError(
                    f"--faster {speed.whole_ms / target_ms:g}: with {size.layers} layers, {size.groups} KV groups and "
                    f"{size.channels} channels it is {speed.whole_ms / speed.ms(size):.2f} times as fast, and nothing "
                    "more can be removed; ask for less"
                )
            _, step = min(options, key=lambda option: option[0])
            size, differs = step.size, step.divergence
            yield step

    def _removable(self) -> list[int]:
        """Return the layers, the one first whose absence alone diverges least."""
        if not self._order:
            whole = Kept.all_of(self.checkpoint.architecture)
            alone: dict[int, float] = {}
            few = self.lessons[:_RANKED_BY]
            reference = predicted(self.checkpoint, few)
            for layer in whole.layers:
                self.report(f"without layer {layer} of {len(whole.layers)}")
                rest = tuple(each for each in whole.layers if each != layer)
                without = smaller(self.checkpoint, Kept(rest, whole.groups, whole.channels)) if rest else None
                alone[layer] = reference.divergence(predicted(without, few)) if without is not None else np.inf
            self._order = sorted(alone, key=alone.__getitem__)
        return self._order


def _removals(size: Size, whole: Size) -> Iterator[tuple[What, Size]]:
    fewer = size.channels - max(_BLOCK, whole.channels // _STEPS // _BLOCK * _BLOCK)
    if size.layers > 1:
        yield "layer", Size(size.layers - 1, size.groups, size.channels)
    if size.groups > 1:
        yield "groups", Size(size.layers, size.groups - 1, size.channels)
    if fewer > 0:
        yield "channels", Size(size.layers, size.groups, fewer)


def _largest(shares: np.ndarray, count: int) -> Indices:
    """Return the indices of the largest shares, ascending."""
    return np.sort(np.argsort(-shares, kind="stable")[:count])
