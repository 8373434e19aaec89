"""A wrong setting stops the process with a line that names its variable."""

from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.settings import Group, PromiseSettings, Settings, describe, load_settings


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the environment nor the working directory says anything."""
    for variable in ("CONFIG", "MODELS_DIR", *(row[0].removeprefix("REPLYLINE_") for row in describe())):
        monkeypatch.delenv("REPLYLINE_" + variable, raising=False)
    monkeypatch.chdir(tmp_path)


def refusal() -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return str(caught.value)


BAD_VALUES = [
    ("TENANT", "no spaces", "TENANT"),
    ("KAFKA__TOPIC_PREFIX", "a/b", "KAFKA__TOPIC_PREFIX"),
    ("KAFKA__REQUEST_PARTITIONS", "0", "KAFKA__REQUEST_PARTITIONS"),
    ("REDIS__TIMEOUT_MS", "soon", "REDIS__TIMEOUT_MS"),
    ("PROMISE__PROFILE", "tpu", "PROMISE__PROFILE"),
    ("PROMISE__FIRST_TOKEN_MS", "-1", "PROMISE__FIRST_TOKEN_MS"),
    ("PROMISE__DEADLINE_MS", "1.5", "PROMISE__DEADLINE_MS"),
    ("LIMITS__MAX_INPUT_TOKENS", "", "LIMITS__MAX_INPUT_TOKENS"),
    ("GATEWAY__PORT", "65536", "GATEWAY__PORT"),
    ("GATEWAY__HELLO_TIMEOUT_S", "nan", "GATEWAY__HELLO_TIMEOUT_S"),
    ("GATEWAY__HEARTBEAT_S", "inf", "GATEWAY__HEARTBEAT_S"),
    ("ADMISSION__ENABLED", "perhaps", "ADMISSION__ENABLED"),
    ("WORKER__ENGINE", "abacus", "WORKER__ENGINE"),
    ("WORKER__BUCKETS", "", "WORKER__BUCKETS"),
    ("WORKER__BUCKETS", "short,huge", "WORKER__BUCKETS"),
    ("WORKER__SLOTS", "8\n9", "WORKER__SLOTS"),
    ("ANSWERS__WEAK_SCORE", "2", "ANSWERS__WEAK_SCORE"),
    ("LOG__LEVEL", "loud", "LOG__LEVEL"),
]


@pytest.mark.parametrize(("variable", "value", "named"), BAD_VALUES)
def test_a_bad_value_names_its_variable_in_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv("REPLYLINE_" + variable, value)
    message = refusal()
    assert message.startswith(f"REPLYLINE_{named}=")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"PROMISE__DEADLINE_MS": "9000", "PROMISE__MAX_DEADLINE_MS": "8000"}, ["deadline_ms", "max_deadline_ms"]),
        ({"PROMISE__DEADLINE_MS": "2000", "PROMISE__FIRST_TOKEN_MS": "2001"}, ["first_token_ms=2001", "deadline_ms"]),
        ({"LIMITS__DEFAULT_OUTPUT_TOKENS": "600"}, ["default_output_tokens", "max_output_tokens"]),
        ({"GATEWAY__REPLY_PARTITION": "8"}, ["gateway.reply_partition", "kafka.reply_partitions"]),
    ],
)
def test_values_that_contradict_each_other_are_both_named(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], named: list[str]
) -> None:
    for variable, value in values.items():
        monkeypatch.setenv("REPLYLINE_" + variable, value)
    message = refusal()
    assert all(name in message for name in named)
    assert "\n" not in message


def test_every_bad_value_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_GATEWAY__PORT", "x")
    monkeypatch.setenv("REPLYLINE_WORKER__SLOTS", "0")
    lines = refusal().splitlines()
    assert [line.partition("=")[0] for line in lines] == ["REPLYLINE_GATEWAY__PORT", "REPLYLINE_WORKER__SLOTS"]


@pytest.mark.parametrize("variable", ["REPLYLINE_GATEWAY__PROT", "REPLYLINE_KAFKA", "REPLYLINE_X"])
def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    message = refusal()
    assert message.startswith(f"{variable}: no such setting")
    assert "replyline settings" in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", ()), ("https://a", ("https://a",)), (" https://a , https://b ,", ("https://a", "https://b"))],
)
def test_a_list_is_separated_by_commas(monkeypatch: pytest.MonkeyPatch, text: str, parts: tuple[str, ...]) -> None:
    monkeypatch.setenv("REPLYLINE_GATEWAY__ALLOWED_ORIGINS", text)
    assert load_settings().gateway.allowed_origins == parts


def test_a_server_list_with_commas_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_KAFKA__BOOTSTRAP_SERVERS", "a:9092,b:9092")
    assert load_settings().kafka.bootstrap_servers == "a:9092,b:9092"


def test_the_environment_stands_above_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[gateway]\nport = 1111\nmax_inflight = 7\nallowed_origins = ["https://a"]\n')
    monkeypatch.setenv("REPLYLINE_CONFIG", str(file))
    monkeypatch.setenv("REPLYLINE_GATEWAY__PORT", "2222")
    gateway = load_settings().gateway
    assert (gateway.port, gateway.max_inflight, gateway.allowed_origins) == (2222, 7, ("https://a",))


def test_a_file_in_the_working_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "replyline.toml").write_text('tenant = "shop"\n')
    assert load_settings().tenant == "shop"


def test_an_empty_name_of_a_file_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPLYLINE_CONFIG", "")
    (tmp_path / "replyline.toml").write_text('tenant = "shop"\n')
    assert load_settings().tenant == "shop"


def test_arguments_stand_above_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_TENANT", "one")
    assert load_settings(tenant="two").tenant == "two"


def test_a_missing_named_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_CONFIG", "nowhere.toml")
    assert refusal().startswith("REPLYLINE_CONFIG=nowhere.toml: no such file")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[gateway]\nprot = 1\n", "REPLYLINE_GATEWAY__PROT"),
        ("[worker]\nslots = 0\n", "REPLYLINE_WORKER__SLOTS"),
        ('[worker]\nbuckets = ["huge"]\n', "REPLYLINE_WORKER__BUCKETS="),
        ("this is no TOML", "settings cannot be read"),
    ],
)
def test_a_bad_file_is_told_like_a_bad_variable(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "replyline.toml").write_text(text)
    assert refusal().startswith(named)


@pytest.mark.parametrize(
    ("profile", "soft", "hard"), [(None, 3_000, 15_000), ("cpu", 3_000, 15_000), ("gpu", 200, 1_000)]
)
def test_the_profile_sets_the_deadlines(
    monkeypatch: pytest.MonkeyPatch, profile: str | None, soft: int, hard: int
) -> None:
    if profile:
        monkeypatch.setenv("REPLYLINE_PROMISE__PROFILE", profile)
    promise = load_settings().promise
    assert (promise.first_token_ms, promise.deadline_ms) == (soft, hard)


@pytest.mark.parametrize("zero", ["0", ""])
def test_zero_is_by_profile_in_the_environment_too(monkeypatch: pytest.MonkeyPatch, zero: str) -> None:
    monkeypatch.setenv("REPLYLINE_PROMISE__PROFILE", "gpu")
    monkeypatch.setenv("REPLYLINE_PROMISE__FIRST_TOKEN_MS", zero)
    monkeypatch.setenv("REPLYLINE_PROMISE__DEADLINE_MS", zero)
    promise = load_settings().promise
    assert (promise.first_token_ms, promise.deadline_ms) == (200, 1_000)


def test_what_is_set_stands_above_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_PROMISE__PROFILE", "gpu")
    monkeypatch.setenv("REPLYLINE_PROMISE__FIRST_TOKEN_MS", "150")
    promise = load_settings().promise
    assert (promise.first_token_ms, promise.deadline_ms) == (150, 1_000)


@pytest.mark.parametrize("value", ["2000", 2000])
def test_a_shorter_whole_deadline_shortens_the_profiles_first_one(
    monkeypatch: pytest.MonkeyPatch, value: str | int
) -> None:
    if isinstance(value, str):
        monkeypatch.setenv("REPLYLINE_PROMISE__DEADLINE_MS", value)
        promise = load_settings().promise
    else:
        promise = PromiseSettings(deadline_ms=value)
    assert (promise.first_token_ms, promise.deadline_ms) == (2_000, 2_000)


def test_a_longer_whole_deadline_leaves_the_profiles_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_PROMISE__DEADLINE_MS", "20000")
    assert load_settings().promise.first_token_ms == 3_000


def test_a_whole_deadline_that_is_none_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_PROMISE__DEADLINE_MS", "-5")
    assert refusal().startswith("REPLYLINE_PROMISE__DEADLINE_MS='-5': ")
    assert "\n" not in refusal()


def test_every_setting_is_described_with_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {variable: (value, meaning) for variable, value, meaning in describe()}
    expected = set()
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Group):
            expected |= {f"REPLYLINE_{name}__{sub}".upper() for sub in field.annotation.model_fields}
        else:
            expected.add(f"REPLYLINE_{name}".upper())
    assert set(rows) == expected
    assert all(meaning for _, meaning in rows.values())
    assert rows["REPLYLINE_WORKER__BUCKETS"][0] == "short,medium,long"
    monkeypatch.setenv("REPLYLINE_WORKER__SLOTS", "3")
    now = {variable: value for variable, value, _ in describe(load_settings())}
    assert (now["REPLYLINE_WORKER__SLOTS"], now["REPLYLINE_FAQ__PATH"]) == ("3", "")


def test_what_is_described_can_be_set_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list's values, written back into the environment, make the same settings."""
    for variable, value, _ in describe():
        if value:
            monkeypatch.setenv(variable, value)
    assert load_settings() == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        load_settings().gateway.port = 1  # type: ignore[misc]


def test_the_cursors_secret_is_long_and_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    file.write_text("guessed\n")
    monkeypatch.setenv("REPLYLINE_GATEWAY__CURSOR_SECRET_FILE", str(file))
    told = refusal()
    assert f"REPLYLINE_GATEWAY__CURSOR_SECRET_FILE='{file}': 7 bytes are too few" in told
    assert "guessed" not in told
    file.write_text("s3cret" * 6 + "\n")
    settings = load_settings()
    assert "s3cret" not in f"{describe(settings)} {settings}"
    assert settings.gateway.cursor_secret_bytes() == b"s3cret" * 6
