"""State machines of Hypothesis, run as often as the promise on the protocol's properties says (docs/reliability.md)."""

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.reliability import Reliability

RUNS, STEPS = 1_000, 50


def run_machine(reliability: Reliability, make: Callable[[], RuleBasedStateMachine], *, part: int = 100) -> None:
    """`RUNS` runs of `STEPS` steps of what `make` makes, or `part` runs in the ordinary suite."""
    runs = reliability.amount(RUNS, part=part)
    made = 0

    def one() -> RuleBasedStateMachine:
        nonlocal made
        made += 1
        return make()

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        one, settings=settings(max_examples=runs, stateful_step_count=STEPS, suppress_health_check=list(HealthCheck))
    )
    reliability.found(
        figure=f"{made} runs of {STEPS} steps, every invariant held",
        target=f"{RUNS} runs of {STEPS} steps",
        holds=made >= runs,
    )
