"""What each process may do at Kafka: the least."""

import itertools
import shlex
from pathlib import Path

import pytest

from ops.operate.kafka_acls import Role, commands, rights
from shared.errors import SettingsError
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BUCKETS

USERS: dict[Role, str] = {"gateway": "gateway", "worker": "CN=a worker", "operator": "admin", "recorder": "recorder"}


def named(settings: Settings, role: Role, operation: str) -> set[str]:
    return {right.name for right in rights(settings) if (right.role, right.operation) == (role, operation)}


def test_no_process_asks_or_answers_in_anothers_place() -> None:
    """A gateway does not read requests, a worker writes none and reads no answers, and neither makes topics."""
    settings = Settings()
    buckets = {f"chat.requests.{bucket}" for bucket in ("short", "medium", "long")}
    assert not named(settings, "gateway", "Read") & buckets
    assert not named(settings, "worker", "Write") & {"chat.requests", "chat.cancels", *buckets}
    assert "chat.replies" not in named(settings, "worker", "Read")
    assert {right.role for right in rights(settings) if right.operation in {"Create", "Describe"}} == {"operator"}


def test_a_lanes_worker_reads_its_own_topics_and_may_pass_requests_on() -> None:
    settings = Settings.model_validate({"worker": {"lane": "canary"}})
    champions, own = ({f"chat.requests{lane}.{each}" for each in BUCKETS} for lane in ("", ".canary"))
    read, written = named(settings, "worker", "Read"), named(settings, "worker", "Write")
    assert own | {"replyline-workers.canary"} <= read
    assert not read & {*champions, "replyline-workers"}
    assert champions <= written
    assert not named(Settings.model_validate({"worker": {"lane": "shadow"}}), "worker", "Write") & champions


def test_a_shadow_may_answer_nobody_and_keep_nothing() -> None:
    written = named(Settings.model_validate({"worker": {"lane": "shadow"}}), "worker", "Write")
    assert written == {"chat.workers", "chat.observations"}


def test_only_operators_move_versions_and_only_gateways_say_how_answers_ended() -> None:
    written = {(right.role, right.name) for right in rights(Settings()) if right.operation == "Write"}
    assert {role for role, name in written if name == "chat.versions"} == {"operator"}
    assert {role for role, name in written if name == "chat.observations"} == {"gateway"}


def test_the_recorder_may_read_and_nothing_else() -> None:
    """Nowhere can it write, so no broker gives it a producer's id; it belongs to no group."""
    found = [right for right in rights(Settings()) if right.role == "recorder"]
    assert {(right.operation, right.kind, right.prefixed) for right in found} == {("Read", "topic", False)}
    requests = {f"chat.requests.{bucket}" for bucket in ("short", "medium", "long")}
    assert {right.name for right in found} == {*requests, "chat.forgotten"}


def test_learn_may_read_every_erasure_and_only_gateways_write_one() -> None:
    assert {"chat.erasures", "chat.forgotten"} <= named(Settings(), "operator", "Read")
    writes = [
        right.role for right in rights(Settings()) if right.operation == "Write" and right.name == "chat.forgotten"
    ]
    assert writes == ["gateway"]


def test_the_prefix_counts() -> None:
    settings = Settings.model_validate({"kafka": {"topic_prefix": "shop."}})
    assert all(right.name.startswith("shop.") for right in rights(settings))
    assert {right.name for right in rights(settings) if right.kind == "group"} == {
        "shop.replyline-router",
        "shop.replyline-workers",
        "shop.replyline-autoscale-",
        "shop.replyline-workers.",
        "shop.replyline-rollout",
    }


def test_what_is_posted_to_help_desks_needs_rights_only_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_" + "a" * 32)
    (tmp_path / "cursors").write_text("c" * 32)
    file = tmp_path / "secret"
    settings = Settings.model_validate(
        {
            "gateway": {"http_port": 8090, "cursor_secret_file": tmp_path / "cursors"},
            "chatwoot": {"url": "https://chat.example", "token_file": file, "secret_file": file},
            "handoff": {"enabled": True, "webhook_url": "https://desk.example/", "webhook_secret_file": file},
        }
    )
    more = {(right.operation, right.name) for right in {*rights(settings)} - {*rights(Settings())}}
    assert more == {
        ("Read", "chat.handoffs"),
        ("Read", "chat.posts"),
        ("Write", "chat.posts"),
        ("Read", "replyline-webhook"),
        ("Read", "replyline-chatwoot"),
    }


@pytest.mark.parametrize(
    ("patterns", "granted"),
    [
        (("chat.replies", "chat.replies.*"), {("chat.replies", False), ("chat.replies.", True)}),
        (("orders.answers",), {("orders.answers", False)}),
        (("*",), {("*", False)}),
        ((), set()),
    ],
)
def test_workers_may_answer_where_the_settings_say(patterns: tuple[str, ...], granted: set[tuple[str, bool]]) -> None:
    settings = Settings(kafka=KafkaSettings(reply_topics=patterns))
    assert {(right.name, right.prefixed) for right in rights(settings) if right.why == "answers"} == granted


@pytest.mark.parametrize("pattern", ["chat.*.answers", "chat.replies.?", "[ab].replies", "**"])
def test_a_pattern_that_acls_have_no_word_for_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError, match=r"REPLYLINE_KAFKA__REPLY_TOPICS has .*list the topics"):
        rights(Settings(kafka=KafkaSettings(reply_topics=("chat.replies", pattern))))


def test_the_commands_name_every_right_once() -> None:
    """A line for each user, operation, kind and pattern, and what it is for; a name with a blank stays one argument."""
    found = rights(Settings())
    printed = commands(found, USERS, "a:1,b:2")
    assert all(any(right.why in comment for comment in printed[::2]) for right in found)
    assert all(comment.startswith("# ") for comment in printed[::2])
    lines = [shlex.split(line) for line in printed[1::2]]
    granted = [
        (line[line.index("--allow-principal") + 1], line[line.index("--operation") + 1], option, name)
        for line in lines
        for option, name in itertools.pairwise(line)
        if option in {"--topic", "--group"}
    ]
    assert sorted(granted) == sorted(
        (f"User:{USERS[right.role]}", right.operation, f"--{right.kind}", right.name) for right in found
    )
    assert all(line[:3] == ["kafka-acls.sh", "--bootstrap-server", "a:1,b:2"] for line in lines)


def test_a_role_without_a_user_is_left_out() -> None:
    lines = commands(rights(Settings()), {"worker": "worker"}, "a:1")
    assert lines
    assert all("User:worker" in line for line in lines[1::2])
