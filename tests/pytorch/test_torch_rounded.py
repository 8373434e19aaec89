"""The torch engine gives models with an 8-bit MLP the probabilities that numpy computes."""

from pathlib import Path

import numpy as np
import pytest

from ops.model.numerics.forward import RoundedProducts, predict
from shared.model.folder import CHATML, Manifest, ModelFolder, Source
from tests.pytorch.torch_engines import GREEDY, logits_of, on_device
from tests.support.models.rounded import TEXT, checkpoint_of, rounded_of
from workers.engine import PrefillChunk
from workers.engine.torch.device import TorchDevice
from workers.engine.torch.engine import TorchEngine
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.eight_bit.quantize import GRIDS, Grid
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.tensorrt import write_tensorrt_decoder

MAX_LENGTH = 64
NOWHERE = Source(name="random", sha256="0" * 64)


def engine_of(checkpoint: Checkpoint, rounded: dict[str, RoundedLinear], folder: Path, grid: Grid) -> TorchEngine:
    folder.mkdir(exist_ok=True)
    write_tensorrt_decoder(checkpoint, folder, max_length=MAX_LENGTH, rounded=rounded, progress=lambda _: None)
    manifest = Manifest(
        name="random", revision="0" * 64, precision="int8-mlp" if grid.name == "int8" else "fp8-mlp", source=NOWHERE,
        architecture=checkpoint.architecture, stop_token_ids=(), chat_template=CHATML, files=(), dialect="tensorrt",
    )  # fmt: skip
    return on_device(ModelFolder(folder, manifest), TorchDevice("cpu"), num_slots=1, max_length=MAX_LENGTH)


def log_probabilities(engine: TorchEngine) -> np.ndarray:
    """Return the log probability of each token of `TEXT` after the first, given the tokens before it."""
    found = []
    for length in range(1, len(TEXT)):
        engine.prefill([PrefillChunk(slot=0, past=0, token_ids=TEXT[:length], sampling=GREEDY)])
        logits = logits_of(engine).astype(np.float64)
        found.append(logits[TEXT[length]] - np.log(np.exp(logits).sum()))
    return np.array(found)


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("name", ["llama, linear scaling, every bias", "qwen3, tied"])
def test_a_model_of_8_bits_gives_numpys_probabilities(tmp_path: Path, name: str, grid: Grid) -> None:
    """Two models: one with an 8-bit MLP throughout; one where a matrix has only its weights in 8 bits, and another
    stays fp16, and with it the matrix that reads the same input."""
    checkpoint = checkpoint_of(tmp_path / "source", name)
    for rounded in (
        rounded_of(checkpoint, grid),
        rounded_of(checkpoint, grid, weights_alone="layers.0.mlp.down_proj", fp16="layers.1.mlp.up_proj"),
    ):
        expected = predict(checkpoint, [TEXT], RoundedProducts(rounded)).log_probability
        difference = np.abs(log_probabilities(engine_of(checkpoint, rounded, tmp_path / "graph", grid)) - expected)
        assert np.median(difference) < 0.06  # ONNX Runtime: 0.05
        assert difference.max() < 0.3
