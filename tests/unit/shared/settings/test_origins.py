"""Which origins may connect: compared character by character, as browsers write them."""

import pytest

from shared.errors import SettingsError
from shared.settings import load_settings
from shared.settings.origins import is_serialized_origin, origin_may_connect

SERIALIZED = [
    "https://shop.example",
    "https://shop.example:8443",
    "http://localhost:3000",
    "http://127.0.0.1:8080",
    "http://[::1]:8080",
    "https://xn--bcher-kva.example",
    "capacitor://localhost",
]
NOT_SERIALIZED = [
    "null",
    "*",
    "",
    "shop.example",
    "https://",
    "https://*.shop.example",
    "https://shop.example/",
    "https://shop.example/chat",
    "https://shop.example:443",
    "http://shop.example:80",
    "https://shop.example:",
    "https://shop.example:0443",
    "https://shop.example:99999",
    "https://shop.example.",
    "https://Shop.example",
    "HTTPS://shop.example",
    "https://bücher.example",
    "https://user@shop.example",
    "https://shop.example\n",
]


@pytest.mark.parametrize("origin", SERIALIZED)
def test_an_origin_that_a_browser_sends_may_be_listed(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    assert is_serialized_origin(origin)
    monkeypatch.setenv("REPLYLINE_GATEWAY__ALLOWED_ORIGINS", f"https://other.example,{origin}")
    assert load_settings().gateway.allowed_origins == ("https://other.example", origin)
    assert origin_may_connect([origin], load_settings().gateway.allowed_origins)


@pytest.mark.parametrize("origin", NOT_SERIALIZED)
def test_an_origin_that_no_browser_sends_is_refused_in_the_settings(origin: str) -> None:
    """It would never match, although the operator would expect it to."""
    assert not is_serialized_origin(origin)
    with pytest.raises(SettingsError, match="is not an origin: write scheme://host") as refusal:
        load_settings(gateway={"allowed_origins": (origin,)})
    assert "REPLYLINE_GATEWAY__ALLOWED_ORIGINS" in str(refusal.value)


def test_without_a_list_any_page_may_connect_and_a_missing_header_is_no_page() -> None:
    assert origin_may_connect(["https://any.example"], ())
    assert origin_may_connect([], ("https://shop.example",))


def test_two_origin_headers_count_as_none() -> None:
    assert not origin_may_connect(["https://shop.example"] * 2, ("https://shop.example",))
