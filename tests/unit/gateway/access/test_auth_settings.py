"""A gateway without authentication settings refuses to start, and no secret is ever shown."""

from pathlib import Path

import pytest

from gateway.__main__ import main
from shared.errors import SettingsError
from shared.settings import describe, load_settings

SECRET = "correct horse battery staple, thrice"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, *_ in describe():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_access_settings_no_client_is_admitted(capsys: pytest.CaptureFixture[str]) -> None:
    """The gateway does not start: one line that names what to set, and status 2."""
    assert load_settings().auth.decided_mode is None
    assert main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    for variable in ("REPLYLINE_AUTH__SECRET_FILE", "REPLYLINE_AUTH__JWKS", "REPLYLINE_AUTH__MODE=anonymous"):
        assert variable in line


@pytest.mark.parametrize(
    ("auth", "mode"),
    [
        ({"mode": "anonymous"}, "anonymous"),
        ({"jwks": "https://id.example/keys"}, "token"),
        ({"mode": "token", "jwks": "keys.json"}, "token"),
        *(({"jwks": f"http://{host}:9000/keys"}, "token") for host in ("localhost", "127.0.0.1", "[::1]")),
    ],
)
def test_keys_mean_tokens(auth: dict[str, str], mode: str) -> None:
    """They may be fetched unencrypted from this machine only."""
    assert load_settings(auth=auth).auth.decided_mode == mode


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"mode": "token"}, ["REPLYLINE_AUTH__MODE=token", "REPLYLINE_AUTH__SECRET_FILE", "REPLYLINE_AUTH__JWKS"]),
        ({"mode": "anonymous", "jwks": "keys.json"}, ["REPLYLINE_AUTH__MODE=anonymous", "REPLYLINE_AUTH__SECRET_FILE"]),
        ({"mode": "open"}, ["AUTH__MODE='open'"]),
        ({"secret_file": "nowhere"}, ["AUTH__SECRET_FILE='nowhere'", "No such file"]),
        ({"jwks": "http://id.example/keys"}, ["AUTH__JWKS='http://id.example/keys'", "https://"]),
        ({"jwks": "http://127.0.0.1.evil.example/keys"}, ["https://"]),
        ({"jwks": "ftp://id.example/keys"}, ["https://"]),
        ({"jwks": "file:///etc/passwd"}, ["AUTH__JWKS"]),
        ({"jwks": "https://user:password@id.example/keys"}, ["must not contain a user or a password"]),
    ],
)
def test_contradictory_settings_are_refused_in_one_line(auth: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(auth=auth)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    monkeypatch.setenv("REPLYLINE_AUTH__SECRET_FILE", str(file))
    file.write_text(SECRET)
    settings = load_settings()
    assert SECRET not in f"{settings!r} {settings} {describe(settings)}"
    assert settings.auth.secret_bytes() == SECRET.encode()
    monkeypatch.setenv("REPLYLINE_AUTH__MODE", "anonymous")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert SECRET not in str(caught.value)
    file.write_text("too short to be one")
    with pytest.raises(SettingsError, match=r"SECRET_FILE=.*: 19 bytes are too few") as caught:
        load_settings()
    assert "too short" not in str(caught.value)


def test_a_files_last_line_end_is_not_of_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for end in ("", "\n", "\r\n"):
        file.write_bytes(SECRET.encode() + end.encode())
        assert load_settings(auth={"secret_file": file}).auth.secret_bytes() == SECRET.encode()
