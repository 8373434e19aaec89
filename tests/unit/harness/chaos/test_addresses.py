"""Where Kafka and Redis are found: each process by its own way, whoever takes no part directly."""

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.hops.addresses import kafka_listeners, redis_through

PORTS = st.lists(st.integers(1_024, 65_535), min_size=2, max_size=12, unique=True)


@given(PORTS)
def test_a_listener_names_its_own_proxy(ports: list[int]) -> None:
    """Of as many as there are ways; the node's own port is its own address, and no name has two protocols."""
    port, controller, *rest = ports
    ways = list(zip(rest[::2], rest[1::2], strict=False))
    lines = kafka_listeners(port, controller, ways)
    listens, told = (
        dict(entry.split("://") for entry in lines[name].split(",")) for name in ("listeners", "advertised.listeners")
    )
    assert listens.pop("CONTROLLER") == f"127.0.0.1:{controller}"
    assert listens.keys() == told.keys()
    assert listens["PLAINTEXT"] == told["PLAINTEXT"] == f"127.0.0.1:{port}"
    by_way = {listens[name]: told[name] for name in listens if name != "PLAINTEXT"}
    assert by_way == {f"127.0.0.1:{own}": f"127.0.0.1:{proxy}" for own, proxy in ways}
    protocols = dict(entry.split(":") for entry in lines["listener.security.protocol.map"].split(","))
    assert protocols.keys() == {*listens, "CONTROLLER"}
    assert set(protocols.values()) == {"PLAINTEXT"}


def test_redis_is_asked_by_its_proxy_with_the_same_password() -> None:
    assert redis_through("redis://:7001@127.0.0.1:7001/0", 7_001, 9_000) == "redis://:7001@127.0.0.1:9000/0"
