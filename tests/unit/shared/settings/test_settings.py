"""An invalid setting stops the process with a line that names its variable."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SettingsError
from shared.settings import PromiseSettings, Settings, describe, load_settings
from shared.settings.group import SettingsGroup

ROOT = Path(__file__).parents[4]

Put = Callable[[dict[str, str]], None]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Clear the environment and the working directory."""
    for variable in ("CONFIG", "MODELS_DIR", *(row[0].removeprefix("REPLYLINE_") for row in describe())):
        monkeypatch.delenv("REPLYLINE_" + variable, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Set in the environment."""

    def put(values: dict[str, str]) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"REPLYLINE_{name}", value)

    return put


def refusal() -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TENANT", "no spaces"),
        ("KAFKA__TOPIC_PREFIX", "a/b"),
        ("KAFKA__REQUEST_PARTITIONS", "0"),
        ("REDIS__TIMEOUT_MS", "soon"),
        ("PROMISE__PROFILE", "tpu"),
        ("PROMISE__FIRST_TOKEN_MS", "-1"),
        ("PROMISE__DEADLINE_MS", "1.5"),
        ("PROMISE__DEADLINE_MS", "-5"),
        ("GATEWAY__PORT", "65536"),
        ("GATEWAY__HELLO_TIMEOUT_S", "nan"),
        ("GATEWAY__HEARTBEAT_S", "inf"),
        ("ADMISSION__ENABLED", "perhaps"),
        ("WORKER__ENGINE", "abacus"),
        ("WORKER__BUCKETS", ","),
        ("WORKER__BUCKETS", "short,huge"),
        ("WORKER__SLOTS", "8\n9"),
        ("ANSWERS__WEAK_SCORE", "2"),
        ("LOG__LEVEL", "loud"),
        ("TRACING__ENDPOINT", "tempo:4318"),
        ("TRACING__ENDPOINT", "grpc://tempo:4317"),
        ("TRACING__ENDPOINT", "http://"),
        ("TRACING__ENDPOINT", "http://tempo:99999"),
        ("TRACING__ENDPOINT", "http://user:word@tempo:4318"),
        ("TRACING__ENDPOINT", "http://tempo:4318/?x=1"),
        ("TRACING__RATIO", "1.5"),
        ("TRACING__RATIO", "-0.1"),
        ("TRACING__RATIO", "nan"),
    ],
)
def test_a_bad_value_names_its_variable_in_one_line(put: Put, variable: str, value: str) -> None:
    put({variable: value})
    message = refusal()
    assert message.startswith(f"REPLYLINE_{variable}=")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"PROMISE__DEADLINE_MS": "9000", "PROMISE__MAX_DEADLINE_MS": "8000"}, ["__DEADLINE_MS", "__MAX_DEADLINE_MS"]),
        (
            {"PROMISE__DEADLINE_MS": "2000", "PROMISE__FIRST_TOKEN_MS": "2001"},
            ["__FIRST_TOKEN_MS=2001", "__DEADLINE_MS"],
        ),
        ({"LIMITS__DEFAULT_OUTPUT_TOKENS": "600"}, ["__DEFAULT_OUTPUT_TOKENS", "__MAX_OUTPUT_TOKENS"]),
        ({"GATEWAY__REPLY_PARTITION": "8"}, ["GATEWAY__REPLY_PARTITION", "KAFKA__REPLY_PARTITIONS"]),
    ],
)
def test_both_of_two_contradictory_values_are_named(put: Put, values: dict[str, str], named: list[str]) -> None:
    put(values)
    message = refusal()
    assert all(name in message for name in named)
    assert "\n" not in message


def test_every_bad_value_has_its_line(put: Put) -> None:
    put({"GATEWAY__PORT": "x", "WORKER__SLOTS": "-1"})
    lines = refusal().splitlines()
    assert [line.partition("=")[0] for line in lines] == ["REPLYLINE_GATEWAY__PORT", "REPLYLINE_WORKER__SLOTS"]


@pytest.mark.parametrize(
    ("variable", "value", "meant"),
    [
        ("GATEWAY__PROT", "1", "GATEWAY__PORT"),
        ("KAFKA", "1", ""),
        ("X", "1", ""),
        ("GATEWAY_PORT", "8080", "GATEWAY__PORT"),
        ("PORT", "8080", ""),
        ("GATEWAY_HTTP_PORT", "8083", "GATEWAY__HTTP_PORT"),
        ("GATEWAY_METRICS_HOST", "10.0.0.1", "GATEWAY__METRICS_HOST"),
        ("SERVICE_HOST", "gateway.example", ""),
        ("UPSTREAM_URL", "http://vllm:8000/v1", "UPSTREAM__URL"),
        ("WORKER__UPSTREAM_URL", "http://vllm:8000/v1", "UPSTREAM__URL"),
    ],
)
def test_an_unknown_variable_is_refused_and_the_one_that_is_meant_is_named(
    put: Put, variable: str, value: str, meant: str
) -> None:
    put({variable: value})
    suggested = f"do you mean REPLYLINE_{meant}? " if meant else ""
    assert refusal() == f"REPLYLINE_{variable}: no such setting; {suggested}`replyline settings` lists them"


def _service_links(service: str, address: str, ports: dict[str, tuple[str, int]]) -> dict[str, str]:
    """Return the variables that the kubelet sets in each pod of a namespace with this Service, without the prefix."""
    base = service.upper().replace("-", "_").removeprefix("REPLYLINE").removeprefix("_")
    base = f"{base}_" if base else ""
    where = f"[{address}]" if ":" in address else address
    links = {f"{base}SERVICE_HOST": address}
    for number, (name, (protocol, port)) in enumerate(ports.items()):
        if number == 0:
            links |= {f"{base}SERVICE_PORT": str(port), f"{base}PORT": f"{protocol}://{where}:{port}"}
        links[f"{base}SERVICE_PORT_{name.upper().replace('-', '_')}"] = str(port)
        link = f"{base}PORT_{port}_{protocol.upper()}"
        links |= {
            link: f"{protocol}://{where}:{port}",
            f"{link}_PROTO": protocol,
            f"{link}_PORT": str(port),
            f"{link}_ADDR": address,
        }
    return links


@pytest.mark.parametrize("address", ["10.96.0.7", "fd00:10:96::7"])
@pytest.mark.parametrize(
    "service", ["replyline", "replyline-gateway", "replyline-worker-main", "replyline-prod-gateway", "replyline-url"]
)
def test_service_links_of_a_service_named_like_the_product_are_ignored(put: Put, service: str, address: str) -> None:
    ports = {"chat": ("tcp", 80), "http": ("tcp", 8083), "grpc-web": ("tcp", 8084), "dns": ("udp", 53)}
    put({**_service_links(service, address, ports), "GATEWAY__PORT": "1234"})
    assert load_settings().gateway.port == 1234


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", ()), ("https://a", ("https://a",)), (" https://a , https://b ,", ("https://a", "https://b"))],
)
def test_a_list_is_separated_by_commas(put: Put, text: str, parts: tuple[str, ...]) -> None:
    put({"GATEWAY__ALLOWED_ORIGINS": text, "KAFKA__BOOTSTRAP_SERVERS": "a:9092,b:9092"})
    assert load_settings().gateway.allowed_origins == parts
    assert load_settings().kafka.bootstrap_servers == "a:9092,b:9092", "this is a text"


@pytest.mark.parametrize("servers", ["a:9092,b:9092,", " a:9092 , b:9092\n"])
def test_a_list_of_brokers_may_have_spaces_and_a_last_comma(put: Put, servers: str) -> None:
    put({"KAFKA__BOOTSTRAP_SERVERS": servers})
    assert load_settings().kafka.bootstrap_servers == "a:9092,b:9092"


EMPTY = ("REPLYLINE_GATEWAY__TRUSTED_PROXIES", "REPLYLINE_WORKER__SYSTEM_PROMPT")


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize("variable", [each.variable for each in describe() if each.variable not in EMPTY])
def test_a_blank_variable_is_not_set(put: Put, variable: str, blank: str) -> None:
    """Compose writes an empty one for `VARIABLE: ${VARIABLE:-}`; an empty host would be every address."""
    put({variable.removeprefix("REPLYLINE_"): blank})
    assert load_settings() == Settings()


def test_a_blank_variable_hides_the_files_value_and_two_settings_may_be_empty(put: Put, tmp_path: Path) -> None:
    """The demo leaves out another installation's passwords."""
    file = tmp_path / "other.toml"
    file.write_text('[gateway]\nport = 1111\n[redis]\npassword_file = "none"\n')
    blank = dict.fromkeys(("GATEWAY__PORT", "REDIS__PASSWORD_FILE", *EMPTY), "")
    put({"CONFIG": str(file)} | {name.removeprefix("REPLYLINE_"): text for name, text in blank.items()})
    settings = load_settings()
    assert (settings.gateway.port, settings.redis.password_file) == (8080, None)
    assert (settings.gateway.trusted_proxies, settings.worker.system_prompt) == ((), "")


def test_the_environment_overrides_the_file(put: Put, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[gateway]\nport = 1111\nmax_inflight = 7\nallowed_origins = ["https://a"]\n')
    put({"CONFIG": str(file), "GATEWAY__PORT": "2222"})
    gateway = load_settings().gateway
    assert (gateway.port, gateway.max_inflight, gateway.allowed_origins) == (2222, 7, ("https://a",))


@pytest.mark.parametrize("named", [{}, {"CONFIG": ""}])
def test_a_file_in_the_working_directory_is_read_if_none_is_named(
    put: Put, tmp_path: Path, named: dict[str, str]
) -> None:
    put(named)
    (tmp_path / "replyline.toml").write_text('tenant = "shop"\n')
    assert load_settings().tenant == "shop"
    assert load_settings(tenant="two").tenant == "two", "arguments override everything"


def test_a_missing_named_file_is_refused(put: Put) -> None:
    put({"CONFIG": "nowhere.toml"})
    assert refusal().startswith("REPLYLINE_CONFIG=nowhere.toml: no such file")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[gateway]\nprot = 1\n", "REPLYLINE_GATEWAY__PROT"),
        ("[worker]\nslots = -1\n", "REPLYLINE_WORKER__SLOTS"),
        ('[worker]\nbuckets = ["huge"]\n', "REPLYLINE_WORKER__BUCKETS="),
        ("this is no TOML", "replyline.toml: cannot be read as TOML: Expected"),
    ],
)
def test_an_invalid_file_is_reported_like_an_invalid_variable(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "replyline.toml").write_text(text)
    assert refusal().startswith(named)


