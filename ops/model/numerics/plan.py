"""What an MLP in 8 bits is made of: smoothed weights, rounded matrices, and how far each product goes. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np

from ops.model.numerics.fit import Fitted, Samples, fit
from ops.model.numerics.rounding import round_compensated
from shared.errors import SettingsError
from shared.model.folder import Architecture
from workers.graph.eight_bit.grids import INT8, Grid
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.eight_bit.quantize import RoundedMatrix
from workers.graph.eight_bit.smooth import smoothed
from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight, expected_shapes

MATRICES: Final = ("gate", "up", "down")
PlaceName = Literal["gate_up", "down"]
_PLACES: Final[dict[PlaceName, tuple[str, ...]]] = {"gate_up": ("gate", "up"), "down": ("down",)}

# Products that are not in 8 bits on both sides: their matrix in 8 bits, or nothing at all.
Left = Literal["weights", "fp16"]
_LEFT_OPTION: Final = re.compile(r"(?P<layer>[0-9]{1,4}|\*):(?P<matrix>gate|up|down)(?P<fp16>:fp16)?")

_PACKED: Final = (".q_proj", ".k_proj", ".v_proj")

# Of the diagonal's mean: for inputs that were not sampled, beside the noise of rounding them where they are rounded.
_DAMPING: Final = 0.01
_DAMPING_BESIDE_NOISE: Final = 1e-4


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """An activation of a layer's MLP and the matrices that multiply it."""

    layer: int
    name: PlaceName

    @property
    def linears(self) -> tuple[str, ...]:
        """`layers.3.mlp.gate_proj`, `layers.3.mlp.up_proj`."""
        return tuple(_linear(self.layer, matrix) for matrix in _PLACES[self.name])


@dataclass(frozen=True, slots=True)
class Plan:
    """Every place fitted. `checkpoint` has the factors before gate and up folded in; `matrices` are by name of linear,
    `even_down` those of down with the factors before it folded in too, `attention` the projections around attention,
    where these are in 8 bits: their activations never are."""

    fitted: Mapping[Place, Fitted]
    checkpoint: Checkpoint
    matrices: Mapping[str, RoundedMatrix]
    even_down: Mapping[str, RoundedMatrix]
    attention: Mapping[str, RoundedMatrix]

    def at(self, left: Mapping[str, Left]) -> tuple[Checkpoint, dict[str, RoundedLinear]]:
        """Weights and 8-bit linears with some `left` out by name: computed as the original within rounding.

        The factors before down are folded in only where its activations are rounded: they make its matrix uneven.
        """
        rounded = {name: RoundedLinear(matrix, None) for name, matrix in self.attention.items()}
        intermediate = {}
        for place, one in self.fitted.items():
            for name in place.linears:
                if name in left:
                    if left[name] == "weights":
                        rounded[name] = RoundedLinear(self.matrices[name], None)
                elif place.name == "down":
                    rounded[name] = RoundedLinear(self.even_down[name], one.step)
                    intermediate[place.layer] = one.factors
                else:
                    rounded[name] = RoundedLinear(self.matrices[name], one.step)
        for layer, factors in intermediate.items():
            up = f"layers.{layer}.mlp.up_proj"
            if up in rounded:
                rounded[up] = RoundedLinear(rounded[up].matrix.divided(factors), rounded[up].activation_scale)
        return smoothed(self.checkpoint, {}, intermediate), rounded


def places(architecture: Architecture) -> list[Place]:
    """Every place, in the order in which they are computed."""
    return [Place(layer, name) for layer in range(architecture.num_layers) for name in _PLACES]


