"""Requests, answers, erasures and reports in any order leave the counts right and exclude no client for ever."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.destination.breaker import BreakerPolicy, BreakerState
from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS
from tests.support.builders.gateway import NOW
from tests.unit.examples import examples
from tests.unit.gateway.destination.test_admission import decide, make_admission, report


class AnyTraffic(RuleBasedStateMachine):
    """Requests, words, answers and reports in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = make_admission(breaker=BreakerPolicy(fewest_words=5, num_probes=2))
        self.now = NOW
        self.number = 0
        self.inflight: set[str] = set()
        self.silent: set[str] = set()

    @rule(later=st.sampled_from([0.0, 10.0, 500.0, 3_100.0, 6_100.0]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule(first_token_ms=st.sampled_from([0.0, 100.0, 3_000.0, 60_000.0]))
    def hear_of_the_worker(self, first_token_ms: float) -> None:
        self.admission.fleet.observe(report(first_token_ms=first_token_ms), self.now)

    @rule(bucket=st.sampled_from(BUCKETS), times=st.integers(1, 20))
    def ask(self, bucket: Bucket, times: int) -> None:
        for _ in range(times):
            self.number += 1
            self._ask(f"r{self.number}", bucket)

    @precondition(lambda self: self.silent - self.inflight)
    @rule(data=st.data(), bucket=st.sampled_from(BUCKETS))
    def ask_again(self, data: st.DataObject, bucket: Bucket) -> None:
        """Repeat, under the same id, a request that was erased before a worker replied."""
        name = data.draw(st.sampled_from(sorted(self.silent - self.inflight)))
        self.silent.discard(name)
        self._ask(name, bucket)

    def _ask(self, name: str, bucket: Bucket) -> None:
        decision = decide(self.admission, name, now=self.now, bucket=bucket)
        if decision.fallback is None:
            self.inflight.add(name)
            self.silent.add(name)
        assert decision.fallback != "infeasible" or decision.eta_ms is not None

    @precondition(lambda self: self.silent)
    @rule(data=st.data(), withdrawn=st.booleans())
    def hear(self, data: st.DataObject, withdrawn: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.silent)))
        self.silent.discard(name)
        if withdrawn:
            self.admission.withdraw(name)
        else:
            self.admission.note_first_reply(name, self.now)

    @precondition(lambda self: self.inflight)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.inflight)))
        self.inflight.discard(name)
        self.admission.release(name)

    @invariant()
    def the_books_are_right(self) -> None:
        assert self.admission.inflight == len(self.inflight)
        assert set(self.admission._silent) <= self.silent
        breaker, silent = self.admission.breaker, self.admission._silent.values()
        probes = [probe for sent in silent for probe in sent.probes]
        for each in {breaker, *(owner for owner, _ in probes)}:
            if each.state is BreakerState.HALF_OPEN:
                assert each._probes_out == sum(each._counts(probe) for owner, probe in probes if owner is each)

    def teardown(self) -> None:
        """No refusal is permanent: once all is answered and the workers are fast, a minute resets everything."""
        for name in self.inflight:
            self.admission.release(name)
        for second in range(60):
            now = self.now + second * 1_000
            self.admission.fleet.observe(report(first_token_ms=10.0), now)
            fallback = decide(self.admission, f"late{second}", now=now).fallback
            if fallback is None:
                self.admission.note_first_reply(f"late{second}", now + 10)
                self.admission.release(f"late{second}")
        assert fallback is None
        assert self.admission.breaker.state is BreakerState.CLOSED


AnyTraffic.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestAnyTraffic = AnyTraffic.TestCase
