"""A caller that starts a process waits until it is ready: for its model as long as it loads, for anything else a
limited time.
"""

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from ops.stack.processes import Child, ServiceError, free_port
from ops.stack.readiness import missing_at, wait_ready
from shared.settings import load_settings
from shared.sockets.listening import ListenAddress
from shared.telemetry.logs import configure_logs
from shared.telemetry.status import Readiness, serve_status
from tests.support.hostile.one_answer import saying

START_S = 1.5


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setattr("ops.stack.readiness._START_S", START_S)
    monkeypatch.setattr("ops.stack.readiness._REPORT_AFTER_S", START_S)
    child = Child.start([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()


def for_so_long(begun_s: float, seconds: float, problem: str) -> Callable[[], str | None]:
    return lambda: problem if time.monotonic() < begun_s + seconds else None


async def test_a_model_may_load_longer_than_a_process_may_take_and_this_is_logged_once(
    child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(load_settings().log, process="up")
    port, begun_s = free_port(), time.monotonic()
    readiness = Readiness({"engine": for_so_long(begun_s, 2 * START_S, "the model is loading")})
    async with await serve_status(ListenAddress("127.0.0.1", port, "", ""), readiness):
        await wait_ready(child, f"http://127.0.0.1:{port}/ready", "the worker")
    assert time.monotonic() - begun_s >= 2 * START_S
    [line] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["event"], line["what"], line["cause"]) == ("still_waiting", "the worker", "the model is loading")


async def test_a_process_missing_any_other_service_is_given_up(child: Child) -> None:
    port = free_port()
    readiness = Readiness({"kafka": lambda: "no broker"})
    async with await serve_status(ListenAddress("127.0.0.1", port, "", ""), readiness):
        with pytest.raises(ServiceError, match="the worker is not ready after"):
            await wait_ready(child, f"http://127.0.0.1:{port}/ready", "the worker")


async def test_a_silent_process_is_given_up(child: Child) -> None:
    with pytest.raises(ServiceError, match="the worker is not ready after"):
        await wait_ready(child, f"http://127.0.0.1:{free_port()}/ready", "the worker")


async def test_a_process_that_ends_while_its_model_loads_is_not_waited_for(child: Child) -> None:
    port = free_port()
    async with await serve_status(
        ListenAddress("127.0.0.1", port, "", ""), Readiness({"engine": lambda: "the model is loading"})
    ):
        child.kill()
        with pytest.raises(ServiceError, match="the worker was ended by signal 9"):
            await wait_ready(child, f"http://127.0.0.1:{port}/ready", "the worker")


async def test_a_local_process_is_asked_directly_despite_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(
        urllib.request, "_opener", None
    )  # Python's own opener, which keeps the proxies set at its creation
    port = free_port()
    async with await serve_status(ListenAddress("127.0.0.1", port, "", ""), Readiness({"kafka": lambda: "no broker"})):
        assert await asyncio.to_thread(missing_at, f"http://127.0.0.1:{port}/ready") == {"kafka": "no broker"}


@pytest.mark.parametrize(
    "answer", [b"what?\r\n\r\n", b"HTTP/1.1 503 No\r\nContent-Length: 99\r\n\r\ncut off"], ids=["no HTTP", "cut off"]
)
async def test_an_invalid_answer_is_requested_again(answer: bytes) -> None:
    async with saying(answer) as url:
        assert await asyncio.to_thread(missing_at, f"{url}/ready") is None
