"""Every setting of every process, in one frozen object, read once.

From the environment (`REPLYLINE_` and two underscores a level: `REPLYLINE_GATEWAY__PORT=8080`) and, below it, from a
TOML file (`REPLYLINE_CONFIG`, else `replyline.toml` in the working directory). A value out of range stops the
process: exit status 2 and a line a variable.
"""

import os
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from shared.errors import SettingsError
from shared.settings.answers import AnswerSettings
from shared.settings.auth import AuthSettings
from shared.settings.gateway import AdmissionSettings, GatewaySettings, HandoffSettings
from shared.settings.group import Group
from shared.settings.kafka import KafkaSettings
from shared.settings.quotas import QuotaSettings
from shared.settings.redis import KvRedisSettings, RedisAddress, RedisSettings, refused_value, without_password
from shared.settings.tracing import TracingSettings
from shared.wire.requests import Defaults

PREFIX = "REPLYLINE_"
_NOT_SET: Final = (None, 0, "", "0")  # by profile; the environment hands out text
_LEAST_STEP_LIMIT_S: Final = 5.0
_NO_SETTINGS = ("CONFIG", "MODELS_DIR", "URL", "TOKEN")


WindowKind = Literal["off", "adaptive"]

SYSTEM_PROMPT = (
    "You are the assistant of the shop Harbor & Pine. Answer the customer's question in one to three short sentences, "
    "in the customer's language, using only the help entries below. If they do not answer it, say so and offer to "
    "connect a person."
)


class KvSettings(Group):
    """The KV that the model has computed of a conversation, kept for its next turn: in host memory and in Redis."""

    enabled: bool = Field(True, description="keep it; without it every prompt is computed whole")
    precision: Literal["fp16", "exact", "int8"] = Field("fp16", description="of what is kept (exact: the engine's)")
    ttl_s: int = Field(3_600, ge=1, le=2_592_000, description="Redis drops it so long after its last use")
    host_mib: int = Field(256, ge=0, le=1_048_576, description="host memory for it, at most (0: none)")
    timeout_ms: int = Field(20, ge=1, le=10_000, description="one read from Redis or write to it takes no longer")


class ModelSettings(Group):
    """The prepared model folder (`replyline model prepare`)."""

    dir: Path = Field(Path(".models/smollm2-135m-shop-int8"), description="folder with manifest.json")


def _number(given: Any) -> int:
    """0 where it is none above 0: that is refused with its own words."""
    try:
        return max(0, int(given))
    except (TypeError, ValueError):
        return 0


class PromiseSettings(Group):
    """When an answer is due. The profile sets what is not set: `gpu` 200 ms and 1 s, `cpu` 3 s and 15 s, the soft one
    never beyond the hard one."""

    profile: Literal["cpu", "gpu"] = Field("cpu", description="defaults of the two deadlines")
    first_token_ms: int = Field(0, ge=0, le=600_000, description="soft: then the FAQ answers (0: by profile)")
    deadline_ms: int = Field(0, ge=0, le=600_000, description="hard: then the answer is cut (0: by profile)")
    max_deadline_ms: int = Field(120_000, ge=1, le=3_600_000, description="the longest that a client may ask for")

    @model_validator(mode="before")
    @classmethod
    def _by_profile(cls, values: Any) -> Any:
        if isinstance(values, dict):
            soft, hard = (200, 1_000) if values.get("profile") == "gpu" else (3_000, 15_000)
            values = {**values}
            if values.get("deadline_ms") in _NOT_SET:
                values["deadline_ms"] = hard
            if values.get("first_token_ms") in _NOT_SET:
                values["first_token_ms"] = min(soft, _number(values["deadline_ms"]) or soft)
        return values

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.first_token_ms > self.deadline_ms:
            raise ValueError(f"first_token_ms={self.first_token_ms} is above deadline_ms={self.deadline_ms}; lower it")
        if self.deadline_ms > self.max_deadline_ms:
            raise ValueError(
                f"deadline_ms={self.deadline_ms} is above max_deadline_ms={self.max_deadline_ms}; raise it"
            )
        return self


