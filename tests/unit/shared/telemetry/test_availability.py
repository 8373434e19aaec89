"""An outage is logged once, and its end once."""

from structlog.testing import capture_logs

from shared.telemetry.availability import Availability


def test_each_outage_is_logged_once_with_its_first_cause_and_once_when_it_ends() -> None:
    redis = Availability("redis")
    with capture_logs() as lines:
        redis.mark_up()
        for cause in ("refused", "refused", "no answer"):
            redis.mark_down(cause, action="retrying")
        redis.mark_up()
        redis.mark_up()
        redis.mark_down("again")
    assert [(line["event"], line["what"], line.get("cause"), line.get("action")) for line in lines] == [
        ("unavailable", "redis", "refused", "retrying"),
        ("available", "redis", None, None),
        ("unavailable", "redis", "again", None),
    ]


def test_the_line_names_the_cause_and_when_the_next_attempt_is_made() -> None:
    redis = Availability("redis")
    assert (redis.cause, redis.retry_at_s) == (None, 0.0)
    redis.mark_down("refused", retry_at_s=1.0)
    redis.mark_down("no answer", retry_at_s=2.0)
    assert (redis.cause, redis.retry_at_s) == ("no answer", 2.0)
    redis.mark_up()
    assert (redis.cause, redis.retry_at_s) == (None, 0.0)


def test_only_one_of_several_watchers_of_a_service_logs() -> None:
    quiet = Availability("redis", logs_outages=False)
    with capture_logs() as lines:
        quiet.mark_down("refused")
        quiet.mark_up()
    assert lines == []


def test_a_lasting_state_is_logged_once_a_minute_and_a_new_one_immediately() -> None:
    replies = Availability("kafka replies")
    with capture_logs() as lines:
        for second in range(130):
            replies.report_down("no right to read the topic", 1_000.0 + second)
        replies.report_down("no broker", 1_130.0)
        replies.report_down("no broker", 1_131.0)
    assert [line["cause"] for line in lines] == ["no right to read the topic"] * 3 + ["no broker"]
    assert {(line["event"], line["what"], line["action"]) for line in lines} == {
        ("unavailable", "kafka replies", "retrying")
    }
