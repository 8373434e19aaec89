"""Settings decide how Kafka and Redis are reached and must agree with each other; a password is never shown."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import AuthenticationError

from ops.stack.own_services import OWN_SERVICES, own_kafka
from shared.errors import BrokerUnavailable, SettingsError
from shared.kafka.broker.options import connection_options
from shared.kafka.broker.refusals import refusal, unauthorized
from shared.redis.client import async_redis, blocking_redis, cause_of
from shared.settings import PREFIX, describe, load_settings
from shared.settings.kafka import KafkaSettings
from shared.settings.redis import RedisSettings, without_password
from tests.support.certificates import Authority

PASSWORD = "correct-horse-battery"
LOGIN = {"security": "sasl_ssl", "username": "gateway"}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, *_ in describe():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return file


def refused(**settings: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(**settings)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kafka", "words"),
    [
        ({"security": "tls"}, ["KAFKA__SECURITY='tls'", "'sasl_ssl'"]),
        ({"bootstrap_servers": "a:9092,b:port"}, ["KAFKA__BOOTSTRAP_SERVERS='a:9092,b:port'", "host:port"]),
        (
            {"username": "gateway"},
            [
                "REPLYLINE_KAFKA__USERNAME",
                "REPLYLINE_KAFKA__SECURITY=plaintext",
                "set REPLYLINE_KAFKA__SECURITY=sasl_ssl",
            ],
        ),
        (
            {"security": "ssl", "password_file": __file__},
            ["REPLYLINE_KAFKA__PASSWORD_FILE", "REPLYLINE_KAFKA__SECURITY=ssl"],
        ),
        (
            {"security": "sasl_ssl", "password_file": __file__},
            ["REPLYLINE_KAFKA__SECURITY=sasl_ssl", "set REPLYLINE_KAFKA__USERNAME"],
        ),
        (LOGIN, ["REPLYLINE_KAFKA__SECURITY=sasl_ssl", "set REPLYLINE_KAFKA__PASSWORD_FILE"]),
        ({**LOGIN, "password_file": ""}, ["set REPLYLINE_KAFKA__PASSWORD_FILE"]),
        ({**LOGIN, "password_file": "nowhere"}, ["KAFKA__PASSWORD_FILE='nowhere'", "No such file"]),
        ({**LOGIN, "password_file": "/dev/null"}, ["KAFKA__PASSWORD_FILE", "is empty"]),
        ({**LOGIN, "password_file": __file__, "sasl_mechanism": "SCRAM"}, ["KAFKA__SASL_MECHANISM='SCRAM'"]),
        (
            {**LOGIN, "security": "sasl_plaintext", "password_file": __file__, "sasl_mechanism": "PLAIN"},
            ["REPLYLINE_KAFKA__SASL_MECHANISM=PLAIN", "REPLYLINE_KAFKA__SECURITY=sasl_plaintext", "SCRAM-SHA-512"],
        ),
        ({"security": "ssl", "tls_ca": "nowhere"}, ["KAFKA__TLS_CA='nowhere'", "No such file"]),
        ({"security": "ssl", "tls_ca": __file__}, ["KAFKA__TLS_CA", "no PEM certificate"]),
        ({"security": "ssl", "tls_key": "key.pem"}, ["REPLYLINE_KAFKA__TLS_KEY", "set REPLYLINE_KAFKA__TLS_CERT"]),
        ({"security": "ssl", "tls_cert": __file__}, ["REPLYLINE_KAFKA__TLS_CERT", "REPLYLINE_KAFKA__TLS_KEY"]),
        ({"tls_cert": "mine.pem"}, ["REPLYLINE_KAFKA__TLS_CERT", "REPLYLINE_KAFKA__SECURITY=plaintext", "ssl"]),
    ],
)
def test_contradictory_settings_are_refused_in_one_line(kafka: dict[str, str], words: list[str]) -> None:
    message = refused(kafka=kafka)
    assert all(word in message for word in words), message


def test_two_sources_for_one_password_are_refused(password_file: Path) -> None:
    url = f"redis://gateway:{PASSWORD}@host/0"
    for given_twice in (url, f"redis://host/0?password={PASSWORD}"):
        assert "remove one of them" in refused(redis={"url": given_twice, "password_file": password_file})


def test_a_certificate_needs_its_own_key(authority: Authority) -> None:
    (certificate, key), (_, another) = authority.issue("one"), authority.issue("two")
    kafka = {"security": "ssl", "tls_ca": authority.ca, "tls_cert": certificate}
    assert "KEY_VALUES_MISMATCH" in refused(kafka={**kafka, "tls_key": another})
    assert load_settings(kafka={**kafka, "tls_key": key}).kafka.tls_key == key


def test_a_ca_file_that_redis_cannot_use_is_refused_in_one_line(authority: Authority) -> None:
    assert "does not begin with rediss://" in refused(redis={"url": "redis://host/0", "tls_ca": authority.ca})
    assert "no PEM certificate" in refused(redis={"url": "rediss://host/0", "tls_ca": __file__})
    nowhere = refused(redis={"url": "rediss://host/0", "tls_ca": "/nowhere/ca.pem"})
    assert "REPLYLINE_REDIS__TLS_CA='/nowhere/ca.pem': No such file" in nowhere


def test_an_invalid_url_is_refused_in_one_line_without_its_password() -> None:
    with pytest.raises(SettingsError, match=r"^REPLYLINE_REDIS__URL='http://me:\*\*\*@host'[^\n]*$") as caught:
        blocking_redis(RedisSettings(url=f"http://me:{PASSWORD}@host"), timeout_ms=1)
    assert PASSWORD not in str(caught.value)


def test_every_client_gets_the_credentials_it_needs(authority: Authority, password_file: Path) -> None:
    assert connection_options(KafkaSettings()) == {
        "bootstrap_servers": "127.0.0.1:9092",
        "security_protocol": "PLAINTEXT",
    }
    settings = KafkaSettings(**LOGIN, password_file=password_file, tls_ca=authority.ca, sasl_mechanism="PLAIN")
    options = connection_options(settings)
    context = options.pop("ssl_context")
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert options == {
        "bootstrap_servers": "127.0.0.1:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "gateway",
        "sasl_plain_password": PASSWORD,
    }


def test_each_client_reads_the_password_file_again(password_file: Path) -> None:
    settings = KafkaSettings(security="sasl_plaintext", username="gateway", password_file=password_file)
    password_file.write_text("the next one")
    assert connection_options(settings)["sasl_plain_password"] == "the next one"
    password_file.unlink()
    with pytest.raises(BrokerUnavailable, match=r"REPLYLINE_KAFKA__PASSWORD_FILE=.*No such file"):
        connection_options(settings)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SaslAuthenticationFailed("no"), ["user 'gateway'", "SCRAM-SHA-512", "check REPLYLINE_KAFKA__USERNAME"]),
        (UnsupportedSaslMechanismError(), ["SCRAM-SHA-512", "check REPLYLINE_KAFKA__SASL_MECHANISM"]),
        (IllegalSaslStateError(), ["does not expect a login", "check REPLYLINE_KAFKA__SECURITY=sasl_ssl"]),
        (ValueError("Server sent wrong signature!"), ["user 'gateway'", "right broker"]),
        (ssl.SSLError(1, "wrong version number"), ["closes the TLS handshake", "REPLYLINE_KAFKA__SECURITY=sasl_ssl"]),
        (ConnectionResetError(104, "reset"), ["closes the TLS handshake"]),
        (KafkaConnectionError("closed"), ["closes the connection", "REPLYLINE_KAFKA__SECURITY=sasl_ssl"]),
    ],
)
def test_a_refused_login_is_reported_with_what_to_check(
    error: Exception, words: list[str], password_file: Path
) -> None:
    """It is one line that neither reports a missing server nor contains the password."""
    told = refusal(error, KafkaSettings(**LOGIN, password_file=password_file), "broker:9093")
    assert told is not None
    assert all(word in told for word in ["broker:9093", *words]), told
    assert "\n" not in told
    assert PASSWORD not in told


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), TimeoutError(), OSError("no route")])
def test_a_missing_server_is_not_reported_as_a_refusal(error: Exception) -> None:
    assert refusal(error, KafkaSettings(), "broker:9092") is None


def test_a_missing_acl_right_is_reported_with_the_page_that_lists_it(password_file: Path) -> None:
    error: KafkaError = TopicAuthorizationFailedError("chat.replies")
    told = unauthorized(error, KafkaSettings(**LOGIN, password_file=password_file), "read")
    assert "user 'gateway' to read the topic chat.replies: see replyline topics acls" in told


def test_a_byte_order_mark_is_no_part_of_a_password(password_file: Path) -> None:
    password_file.write_text(PASSWORD + "\r\n", encoding="utf-8-sig")
    assert RedisSettings(url="redis://host", password_file=password_file).read_password() == PASSWORD


def test_passwords_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch, password_file: Path) -> None:
    """They are missing from the settings' text, from their list, and from errors about other settings."""
    redis_url = f"redis://gateway:{PASSWORD}@host:6379/0"
    for name, value in (("SECURITY", "sasl_ssl"), ("USERNAME", "gateway"), ("PASSWORD_FILE", str(password_file))):
        monkeypatch.setenv(f"{PREFIX}KAFKA__{name}", value)
    monkeypatch.setenv(f"{PREFIX}REDIS__URL", redis_url)
    settings = load_settings()
    assert settings.kafka.read_password() == PASSWORD
    assert settings.redis.url == redis_url
    assert PASSWORD not in f"{settings!r} {settings} {describe(settings)}"
    for name, value in (("REDIS__TLS_CA", __file__), ("REDIS__TIMEOUT_MS", "0"), ("KAFKA__SECURITY", "ssl")):
        monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert PASSWORD not in str(caught.value)
    for group, value in (
        (KafkaSettings, {"password_file": password_file}),
        (RedisSettings, {"url": redis_url, "tls_ca": "x"}),
    ):
        with pytest.raises(ValueError, match=r"use|No such file") as refused_whole:
            group(**value)
        assert PASSWORD not in f"{refused_whole.value} {refused_whole.value!r}"


