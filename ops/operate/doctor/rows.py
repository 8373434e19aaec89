"""The doctor's results: one row per check, and a last line. Pure.

`demo` checks what a demo needs. `production` checks what a gateway and a worker need that use existing Kafka and
Redis servers. A requirement of only one of the two is a warning, because it is not known which of them runs on this
machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ops.operate.doctor.engine_facts import EngineFacts, UpstreamFacts
from ops.operate.doctor.kv_memory import SESSION_TOKENS, KvFacts, RedisMemory
from ops.operate.doctor.machine import MachineFacts
from ops.operate.doctor.row import CheckRow, Status, row
from ops.operate.doctor.services import ServiceFacts
from ops.stack import checkout
from ops.stack.checkout import demo_command, setup_command
from ops.stack.embedded import kafka_remedy, redis_remedy
from ops.stack.port_use import PortUse, another_port
from shared.nouns import counted
from shared.process.extras import install_command
from shared.wire.topic_layout import TopicCopies, weakness
from shared.wire.topics import KEPT_MS
from workers.engine.unusable import Unusable
from workers.engine.upstream.client import Served
from workers.engine.upstream.failures import UpstreamFailure

Purpose = Literal["demo", "production"]

OLDEST_PYTHON: Final = (3, 11)
OLDEST_JAVA: Final = 17
MIN_MEMORY_GB: Final = 2.0
MIN_DISK_GB: Final = 1.5
MIN_CORES: Final = 2
_MOST_MODELS: Final = 3
_FOR_EVER: Final = -1
_LONG_MS: Final = 3_900_000  # the longest deadline that may be set, plus some minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts found on this machine. `model_prepared`: the model's folder is complete. `kv` is None if no KV is
    stored."""

    machine: MachineFacts
    services: ServiceFacts
    port: int
    port_use: PortUse
    model_dir: str
    model_prepared: bool
    uses_cpu_engine: bool = True
    kv: KvFacts | None = None
    engine: EngineFacts | None = None
    has_origins: bool = True
    has_cursor_secret: bool = True


def judge(facts: Facts, purpose: Purpose) -> list[CheckRow]:
    """Return the rows, the most important ones first."""
    if purpose == "demo":
        rows = [*_for_the_demo(facts), *_for_the_tests(facts), *_services(facts, Status.WARN)]
    else:
        rows = [*_services(facts, Status.MISSING), *_for_topics(facts), *_for_a_process(facts), *_for_the_door(facts)]
    return [*rows, *_for_engine(facts), *_for_history(facts, purpose), *_for_kv(facts)]


def nothing_is_missing(rows: Sequence[CheckRow]) -> bool:
    return all(row.status is not Status.MISSING for row in rows)


def verdict(rows: Sequence[CheckRow], facts: Facts, purpose: Purpose) -> str:
    """Return the last line."""
    complete = nothing_is_missing(rows)
    if purpose == "production":
        return f"{_for_production(rows)} (The demo is judged by: replyline doctor --for demo)"
    if not complete:
        return f"{demo_command()} cannot run yet: see the rows marked missing."
    if facts.port_use is PortUse.REPLYLINE:
        return f"Replyline runs on port {facts.port}. (A second demo: {demo_command(another_port(facts.port))})"
    return f"{demo_command()} can run."


def _for_production(rows: Sequence[CheckRow]) -> str:
    if not nothing_is_missing(rows):
        return "A gateway and a worker cannot serve from here yet: see the rows marked missing."
    if any(row.status is Status.WARN for row in rows):
        return "Nothing is missing that a gateway and a worker both need; one may need what a row marked warn names."
    return "A gateway and a worker have here what they need."


def _for_the_demo(facts: Facts) -> list[CheckRow]:
    lacking = facts.machine.missing_modules.get("onnx", ())
    found = "prepared" if facts.model_prepared else f"not prepared ({demo_command()} does it)"
    return [
        _python(facts),
        row("CPU engine", not lacking, _listed(lacking), setup_command("onnx")),
        row(
            "embedded Kafka",
            facts.machine.librdkafka is not None,
            _where(facts.machine.librdkafka),
            kafka_remedy(facts.machine.platform),
        ),
        row(
            "embedded Redis",
            facts.machine.redis_server is not None,
            _where(facts.machine.redis_server),
            redis_remedy(),
        ),
        *_model(facts, found, otherwise=Status.WARN),
        _port(facts, demo_command(another_port(facts.port)), otherwise=Status.MISSING),
        *_machine(facts),
        row(
            "disk",
            facts.machine.disk_gb >= MIN_DISK_GB,
            f"{facts.machine.disk_gb:.1f} GB free",
            f"free {MIN_DISK_GB} GB or more",
        ),
    ]


