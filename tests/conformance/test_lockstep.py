"""A model beside its original: what is compared, and where comparing is refused."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ops.model.prepare import prepare_model
from ops.optimize.lockstep import compare, engine_for, evaluate
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family

PROMPTS = [np.random.default_rng(seed).integers(3, 320, 4 + seed).tolist() for seed in range(11)]
NUM_TOKENS = 6


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFolder]:
    directory = tmp_path_factory.mktemp("models")
    config = FAMILY_CONFIGS["llama, grouped, tied"]
    write_family(directory / "one", config, family_tensors(config, 3))
    write_family(directory / "other", config, family_tensors(config, 4))
    return {
        "fp32": prepare_model(directory, "fp32", source=directory / "one"),
        "int8": prepare_model(directory, "int8", source=directory / "one"),
        "other": prepare_model(directory, "int8", source=directory / "other"),
    }


def test_a_model_agrees_with_itself_at_every_position(folders: dict[str, ModelFolder]) -> None:
    original, same = (engine_for(folders["fp32"], max_length=32) for _ in range(2))
    found = compare(original, same, PROMPTS, num_tokens=NUM_TOKENS)
    assert found.prompts == len(PROMPTS)
    assert len(PROMPTS) <= found.positions <= len(PROMPTS) * NUM_TOKENS
    assert (found.agreement, found.noise) == (1, 0)
    original.close()
    same.close()


def test_eight_bits_are_near_and_another_model_is_not(folders: dict[str, ModelFolder]) -> None:
    original, near, far = (engine_for(folders[name], max_length=32) for name in ("fp32", "int8", "other"))
    found, other = (compare(original, one, PROMPTS, num_tokens=NUM_TOKENS) for one in (near, far))
    assert found.positions == other.positions
    assert found.agreement > 0.7 > other.agreement
    assert found.divergence < 0.05 < other.divergence
    for engine in (original, near, far):
        engine.close()


def test_folders_of_two_sources_are_not_compared(folders: dict[str, ModelFolder]) -> None:
    with pytest.raises(SettingsError, match="prepare both from one source"):
        evaluate(
            folders["other"].path,
            folders["fp32"].path,
            Console(stderr=True),
            num_prompts=1,
            num_tokens=1,
            bound=None,
            json_path=Path("unused"),
        )
