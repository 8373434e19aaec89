"""Every setting of every process, in one frozen object."""

import os
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from shared.nouns import counted
from shared.settings.answers import AnswerSettings, FaqSettings
from shared.settings.auth import AuthSettings
from shared.settings.edge import EdgeSettings
from shared.settings.gateway import AdmissionSettings, ChatwootSettings, GatewaySettings, HandoffSettings, QuotaSettings
from shared.settings.kafka import KafkaSettings
from shared.settings.promise import LimitSettings, PromiseSettings
from shared.settings.redis import KvRedisSettings, RedisAddress, RedisSettings
from shared.settings.telemetry import LogSettings, RolloutSettings, TracingSettings
from shared.settings.worker import KvSettings, ModelSettings, UpstreamSettings, WorkerSettings
from shared.wire.requests import Defaults

PREFIX = "REPLYLINE_"
_BY_VERSION: Final = ("canary", "control", "shadow")
_LEAST_STEP_LIMIT_S: Final = 5.0
_MAY_BE_EMPTY: Final = frozenset(("trusted_proxies", "system_prompt"))  # which differs from their defaults


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", enable_decoding=False, frozen=True, extra="forbid"
    )

    tenant: str = Field(
        "demo", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$", description="tenant of requests that do not name one"
    )
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
    chatwoot: ChatwootSettings = ChatwootSettings()
    worker: WorkerSettings = WorkerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    faq: FaqSettings = FaqSettings()
    answers: AnswerSettings = AnswerSettings()
    edge: EdgeSettings = EdgeSettings()
    rollout: RolloutSettings = RolloutSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()

    @model_validator(mode="before")
    @classmethod
    def _drop_space(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Strip the space around texts, which YAML blocks and files of variables leave there.

        A blank variable, as Compose writes it for `VARIABLE: ${VARIABLE:-}`, means the setting's default. Otherwise a
        blank host would mean every address.
        """

        def stated(values: dict[str, Any]) -> dict[str, Any]:
            texts = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
            return {name: value for name, value in texts.items() if name in _MAY_BE_EMPTY or value != ""}

        return stated({name: stated(value) if isinstance(value, dict) else value for name, value in given.items()})

    @property
    def redis_of_kv(self) -> RedisAddress:
        """Return the address of the Redis that stores conversations' KV."""
        return self.kv_redis if self.kv_redis.url else self.redis

    @property
    def journal_of(self) -> str | None:
        """Return the tenant whose turns this edge sends to its centre; None if this is not an edge."""
        return self.tenant if self.edge.centre else None

    @property
    def step_limit_s(self) -> float:
        """Return the seconds after which an engine step counts as hung."""
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
    def _upstream_is_named(self) -> Self:
        if (self.worker.engine == "upstream") != bool(self.upstream.url):
            raise ValueError(
                "worker.engine=upstream and upstream.url belong together: set both, or neither, as in "
                f"{PREFIX}WORKER__ENGINE=upstream {PREFIX}UPSTREAM__URL=http://127.0.0.1:8000/v1"
            )
        if self.worker.engine == "upstream" and self.worker.lane in _BY_VERSION:
            raise ValueError(
                f"worker.lane={self.worker.lane} serves a version of the registry, which worker.engine=upstream cannot "
                "load; use worker.lane=champion, light or cpu, or another engine"
            )
        return self

    @model_validator(mode="after")
    def _edge_has_an_faq(self) -> Self:
        if self.edge.centre and not (self.faq.path and self.faq.stale_s):
            raise ValueError(
                "edge.centre needs faq.path, the file into which the centre's FAQ is written, and faq.stale_s"
            )
        return self

    @model_validator(mode="after")
    def _chatwoot_has_a_door(self) -> Self:
        if self.chatwoot.url and not (self.gateway.http_port and self.gateway.cursor_secret_file):
            raise ValueError("chatwoot.url needs gateway.http_port, and gateway.cursor_secret_file on all gateways")
        return self

    @model_validator(mode="after")
    def _partition_exists(self) -> Self:
        if self.gateway.reply_partition >= self.kafka.reply_partitions:
            raise ValueError(
                f"gateway.reply_partition={self.gateway.reply_partition} does not exist: "
                f"chat.replies has {counted(self.kafka.reply_partitions, 'partition')} (kafka.reply_partitions)"
            )
        return self
