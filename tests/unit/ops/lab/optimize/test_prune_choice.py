"""Parts are removed in the order of what they cost for each millisecond that they save."""

import itertools

import numpy as np
import pytest

from ops.lab.optimize.lessons import Lesson
from ops.lab.optimize.prune.choosing import Chooser, Size, Speed, probes, speed_of
from ops.lab.optimize.prune.importance import Predicted, predicted, shares_of
from ops.lab.optimize.prune.parts import Kept, smaller
from shared.errors import SettingsError
from shared.model.folder import Architecture
from tests.support.models.fixtures import TINY
from workers.graph.sources.checkpoint import Checkpoint, Weight, expected_shapes

LESSONS = [Lesson((5, 9, 77, 30, 8, 120, 44), 3), Lesson((1, 60, 200, 7, 13), 2)]
FOUR_LAYERS = Architecture(**{field: getattr(TINY, field) for field in TINY.__struct_fields__} | {"num_layers": 4})
WHOLE = Size(4, 2, 96)


def decoder(
    *, idle_layer: int | None = None, idle_channels: range = range(0), idle_group: int | None = None
) -> Checkpoint:
    """Return a random decoder in which these parts add nothing."""
    random = np.random.default_rng(3)
    weights = {}
    for name, shape in expected_shapes(FOUR_LAYERS).items():
        values = random.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
        if name.endswith("norm"):
            values = np.ones(shape, np.float32)
        if name.startswith(f"layers.{idle_layer}.") and name.endswith(("o_proj", "down_proj")):
            values[:] = 0
        if name.endswith("down_proj"):
            values[:, list(idle_channels)] = 0
        if name.endswith("o_proj") and idle_group is not None:
            values[:, 32 * idle_group : 32 * idle_group + 32] = 0
        weights[name] = Weight(shape, lambda values=values: values)
    return Checkpoint(architecture=FOUR_LAYERS, weights=weights)


def chooser(checkpoint: Checkpoint) -> Chooser:
    return Chooser(
        checkpoint=checkpoint,
        lessons=LESSONS,
        shares=shares_of(checkpoint, LESSONS),
        reference=predicted(checkpoint, LESSONS),
    )


@pytest.mark.parametrize("idle", range(4))
def test_the_layer_that_adds_nothing_goes_first(idle: int) -> None:
    choosing = chooser(decoder(idle_layer=idle))
    kept = choosing.of_size(Size(3, 2, 96))
    assert kept.layers == tuple(layer for layer in range(4) if layer != idle)
    assert choosing.divergence(Size(3, 2, 96)) == pytest.approx(0, abs=1e-5)


def test_the_channels_and_groups_that_add_nothing_go_first() -> None:
    choosing = chooser(decoder(idle_channels=range(20, 52), idle_group=1))
    kept = choosing.of_size(Size(4, 1, 64))
    assert [list(each) for each in kept.groups] == [[0]] * 4
    assert all(not {*each.tolist()} & {*range(20, 52)} for each in kept.channels)
    assert choosing.divergence(Size(4, 1, 64)) == pytest.approx(0, abs=1e-5)


def test_what_costs_nothing_is_removed_before_what_costs_something() -> None:
    """With equal savings the idle group goes first, then the idle layer."""
    speed = Speed(WHOLE, whole_ms=10, layer_ms=2, group_ms=0.5, channel_ms=0.001)
    steps = [*chooser(decoder(idle_layer=2, idle_group=0)).steps(speed, 6)]
    assert {step.removed for step in steps[:2]} == {"groups", "layer"}
    assert steps[1].divergence == pytest.approx(0, abs=1e-5)
    assert speed.ms(steps[-1].size) <= 6 < (steps[-2].decode_ms if len(steps) > 1 else 10)


def test_a_part_that_saves_no_time_is_never_removed() -> None:
    speed = Speed(WHOLE, whole_ms=10, layer_ms=2, group_ms=0, channel_ms=0)
    assert {step.removed for step in chooser(decoder()).steps(speed, 5)} == {"layer"}


def test_a_speed_out_of_reach_is_refused_with_what_is_reached() -> None:
    speed = Speed(WHOLE, whole_ms=10, layer_ms=1, group_ms=0, channel_ms=0)
    with pytest.raises(SettingsError, match=r"--faster 2: with 1 layers, .* it is 1.43 times as fast"):
        list(chooser(decoder()).steps(speed, 5))


def test_the_speed_formula_gives_the_measured_times_again() -> None:
    measured = {size: 3 + size.layers * (1 + 0.25 * size.groups + 0.01 * size.channels) for size in probes(WHOLE)}
    speed = speed_of([*measured], [*measured.values()])
    for layers, groups, channels in itertools.product((1, 4), (1, 2), (32, 96)):
        size = Size(layers, groups, channels)
        assert speed.ms(size) == pytest.approx(3 + layers * (1 + 0.25 * groups + 0.01 * channels))


def test_the_divergence_is_of_the_answers_tokens_alone() -> None:
    checkpoint = decoder()
    found = predicted(checkpoint, LESSONS)
    assert len(found.log_probabilities) == sum(len(lesson.ids) - lesson.start for lesson in LESSONS)
    np.testing.assert_allclose(np.exp(found.log_probabilities).sum(axis=1), 1, rtol=1e-4)
    other = predicted(smaller(checkpoint, Kept((0, 1), *parts_of(checkpoint))), LESSONS)
    p, q = np.exp(found.log_probabilities), other.log_probabilities
    assert found.divergence(other) == pytest.approx(float((p * (np.log(p) - q)).sum(axis=1).mean()), rel=1e-4)
    assert found.agreement(Predicted(found.log_probabilities)) == 1


def parts_of(checkpoint: Checkpoint) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    whole = Kept.all_of(checkpoint.architecture)
    return whole.groups, whole.channels