def _for_a_process(facts: Facts) -> list[CheckRow]:
    lacking = facts.machine.missing_modules.get("onnx", ()) if facts.uses_cpu_engine else ()
    found = "prepared" if facts.model_prepared else "not prepared"
    rows = [_python(facts), *_model(facts, found, otherwise=Status.MISSING)]
    if facts.uses_cpu_engine:
        remedy = f"for a worker: {install_command('onnx')}"
        rows.append(row("CPU engine", not lacking, _listed(lacking), remedy, otherwise=Status.WARN))
    port = _port(facts, "for a gateway: stop that, or set REPLYLINE_GATEWAY__PORT", otherwise=Status.WARN)
    return [*rows, port, *_machine(facts)]


def _python(facts: Facts) -> CheckRow:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    version = ".".join(map(str, facts.machine.python))
    return row(
        "Python",
        facts.machine.python >= OLDEST_PYTHON,
        version,
        f"install Python {oldest} or newer, then: {setup_command()}",
    )


def _model(facts: Facts, found: str, *, otherwise: Status) -> list[CheckRow]:
    """Check the model's folder. An upstream server needs none."""
    if facts.engine is not None and facts.engine.upstreams:
        return []
    detail = f"{facts.model_dir}: {found}"
    return [row("model", facts.model_prepared, detail, "replyline model prepare", otherwise=otherwise)]


def _port(facts: Facts, remedy: str, *, otherwise: Status) -> CheckRow:
    usable = facts.port_use in {PortUse.FREE, PortUse.REPLYLINE}
    return row(f"port {facts.port}", usable, facts.port_use, remedy, otherwise=otherwise)


def _machine(facts: Facts) -> list[CheckRow]:
    return [
        row(
            "cores",
            facts.machine.cores >= MIN_CORES,
            str(facts.machine.cores),
            f"{MIN_CORES} or more",
            otherwise=Status.WARN,
        ),
        row(
            "memory",
            facts.machine.memory_gb >= MIN_MEMORY_GB,
            f"{facts.machine.memory_gb:.1f} GB",
            f"{MIN_MEMORY_GB:.0f} GB or more; REPLYLINE_WORKER__SLOTS=2 needs less",
            otherwise=Status.WARN,
        ),
    ]


def _for_the_tests(facts: Facts) -> list[CheckRow]:
    """Check what `make test` needs. Only a checkout has tests."""
    if not checkout.IN_CHECKOUT:
        return []
    warn = Status.WARN
    lacking = facts.machine.missing_modules.get("dev", ())
    java = "not found" if facts.machine.java is None else str(facts.machine.java)
    chromium = facts.machine.chromium is not None
    return [
        row("test tools", not lacking, _listed(lacking), "make test", otherwise=warn),
        row(
            "Java",
            (facts.machine.java or 0) >= OLDEST_JAVA,
            java,
            f"apt-get install openjdk-{OLDEST_JAVA}-jre-headless",
            otherwise=warn,
        ),
        row(
            "Maven",
            facts.machine.maven is not None,
            _where(facts.machine.maven),
            "apt-get install maven",
            otherwise=warn,
        ),
        row("Chromium", chromium, _where(facts.machine.chromium), "apt-get install chromium", otherwise=warn),
    ]


def _services(facts: Facts, otherwise: Status) -> list[CheckRow]:
    """Check the services. The demo starts its own. One of several brokers is enough to start with."""
    own = f" ({demo_command()} brings its own)" if otherwise is Status.WARN else ""
    remedy = f"start it, or set {{}}{own}"
    one_answers = any(facts.services.kafka.values())
    rows = [
        row(
            f"Kafka {address}",
            up,
            _answering(up),
            remedy.format("REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"),
            otherwise=Status.WARN if one_answers else otherwise,
        )
        for address, up in facts.services.kafka.items()
    ]
    if facts.services.kafka_refusal is not None:
        rows.append(
            CheckRow("Kafka's reply", otherwise, facts.services.kafka_refusal, "correct the settings named there")
        )
    rows += [
        row(f"Redis {address}", up, _answering(up), remedy.format("REPLYLINE_REDIS__URL"), otherwise=otherwise)
        for address, up in facts.services.redis.items()
    ]
    rows += [
        CheckRow(
            "Redis' reply",
            otherwise,
            refusal,
            "restart it if it is stopped or overloaded; else check REPLYLINE_REDIS__URL, …KV_REDIS__URL",
        )
        for refusal in facts.services.redis_refusals
    ]
    return rows


