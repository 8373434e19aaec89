"""A client is charged by its own address, which no other client's header can change."""

from ipaddress import ip_network

import pytest

from gateway.frontends.client_address import UNNAMED_CLIENT, charged_address, client_address, is_trusted
from shared.errors import SettingsError
from shared.settings import load_settings
from shared.sockets.open_sockets import OpenSockets

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("::1/128"))
PROXY, CLIENT, OTHER = "10.0.0.9", "198.51.100.7", "203.0.113.4"


@pytest.mark.parametrize(
    ("peer", "forwarded", "charged"),
    [
        (CLIENT, [], CLIENT),
        (CLIENT, [OTHER], CLIENT),
        (PROXY, [CLIENT], CLIENT),
        (PROXY, [f"{OTHER}, {CLIENT}"], CLIENT),
        (PROXY, [OTHER, CLIENT], CLIENT),
        (PROXY, [f"{CLIENT}, 10.1.2.3"], CLIENT),
        (PROXY, [f"{OTHER}, {CLIENT}, 10.1.2.3, 10.4.5.6"], CLIENT),
        (PROXY, [], PROXY),
        (PROXY, ["10.1.2.3"], "10.1.2.3"),
        (PROXY, ["what?"], UNNAMED_CLIENT),
        (PROXY, [f"{CLIENT}, what?, 10.1.2.3"], UNNAMED_CLIENT),
        (PROXY, [f"{OTHER}, unknown"], UNNAMED_CLIENT),
        (PROXY, [OTHER, "_hidden"], UNNAMED_CLIENT),
        (PROXY, [f"{OTHER}, , Unknown,"], UNNAMED_CLIENT),
        (PROXY, [f"unknown, {CLIENT}"], CLIENT),
        (CLIENT, ["unknown"], CLIENT),
        (PROXY, [f"{OTHER}, {CLIENT}, "], CLIENT),
        (PROXY, [f"{OTHER}, {CLIENT}", ""], CLIENT),
        (PROXY, [f"{CLIENT}, unix:"], CLIENT),
        (PROXY, [""], PROXY),
        (PROXY, [f"{CLIENT}:4711"], CLIENT),
        (PROXY, ["[2001:db8:1:2:3::4]:4711"], "2001:db8:1:2::/64"),
        ("::1", ["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", [], "2001:db8:1:2::/64"),
        ("::ffff:198.51.100.7", [], CLIENT),
        ("::ffff:10.0.0.9", [CLIENT], CLIENT),
        ("64:ff9b::c633:6407", [], CLIENT),
        (PROXY, ["64:ff9b::198.51.100.7"], CLIENT),
        (PROXY, [f'"{CLIENT}"'], CLIENT),
        (PROXY, ['"[2001:db8:1:2:3::4]:4711"'], "2001:db8:1:2::/64"),
        ("fe80::1%eth0", [], "fe80::/64"),
        ("2002:c633:6407:1::1", [], CLIENT),
        (PROXY, ["2002:c633:6407:ffff::2"], CLIENT),
        ("2002:a00:9::1", [CLIENT], "10.0.0.9"),
        ("", [CLIENT], ""),
        ("/run/socket", [], ""),
        (PROXY, [CLIENT, *["10.1.2.3"] * 9], CLIENT),
        (PROXY, [CLIENT, *["10.1.2.3"] * 10], "10.1.2.3"),
        (PROXY, [CLIENT + ", 10.1.2.3" * 100_000], "10.1.2.3"),
    ],
)
def test_the_last_address_that_no_trusted_proxy_has_is_charged(peer: str, forwarded: list[str], charged: str) -> None:
    assert charged_address(peer, forwarded, TRUSTED) == charged


@pytest.mark.parametrize(
    ("peer", "forwarded", "own"),
    [
        (CLIENT, [], CLIENT),
        (PROXY, [CLIENT], CLIENT),
        (PROXY, [f"{OTHER}, {CLIENT}"], CLIENT),
        (PROXY, [], PROXY),
        (PROXY, ["2001:db8:1:2:3::4"], "2001:db8:1:2:3::4"),
        ("2001:db8:1:2:ffff::1", [], "2001:db8:1:2:ffff::1"),
        (PROXY, ["unknown"], ""),
        (PROXY, [f"{CLIENT}, _hidden"], ""),
        (CLIENT, [OTHER], ""),  # a proxy that is not in the settings
        ("", [], ""),
        ("/run/socket", [], ""),
    ],
)
def test_an_address_that_several_clients_may_share_is_not_charged(peer: str, forwarded: list[str], own: str) -> None:
    assert client_address(peer, forwarded, TRUSTED).own == own


def test_a_client_that_its_proxy_does_not_name_is_limited() -> None:
    sockets = OpenSockets(proxies=TRUSTED)
    assert not sockets.is_limited(PROXY)
    assert sockets.is_limited(UNNAMED_CLIENT)


@pytest.mark.parametrize(("peer", "is_so"), [(PROXY, True), (CLIENT, False), ("::ffff:10.0.0.9", True), ("", False)])
def test_a_proxy_is_recognised_by_its_network(peer: str, is_so: bool) -> None:
    assert is_trusted(peer, TRUSTED) is is_so


@pytest.mark.parametrize("network", ["nowhere", "10.0.0.1/8", "10.0.0.0/40"])
def test_an_invalid_network_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, network: str) -> None:
    monkeypatch.setenv("REPLYLINE_GATEWAY__TRUSTED_PROXIES", f"fd00::/8,{network}")
    with pytest.raises(SettingsError) as refusal:
        load_settings()
    assert str(refusal.value) == (
        f"REPLYLINE_GATEWAY__TRUSTED_PROXIES={network!r}: {network!r} is not a network: write its first address and "
        "its prefix length, as 10.0.0.0/8"
    )


def test_networks_of_both_ip_versions_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_GATEWAY__TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8")
    assert load_settings().gateway.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