class LimitSettings(Group):
    """The bounds of what a request may ask for."""

    max_input_tokens: int = Field(1_024, ge=1, le=1_000_000, description="a longer input is refused")
    max_output_tokens: int = Field(512, ge=1, le=1_000_000, description="the most that a request may ask for")
    default_output_tokens: int = Field(160, ge=1, le=1_000_000, description="when a request does not say")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.default_output_tokens > self.max_output_tokens:
            raise ValueError(
                f"default_output_tokens={self.default_output_tokens} is above "
                f"max_output_tokens={self.max_output_tokens}"
            )
        return self


class WorkerSettings(Group):
    """Inference: one engine, one scheduler, one consumer."""

    engine: Literal["onnx", "tensorrt", "tensorrt-rtx", "torch", "fake"] = Field(
        "onnx",
        description="onnx: the model on the CPU; tensorrt, tensorrt-rtx: on a GPU; torch: on either; "
        "fake: scripted, for tests",
    )
    fallback_engine: Literal["", "onnx"] = Field(
        "", description="taken where the GPU or its libraries cannot be used (empty: the worker stops, status 2)"
    )
    cache_dir: Path = Field(
        Path(".models"), description="what is made for this machine is kept here: TensorRT's plans, a step's costs"
    )
    torch_device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="engine=torch: where it computes (auto: on a GPU where there is one)"
    )
    metrics_host: str = Field("127.0.0.1", description="address of /metrics, /health and /ready")
    metrics_port: int = Field(8081, ge=0, le=65_535, description="0 picks a free port")
    instance_id: str = Field("", description="static membership (group.instance.id); empty: dynamic")
    buckets: tuple[Literal["short", "medium", "long"], ...] = Field(
        ("short", "medium", "long"), min_length=1, description="which request topics this worker serves"
    )
    slots: int = Field(8, ge=1, le=512, description="sequences decoded together")
    max_length: int = Field(2_048, ge=64, le=1_048_576, description="tokens of prompt and answer a slot holds")
    threads: int = Field(0, ge=0, le=256, description="engine threads (0: one a core)")
    window: WindowKind = Field(
        "off",
        description="adaptive: hold the first of the waiting for 10 ms while others run, else 50 ms, so that others "
        "share its prefill call",
    )
    prefill_chunk_tokens: int = Field(256, ge=8, le=65_536, description="prompt tokens computed in one step, at most")
    max_waiting: int = Field(64, ge=1, le=100_000, description="requests read ahead; then partitions are paused")
    reply_interval_ms: float = Field(
        50.0, ge=0, le=1_000, description="deltas go out together so often; an answer's first and its end at once"
    )
    system_prompt: str = Field(SYSTEM_PROMPT, description="stands first in every prompt")
    grounding_entries: int = Field(2, ge=0, le=10, description="FAQ entries put into the prompt")
    history_turns: int = Field(5, ge=0, le=50, description="earlier turns put into the prompt, at most")
    fake_prefill_ms_per_token: float = Field(0.0, ge=0, description="engine=fake: latency")
    fake_decode_ms_per_step: float = Field(0.0, ge=0, description="engine=fake: latency")
    step_limit_s: float = Field(
        0.0,
        ge=0,
        le=3_600,
        description="an engine step that takes longer hangs: the worker leaves and ends, status 1 (0: twice the "
        "promise's deadline, 5 s at least)",
    )
    drain_s: float = Field(10.0, ge=0, le=300, description="how long shutdown waits for sequences in flight")

    @property
    def plans_dir(self) -> Path:
        return self.cache_dir / "plans"

    @property
    def costs_dir(self) -> Path:
        return self.cache_dir / "costs"


class FaqSettings(Group):
    """The fallback, and what grounds the model."""

    path: Path | None = Field(None, description="the FAQ's file, or folder of files (none: the demo shop's)")
    embeddings_dir: Path | None = Field(
        None, description="folder with an ONNX sentence-embedding model, searched by too in the worker (none: by terms)"
    )
    embeddings_missing: Literal["refuse", "terms"] = Field(
        "refuse", description="where that folder is not there. refuse: do not start; terms: search by these, as logged"
    )


