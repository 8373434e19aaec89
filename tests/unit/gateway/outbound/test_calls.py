"""A call to an operator's address is bounded as a whole."""

import threading

import pytest

from gateway.outbound import calls as module
from gateway.outbound.calls import CallError, Calls
from tests.support.servers.called_server import Call, CalledServer, Reply


async def test_an_answer_that_does_not_end_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a single read does not end the call here."""
    calls, asked = Calls({}), threading.Event()

    def hang(_: Call) -> Reply:
        asked.wait()
        return Reply()

    monkeypatch.setattr(module, "_TIMEOUT_S", 0.05)
    with CalledServer(hang).serve() as server:
        try:
            with pytest.raises(CallError, match="TimeoutError"):
                await calls.call("POST", server.url)
        finally:
            asked.set()
            await calls.close()
