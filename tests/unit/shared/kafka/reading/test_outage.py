"""A reader that tries five times a second says once a minute that it cannot read."""

from structlog.testing import capture_logs

from shared.kafka import Outage


def test_what_stays_so_is_said_once_a_minute_and_what_is_new_at_once() -> None:
    outage = Outage("kafka replies")
    with capture_logs() as lines:
        for second in range(130):
            outage.still("no right to read the topic", 1_000.0 + second)
        outage.still("no broker", 1_130.0)
        outage.still("no broker", 1_131.0)
    assert [line["cause"] for line in lines] == ["no right to read the topic"] * 3 + ["no broker"]
    assert {(line["event"], line["what"], line["action"]) for line in lines} == {
        ("unavailable", "kafka replies", "retrying")
    }