class LogSettings(Group):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level written")


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", enable_decoding=False, frozen=True, extra="forbid"
    )

    tenant: str = Field("demo", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$", description="of requests that name none")
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    kv: KvSettings = KvSettings()
    kv_redis: KvRedisSettings = KvRedisSettings()
    model: ModelSettings = ModelSettings()
    promise: PromiseSettings = PromiseSettings()
    limits: LimitSettings = LimitSettings()
    quotas: QuotaSettings = QuotaSettings()
    gateway: GatewaySettings = GatewaySettings()
    auth: AuthSettings = AuthSettings()
    admission: AdmissionSettings = AdmissionSettings()
    handoff: HandoffSettings = HandoffSettings()
    worker: WorkerSettings = WorkerSettings()
    faq: FaqSettings = FaqSettings()
    answers: AnswerSettings = AnswerSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()

    @property
    def redis_of_kv(self) -> RedisAddress:
        """Return where conversations' KV is kept."""
        return self.kv_redis if self.kv_redis.url else self.redis

    @property
    def step_limit_s(self) -> float:
        """Return the time after which an engine step hangs."""
        return self.worker.step_limit_s or max(_LEAST_STEP_LIMIT_S, 2 * self.promise.deadline_ms / 1_000)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        file = Path(os.environ.get(PREFIX + "CONFIG") or "replyline.toml")
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file))

    @property
    def request_defaults(self) -> Defaults:
        return Defaults(
            tenant=self.tenant,
            output_tokens=self.limits.default_output_tokens,
            max_output_tokens=self.limits.max_output_tokens,
            first_token_ms=self.promise.first_token_ms,
            deadline_ms=self.promise.deadline_ms,
            max_deadline_ms=self.promise.max_deadline_ms,
            reply_topic=self.kafka.topics.external_replies,
            reply_topics=tuple(self.kafka.topic_prefix + pattern for pattern in self.kafka.reply_topics),
            tenants=self.kafka.tenants,
        )

    @model_validator(mode="after")
    def _partition_exists(self) -> Self:
        if self.gateway.reply_partition >= self.kafka.reply_partitions:
            raise ValueError(
                f"gateway.reply_partition={self.gateway.reply_partition} does not exist: "
                f"chat.replies has {self.kafka.reply_partitions} partitions (kafka.reply_partitions)"
            )
        return self


def load_settings(**overrides: Any) -> Settings:
    """Return the settings of this process. Raises `SettingsError`: one line a wrong setting, naming its variable."""
    named = os.environ.get(PREFIX + "CONFIG")
    if named and not Path(named).is_file():
        raise SettingsError(f"{PREFIX}CONFIG={named}: no such file; name a TOML file or unset it")
    unknown = _unknown_variables(os.environ)
    if unknown:
        raise SettingsError("\n".join(f"{name}: no such setting; `replyline settings` lists them" for name in unknown))
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise SettingsError("\n".join(_line(item) for item in error.errors())) from None
    except (ValueError, OSError) as error:  # TOML that does not parse, JSON in a tuple's variable
        cause = error.__cause__ or error
        raise SettingsError(f"settings cannot be read: {error}: {cause}") from None


def _line(item: Any) -> str:
    place = [part for part in item["loc"] if isinstance(part, str)]  # not the place within a list
    variable = PREFIX + "__".join(place).upper() if place else "settings"
    if item["type"] == "extra_forbidden":
        return f"{variable}: no such setting; `replyline settings` lists them"
    shown = bool(place) and not place[-1].endswith(("secret", "password")) and not isinstance(item["input"], dict)
    value = refused_value(item["input"]) if isinstance(item["input"], str) else item["input"]
    given = f"={value!r}" if shown else ""
    return f"{variable}{given}: {item['msg'].removeprefix('Value error, ')}"


def _unknown_variables(environ: Any) -> list[str]:
    known = {variable for variable, *_ in describe()} | {PREFIX + name for name in _NO_SETTINGS}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def describe(settings: Settings | None = None) -> list[tuple[str, str, str]]:
    """(variable, value or default, what it means) of every setting."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Group):
            group = getattr(settings, name) if settings else field.default
            rows.extend(
                (f"{PREFIX}{name}__{sub}".upper(), _show(getattr(group, sub)), part.description or "")
                for sub, part in annotation.model_fields.items()
            )
        else:
            value = getattr(settings, name) if settings else field.default
            rows.append((f"{PREFIX}{name}".upper(), _show(value), field.description or ""))
    return rows


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else without_password(str(value))
