"""Small random models whose MLP is of 8 bits, and what numpy computes of them."""

from pathlib import Path

import numpy as np

from ops.model.numerics.plan import Plan, make_plan
from ops.model.numerics.samples import collect
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from workers.graph.eight_bit.grids import INT8, Grid
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.sources.safetensors import SafetensorsSource

TEXT = np.random.default_rng(2).integers(0, 320, 24).tolist()


def checkpoint_of(folder: Path, name: str) -> Checkpoint:
    config = FAMILY_CONFIGS[name]
    write_family(folder, config, family_tensors(config, 3))
    return SafetensorsSource.open(folder).checkpoint()


def plan_of(checkpoint: Checkpoint, grid: Grid = INT8, *, attention: bool = False) -> Plan:
    texts = [np.random.default_rng(seed).integers(0, 320, 30).tolist() for seed in range(8)]
    return make_plan(checkpoint, collect(checkpoint, texts, lambda _: None, attention=attention), lambda _: None, grid)
