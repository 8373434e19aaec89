"""What is typed and cannot be done ends in one line and its status; help says what each command does."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ops import cli
from ops.stack.demo_env import demo_env
from shared.client.telling import ConnectFailed
from shared.errors import ReplylineError, SettingsError
from shared.settings import describe
from tests.support.command_tree import replyline


def commands_of(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """It and all that are under it."""
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands_of(inner, *path, name)


@dataclass(frozen=True, slots=True)
class Done:
    status: int
    out: str
    err: str


Typed = Callable[..., Done]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """`typed("ask", "Hello?", VARIABLE="value")`: `replyline` in this process."""

    def run(*arguments: str, **env: str) -> Done:
        monkeypatch.setattr("sys.argv", ["replyline", *arguments])
        for name, value in {"COLUMNS": "200", "REPLYLINE_AUTH__MODE": "anonymous", **env}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (SettingsError("bad"), 2, "bad"),
        (ReplylineError("gone"), 1, "gone"),
        (OSError(errno.ENOSPC, "No space left on device", "a.json"), 1, "No space left on device: 'a.json'"),
        (TimeoutError(), 1, "TimeoutError"),
    ],
)
def test_a_failure_is_one_line_and_its_status(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, told: str
) -> None:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr(cli, "run_app", fail)
    done = typed("settings")
    assert (done.status, done.err.count("\n")) == (status, 1)
    assert told in done.err


@pytest.mark.parametrize("command", ["up", "gateway", "worker", "doctor", "settings", "topics describe"])
def test_a_bad_setting_is_one_line_that_names_it(typed: Typed, command: str) -> None:
    done = typed(*command.split(), REPLYLINE_GATEWAY__PORT="70000")
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert "REPLYLINE_GATEWAY__PORT" in line
    assert "70000" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REPLYLINE_KAFKA__TOPIC_PREFIX", "no spaces"),
        ("REPLYLINE_WORKER__SLOTS", "many"),
        ("REPLYLINE_REDIS__URL", "http://example"),
        ("REPLYLINE_PROMISE__DEADLINE_MS", "-1"),
        ("REPLYLINE_GATEWAY__REPLY_PARTITION", "99"),
        ("REPLYLINE_WROKER__SLOTS", "4"),
        ("REPLYLINE_CONFIG", "/nowhere/replyline.toml"),
    ],
)
def test_whatever_is_wrong_stops_the_process_before_it_serves(typed: Typed, name: str, value: str) -> None:
    """With status 2, and one line that says what to change."""
    done = typed("gateway", **{name: value, "REPLYLINE_GATEWAY__PORT": "0"})
    assert done.status == 2, done
    (line,) = done.err.splitlines()
    assert name.removeprefix("REPLYLINE_").lower().split("__")[-1] in line.lower() or value in line


@pytest.mark.parametrize("text", ["- where is it?", "-5 degrees?", "--help me", "-1"])
@pytest.mark.parametrize("command", ["ask", "incidents show", "incidents note", "versions show", "rollout start"])
def test_a_text_that_begins_with_a_dash_is_refused_with_what_to_write(typed: Typed, command: str, text: str) -> None:
    done = typed(*command.split(), text)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert f" {text}: begins with a dash; write -- before it; see: replyline {command} --help" in line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("bench --rate abc", "--rate abc"),
        ("bench --broker postgres", "--broker postgres: write embedded or kafka"),
        ("bench path --seconds 0", "--seconds 0"),
        ("ask Hello? --deadline-ms 0", "--deadline-ms 0"),
        ("ask", "question"),
        ("ask Hello? --seed 9223372036854775808", "--seed 9223372036854775808"),
        ("ask Hello? and more", "and more"),
        ("eval --model-dir /nowhere", "/nowhere"),
        ("bench path --seconds inf", "--seconds inf"),
        ("rollout run --gateway nowhere", "--gateway nowhere: write http://HOST:PORT/metrics"),
        ("rollout run --gateway http://", "--gateway http://: write http://HOST:PORT/metrics"),
        ("rollout run --gateway http://h:99999/metrics", "--gateway http://h:99999/metrics: write http://HOST:PORT"),
        ("rollout start v --classes short,,", "--classes short,,: '' is no class; write some of short,medium,long"),
        ("rollout simulate --seeds 3", "--seeds 3: belongs to --load; write --load 0.8"),
        ("rollout simulate --slow --load 0.5", "--load 0.5: --slow simulates 0.3 and 0.8"),
        ("learn follow", "nothing to remove from: set REPLYLINE_FAQ__PATH to a folder, or name a recording"),
        ("learn follow README.md", "README.md: is not a recording; make one: replyline record FILE"),
        ("ask \udcff", "'\\udcff' is not UTF-8"),
        ("eval --url localhost", "localhost is not a gateway's address"),
        ("bech", "'bench'"),
        ("--no-such", "--no-such"),
        ("bench --rate", "--rate"),
        ("diagnose --gateway 10.0.0.4:808O", "write HOST:PORT"),
        ("versions keygen a.pem a.pem", "both keys would be in a.pem; name two files"),
        ("versions keygen ops b.pem", "PRIVATE.pem ops: is a directory; name a file"),
        ("versions shadow -0.1", "SHARE -0.1: write a number from 0 to 1"),
        ("diagnose --prometheus nowhere", "--prometheus nowhere: write http://HOST:PORT"),
        ("dlq list --since ever", "replyline: --since ever: write 30s, 15m, 2h or 7d"),
        ("dlq show x", "replyline: x: is not the number of a dead letter; write 17"),
        ("bench stream --peer nowhere", "--peer nowhere: write start, or the address of a llama-server"),
        ("bench kv --peer http://", "--peer http://: write start, or the address of a llama-server"),
        ("dlq show -1", "NUMBER -1: must not be negative"),
        ("dlq replay 3 -1/2", "NUMBER -1/2: must not be negative"),
    ],
)
def test_a_command_line_that_is_wrong_is_one_line_with_the_value_and_where_to_look(
    typed: Typed, words: str, named: str
) -> None:
    done = typed(*words.split())
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("replyline: ")
    assert named in line
    assert any(remedy in line for remedy in ("--help", "must be", "write", "name", "make one"))


def test_a_command_that_finds_no_kafka_names_the_file_of_a_demo_that_runs_here(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPLYLINE_URL", raising=False)
    nowhere = {"REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    assert "source" not in typed("dlq", "list", **nowhere).err
    with demo_env(tmp_path / ".run" / "demo-9000.env", {}):
        done = typed("dlq", "list", **nowhere)
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert done.err.endswith("type first: source .run/demo-9000.env\n")


@pytest.mark.parametrize(("url", "named"), [(cli.DEFAULT_URL, True), ("ws://127.0.0.1:8080/ws2", False)])
def test_a_question_that_finds_no_gateway_names_the_file_of_a_demo_at_another_port(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, named: bool
) -> None:
    """Unless an address was typed, which the file does not change."""

    def fail(_: Any) -> int:
        raise ConnectFailed(f"cannot connect to {url}: refused")

    monkeypatch.setattr(cli, "run_app", fail)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPLYLINE_URL", raising=False)
    with demo_env(tmp_path / ".run" / "demo-9000.env", {}):
        done = typed("ask", "Hello?")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert done.err.endswith("type first: source .run/demo-9000.env\n") == named


@pytest.mark.parametrize("name", ["none.json", "README.md"])
def test_up_names_an_faq_that_cannot_be_read_once_and_starts_nothing(typed: Typed, tmp_path: Path, name: str) -> None:
    (tmp_path / "README.md").write_text("# No FAQ")
    done = typed("up", REPLYLINE_FAQ__PATH=str(tmp_path / name))
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"FAQ file {tmp_path / name}: " in done.err


@pytest.mark.parametrize(
    "command", list(commands_of(replyline())), ids=lambda command: " ".join(command) or "replyline"
)
def test_help_says_what_a_command_does(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli.app, [*command, "--help"], prog_name="replyline")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Usage: replyline" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.strip().endswith(".")]


@pytest.mark.parametrize("command", list(commands_of(replyline())), ids=" ".join)
def test_every_option_that_is_left_out_has_a_value_that_may_be_typed(command: tuple[str, ...]) -> None:
    """A default below its own bound refuses the command without the option."""
    found: Any = replyline()
    for name in command:
        found = found.commands[name]
    context = found.context_class(found)
    for option in found.params:
        if not option.required:
            option.process_value(context, option.get_default(context))


def blank_values() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each word after which a value comes, an option or a command with an argument, and the words before it."""
    for path in commands_of(replyline()):
        command: Any = replyline()
        for name in path:
            command = command.commands[name]
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag:
                yield path, option.opts[-1]
            if option.param_type_name == "argument":
                yield path[:-1], path[-1]


