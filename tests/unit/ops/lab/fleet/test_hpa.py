"""The HorizontalPodAutoscaler's arithmetic, held to the examples of Kubernetes' documentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.fleet.hpa import SYNC_MS, Behaviour, Rule, of_average, of_utilisation


@pytest.mark.parametrize(
    ("utilisation", "target", "ready", "loading", "replicas"),
    [
        (2.0, 1.0, 3, 0, 6),  # "the number of replicas will be doubled, since 200.0 / 100.0 == 2.0"
        (0.5, 1.0, 6, 0, 3),  # "you'll halve the number of replicas"
        (0.90, 0.75, 50, 0, 60),  # the example of configurable tolerance
        (0.82, 0.75, 50, 0, 50),  # "sufficiently close to 1.0 (… 0.1 by default)"
        (1.6, 0.8, 2, 2, 4),  # "not-yet-ready pods are consuming 0% of the desired metric": 0.8 a pod is the target
        (2.0, 1.0, 3, 1, 6),  # … further dampening the magnitude of a scale up: not 8
        (1.2, 1.0, 2, 2, 4),  # "if the new ratio reverses the scale direction … doesn't take any scaling action"
        (0.4, 0.8, 4, 1, 2),  # set aside where fewer are asked for
        (0.9, 0.8, 0, 3, 3),  # no worker is ready: nothing is known
    ],
)
def test_replicas_by_utilisation(utilisation: float, target: float, ready: int, loading: int, replicas: int) -> None:
    assert of_utilisation(utilisation, target, ready=ready, loading=loading) == replicas


@pytest.mark.parametrize(
    ("total", "target", "replicas", "wanted"), [(100, 10, 4, 10), (41, 10, 4, 4), (30, 10, 4, 3), (25, 10, 0, 3)]
)
def test_replicas_by_an_average_value(total: float, target: float, replicas: int, wanted: int) -> None:
    assert of_average(total, target, replicas=replicas) == wanted


def test_grows_by_four_pods_or_doubles_every_fifteen_seconds() -> None:
    """ "4 pods or a 100% of the currently running replicas will be added every 15 seconds"."""
    behaviour = Behaviour(least=1, most=100)
    sizes = [1]
    for sync in range(5):
        sizes.append(behaviour.follow(100, sizes[-1], sync * SYNC_MS))
    assert sizes == [1, 5, 10, 20, 40, 80]


def test_shrinks_as_the_documented_policies_allow() -> None:
    """ "during the first step 8 replicas will be reduced … 10% of the pods is 7.2 but the number is rounded up to 8
    … below 40 … 4 replicas will be reduced at a time"."""
    rules = (Rule("pods", 4, 60_000), Rule("percent", 10, 60_000))
    behaviour = Behaviour(least=1, most=100, down=rules, stabilization_ms=0)
    sizes = [80]
    while sizes[-1] > 26:
        sizes.append(behaviour.follow(10, sizes[-1], len(sizes) * 60_000))
    assert sizes == [80, 72, 64, 57, 51, 45, 40, 36, 32, 28, 24]
    assert behaviour.follow(10, 24, len(sizes) * 60_000 - 45_000) == 24  # the minute's four are gone already


def test_shrinks_to_the_highest_recommendation_of_the_last_five_minutes() -> None:
    """ "uses the highest value from the specified interval"."""
    behaviour = Behaviour(least=1, most=100)
    assert behaviour.follow(10, 10, 0) == 10
    assert behaviour.follow(6, 10, 60_000) == 10
    assert behaviour.follow(2, 10, 299_000) == 10
    assert behaviour.follow(2, 10, 300_000) == 6
    assert behaviour.follow(2, 6, 360_000) == 2


@given(st.lists(st.integers(0, 200), min_size=1), st.integers(1, 20))
def test_stays_within_its_bounds(desired: list[int], least: int) -> None:
    behaviour, size = Behaviour(least=least, most=40), least
    for sync, wanted in enumerate(desired):
        size = behaviour.follow(wanted, size, sync * SYNC_MS)
        assert least <= size <= 40