@pytest.mark.parametrize("mark", "/?#[]")
@pytest.mark.parametrize("form", ["{0}{1}", "{1}{0}", "12{1}{0}", "{0}{1}{0}"])
def test_a_password_that_a_url_cannot_contain_is_not_shown(form: str, mark: str) -> None:
    told = refused(redis={"url": f"redis://gateway:{form.format(PASSWORD, mark)}@host:6379/0"})
    assert told.startswith("REPLYLINE_REDIS__URL='redis://gateway:***@host:6379/0': ")
    assert "%2F" in told
    assert "REPLYLINE_REDIS__PASSWORD_FILE" in told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"default:{PASSWORD}@redis:6379/0", "default:***@redis:6379/0"),
        (f":{PASSWORD}@redis/0", ":***@redis/0"),
        (f"default:{PASSWORD}@redis://host", "default:***@redis://host"),
        (f"default:{PASSWORD}/@host?password={PASSWORD}", "default:***@host?password=***"),
    ],
)
def test_a_url_without_its_scheme_shows_no_password(url: str, shown: str) -> None:
    assert refused(redis={"url": url}).startswith(f"REPLYLINE_REDIS__URL='{shown}': ")
    assert PASSWORD not in refused(tracing={"endpoint": url})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "redis+sentinel://one:26379",
            "no Sentinel hosts and master name; write redis+sentinel://host:26379,",
        ),
        ("rediss+sentinel://one,/shop", "write rediss+sentinel://host:26379,host2:26379/master-name/0"),
        ("redis+sentinel://one/shop/first", "no Sentinel hosts and master name"),
        ("redis+sentinel://one:x,two/shop", "no host:port"),
    ],
)
def test_an_invalid_sentinel_url_is_refused_in_one_line_with_the_right_form(url: str, said: str) -> None:
    told = refused(redis={"url": url})
    assert told.startswith(f"REPLYLINE_REDIS__URL='{url}': ")
    assert said in told
    assert "\n" not in told
    assert "unset REPLYLINE_REDIS__CLUSTER" in refused(redis={"url": "redis+sentinel://one/shop", "cluster": True})