@pytest.mark.parametrize(
    ("values", "soft", "hard"),
    [
        ({}, 3_000, 15_000),
        ({"PROFILE": "cpu"}, 3_000, 15_000),
        ({"PROFILE": "gpu"}, 200, 1_000),
        ({"PROFILE": "gpu", "FIRST_TOKEN_MS": "0", "DEADLINE_MS": "0"}, 200, 1_000),
        ({"PROFILE": "gpu", "FIRST_TOKEN_MS": "", "DEADLINE_MS": ""}, 200, 1_000),
        ({"PROFILE": "gpu", "FIRST_TOKEN_MS": "150"}, 150, 1_000),
        ({"DEADLINE_MS": "2000"}, 2_000, 2_000),
        ({"DEADLINE_MS": "20000"}, 3_000, 20_000),
    ],
)
def test_the_profile_sets_the_deadlines_that_are_not_set(
    put: Put, values: dict[str, str], soft: int, hard: int
) -> None:
    """The soft deadline never exceeds the hard one."""
    put({f"PROMISE__{name}": value for name, value in values.items()})
    promise = load_settings().promise
    assert (promise.first_token_ms, promise.deadline_ms) == (soft, hard)
    assert PromiseSettings(deadline_ms=2_000).first_token_ms == 2_000