def _for_topics(facts: Facts) -> list[CheckRow]:
    """Check the topics: an acknowledged record must survive the loss of a broker, and be retained as long as its
    readers need it."""
    if not facts.services.copies:
        return []
    broken = next(iter(facts.services.broken_promises), "")
    weak = next(filter(None, (weakness(each, facts.services.told_replicas) for each in facts.services.copies)), None)
    least = min(facts.services.copies, key=lambda each: each.replicas)
    behind = next((each for each in facts.services.copies if each.in_sync < each.replicas), None)
    longest = max(facts.services.copies, key=_kept_ms)
    in_sync = "all are up to date"
    if behind is not None:
        in_sync = f"{behind.topic} has {behind.in_sync} of {behind.replicas} up to date"
    kept = "for ever" if longest.kept_ms == _FOR_EVER else f"for {_kept_ms(longest) / 3_600_000:.2g} h at most"
    remedy = f"--entity-name {longest.topic} --add-config retention.ms={KEPT_MS},segment.ms={KEPT_MS // 3}"
    copies = f"{least.replicas} on {counted(least.brokers, 'broker')}"
    return [
        row("Kafka's copies", weak is None, weak or copies, weak or ""),
        row("topics' settings", not broken, broken.partition("; ")[0] or "as needed", broken.partition("; ")[2]),
        row("copies in sync", behind is None, in_sync, "start the missing broker", otherwise=Status.WARN),
        row(
            "retention",
            _kept_ms(longest) <= _LONG_MS,
            f"{longest.topic} keeps customers' texts {kept}, even if they erase them",
            f"kafka-configs.sh --alter --entity-type topics {remedy}",
            otherwise=Status.WARN,
        ),
    ]


def _kept_ms(copies: TopicCopies) -> float:
    if copies.kept_ms is None:
        return 0
    return float("inf") if copies.kept_ms == _FOR_EVER else copies.kept_ms


def _for_the_door(facts: Facts) -> list[CheckRow]:
    """Check a gateway's settings for clients; a worker needs none."""
    return [
        row(
            "origins",
            facts.has_origins,
            "named" if facts.has_origins else "any page may connect",
            "for a gateway: REPLYLINE_GATEWAY__ALLOWED_ORIGINS=https://shop.example",
            otherwise=Status.WARN,
        ),
        row(
            "cursor secret",
            facts.has_cursor_secret,
            "set" if facts.has_cursor_secret else "none: a client can resume only at its own gateway",
            "for a gateway: openssl rand -base64 48 > FILE; REPLYLINE_GATEWAY__CURSOR_SECRET_FILE=FILE",
            otherwise=Status.WARN,
        ),
    ]


def _for_engine(facts: Facts) -> list[CheckRow]:
    """Check the GPU if one is needed, and whether the engine will fit in memory."""
    rows: list[CheckRow] = []
    if facts.engine is None:
        return rows
    others = any(isinstance(each.found, Served) for each in facts.engine.upstreams)
    rows += [_upstream(each, Status.WARN if others else Status.MISSING) for each in facts.engine.upstreams]
    gpu, plan = facts.engine.gpu, facts.engine.memory
    if isinstance(gpu, Unusable):
        remedy = "REPLYLINE_WORKER__ENGINE=onnx, or REPLYLINE_WORKER__FALLBACK_ENGINE=onnx"
        rows.append(CheckRow(f"engine {facts.engine.name}", Status.WARN, gpu.reason, remedy))
    elif gpu is not None:
        named = f" ({facts.engine.device})" if facts.engine.device else ""
        rows.append(
            CheckRow(f"engine {facts.engine.name}", Status.OK, f"{gpu.version} on {gpu.device}{named}, {gpu.sm}")
        )
    if isinstance(facts.engine.native, Unusable):
        why, _, remedy = facts.engine.native.reason.rpartition("; ")
        rows.append(CheckRow("engine native", Status.WARN, f"{why}: onnx computes", remedy.removeprefix("run: ")))
    elif facts.engine.native is not None:
        rows.append(CheckRow("engine native", Status.OK, facts.engine.native))
    if plan is not None:
        rows.append(row("memory plan", plan.fits, plan.describe(), plan.remedy, otherwise=Status.WARN))
    return rows


