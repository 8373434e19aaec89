"""A host's name that no resolver accepts, and a URL that names no page, are refused where they are set or typed, before
anything is asked for them."""

from pathlib import Path

import msgspec
import pytest

from ops import cli
from shared.errors import ListenError, SettingsError
from shared.faq.entries import entries_of
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
    "ROLLOUT__PROMETHEUS_URL": "http://{}:9090",
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
    "faq read": "https://{}/help",
    "rollout run --gateway": "http://{}:8082/metrics",
}
# What is no URL though it begins as one: each is the host, the port and what follows.
NO_URLS = {
    "no host": ":80",
    "no end of a bracket": "[::1",
    "no address in brackets": "[zz]",
    "port 0": "good:0",
    "a port out of range": "good:99999",
    "a port of other digits": "good:\u0663",
    "a space": "good/a b",
    "a line's end": "go\nod",
    "an invisible character": "good/\u202e",
    "markup": 'good/"><script>',
    "a backslash": "good\\evil.example",
    "no character of a host": "go%od",
}
URLS = {"AUTH__JWKS", "TRACING__ENDPOINT", "EDGE__CENTRE", "EDGE__CENTRE_HTTP", "HANDOFF__WEBHOOK_URL", "CHATWOOT__URL"}
URLS |= {"UPSTREAM__URL", "ROLLOUT__PROMETHEUS_URL"}
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


def _url(form: str, rest: str) -> str:
    """Return a URL of this form's scheme."""
    return form[: form.index("{")] + rest


@pytest.mark.parametrize("rest", NO_URLS.values(), ids=NO_URLS)
@pytest.mark.parametrize("name", sorted(URLS))
def test_a_setting_that_only_begins_as_a_url_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, rest: str) -> None:
    monkeypatch.setenv(f"REPLYLINE_{name}", _url(SETTINGS[name], rest))
    with pytest.raises(SettingsError, match=f"REPLYLINE_{name}=.*: (?:write (?:ws|http)s?://|the host)") as refused:
        load_settings()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("rest", NO_URLS.values(), ids=NO_URLS)
@pytest.mark.parametrize("words", [words for words, form in OPTIONS.items() if "://" in form])
def test_an_option_that_only_begins_as_a_url_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, rest: str
) -> None:
    monkeypatch.setattr("sys.argv", ["replyline", *words.split(), _url(OPTIONS[words], rest)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, ": write " in line or ": the host " in line) == (2, True)


@pytest.mark.parametrize("rest", NO_URLS.values(), ids=NO_URLS)
def test_an_entry_has_no_page_that_only_begins_as_a_url(rest: str) -> None:
    wording = {"question": "How?", "alternatives": [], "answer": "So.", "url": f"https://{rest}"}
    entry = msgspec.json.encode([{"id": "a", "topic": "t", "en": wording}])
    with pytest.raises(SettingsError, match=r'entry "a" \(en\) has the url .*; (?:write https://|the host)'):
        entries_of(entry, "faq.json")


@pytest.mark.parametrize("name", sorted(URLS))
def test_a_setting_has_no_password_in_its_url(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"REPLYLINE_{name}", _url(SETTINGS[name], "me:sesame@good/"))
    with pytest.raises(SettingsError, match="a URL must not contain a user or a password; ") as refused:
        load_settings()
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("servers", [":9092", "good:0", "me:sesame@good:9092", "good:9092/x", "good:9092,[::1"])
def test_a_broker_has_a_host_and_a_port(monkeypatch: pytest.MonkeyPatch, servers: str) -> None:
    monkeypatch.setenv("REPLYLINE_KAFKA__BOOTSTRAP_SERVERS", servers)
    with pytest.raises(SettingsError, match="write host:port"):
        load_settings()


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