def test_every_setting_is_described_with_its_value(put: Put) -> None:
    rows = {variable: (value, meaning) for variable, value, meaning in describe()}
    expected = set()
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsGroup):
            expected |= {f"REPLYLINE_{name}__{sub}".upper() for sub in field.annotation.model_fields}
        else:
            expected.add(f"REPLYLINE_{name}".upper())
    assert set(rows) == expected
    assert all(meaning for _, meaning in rows.values())
    assert rows["REPLYLINE_WORKER__BUCKETS"][0] == "short,medium,long"
    put({"WORKER__SLOTS": "3"})
    now = {variable: value for variable, value, _ in describe(load_settings())}
    assert (now["REPLYLINE_WORKER__SLOTS"], now["REPLYLINE_FAQ__PATH"]) == ("3", "")


@pytest.mark.parametrize("space", ["", " ", "\n"])
def test_each_described_value_can_be_set(put: Put, space: str) -> None:
    """The list's values, written back into the environment, give the same settings, with space around them too."""
    described = {variable.removeprefix("REPLYLINE_"): value for variable, value, _ in describe() if value}
    put({variable: space + value + space for variable, value in described.items()})
    assert load_settings() == Settings()
    with pytest.raises(Exception, match="frozen"):
        load_settings().gateway.port = 1  # type: ignore[misc]


def test_the_cursor_secret_is_long_and_never_shown(put: Put, tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    file.write_text("guessed\n")
    put({"GATEWAY__CURSOR_SECRET_FILE": str(file)})
    told = refusal()
    assert f"REPLYLINE_GATEWAY__CURSOR_SECRET_FILE='{file}': 7 bytes are too few" in told
    assert "guessed" not in told
    file.write_text("s3cret" * 6 + "\n")
    settings = load_settings()
    assert "s3cret" not in f"{describe(settings)} {settings}"
    assert settings.gateway.cursor_secret_bytes() == b"s3cret" * 6


@pytest.mark.parametrize("room", ["gateway", "ops", "shared", "workers"])
def test_a_message_names_a_settings_variable_which_can_be_typed(room: str) -> None:
    """The settings' own messages are translated as they are read."""
    typed = {setting.variable for setting in describe()}
    named = [
        f"{path.relative_to(ROOT)}:{text.lineno}: {group}.{name}"
        for path in (ROOT / room).rglob("*.py")
        if path.parent.name != "settings"
        for text in texts_of(ast.parse(path.read_text()))
        for group, name in re.findall(r"(?<![\w.])([a-z_]+)\.([a-z_]+)(?![\w.(])", text.value)
        if f"REPLYLINE_{group}__{name}".upper() in typed and text.value != f"{group}.{name}"
    ]
    assert named == []


def texts_of(module: ast.Module) -> Iterator[Any]:
    """Yield the strings without docstrings."""
    documented = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node
