"""The demo's file of variables: a shell that sources it works with that demo, and only its owner can read it."""

import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.operate.up import Addresses
from ops.stack.demo_env import demo_env, demo_env_path, demo_url
from ops.stack.own_services import OWN_SERVICES
from shared.settings import describe

ADDRESSES = Addresses(
    host="127.0.0.1",
    port=9000,
    gateway_metrics=("127.0.0.1", 41237),
    worker_metrics=("127.0.0.1", 41236),
    page="http://127.0.0.1:9000/",
    openai="http://127.0.0.1:8083/v1",
    ai_sdk="http://127.0.0.1:8083/ai-sdk/chat",
    grpc="127.0.0.1:8084",
    ws="ws://127.0.0.1:9000/ws",
    kafka="127.0.0.1:41235",
    redis="redis://:a'b@127.0.0.1:6380/0",
)


def test_the_file_is_its_owners_alone_and_ends_with_the_demo(tmp_path: Path) -> None:
    """A file that an earlier demo left after a crash is replaced."""
    path = tmp_path / ".run" / "demo.env"
    path.parent.mkdir()
    path.write_text("of an earlier one")
    path.chmod(0o644)
    with demo_env(path, {"A": "it's", "B": ""}) as written:
        assert written == path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == "export A='it'\"'\"'s'\nexport B=''\n"
        assert list(path.parent.iterdir()) == [path]
    assert list(path.parent.iterdir()) == []


def test_a_file_that_is_gone_already_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "demo.env"
    with demo_env(path, {}):
        path.unlink()


def test_two_demos_have_two_files() -> None:
    assert demo_env_path(Path(".run"), 8080) == Path(".run/demo.env")
    assert demo_env_path(Path(".run"), 9000) == Path(".run/demo-9000.env")


def test_it_says_where_everything_is_and_unsets_what_is_of_other_services() -> None:
    told = ADDRESSES.environment()
    assert told["REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"] == ADDRESSES.kafka
    assert told["REPLYLINE_REDIS__URL"] == ADDRESSES.redis
    assert (told["REPLYLINE_URL"], told["OPENAI_BASE_URL"]) == (ADDRESSES.ws, ADDRESSES.openai)
    ports = [told[f"REPLYLINE_{name}"] for name in ("GATEWAY__PORT", "GATEWAY__METRICS_PORT", "WORKER__METRICS_PORT")]
    assert ports == ["9000", "41237", "41236"]
    assert ADDRESSES.metrics == ("http://127.0.0.1:41237/metrics", "http://127.0.0.1:41236/metrics")
    assert {f"REPLYLINE_{name}" for name in OWN_SERVICES} <= told.keys()
    assert (told["AI_SDK_URL"], told["GRPC_ADDRESS"]) == (ADDRESSES.ai_sdk, ADDRESSES.grpc)
    doors = {"REPLYLINE_URL", "OPENAI_BASE_URL", "AI_SDK_URL", "GRPC_ADDRESS"}
    assert told.keys() - doors <= {variable for variable, *_ in describe()}


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        ([], None),
        ([8080], None),  # as without the file
        ([9000], "ws://127.0.0.1:9000/ws"),
        ([9000, 9001], None),  # which one, nothing says
        ([8080, 9000], None),
    ],
)
def test_a_command_finds_the_only_demo_of_a_folder(tmp_path: Path, ports: list[int], found: str | None) -> None:
    with ExitStack() as demos:
        for port in ports:
            variables = {"A": "it's", "REPLYLINE_URL": f"ws://127.0.0.1:{port}/ws"}
            demos.enter_context(demo_env(demo_env_path(tmp_path, port), variables))
        assert demo_url(tmp_path) == found
    assert demo_url(tmp_path) is None
