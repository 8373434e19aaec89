"""Each part of the gateway closes all it owns, even if one fails, and reports what is missing."""

from types import SimpleNamespace
from typing import Any, Final

import pytest

from gateway.build import KafkaClients, RedisClients
from shared.settings import Settings
from workers import connections as workers_connections

CLIENTS: Final = ("producer", "handoff_producer", "replies")


def parts_of(wing: Any) -> list[Any]:
    """Return the parts that a wing closes."""
    return [part for part in vars(wing).values() if hasattr(part, "stop") or hasattr(part, "close")]


@pytest.mark.parametrize(
    "wing",
    [KafkaClients(Settings(), "g"), RedisClients(Settings()), workers_connections.KafkaConnections(Settings(), "w")],
)
async def test_a_part_that_fails_to_close_prevents_no_other_close(wing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Any]()

    def failing(part: Any) -> Any:
        async def close() -> None:
            closed.append(part)
            raise OSError("it is broken")

        return close

    parts = parts_of(wing)
    for part in parts:
        monkeypatch.setattr(type(part), "stop" if hasattr(part, "stop") else "close", lambda self: failing(self)())
    with pytest.raises(OSError, match="it is broken"):
        await wing.close()
    assert sorted(map(id, closed)) == sorted(map(id, parts))
    assert len(parts) >= 3


@pytest.mark.parametrize("absent", [None, *CLIENTS])
def test_a_gateway_is_ready_once_it_can_write_every_kind_of_client_request(absent: str | None) -> None:
    """Questions, their answers, and hand-offs."""
    wing = KafkaClients(Settings(), "g")
    for name in CLIENTS:
        setattr(wing, name, SimpleNamespace(connected=name != absent))
    assert wing.missing() == (None if absent is None else wing.watch.why)