def _upstream(facts: UpstreamFacts, otherwise: Status) -> CheckRow:
    name, found = f"upstream {facts.address}", facts.found
    if isinstance(found, UpstreamFailure):
        why, _, remedy = str(found).partition("; ")
        return CheckRow(name, otherwise, why, remedy or "REPLYLINE_UPSTREAM__URL")
    serves = f"serves {', '.join(found.models[:_MOST_MODELS])}"
    if facts.model and facts.model not in found.models:
        return CheckRow(
            name, Status.MISSING, f"{serves}; not {facts.model}", "set REPLYLINE_UPSTREAM__MODEL to one of them"
        )
    slots, length = found.slots or facts.slots, found.length or facts.length
    room = f"{counted(slots, 'request')} at a time" if found.slots else "does not say how many requests at a time"
    room = f"{serves}; {room}, {length:,} tokens each" if found.length else f"{serves}; {room}"
    if found.left_out:
        room += f"; refuses {', '.join(found.left_out)}, left out there"
    if slots < facts.slots or length < facts.length:
        asked = f"REPLYLINE_WORKER__SLOTS={min(slots, facts.slots)}"
        remedy = f"{asked}, REPLYLINE_WORKER__MAX_LENGTH={min(length, facts.length)}"
        return CheckRow(name, Status.WARN, f"{room}; set: {facts.slots} and {facts.length:,}", remedy)
    return CheckRow(name, Status.OK, room)


def _for_history(facts: Facts, purpose: Purpose) -> list[CheckRow]:
    """Check the history: it must be in a Redis that evicts nothing. A demo may lose it."""
    memory = facts.services.history_memory
    if memory is None or purpose == "demo":
        return []
    remedy = "redis-cli config set maxmemory-policy noeviction"
    if not facts.services.has_kv_redis:
        remedy += "; KV needs another, which evicts: REPLYLINE_KV_REDIS__URL"
    room = f"{_limit(memory)}, {memory.policy}: evicts history, hand-offs, and that a conversation was erased"
    if memory.policy == "noeviction":
        room = f"{_limit(memory)}, noeviction"
    return [row("Redis of the history", memory.policy == "noeviction", room, remedy, otherwise=Status.WARN)]


def _limit(memory: RedisMemory) -> str:
    return f"maxmemory {memory.max_bytes / 2**20:,.0f} MiB" if memory.max_bytes else "maxmemory: unlimited"


def _for_kv(facts: Facts) -> list[CheckRow]:
    """Return how many sessions' KV fits in memory; empty without a prepared model, or if no KV is stored."""
    if facts.kv is None:
        return []
    session_bytes = facts.kv.session_bytes[facts.kv.precision]
    by_precision = ", ".join(
        f"{name} {size / SESSION_TOKENS:,.0f}" for name, size in sorted(facts.kv.session_bytes.items())
    )
    needs = f"{facts.kv.precision}: {session_bytes / 1e6:.1f} MB for {SESSION_TOKENS:,} tokens"
    fitting = counted((facts.kv.host_mib << 20) // session_bytes, "session")
    host_fits = f"{facts.kv.host_mib} MiB of host memory: {fitting}"
    rows = [CheckRow("session KV", Status.OK, f"{needs} (bytes a token: {by_precision}); {host_fits}")]
    if facts.services.kv_memory is not None:
        rows.append(_redis_room(facts.services.kv_memory, session_bytes, own=facts.services.has_kv_redis))
    return rows


def _redis_room(memory: RedisMemory, session_bytes: int, *, own: bool) -> CheckRow:
    remedy = "redis-cli config set maxmemory-policy allkeys-lru"
    if not own:
        remedy = "use a separate Redis for KV, which evicts (allkeys-lru): REPLYLINE_KV_REDIS__URL"
    room = _limit(memory)
    if memory.max_bytes == 0:
        room, remedy = f"{room}, as many sessions as the machine holds", f"set maxmemory, then: {remedy}"
    else:
        room += f": {counted(memory.max_bytes // session_bytes, 'session')} of {SESSION_TOKENS:,} tokens"
    room = f"{room}, {memory.policy}"
    return row("Redis of the KV", memory.policy != "noeviction", room, remedy, otherwise=Status.WARN)


def _listed(lacking: Sequence[str]) -> str:
    return f"missing: {', '.join(lacking)}" if lacking else "installed"


def _where(found: str | None) -> str:
    return found or "not found"


def _answering(up: bool) -> str:
    return "accepts connections" if up else "does not answer"
