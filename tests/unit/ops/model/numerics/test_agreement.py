"""Agreement: which places are the same, how far apart, and what is told of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ops.model.numerics.agreement import Places, summary

LOGITS = arrays(np.float32, st.tuples(st.integers(1, 6), st.just(8)), elements=st.floats(-20, 20, width=32))


@given(LOGITS)
def test_a_model_agrees_with_itself_wholly(logits: np.ndarray) -> None:
    found = summary(Places.compared(logits, logits), prompts=1)
    assert found.agreement == 1
    assert found.divergence == pytest.approx(0, abs=1e-6)
    assert found.noise == 0
    assert found.disputed_margins is None
    assert found.positions == len(logits)


@given(LOGITS, st.floats(-5, 5, width=32))
def test_adding_the_same_to_every_logit_changes_nothing(logits: np.ndarray, shift: float) -> None:
    places = Places.compared(logits, logits + np.float32(shift))
    np.testing.assert_allclose(places.divergence, 0, atol=1e-4)
    np.testing.assert_allclose(places.missed, 0, atol=1e-4)


@given(LOGITS, st.data())
def test_divergence_is_never_negative(logits: np.ndarray, data: st.DataObject) -> None:
    other = data.draw(arrays(np.float32, logits.shape, elements=st.floats(-20, 20, width=32)))
    assert np.all(Places.compared(logits, other).divergence >= -1e-4)


def test_what_is_told_of_three_places_is_right() -> None:
    original = np.array([[3, 1, 0], [0, 2, 1.5], [1, 0, 4]], np.float32)
    other = np.array([[3, 1, 0], [0, 1.5, 2], [1, 0, 4.5]], np.float32)
    places = Places.compared(original, other)
    assert places.same.tolist() == [True, False, True]
    np.testing.assert_allclose(places.margin, [2, 0.5, 3])
    np.testing.assert_allclose(places.missed, [0, -1, 0.5])
    found = summary(places, prompts=2)
    assert found.prompts == 2
    assert found.agreement == pytest.approx(2 / 3)
    assert found.standard_error == pytest.approx(math.sqrt(2 / 27))
    assert found.noise == pytest.approx(math.sqrt(1.25 / 3))
    assert found.disputed_margins == pytest.approx((0.5, 0.5, 0.5))
    assert found.close_share == pytest.approx(1 / 3)


def test_parts_are_joined_in_order() -> None:
    parts = [Places.compared(np.eye(3, dtype=np.float32), rows) for rows in (np.eye(3), 1 - np.eye(3))]
    assert Places.joined(parts).same.tolist() == [True] * 3 + [False] * 3
