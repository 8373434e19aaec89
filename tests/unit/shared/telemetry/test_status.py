"""Health probes: which process takes traffic, is degraded, or is not ready."""

from http import HTTPStatus

import msgspec
import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response

from shared.telemetry.status import Drain, Paced, Readiness, http_response, may_change, status_page

GONE = "no Kafka at k:9092"


def told(path: str, *missing: str) -> tuple[int, dict[str, object], bool]:
    """Return status, body, and whether Envoy sends less here, of a process that needs its keys and can do without
    Kafka.
    """
    checks = {name: (lambda: GONE) if name in missing else (lambda: None) for name in ("kafka", "keys")}
    page = status_page(path, Readiness(checks, optional=frozenset({"kafka"})))
    assert page is not None
    return page.status_code, msgspec.json.decode(page.body), "x-envoy-degraded" in page.headers


@pytest.mark.parametrize("path", ["/ready", "/ready/strict"])
def test_a_process_with_everything_is_ready(path: str) -> None:
    assert told(path) == (200, {"status": "ready"}, False)


def test_a_process_without_an_optional_service_takes_traffic_and_reports_degraded() -> None:
    missing = {"kafka": GONE}
    assert told("/ready", "kafka") == (200, {"status": "degraded", "missing": missing}, True)
    assert told("/ready/strict", "kafka") == (503, {"status": "not ready", "missing": missing}, False)


@pytest.mark.parametrize("path", ["/ready", "/ready/strict"])
@pytest.mark.parametrize("missing", [("keys",), ("keys", "kafka")])
def test_a_process_without_a_required_service_takes_no_traffic(path: str, missing: tuple[str, ...]) -> None:
    assert told(path, *missing) == (503, {"status": "not ready", "missing": dict.fromkeys(missing, GONE)}, False)


def test_a_process_without_any_service_stays_alive() -> None:
    assert told("/health", "keys", "kafka") == (200, {"status": "ok"}, False)


@pytest.mark.parametrize("path", ["/", "/ready/", "/ready/kafka", "/metrics/x", "/drain"])
def test_any_other_path_is_not_found(path: str) -> None:
    assert status_page(path, Readiness()) is None


@pytest.mark.parametrize(("done", "status"), [(False, "draining"), (True, "drained")])
def test_a_draining_process_is_not_ready_and_reports_when_it_is_empty(*, done: bool, status: str) -> None:
    drain = Drain()
    readiness = Readiness(drain=drain)
    assert status_page("/ready", readiness).status_code == 200  # type: ignore[union-attr]
    for _ in range(2):
        drain.done = done and drain.asked.is_set()
        page = status_page("/drain", readiness)
    assert drain.asked.is_set()
    assert page is not None
    assert (page.status_code, msgspec.json.decode(page.body)) == (200, {"status": status})
    for path in ("/ready", "/ready/strict"):
        page = status_page(path, readiness)
        assert page is not None
        assert (page.status_code, msgspec.json.decode(page.body)["status"]) == (503, status)


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({"Host": "10.0.0.7:8082", "User-Agent": "kube-lifecycle/1.31"}, True),
        ({"Host": "127.0.0.1:8082", "User-Agent": "curl/8.9"}, True),
        ({"Host": "[::1]:8082"}, True),
        ({"Host": "localhost:8082"}, True),
        ({"Host": "gateway-0.gateway.shop.svc.cluster.local:8082"}, True),
        ({}, True),
        ({"Host": "127.0.0.1:8082", "Origin": "https://evil.example"}, False),
        ({"Host": "127.0.0.1:8082", "Origin": "null"}, False),
        ({"Host": "127.0.0.1:8082", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, False),
        ({"Host": "127.0.0.1:8082", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Host": "10.0.0.7:8082", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}, False),
        ({"Host": "10.0.0.7:8082", "Referer": "http://evil.example/"}, False),
        ({"Host": "10.0.0.7:8082", "Accept-Language": "en"}, False),
        ({"Host": "evil.example:8082"}, False),
        ({"Host": "127.0.0.1.evil.example"}, False),
    ],
)
def test_only_a_program_at_an_internal_address_may_drain(headers: dict[str, str], *, may: bool) -> None:
    assert may_change(Headers(headers)) is may


class Pages:
    """A thread that makes pages of 10 ms; `each_s` passes before the next request."""

    def __init__(self, each_s: float) -> None:
        self.now_s, self.cpu_s, self.made, self.each_s = 100.0, 5.0, 0, each_s
        self.paced = Paced(cpu_s=lambda: self.cpu_s, now_s=lambda: self.now_s)

    def _make(self) -> Response:
        self.now_s, self.cpu_s, self.made = self.now_s + 0.03, self.cpu_s + 0.01, self.made + 1
        return http_response(HTTPStatus.OK, "text/plain", b"")

    def ask(self, times: int) -> None:
        for _ in range(times):
            assert self.paced.get(self._make) is not None
            self.now_s += self.each_s


def test_a_flood_of_metrics_requests_costs_a_quarter_of_the_time() -> None:
    pages = Pages(each_s=0.00001)
    pages.ask(1_000_000)
    assert pages.made * 0.01 == pytest.approx((pages.now_s - 100) / 4 + 1, rel=0.05)


def test_a_reader_that_is_no_flood_gets_each_page_as_it_is_then() -> None:
    pages = Pages(each_s=0.02)
    pages.ask(10_000)
    assert pages.made == 10_000
