"""What a worker carries, by the scheduler and the admission that serve."""

from typing import Any

import msgspec
import pytest

from ops.scaling.autoscale.basis import Basis
from ops.scaling.autoscale.building import measure_of
from ops.scaling.autoscale.capacity import Capacity, costs_of, promise_of, simulate
from ops.scaling.autoscale.options import RunOptions
from ops.traces.costs import CPU, GPU, EngineCosts
from ops.traces.mixes import PROFILES
from shared.errors import SettingsError
from shared.settings import Settings
from shared.settings.promise import PromiseSettings
from shared.wire.step_law import StepLaw
from workers.schedule.costs import CostModel


def law_of(costs: EngineCosts, **lengths: float) -> StepLaw:
    return CostModel.from_state(costs.table).law(**({"prompt_tokens": 114.0, "output_tokens": 41.6} | lengths))


def carried(promise: PromiseSettings, basis: Basis) -> float:
    """Return what `replyline autoscale run` takes a worker to carry, of what workers report."""
    return measure_of(Settings(promise=promise), RunOptions())(basis).carries


def test_a_worker_carries_most_of_its_time_and_keeps_the_goal_there() -> None:
    found = simulate(CPU, Settings(), slots=4, goal=0.96)
    assert 0.5 < found.carries < 1.0
    assert found.in_time(found.carries) >= 0.96
    shares = [found.in_time(load / 20) for load in range(30)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1] < 0.96) == (1.0, True)


def test_it_is_simulated_with_the_operators_promise() -> None:
    """A GPU with the deadlines of a CPU's profile carries several times what it does with its own."""
    basis = Basis(law=law_of(GPU), slots=32)
    lax, strict = (carried(PromiseSettings(profile=profile), basis) for profile in ("cpu", "gpu"))
    true = simulate(msgspec.structs.replace(GPU, promised=PROFILES["gpu"]), Settings(), slots=32, goal=0.96)
    assert lax > 4 * strict
    assert true.in_time(strict) >= 0.96
    own = PromiseSettings(first_token_ms=600, deadline_ms=2_500)
    assert carried(own, Basis(law=law_of(CPU), slots=8)) < 0.5


def test_a_law_faster_or_slower_than_any_machine_is_simulated_or_refused() -> None:
    def basis(ms: float) -> Basis:
        law = StepLaw(decode_ms=ms, prefill_ms_per_token=ms, prompt_tokens=1e-9, output_tokens=1e-9)
        return Basis(law=law, slots=1)

    assert carried(PromiseSettings(), basis(1e-9)) > 0.0
    with pytest.raises(SettingsError, match="a faster engine"):
        carried(PromiseSettings(), basis(1e9))


def test_it_is_simulated_with_what_customers_ask() -> None:
    """Longer prompts and answers, and more of the long bucket, leave less of the deadlines."""
    usual = promise_of(PromiseSettings(), Basis())
    assert (usual.parts, usual.prompts_times, usual.answers_times) == ((0.7, 0.2, 0.1), 1.0, 1.0)
    longer = Basis(
        law=law_of(CPU, prompt_tokens=342.0, output_tokens=83.2), parts={"short": 0.7, "medium": 0.2, "long": 0.1}
    )
    asked = promise_of(PromiseSettings(), longer)
    assert (asked.prompts_times, asked.answers_times) == (pytest.approx(3.0), pytest.approx(2.0))
    strict = PromiseSettings(first_token_ms=1_000, deadline_ms=5_000)
    short = carried(strict, Basis(law=law_of(CPU), slots=8))
    assert carried(strict, msgspec.structs.replace(longer, slots=8)) < 0.8 * short


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({}, False),
        ({"law": law_of(CPU.times(1.1))}, False),
        ({"law": law_of(CPU.times(1.5))}, True),
        ({"law": law_of(CPU, output_tokens=90.0)}, True),
        ({"law": None}, True),
        ({"slots": 16}, True),
        ({"parts": {"short": 0.9, "long": 0.1}}, False),
        ({"parts": {"short": 0.5, "long": 0.5}}, True),
    ],
)
def test_a_worker_is_simulated_again_where_it_has_become_another(changes: dict[str, Any], differs: bool) -> None:
    basis = Basis(law=law_of(CPU), slots=8, parts={"short": 1.0})
    assert msgspec.structs.replace(basis, **changes).differs(basis) is differs


def test_a_goal_that_no_load_keeps_is_refused_with_the_remedy() -> None:
    with pytest.raises(SettingsError, match=r"--attainment 0.96.*later deadlines"):
        simulate(costs_of(law_of(CPU.times(40.0))), Settings(), slots=4, goal=0.96)


def test_what_an_operator_says_keeps_the_goal() -> None:
    given = Capacity.given(0.7, 0.96)
    assert [given.in_time(load) for load in (0.0, 0.35, 0.7, 1.4)] == [1.0, 1.0, 0.96, 0.5]
