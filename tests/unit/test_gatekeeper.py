"""What admission learns from the replies."""

from test_inflight import R1, delta, done

from gateway.admission import Admission, AdmissionPolicy
from gateway.gatekeeper import Gatekeeper
from shared.deadline import Deadline
from shared.messages import ReplyDone
from shared.settings import Settings


def gatekeeper() -> Gatekeeper:
    """It has sent one request to the workers, at 0 ms."""
    keeper = Gatekeeper(Admission(AdmissionPolicy.of(Settings())))
    deadline = Deadline(first_token_unix_ms=200, deadline_unix_ms=1_000)
    decision = keeper.admission.decide(R1, "demo", "short", deadline, received_unix_ms=0, now_unix_ms=0)
    assert decision.light is None
    return keeper


def test_a_workers_first_word_is_measured() -> None:
    keeper = gatekeeper()
    keeper.heard([delta("Hi"), done("Hi")], 50)
    assert keeper.admission.breaker.words == 1


def test_a_gateways_own_end_in_the_log_says_nothing_of_the_workers() -> None:
    """Else a fallback would pass for the word of a worker that hangs."""
    keeper = gatekeeper()
    end = done("Within 5 days.")
    keeper.heard(
        [ReplyDone(**{name: getattr(end, name) for name in end.__struct_fields__} | {"origin": "gateway"})], 50
    )
    assert keeper.admission.breaker.words == 0
    keeper.heard([done("")], 60)
    assert keeper.admission.breaker.words == 1