@pytest.mark.parametrize("form", [("{}", ""), ("{}", "  "), ("{}=",)], ids=["empty", "spaces", "equals"])
def test_a_blank_value_is_refused_by_what_it_follows(typed: Typed, form: tuple[str, ...]) -> None:
    """As a script gives it whose variable is empty: `--gateway-user "$USER"`, `ask "$QUESTION"`."""
    values = list(blank_values())
    assert {(("topics", "acls"), "--gateway-user"), ((), "ask"), (("topics",), "create")} <= {*values}
    for path, name in values:
        if len(form) > 1 or name.startswith("--"):
            done = typed(*path, *(word.format(name) for word in form))
            said = f"replyline: the value after {name} is blank; write one, or leave it out\n"
            assert (done.status, done.out, done.err) == (2, "", said), path


def test_settings_are_a_line_each_with_its_value_here_where_they_are_piped(typed: Typed) -> None:
    """To be searched, and copied, at any width."""
    done = typed("settings", COLUMNS="40", REPLYLINE_GATEWAY__PORT="8123")
    assert (done.status, done.err) == (0, "")
    lines = [line for line in done.out.splitlines() if line and not line.startswith("# ")]
    assert [line.split()[0] for line in lines] == [variable for variable, _, _ in describe()]
    (port,) = [line for line in lines if line.startswith("REPLYLINE_GATEWAY__PORT ")]
    assert "8123" in port