def test_a_sentinel_url_names_the_sentinels_and_the_masters_credentials(password_file: Path) -> None:
    url = "rediss+sentinel://me@one,two:5000/my%20shop/2?ssl_certfile=c"
    found = RedisSettings(url=url, password_file=password_file).sentinels
    assert found == ((("one", 26_379), ("two", 5_000)), "my shop", "rediss://me@sentinels/2?ssl_certfile=c")
    assert RedisSettings(url="redis://one:1/0").sentinels is None
    client = blocking_redis(RedisSettings(url=url, password_file=password_file), timeout_ms=90)
    options = client.connection_pool.connection_kwargs
    assert options["credential_provider"].get_credentials() == ("me", PASSWORD)
    assert (options["db"], options["ssl_certfile"], "username" in options) == (2, "c", False)
    asked = client.connection_pool.sentinel_manager.sentinels[1].connection_pool.connection_kwargs
    assert (asked["host"], asked["port"], asked["ssl_certfile"], asked["socket_timeout"]) == ("two", 5_000, "c", 0.03)
    assert asked["credential_provider"] is None


PLACES = ["redis://host", "rediss://host", "unix:///run/redis.sock", "redis+sentinel://one:26379/shop/0"]


@pytest.mark.parametrize("name", ["redis", "kv_redis"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "option",
    [
        *("socket_timeout=3", "max_connections=4", "decode_responses=true", "encoding=utf-16", "retry=5", "nonsense="),
        *("connection_class=x", "redis_connect_func=x", "credential_provider=x", "maint_notifications_config=1"),
    ],
)
def test_a_url_with_an_option_that_is_not_read_is_refused(name: str, place: str, option: str) -> None:
    line = refused(**{name: {"url": f"{place}?db=1&{option}"}})
    assert f"the URL has the option {option.partition('=')[0]}; remove it, or write one of client_name, db, " in line


def test_a_certificate_without_tls_is_refused() -> None:
    assert "the URL has the option ssl_certfile; " in refused(redis={"url": "redis://host?ssl_certfile=c"})


@pytest.mark.parametrize("make", [async_redis, blocking_redis])
@pytest.mark.parametrize("place", PLACES)
async def test_each_option_that_is_read_makes_a_connection(make: Any, place: str) -> None:
    options = "client_name=a&db=1&health_check_interval=5&password=p&protocol=3&socket_keepalive=true&username=u"
    if place.startswith("unix"):
        options = options.replace("&socket_keepalive=true", "")
    if place.startswith("rediss"):
        options += "&ssl_certfile=c&ssl_keyfile=k&ssl_cert_reqs=none&ssl_check_hostname=false&ssl_ca_path=p"
    client = make(RedisSettings(url=f"{place}?{options}"), timeout_ms=1_000)
    assert client.connection_pool.make_connection() is not None


def test_a_url_without_its_scheme_shows_no_password_at_the_first_redis_call() -> None:
    with pytest.raises(SettingsError) as caught:
        async_redis(RedisSettings(url=f"cache:6379/0?password={PASSWORD}"), timeout_ms=1_000)
    assert str(caught.value).startswith("REPLYLINE_REDIS__URL='cache:6379/0?password=***': ")


@given(
    user=st.text(alphabet="abc%2", max_size=5),
    password=st.text(alphabet="xyz:@/?#[]%&=", min_size=1, max_size=12),
    place=st.sampled_from(["host:6379/0", "host", "/run/redis.sock?db=1"]),
)
def test_a_shown_url_contains_no_part_of_its_password(user: str, password: str, place: str) -> None:
    assert without_password(f"redis://{user}:{password}@{place}") == f"redis://{user}:***@{place}"
    assert without_password(f"redis://{user}@{place}") == f"redis://{user}@{place}"


def test_a_password_among_a_urls_options_is_not_shown() -> None:
    shown = "redis://host/0?ssl_password=***&password=***&db=1"
    assert without_password("redis://host/0?ssl_password=a&password=b%20c&db=1") == shown
    assert without_password("https://shop.example") == "https://shop.example"
    assert without_password("a@b:c") == "a@b:c"


@pytest.fixture
def redis_with_a_file(password_file: Path) -> RedisSettings:
    return RedisSettings(url="redis://gate%20way@host/0", password_file=password_file)


async def test_redis_gets_the_password_from_the_file_for_the_urls_user(
    redis_with_a_file: RedisSettings, password_file: Path
) -> None:
    """It is read at each login; a missing file is reported as a refusal."""
    client = async_redis(redis_with_a_file, timeout_ms=1_000)
    wanted = client.connection_pool.connection_kwargs
    login = wanted["credential_provider"]
    assert "username" not in wanted
    assert login.get_credentials() == ("gate way", PASSWORD)
    assert PASSWORD not in repr(client)
    rewrite(password_file, "the next one")
    assert login.get_credentials() == ("gate way", "the next one")
    rewrite(password_file, None)
    with pytest.raises(AuthenticationError, match=r"REPLYLINE_REDIS__PASSWORD_FILE=.*No such file"):
        login.get_credentials()
    await client.aclose()


def rewrite(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink()
    else:
        file.write_text(text)


def test_a_cause_without_text_is_reported_as_a_timeout() -> None:
    assert cause_of(TimeoutError()) == "no answer in time"


def test_embedded_services_need_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's settings for real services do not matter."""
    real = {"KAFKA__SECURITY": "sasl_ssl", "KAFKA__USERNAME": "gateway", "KAFKA__PASSWORD_FILE": __file__}
    for name, value in {
        **real,
        "REDIS__URL": "rediss://host",
        "REDIS__PASSWORD_FILE": __file__,
        "KV_REDIS__URL": "redis://kv",
    }.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert own_kafka(load_settings().kafka, "here:1").security == "plaintext"
    for name, value in {**OWN_SERVICES, "REDIS__URL": "redis://here"}.items():
        monkeypatch.setenv(PREFIX + name, value)
    settings = load_settings()
    assert connection_options(settings.kafka)["security_protocol"] == "PLAINTEXT"
    assert settings.kafka.username is settings.kafka.password_file is settings.redis.password_file is None
    assert settings.redis_of_kv is settings.redis
    assert {name.partition("__")[0] for name in OWN_SERVICES} == {"KAFKA", "REDIS", "KV_REDIS"}
