"""The producer mode's records are those that a gateway would have written."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from ops.texts.prompts import LENGTHS
from shared.errors import SettingsError
from shared.records.requests import open_request, request_headers, settle
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import CE_ID, BucketEdges, TopicNames, session_key
from tests.bench.produce.kafka import client_config
from tests.bench.produce.order import Order
from tests.bench.produce.program import ProduceOptions, parse_rate
from tests.bench.produce.records import Stock, request_id, session_id
from tests.support.samples.request_defaults import DEFAULTS

NOW = 1_800_000_000_123.0
EDGES = BucketEdges(short_max_tokens=64, medium_max_tokens=256)


def stock(mix: dict[str, float]) -> Stock:
    return Stock(
        topics=TopicNames(),
        defaults=DEFAULTS,
        edges=EDGES,
        mix=mix,
        max_output_tokens=64,
    )


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 127))
def test_a_record_is_what_a_gateways_would_be(run: int, number: int, session: int, which: int) -> None:
    """Value, key and headers are read without a fault, agree with each other, and are what `settle` would have made."""
    template = stock({"short": 0.5, "medium": 0.3, "long": 0.2}).templates(NOW)[which]
    name, of = request_id(run, number), session_id(session)
    headers = dict([(CE_ID, name), *template.headers])
    request = open_request(template.value(name, of), headers)
    assert (request.id, request.session_id) == (name.decode(), of.decode())
    assert (request.created_unix_ms, request.deadline_unix_ms) == (int(NOW), int(NOW) + DEFAULTS.deadline_ms)
    order = settle(request, DEFAULTS, NOW)
    assert template.key(of) == session_key(order.tenant, request.session_id)
    assert headers == request_headers(order, source="replyline-bench")
    assert template.topic == f"chat.requests.{EDGES.bucket_of(len(request.input.split()))}"


def test_each_length_has_its_share_and_goes_to_its_bucket() -> None:
    templates = stock({"short": 0.75, "long": 0.25}).templates(NOW)
    assert Counter(template.bucket for template in templates) == {"short": 96, "long": 32}
    assert Counter(template.bucket for template in stock({"short": 0.999, "long": 0.001}).templates(NOW))["long"] == 1
    assert {EDGES.bucket_of(length) for length in LENGTHS.values()} == {"short", "medium", "long"}


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**40)), unique=True, max_size=50))
def test_no_two_requests_of_a_run_or_of_two_have_one_id(pairs: list[tuple[int, int]]) -> None:
    assert len({request_id(run, number) for run, number in pairs}) == len(pairs)


def test_an_order_is_the_same_on_the_other_side_of_a_pipe() -> None:
    order = Order(
        config={"acks": "all"}, stock=stock({"short": 1.0}), run=7, start_s=1.5, seconds=2.0, rate=None, requests=9,
        sessions=3,
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(order), type=Order) == order


def test_librdkafka_is_told_who_we_are(tmp_path: Path) -> None:
    plain = client_config(KafkaSettings(bootstrap_servers="a:1,b:2"))
    assert (plain["bootstrap.servers"], plain["security.protocol"], plain["acks"]) == ("a:1,b:2", "plaintext", "all")
    assert not any(name.startswith(("ssl.", "sasl.")) for name in plain)
    kafka = KafkaSettings(security="sasl_plaintext", username="u", password=SecretStr("p"))
    secured = client_config(kafka)
    assert (secured["sasl.mechanism"], secured["sasl.username"], secured["sasl.password"]) == (
        "SCRAM-SHA-512",
        "u",
        "p",
    )


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "nan", "inf", "1e12"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=f"--rate {text}: write max, or requests a second"):
        parse_rate(text)
    assert (parse_rate("max"), parse_rate("2e3")) == (None, 2_000.0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seconds": 0.0}, "--seconds 0"),
        ({"processes": 0}, "--processes 0"),
        ({"requests": 0}, "--requests 0"),
        ({"sessions": 0}, "--sessions 0"),
        ({"mix": "short=2"}, "--mix short=2"),
        ({"json_path": Path("/nowhere/at/all.json")}, "--json"),
    ],
)
def test_a_wrong_option_is_named(changed: dict[str, Any], said: str) -> None:
    given_: dict[str, Any] = {
        "rate": None, "seconds": 1.0, "processes": 2, "requests": 10, "sessions": 1, "prefix": "bench.",
        "mix": "short=1", "broker": "configured", "keep": False, "json_path": None,
    }  # fmt: skip
    with pytest.raises(SettingsError, match=said):
        ProduceOptions(**{**given_, **changed}).check()
