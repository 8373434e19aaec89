"""The cache that the settings ask for, for an engine."""

from typing import Final

from shared.errors import SettingsError
from shared.settings import PREFIX, Settings
from shared.settings.worker import KvSettings
from shared.telemetry import metrics
from workers.engine import EngineInfo
from workers.kv.blocks import BLOCK_TOKENS, BlockNamer
from workers.kv.cache import KvCache, KvSaver
from workers.kv.disk import DiskTier
from workers.kv.gate import LoadGate
from workers.kv.loader import KvLoader
from workers.kv.memory import KvMemory
from workers.kv.store import KvStore
from workers.kv.values import value_bytes
from workers.schedule.policy import Costs

_PROBE_INTERVAL_MS: Final = 1_000.0


def open_cache(settings: Settings, info: EngineInfo, costs: Costs) -> KvCache:
    """Return the cache; it connects when it is started. Raises `SettingsError` for a Redis that cannot be meant, or a
    folder that cannot be made."""
    kv, layout = settings.kv, info.kv_layout
    longest = value_bytes(layout, kv.precision, BLOCK_TOKENS)
    # All that a value depends on besides its tokens.
    layout_id = f"{info.model}/{info.revision}/{info.precision}/{layout.describe()}/{kv.precision}"

    def store(*, tells: bool) -> KvStore:
        return KvStore(
            settings.redis_of_kv,
            kv,
            marks=settings.redis,
            max_value_bytes=longest,
            count_dropped=lambda reason: metrics.kv_dropped.labels(reason).inc(),
            tells=tells,
        )

    memory = KvMemory(max_bytes=kv.host_mib << 20, ttl_s=kv.ttl_s, disk=_open_disk(kv))
    namer = BlockNamer(salt=b"", layout_id=layout_id, block_tokens=BLOCK_TOKENS)
    loader = KvLoader(
        layout=layout,
        codec=kv.precision,
        block_tokens=BLOCK_TOKENS,
        namer=namer,
        memory=memory,
        gate=LoadGate(probe_interval_ms=_PROBE_INTERVAL_MS),
        store=store(tells=True),
        costs=costs,
    )
    saver = KvSaver(codec=kv.precision, namer=namer, memory=memory, store=store(tells=False))
    return KvCache(memory=memory, loader=loader, saver=saver, costs=costs)


def _open_disk(kv: KvSettings) -> DiskTier | None:
    """Return the disk under the host memory; None where none is wanted. Raises `SettingsError`."""
    if not kv.disk_mib:
        return None
    try:
        return DiskTier(kv.disk_dir, max_bytes=kv.disk_mib << 20, ttl_s=kv.ttl_s)
    except OSError as error:
        raise SettingsError(
            f"{PREFIX}KV__DISK_DIR={kv.disk_dir}: {error.strerror}; name a folder to write to"
        ) from None
