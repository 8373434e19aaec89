"""Determine how much memory the KV of conversations needs, and how much Redis has for it. For `replyline doctor`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from shared.errors import ModelError
from shared.model.folder import ModelFolder
from shared.redis.client import blocking_redis
from shared.settings import KvSettings
from shared.settings.redis import RedisAddress
from workers.engine.kv_layout import KvLayout, kv_dtype
from workers.kv.blocks import BLOCK_TOKENS
from workers.kv.values import CODECS, value_bytes

SESSION_TOKENS: Final = 1_000  # assumed length of a session


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFacts:
    """The size of the KV of `SESSION_TOKENS` tokens in Redis, in bytes, by precision."""

    precision: str
    session_bytes: Mapping[str, int]
    host_mib: int


@dataclass(frozen=True, slots=True)
class RedisMemory:
    """Redis' memory according to its INFO command. `max_bytes` 0: no limit."""

    max_bytes: int
    policy: str


def kv_facts(model_dir: Path, kv: KvSettings, *, native: bool = False) -> KvFacts | None:
    """Return the facts from the prepared model's manifest; None without a model. `native`: the native engine is
    used."""
    try:
        manifest = ModelFolder.open(model_dir).manifest
    except ModelError:
        return None
    architecture = manifest.architecture
    layout = KvLayout(
        layers=architecture.num_layers,
        parts=2,
        heads=architecture.num_kv_heads,
        dim=architecture.head_dim,
        dtype="<u2" if native else kv_dtype(manifest).str,
    )
    full, tail = divmod(SESSION_TOKENS, BLOCK_TOKENS)
    session_bytes: dict[str, int] = {
        codec: full * value_bytes(layout, codec, BLOCK_TOKENS) + (value_bytes(layout, codec, tail) if tail else 0)
        for codec in CODECS
    }
    return KvFacts(precision=kv.precision, session_bytes=session_bytes, host_mib=kv.host_mib)


def redis_memory(settings: RedisAddress, *, timeout_s: float) -> RedisMemory | None:
    """Return Redis' memory; None if Redis does not answer, or does not permit this user to query it."""
    client = blocking_redis(settings, timeout_ms=timeout_s * 1_000)
    try:
        info = client.info("memory")
    except (RedisError, OSError, ValueError):
        return None
    finally:
        client.close()
    return RedisMemory(info["maxmemory"], info["maxmemory_policy"])
