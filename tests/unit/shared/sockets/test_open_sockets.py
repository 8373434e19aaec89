"""One address or one token's subject gets only a part of a gateway's sockets."""

from collections.abc import Callable
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ProtocolError
from shared.settings.gateway import QuotaSettings
from shared.sockets.open_sockets import OpenSockets

MOST = 1_000


def sockets(**quotas: int) -> OpenSockets:
    proxies = (ip_network("10.0.0.0/8"), ip_network("::1/128"))
    return OpenSockets(most=MOST, quotas=QuotaSettings(**quotas), proxies=proxies)


def until_refused(enter: Callable[[int], None]) -> int:
    """Open sockets until one is refused; return how many were accepted."""
    for number in range(MOST + 1):
        try:
            enter(number)
        except ProtocolError:
            return number
    return MOST + 1


def test_a_refused_client_is_told_when_to_retry() -> None:
    with pytest.raises(ProtocolError) as caught:
        OpenSockets(most=0).add("a", "")
    error = caught.value
    assert (error.code, error.kind, error.retriable) == ("too_many_connections", "overloaded_error", True)
    assert error.retry_after_ms


def test_one_address_gets_a_twentieth_and_the_next_customer_is_accepted() -> None:
    held = sockets()
    assert until_refused(lambda number: held.add(f"a{number}", "192.0.2.7")) == MOST // 20
    held.add("b", "192.0.2.8")
    held.remove("a0")
    held.add("c", "192.0.2.7")


def test_one_subject_gets_a_hundredth_from_any_addresses() -> None:
    held = sockets()

    def come(number: int) -> None:
        held.add(f"a{number}", f"192.0.2.{number}")
        held.assign(f"a{number}", "shop", "alice")

    assert until_refused(come) == MOST // 100
    held.remove("a10")
    held.assign("a0", "other", "alice")
    held.remove("a1")
    come(11)


def test_all_clients_together_get_every_socket() -> None:
    held = sockets()
    assert held.missing() is None
    assert until_refused(lambda number: held.add(f"a{number}", f"192.0.{number % 250}.{number // 250}")) == MOST
    assert held.missing() == "1000 connections are open: no new client is accepted"
    held.remove("a7")
    assert held.missing() is None


@pytest.mark.parametrize(
    ("address", "quotas"),
    [("10.1.2.3", {}), ("::/64", {}), ("", {}), ("192.0.2.7", {"address_per_minute": 0})],
    ids=["a proxy that names nobody", "a proxy by IPv6", "no address", "an address may do what it likes"],
)
def test_a_shared_address_or_an_unlimited_client_may_use_every_socket(address: str, quotas: dict[str, int]) -> None:
    held = sockets(**quotas)
    assert until_refused(lambda number: held.add(f"a{number}", address)) == MOST


def test_a_subject_without_a_quota_may_use_every_socket() -> None:
    held = sockets(subject_per_minute=0)
    for number in range(100):
        held.add(f"a{number}", "")
        held.assign(f"a{number}", "shop", "alice")


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.booleans()), max_size=200))
def test_a_client_that_disconnected_uses_no_socket(steps: list[tuple[int, str, bool]]) -> None:
    held, here = sockets(), dict[str, str]()
    for number, subject, leaves in steps:
        name = f"c{number}"
        if leaves or name in here:
            held.remove(name)
            here.pop(name, None)
            continue
        held.add(name, f"192.0.2.{number % 3}")
        here[name] = subject
        try:
            held.assign(name, "shop", subject)
        except ProtocolError:
            held.remove(name)
            del here[name]
    for name in here:
        held.remove(name)
    assert not held._held
    assert not held._keys


def test_a_few_connections_beyond_the_limit_are_accepted_to_send_them_the_error() -> None:
    held = OpenSockets(most=100, spare=2)
    for number in range(12):
        held.add(number, "192.0.2.7")
    assert [held.refusal(number) is None for number in range(12)] == [True] * 10 + [False] * 2
    with pytest.raises(ProtocolError):
        held.add(12, "192.0.2.7")
    held.add("another", "192.0.2.8")
    assert held.refusal("another") is None


def test_a_proxys_connection_counts_for_the_client_named_in_its_request() -> None:
    held = sockets()
    for number in range(MOST // 20 + 1):
        held.add(number, "10.0.0.1")
        held.assign_address(number, "192.0.2.7")
    last = MOST // 20
    assert held.refusal(last - 1) is None
    assert held.refusal(last) is not None
    for number in range(2):
        held.assign_address(number, "192.0.2.8")
    held.add("direct", "192.0.2.7")


def test_an_ipv6_address_is_counted_by_its_network() -> None:
    held = sockets()
    assert until_refused(lambda number: held.add(f"a{number}", f"2001:db8::{number + 1:x}")) == MOST // 20
    held.add("b", "2001:db8:0:1::1")


def test_at_the_limit_the_connection_that_has_waited_longest_is_dropped() -> None:
    held = OpenSockets(most=3)
    for number in range(3):
        held.add(number, "")
        held.wait(number)
    held.serve(0)
    assert held.gives_way() == 1
    held.remove(1)
    assert held.gives_way() is None


def test_an_ipv4_address_is_the_same_on_a_dual_stack_socket() -> None:
    held = sockets()
    assert until_refused(lambda number: held.add(f"a{number}", "::ffff:192.0.2.7")) == MOST // 20
    held.add("b", "::ffff:192.0.2.8")
    assert not held.is_limited("::ffff:10.0.0.1")