def make_plan(
    checkpoint: Checkpoint, samples: Mapping[str, Samples], progress: Callable[[float], None], grid: Grid = INT8
) -> Plan:
    """Fit every place to `grid` and round its matrices; `samples` are by the name of a place's first linear.

    The projections of attention that have samples are rounded too.
    """
    every = places(checkpoint.architecture)
    fitted: dict[Place, Fitted] = {}
    matrices: dict[str, RoundedMatrix] = {}
    even_down: dict[str, RoundedMatrix] = {}
    for number, place in enumerate(every):
        progress(number / len(every))
        sampled = samples[place.linears[0]]
        weights = {name: checkpoint.read(name) for name in place.linears}
        fitted[place] = one = fit(sampled, list(weights.values()), grid)
        noisy = sampled.gram / np.outer(one.factors, one.factors)
        noisy[np.diag_indices(len(noisy))] += grid.noise(noisy.diagonal(), one.step)
        for name, weight in weights.items():
            even = round_compensated(weight * one.factors, noisy, grid, damping=_DAMPING_BESIDE_NOISE)
            if place.name == "down":
                even_down[name] = even
                matrices[name] = round_compensated(weight, sampled.gram, grid, damping=_DAMPING)
            else:
                matrices[name] = even
    hidden = {place.layer: one.factors for place, one in fitted.items() if place.name == "gate_up"}
    attention = {
        name: round_compensated(_projection(checkpoint, name), sampled.gram, grid, damping=_DAMPING)
        for name, sampled in samples.items()
        if ".self_attn." in name
    }
    return Plan(fitted, in_memory(smoothed(checkpoint, hidden, {})), matrices, even_down, attention)


def in_memory(checkpoint: Checkpoint) -> Checkpoint:
    """The same weights, each read once: the model's size in float32."""
    weights = {name: Weight(weight.shape, cache(weight.read)) for name, weight in checkpoint.weights.items()}
    return Checkpoint(architecture=checkpoint.architecture, weights=weights)


def parse_left(option: str, architecture: Architecture) -> dict[str, Left]:
    """`*:down,29:gate:fp16` by name of linear, later parts before earlier; none for an empty one.

    Raises `SettingsError` with the part that is none.
    """
    left: dict[str, Left] = {}
    for part in option.split(",") if option else ():
        found = _LEFT_OPTION.fullmatch(part.strip())
        if found is None or (found["layer"] != "*" and int(found["layer"]) >= architecture.num_layers):
            raise SettingsError(
                f"--exclude {part.strip()!r}: write auto, none, or layer:matrix of layers 0 to "
                f"{architecture.num_layers - 1} (* for all) and {', '.join(MATRICES)}: *:down,1:gate:fp16"
            )
        layers = range(architecture.num_layers) if found["layer"] == "*" else [int(found["layer"])]
        how: Left = "fp16" if found["fp16"] else "weights"
        left |= {_linear(layer, found["matrix"]): how for layer in layers}
    return left


def left_option(left: Mapping[str, Left], architecture: Architecture) -> str:
    """Names of linears as `--exclude` takes them."""
    parts = []
    for matrix in MATRICES:
        names = [_linear(layer, matrix) for layer in range(architecture.num_layers)]
        every = all(name in left for name in names)
        if every:
            parts.append(f"*:{matrix}")
        for layer, name in enumerate(names):
            if left.get(name) == "fp16":
                parts.append(f"{layer}:{matrix}:fp16")
            elif name in left and not every:
                parts.append(f"{layer}:{matrix}")
    return ",".join(parts) or "none"


def weight_bytes(architecture: Architecture, rounded: frozenset[str]) -> int:
    """Memory of all weights, by the types of TensorRT's dialects: float16 matrices, float32 norms, and for `rounded` a
    byte a weight and a float16 scale a row."""
    total = 0
    for name, shape in expected_shapes(architecture).items():
        rows, columns = shape[0], shape[1] if len(shape) > 1 else 1
        if name in rounded or (name.endswith(_PACKED) and f"{name.rpartition('.')[0]}.qkv" in rounded):
            total += rows * columns + 2 * rows
        else:
            total += rows * columns * (4 if name.endswith("norm") else 2)
    return total


def _projection(checkpoint: Checkpoint, name: str) -> Float32Array:
    """`layers.3.self_attn.o_proj`, or as the decoder packs them `layers.3.self_attn.qkv`."""
    if not name.endswith(".qkv"):
        return checkpoint.read(name)
    return np.concatenate([checkpoint.read(f"{name.removesuffix('.qkv')}{part}") for part in _PACKED])


def _linear(layer: int, matrix: str) -> str:
    return f"layers.{layer}.mlp.{matrix}_proj"
