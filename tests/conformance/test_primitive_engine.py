"""The engine over the dialect for older TensorRT owes the worker what every engine does: those of the common tests that
touch where a step's keys and values go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.model.prepare import prepare_model
from tests.conformance.test_engines import (
    MAX_LENGTH,
    NUM_SLOTS,
    Case,
    test_a_batch_gives_each_row_what_it_gets_alone,
    test_a_prefix_from_kv_spares_its_computation,
    test_a_prompt_in_chunks_gives_the_same_tokens,
    test_answers_depend_on_every_token_of_the_prompt,
    test_arrival_and_leaving_in_any_order_change_no_token,
    test_exported_blocks_join_and_are_the_stated_size,
    test_slots_do_not_touch_each_other,
)
from tests.support.models.onnx_device import on_the_cpu

__all__ = [
    "test_a_batch_gives_each_row_what_it_gets_alone",
    "test_a_prefix_from_kv_spares_its_computation",
    "test_a_prompt_in_chunks_gives_the_same_tokens",
    "test_answers_depend_on_every_token_of_the_prompt",
    "test_arrival_and_leaving_in_any_order_change_no_token",
    "test_exported_blocks_join_and_are_the_stated_size",
    "test_slots_do_not_touch_each_other",
]


@pytest.fixture(scope="module")
def case(tiny_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    models = tmp_path_factory.mktemp("models")
    folder = prepare_model(models, "fp16", source=tiny_source, max_length=MAX_LENGTH, primitive=True)
    engines = [on_the_cpu(folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH) for _ in range(2)]
    yield Case(*engines)
    for engine in engines:
        engine.close()
