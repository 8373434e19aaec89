"""Small random models whose MLP is of 8 bits, and numpy's results for them."""

from pathlib import Path

import numpy as np

from ops.model.numerics.forward import predict
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.eight_bit.quantize import INT8, Grid, quantize_rows
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.sources.safetensors import SafetensorsSource

TEXT = np.random.default_rng(2).integers(0, 320, 24).tolist()


def checkpoint_of(folder: Path, name: str) -> Checkpoint:
    config = FAMILY_CONFIGS[name]
    write_family(folder, config, family_tensors(config, 3))
    return SafetensorsSource.open(folder).checkpoint()


class _Peaks:
    """The largest value before each product."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def multiply(self, name: str, value: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        self.found[name] = float(np.abs(value).max())
        return value @ matrix.T


def rounded_of(
    checkpoint: Checkpoint, grid: Grid = INT8, *, fp16: str = "", weights_alone: str = ""
) -> dict[str, RoundedLinear]:
    """The MLP's matrices but for `fp16`; the activations of `weights_alone` stay as they are."""
    peaks = _Peaks()
    predict(checkpoint, [np.random.default_rng(seed).integers(0, 320, 30).tolist() for seed in range(8)], peaks)
    return {
        name: RoundedLinear(
            quantize_rows(checkpoint.read(name), grid), None if name == weights_alone else peak / grid.largest
        )
        for name, peak in peaks.found.items()
        if ".mlp." in name and name != fp16
    }
