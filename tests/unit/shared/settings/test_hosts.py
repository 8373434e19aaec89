"""The name of a host that no resolver accepts is refused where it is set or typed, before anything is asked for it."""

from pathlib import Path

import pytest

from ops import cli
from shared.errors import ListenError, SettingsError
from shared.settings import load_settings
from shared.sockets.listening import ListenAddress

# As a template writes it whose variable is empty, and a label of 64 characters: RFC 1035 allows 63.
WRONG = ["kafka..svc", ".svc", f"{'x' * 64}.svc"]
SETTINGS = {
    "KAFKA__BOOTSTRAP_SERVERS": "good:9092,{}:9092",
    "REDIS__URL": "redis://user:sesame@{}:6379/0",
    "KV_REDIS__URL": "rediss+sentinel://good,{}:26379/shop",
    "AUTH__JWKS": "https://{}/keys",
    "TRACING__ENDPOINT": "http://{}:4318",
    "EDGE__CENTRE": "wss://{}/ws",
    "EDGE__CENTRE_HTTP": "https://{}",
    "HANDOFF__WEBHOOK_URL": "https://{}/hook",
    "CHATWOOT__URL": "https://{}",
    "UPSTREAM__URL": "http://good/v1,http://{}/v1",
}
OPTIONS = {
    "ask hi --url": "ws://{}/ws",
    "eval --url": "ws://{}/ws",
    "diagnose --gateway": "{}:8082",
    "diagnose --worker": "{}:8081",
    "diagnose --prometheus": "http://{}:9090",
    "diagnose --url": "ws://{}/ws",
}
MEANT = "has nothing or more than 63 characters between two dots; correct its name"


@pytest.mark.parametrize("host", WRONG)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_with_a_wrong_host_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, host: str
) -> None:
    if name == "HANDOFF__WEBHOOK_URL":
        (secret := tmp_path / "secret").write_text(f"whsec_{'A' * 44}")
        monkeypatch.setenv("REPLYLINE_HANDOFF__WEBHOOK_SECRET_FILE", str(secret))
    monkeypatch.setenv(f"REPLYLINE_{name}", SETTINGS[name].format(host))
    with pytest.raises(SettingsError) as refused:
        load_settings()
    group, _, setting = name.lower().partition("__")
    assert f"the host {host} {MEANT}" in str(refused.value)
    assert name in str(refused.value) or f"{group}.{setting}" in str(refused.value)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("host", WRONG)
@pytest.mark.parametrize("words", OPTIONS)
def test_an_option_with_a_wrong_host_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, host: str
) -> None:
    monkeypatch.setattr("sys.argv", ["replyline", *words.split(), (value := OPTIONS[words].format(host))])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert value in line
    assert f"the host {host} {MEANT}" in line


@pytest.mark.parametrize("host", WRONG)
def test_no_server_listens_on_a_wrong_host(host: str) -> None:
    with pytest.raises(ListenError) as refused:
        ListenAddress(host, 0, "--metrics-host", "--metrics-port").listen()
    assert str(refused.value).startswith(f"cannot listen on {host}:0 (no host has this name); set --metrics-host")


@pytest.mark.parametrize("host", ["kafka", "kafka.svc.", "a_b.svc", "[fd00::1]", "münchen.example", f"{'x' * 63}.svc"])
def test_a_host_that_may_exist_is_taken(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    for name in ("KAFKA__BOOTSTRAP_SERVERS", "REDIS__URL", "AUTH__JWKS", "TRACING__ENDPOINT"):
        monkeypatch.setenv(f"REPLYLINE_{name}", SETTINGS[name].format(host))
    load_settings()
