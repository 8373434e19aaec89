"""A command whose Kafka, Redis or gateway cannot be reached ends in one line: the address, the cause, the remedy."""

from typing import Any, Final

import pytest

from ops import cli
from tests.support.command_tree import a_value, commands_under, replyline

NOWHERE: Final = "127.0.0.1:1"
ENVIRONMENT: Final = {
    "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": NOWHERE,
    "REPLYLINE_REDIS__URL": f"redis://{NOWHERE}/0",
    "REPLYLINE_URL": f"ws://{NOWHERE}/ws",
    "REPLYLINE_AUTH__MODE": "anonymous",
}
# Services: they retry until their Kafka and Redis can be reached.
RETRY: Final = {"up", "gateway", "worker", "edge", "rollout run", "autoscale run", "learn follow"}
# Commands that report on what does not answer, or that first read a terminal, a file or the model.
REPORT: Final = {"doctor", "diagnose", "chat", "record", "replay", "drill"}
# Commands that connect to nothing, or only to what they have started.
ALONE: Final = {
    "token", "settings", "schema", "eval", "plan", "topics acls", "model prepare", "engine build",
    "faq read", "faq review", "faq sign", "incidents list", "incidents show", "incidents note", "autoscale simulate",
    "versions keygen", "versions sign", "rollout simulate", "shadow replay", "profile", "simulate",
    "forecast", "optimize quantize", "optimize distill", "optimize prune", "optimize matrix",
    "bench", "bench traffic", "bench knee", "bench compare", "bench ladder", "bench path", "bench stream",
    "bench gateway", "bench kv", "bench engines", "bench shape", "bench memory", "bench upstream", "bench start",
    "bench speculation",
    "bench scale", "chaos run",
}  # fmt: skip
# Values of arguments that must have a certain form.
VALUES: Final = {"dlq show": ["17"], "dlq replay": ["17"], "learn export": ["--out", "out"]}

COMMANDS: Final[dict[str, Any]] = {" ".join(path): command for path, command in commands_under(replyline())}
CONNECTING: Final = [name for name in COMMANDS if name not in RETRY | REPORT | ALONE]


def test_every_other_command_exists() -> None:
    assert set(COMMANDS) >= RETRY | REPORT | ALONE


@pytest.mark.parametrize("command", CONNECTING)
def test_an_unreachable_service_is_one_line_with_its_address_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (ENVIRONMENT | {"REPLYLINE_FAQ__PATH": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    words = VALUES.get(command, [])
    for each in COMMANDS[command].params if not words else ():
        if each.required:
            words = [*words, *([each.opts[0]] if each.param_type_name == "option" else []), a_value(each)]
    monkeypatch.setattr("sys.argv", ["replyline", *command.split(), *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert NOWHERE in line
    assert any(remedy in line for remedy in ("; start Kafka, or set REPLYLINE_KAFKA__BOOTSTRAP_SERVERS", "is it up?"))
