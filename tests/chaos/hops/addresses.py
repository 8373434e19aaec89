"""Where gateways and workers find Kafka and Redis: directly, or each through a proxy. Pure.

A Kafka client goes where the metadata says, and the broker says of each listener what was asked for there: so each
process that has a way of its own has a listener of its own, which names its proxy.
"""

from collections.abc import Sequence


def kafka_listeners(port: int, controller_port: int, ways: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Lines of server.properties of one node on 127.0.0.1: `port` for whoever has no way of his own, and for each of
    `ways` a listener on its first port that says it is on its second."""
    listeners = {"PLAINTEXT": (port, port)} | {f"WAY{number}": way for number, way in enumerate(ways)}
    controller = f"CONTROLLER://127.0.0.1:{controller_port}"
    return {
        "listeners": ",".join([*(f"{name}://127.0.0.1:{own}" for name, (own, _) in listeners.items()), controller]),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{told}" for name, (_, told) in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in [*listeners, "CONTROLLER"]),
    }


def redis_through(url: str, port: int, proxy_port: int) -> str:
    """The address of the Redis on `port`, by its proxy."""
    return url.replace(f"127.0.0.1:{port}", f"127.0.0.1:{proxy_port}")
