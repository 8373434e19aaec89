"""One call's end: a client that goes away is no fault of the gateway."""

from typing import Any

import pytest
from grpc import aio

from gateway.doors.grpc.calls import Call
from shared.errors import ProtocolError
from shared.settings.gateway import GatewaySettings
from shared.telemetry import metrics


class Gone:
    """A call's context after its client has reset the stream: gRPC fails each operation."""

    async def read(self) -> bytes:
        raise aio.InternalError

    async def write(self, message: Any) -> None:
        raise aio.InternalError

    async def abort(self, *status: Any) -> None:
        raise aio.InternalError


async def refused() -> None:
    raise ProtocolError("no_request", "no message within 5 s")


@pytest.mark.parametrize("at", ["a refusal", "a write"])
async def test_a_disconnecting_client_is_no_fault(at: str) -> None:
    context: Any = Gone()
    call = Call(context=context, settings=GatewaySettings(), promised_ms=1_000)
    faults = metrics.faults.labels("connection")._value
    before = faults.get()
    await call.carry(refused() if at == "a refusal" else context.write(b""))
    assert call.gone
    assert faults.get() == before
