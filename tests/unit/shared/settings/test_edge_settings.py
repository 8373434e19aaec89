"""An edge's link is encrypted wherever it leaves the machine."""

import pytest
from pydantic import ValidationError

from shared.settings.edge import EdgeSettings


@pytest.mark.parametrize(
    ("field", "url", "secure"),
    [
        ("centre", "ws://chat.example/ws", "wss://chat.example"),
        ("centre", "ws://10.0.0.7:8080/ws", "wss://10.0.0.7:8080"),
        ("centre", "ws://127.0.0.1.evil.example/ws", "wss://127.0.0.1.evil.example"),
        ("centre_http", "http://chat.example", "https://chat.example"),
        ("centre_http", "http://[2001:db8::1]:8081", "https://[2001:db8::1]:8081"),
    ],
)
def test_a_plain_address_off_this_machine_is_refused(field: str, url: str, secure: str) -> None:
    with pytest.raises(ValidationError, match="plain text") as refused:
        EdgeSettings(**{field: url})  # type: ignore[arg-type]
    assert f"write {secure}" in str(refused.value)


@pytest.mark.parametrize(
    ("field", "url"),
    [
        *(("centre_http", url) for url in ("http://127.0.0.1:81", "http://[::1]:81", "https://chat.example", "")),
        ("centre", ""),
    ],
)
def test_an_encrypted_or_local_address_is_taken(field: str, url: str) -> None:
    assert getattr(EdgeSettings(**{field: url}), field) == url  # type: ignore[arg-type]
