"""What is left in half precision: the fewest of the worst, found in few evaluations, or what was named."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.model.numerics.exclusion import chosen, fewest_worst
from ops.model.numerics.plan import Left, left_option, parse_left, weight_bytes
from shared.errors import SettingsError
from tests.support.models.fixtures import TINY

MLP_LINEARS = [f"layers.{layer}.mlp.{matrix}_proj" for layer in (0, 1) for matrix in ("gate", "up", "down")]


@given(st.integers(1, 90), st.integers(0, 90), st.integers(1, 20))
def test_the_fewest_that_meet_the_aim_are_found(count: int, needed: int, most_evaluations: int) -> None:
    asked: list[int] = []

    def agreement(left_out: Sequence[int]) -> float:
        assert list(left_out) == list(range(len(left_out)))
        asked.append(len(left_out))
        return 0.97 if len(left_out) >= needed else 0.9

    trials = fewest_worst(range(count), agreement, aim=0.96, most_evaluations=most_evaluations)
    assert len(trials) == len(asked) == len(set(asked)) <= most_evaluations
    best = chosen(trials)
    if best.met:
        assert best.excluded >= needed
    if most_evaluations >= 16:
        assert best.met == (needed <= count)
        assert best.excluded == needed if best.met else best.excluded == 0


def test_nothing_is_left_out_where_nothing_needs_to_be() -> None:
    trials = fewest_worst("abc", lambda left_out: 0.99, aim=0.96, most_evaluations=9)
    assert [(trial.excluded, trial.met) for trial in trials] == [(0, True)]


def test_where_the_aim_is_not_met_the_best_is_taken() -> None:
    trials = fewest_worst("abcd", lambda left_out: 0.5 + 0.1 * (len(left_out) == 2), aim=0.96, most_evaluations=9)
    assert [trial.excluded for trial in trials] == [0, 1, 2, 4]
    assert chosen(trials).excluded == 2


def test_layers_and_matrices_are_named_and_named_back() -> None:
    left = parse_left("1:down:fp16, 0:gate,1:gate", TINY)
    assert left == {
        "layers.1.mlp.down_proj": "fp16",
        "layers.0.mlp.gate_proj": "weights",
        "layers.1.mlp.gate_proj": "weights",
    }
    assert left_option(left, TINY) == "*:gate,1:down:fp16"
    assert parse_left("", TINY) == {}
    assert left_option({}, TINY) == "none"


@given(st.dictionaries(st.sampled_from(MLP_LINEARS), st.sampled_from(["weights", "fp16"]), min_size=1))
def test_what_is_named_is_read_as_it_was(left: dict[str, Left]) -> None:
    assert parse_left(left_option(left, TINY), TINY) == left


@pytest.mark.parametrize("part", ["2:down", "0:qkv", "down", "-1:up", "0:", ":", "x:up", "0:down:int8", "0:down:"])
def test_what_names_no_matrix_is_refused(part: str) -> None:
    with pytest.raises(
        SettingsError, match=r"--exclude .*layer:matrix of layers 0 to 1 .* and gate, up, down"
    ) as refused:
        parse_left(f"0:down,{part}", TINY)
    assert repr(part) in str(refused.value)


def test_int8_takes_a_byte_a_weight_and_two_a_row() -> None:
    plain = weight_bytes(TINY, frozenset())
    down = weight_bytes(TINY, frozenset({"layers.0.mlp.down_proj"}))
    assert plain - down == TINY.hidden_size * TINY.intermediate_size - 2 * TINY.hidden_size
