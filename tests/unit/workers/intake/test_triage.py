"""A late record is skipped or answered by its headers alone: never forgotten, and no header is trusted blindly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.intake.triage import ANSWERED_MS, Late, Triage, TriageDecision, deadline_in

NOW = 1_790_000_000_000.5
TRIAGE = Triage("chat.replies", ("chat.replies", "chat.replies.*"))


def headers(**changed: bytes | None) -> dict[str, bytes]:
    given = {
        "ce_id": b"r1",
        "deadline-unix-ms": str(int(NOW) - 60_000).encode(),
        "reply-topic": b"chat.replies.crm",
        **{name.replace("_unix_ms", "-unix-ms").replace("reply_", "reply-"): value for name, value in changed.items()},
    }
    return {name: value for name, value in given.items() if value is not None}


def fate(**changed: bytes | None) -> TriageDecision | Late:
    return TRIAGE.classify(headers(**changed), b"demo/s1", NOW)


def ms(before_now: int) -> bytes:
    return str(int(NOW) - before_now).encode()


@pytest.mark.parametrize(
    ("late_ms", "expected"),
    [(-1, TriageDecision.OPEN), (0, Late), (ANSWERED_MS - 1, Late), (ANSWERED_MS, TriageDecision.SKIP)],
)
def test_a_gateways_late_record_is_passed_over_once_its_gateway_must_have_answered(
    late_ms: int, expected: TriageDecision | type[Late]
) -> None:
    found = TRIAGE.classify(
        headers(reply_topic=b"chat.replies", deadline_unix_ms=ms(0)), b"demo/s1", int(NOW) + late_ms
    )
    assert (found if isinstance(found, TriageDecision) else Late) is expected


def test_a_shadows_late_record_is_passed_over_at_once() -> None:
    shadows = Triage("chat.replies", ("chat.replies",), answered_ms=0)
    assert (
        shadows.classify(headers(reply_topic=b"chat.replies", deadline_unix_ms=ms(0)), b"demo/s1", NOW)
        is TriageDecision.SKIP
    )


@pytest.mark.parametrize("late_ms", [0, 1, ANSWERED_MS, 86_400_000])
def test_another_services_late_record_is_answered_however_late(late_ms: int) -> None:
    found = fate(deadline_unix_ms=ms(late_ms))
    assert isinstance(found, Late)
    assert (found.topic, found.partition) == ("chat.replies.crm", None)
    done = found.done
    assert (done.request_id, done.session_id, done.status, done.reason) == ("r1", "s1", "incomplete", "deadline")
    assert (done.output_text, done.attempt) == ("", int(NOW))


@pytest.mark.parametrize(
    "key", [None, b"", b"demo", b"demo/", b"demo/s1/s2", b"demo/\xff", b"\xff", b"demo/" + b"s" * 65], ids=repr
)
def test_a_key_of_another_form_names_no_session(key: bytes | None) -> None:
    found = TRIAGE.classify(headers(), key, NOW)
    assert isinstance(found, Late)
    assert found.done.session_id == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"deadline_unix_ms": None},
        {"deadline_unix_ms": b""},
        {"deadline_unix_ms": b"soon"},
        {"deadline_unix_ms": b"-1"},
        {"deadline_unix_ms": b"1e12"},
        {"deadline_unix_ms": b"9" * 5_000},
        {"deadline_unix_ms": b"1790000000"},
        {"deadline_unix_ms": ms(-1)},
        {"ce_id": None},
        {"reply_topic": None},
        {"reply_topic": b"payments"},
        {"reply_topic": b"chat.replies.\xff"},
        {"ce_id": b"\xff"},
    ],
    ids=str,
)
def test_a_record_whose_headers_do_not_settle_it_is_opened(changed: dict[str, bytes | None]) -> None:
    """A missing or invalid deadline, one in the future; no client to answer, no topic, or a forbidden one."""
    assert fate(**changed) is TriageDecision.OPEN


@pytest.mark.parametrize("partition", [b"", b"x", b"-1", b"9" * 5_000])
def test_a_reply_partition_that_is_none_is_left_to_the_key(partition: bytes) -> None:
    found = fate(reply_partition=partition)
    assert isinstance(found, Late)
    assert found.partition is None


@given(
    st.dictionaries(
        st.sampled_from(["ce_id", "deadline-unix-ms", "reply-topic", "reply-partition"]),
        st.binary(max_size=20) | st.integers(0, 10**17).map(lambda number: str(number).encode()),
    ),
    st.none() | st.binary(max_size=20),
)
def test_no_headers_bring_the_intake_down(given_headers: dict[str, bytes], key: bytes | None) -> None:
    found = TRIAGE.classify(given_headers, key, NOW)
    deadline = deadline_in(given_headers)
    assert found is TriageDecision.OPEN or (deadline is not None and deadline <= NOW)
