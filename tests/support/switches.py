"""The settings by which proofs differ from what is shipped, and why each must. What is not named here is as shipped.

`tests/unit/repo/test_switches.py` holds every proof's settings to this list.
"""

from collections.abc import Mapping
from typing import Any, Final

from shared.settings import Settings

WHY: Final[Mapping[str, str]] = {
    "worker__engine": "the scripted engine writes a text that the oracle can compute, on any machine",
    "answers__guard": "the scripted engine writes no sentences: the guard would show nothing before an answer's end",
    "worker__slots": "the scripted engine has no memory to plan slots by",
    "worker__fake_decode_ms_per_step": "the pace of the scripted engine, so that answers are open when a fault comes",
    "auth__mode": "clients have no issuer of tokens; tests/conformance/frontends has the tokens",
    "gateway__messages_per_minute": "a few clients ask as much as a shop's customers; the limit has tests of its own",
    "gateway__max_inflight_per_connection": "questions of a client that was away are asked again at once",
    "gateway__cursor_secret_file": "gateways share it, as the chart's secret has them do",
    "quotas__address_per_minute": "all clients have one address; the limit has tests of its own",
    "kafka__session_timeout_ms": "more kills in the same time",
    "kafka__reply_partitions": "one for each gateway that a test starts",
    "kafka__request_partitions": "as many partitions as a pool of that size is given",
    "redis__timeout_ms": "machines of CI stand still for longer than an idle one",
    "promise__first_token_ms": "the time of requests that name none, on a machine that does other work",
    "promise__deadline_ms": "the time of requests that name none, on a machine that does other work",
}

_CALIBRATED: Final = "load is counted in prompts of one length, so that overload comes at a known rate"
_SPEAKERS: Final = "small models of random weights, whose prompts must fit 1,024 tokens"
_ANSWERS: Final = ("answers__policy", "handoff__enabled", "limits__max_output_tokens", "worker__max_length")
_MODEL_ALONE: Final = "every question is the model's, so that slots are filled at a known rate"
# In addition to those: the settings of single proofs.
WHY_HERE: Final[Mapping[str, Mapping[str, str]]] = {
    "overload": {
        "worker__system_prompt": _CALIBRATED,
        "worker__grounding_entries": _CALIBRATED,
        "worker__history_turns": _CALIBRATED,
        "worker__fake_prefill_ms_per_token": _CALIBRATED,
        "promise__max_deadline_ms": _CALIBRATED,
        **dict.fromkeys(_ANSWERS, _MODEL_ALONE),
    },
    "tenant flood": {
        "worker__system_prompt": _CALIBRATED,
        "worker__grounding_entries": _CALIBRATED,
        "worker__history_turns": _CALIBRATED,
        "auth__mode": "tenants are told apart by their tokens",
        "auth__secret_file": "tenants are told apart by their tokens",
        **dict.fromkeys(_ANSWERS, _MODEL_ALONE),
    },
    "hot and cold": {"gateway__placement": "both kinds of placement are compared"}
    | dict.fromkeys(_ANSWERS, _MODEL_ALONE),
    "reserve": {"worker__long_slots_share": "with and without a reserve are compared"}
    | dict.fromkeys(_ANSWERS, _MODEL_ALONE),
    "lifecycle": {
        "worker__engine": "versions are real weights, told apart by their tokens",
        "worker__threads": "eight workers on one machine",
        "worker__max_length": _SPEAKERS,
        "worker__history_turns": _SPEAKERS,
        "worker__grounding_entries": _SPEAKERS,
        "worker__system_prompt": _SPEAKERS,
        "worker__cache_dir": "a folder of the test's own",
        "model__versions_dir": "a folder of the test's own",
        "kv__precision": "answers are compared token for token",
    },
    "world": {
        "worker__fake_prefill_ms_per_token": "virtual time",
        "worker__fake_mixes": "some workers' engines mix prompts and steps, others do not",
        "worker__step_limit_s": "an engine that hangs is left sooner, in virtual time",
        "worker__metrics_port": "the processes have one machine",
        "worker__instance_id": "one worker is a static member",
        "gateway__port": "the processes have one machine",
        "gateway__metrics_port": "the processes have one machine",
        "gateway__reply_partition": "each gateway has its own",
        "kafka__bootstrap_servers": "Kafka of the world",
        "kafka__request_timeout_ms": "more faults in the same time",
        "redis__url": "Redis of the world",
        "kv__host_mib": "one worker has all KV from Redis",
        "auth__jwks": "tokens of the world's issuer",
        "quotas__subject_per_minute": "so small that customers reach it",
        "handoff__enabled": "hand-offs are asked for",
    },
}


def flat(settings: Settings) -> dict[str, Any]:
    """Return all settings by their whole names: `worker__slots`."""
    found: dict[str, Any] = {}
    for group, values in settings.model_dump().items():
        if isinstance(values, dict):
            found |= {f"{group}__{name}": value for name, value in values.items()}
    return found


SHIPPED: Final[Mapping[str, Any]] = {name: flat(Settings())[name] for name in _ANSWERS}
"""What `tests.support.system.COMMON` sets otherwise and an answer's text depends on: for proofs as shipped."""


def nested(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings by group and name: `WORKER__SLOTS` is `worker`'s `slots`."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        group, _, rest = name.lower().partition("__")
        found.setdefault(group, {})[rest] = value
    return found
