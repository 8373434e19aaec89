"""List the settings by the question that a reader has, with the most important ones first."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from shared.settings.group import SettingsGroup
from shared.settings.redis import without_password
from shared.settings.settings import PREFIX, Settings

_NAME: Final = re.compile(r"(?<![\w./'])(?:[a-z_]+\.[a-z_]+|[a-z]+_[a-z_]+)(?![\w/'])")
FIRST: Final = "What does every installation set?"
# A group's name includes those of its settings that no question lists separately.
QUESTIONS: Final[dict[str, tuple[str, ...]]] = {
    FIRST: (
        "kafka.bootstrap_servers",
        "redis.url",
        "model.dir",
        "worker.engine",
        "worker.slots",
        "worker.gpu_share",
        "promise.profile",
        "promise.first_token_ms",
        "promise.deadline_ms",
        "auth.secret_file",
        "gateway.allowed_origins",
        "gateway.cursor_secret_file",
        "faq.path",
    ),
    "How do answers come sooner?": (
        "worker.window",
        "worker.prefill_chunk_tokens",
        "worker.reply_interval_ms",
        "worker.threads",
        "worker.native_kernel",
        "kv.enabled",
        "kv.host_mib",
        "kv.disk_mib",
        "kv.disk_dir",
        "kafka.fetch_max_wait_ms",
        "redis.timeout_ms",
        "kv.timeout_ms",
        "gateway.placement",
    ),
    "How are short questions favoured, or long ones?": (
        "worker.buckets",
        "worker.long_slots_share",
        "kafka.request_partitions",
    ),
    "How long may a question and an answer be?": ("limits", "worker.max_length", "promise"),
    "How is load limited?": (
        "quotas",
        "gateway.max_connections",
        "gateway.max_inflight",
        "gateway.max_inflight_per_connection",
        "gateway.messages_per_minute",
        "gateway.max_message_bytes",
        "gateway.memory_budget_mib",
        "admission",
        "worker.max_waiting",
    ),
    "Who may ask, and from where?": (
        "auth",
        "gateway.trusted_proxies",
        "tenant",
        "kafka.tenants",
        "kafka.reply_topics",
    ),
    "Who answers, and from what?": (
        "worker.system_prompt",
        "worker.grounding_entries",
        "worker.history_turns",
        "answers",
        "faq",
        "handoff",
    ),
    "How does a model change while people chat?": ("worker.lane", "worker.previous_s"),
    "What is kept, and for how long?": ("redis.history_ttl_s", "kv"),
    "What happens when a part dies, stalls or is stopped?": (
        "kafka.session_timeout_ms",
        "kafka.request_timeout_ms",
        "kafka.replication_factor",
        "worker.step_limit_s",
        "worker.fallback_engine",
        "worker.native_dir",
        "worker.instance_id",
        "worker.drain_s",
        "gateway.drain_s",
        "gateway.heartbeat_s",
        "gateway.hello_timeout_s",
        "gateway.slow_consumer_s",
        "gateway.buffer_close_bytes",
    ),
    "Where does it listen, and what does it log and report?": (
        "gateway.host",
        "gateway.port",
        "gateway.metrics_host",
        "gateway.metrics_port",
        "worker.metrics_host",
        "worker.metrics_port",
        "log",
        "tracing",
        "rollout",
    ),
    "How are fewer bytes sent and kept?": ("kafka.compression", "kafka.client_rack", "gateway.deflate", "kv.precision"),
    "How does it connect to Kafka and Redis?": ("kafka", "gateway", "redis", "kv_redis"),
    "Which help desk is connected, and where are hand-offs posted?": (
        "chatwoot",
        "handoff.webhook_url",
        "handoff.webhook_secret_file",
        "handoff.webhook_give_up_s",
    ),
    "Which other servers compute?": ("upstream",),
    "What do an edge and its centre need?": ("edge", "faq.stale_s"),
    "What else can be set for an engine?": ("worker", "model"),
}


class Described(NamedTuple):
    """A setting for display: environment variable, value (without passwords) and description."""

    variable: str
    value: str
    meaning: str


def describe(settings: Settings | None = None) -> list[Described]:
    """Return every setting with its value in `settings`, or with its default."""
    return [each for _, group in by_question(settings) for each in group]


def by_question(settings: Settings | None = None) -> list[tuple[str, list[Described]]]:
    """Return every setting once, grouped by question in the order of `QUESTIONS`."""
    found = dict(_each(settings))
    named = {name for names in QUESTIONS.values() for name in names}
    listed: list[tuple[str, list[Described]]] = []
    for question, names in QUESTIONS.items():
        rows: list[Described] = []
        for name in names:
            group = [each for each in found if each.startswith(f"{name}.") and each not in named]
            rows += [found.pop(each) for each in ([name] if name in found else group)]
        listed.append((question, rows))
    if found:
        raise AssertionError(f"add {', '.join(found)} to a question of QUESTIONS")
    return listed


def by_variable(message: str, group: str = "") -> str:
    """Return a message with each setting's variable in place of its name, which cannot be typed: `kafka.username`, or
    `username` in a message about that group."""
    variables = {name: setting.variable for name, setting in _each(None)}
    variables |= {name.removeprefix(f"{group}."): variable for name, variable in variables.items() if group}
    return _NAME.sub(lambda name: variables.get(name[0], name[0]), message)


def _each(settings: Settings | None) -> Iterator[tuple[str, Described]]:
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name) if settings else field.default
        if not isinstance(value, SettingsGroup):
            yield name, Described(f"{PREFIX}{name}".upper(), _show(value), field.description or "")
            continue
        for sub, part in type(value).model_fields.items():
            variable = f"{PREFIX}{name}__{sub}".upper()
            yield f"{name}.{sub}", Described(variable, _show(getattr(value, sub)), part.description or "")


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else without_password(str(value))
