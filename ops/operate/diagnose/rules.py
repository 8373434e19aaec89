"""Decide which part limits the system. Each rule checks one part and yields lines of evidence against it. Pure.

Rules run in the order of the request's path, backwards: an earlier cause explains later ones. A slow broker fills
queues, and a full machine makes every metric late.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from ops.operate.diagnose.distributions import Distribution, middle_is_empty, stability_index
from ops.operate.diagnose.pages import Window
from ops.operate.diagnose.system import Answered, Probe, Role, System
from shared.nouns import counted

_BROKER_S: Final = 0.1  # a quiet one acknowledges within a few milliseconds
_BROKER_ASKED_S: Final = 0.5
_REDIS_S: Final = 0.02
_LOOP_LATE_S: Final = 0.05
_SOCKET_S: Final = 0.1
_ONE_CORE: Final = 0.9
_GPU_FULL: Final = 0.95
_BUSY: Final = 0.8
_MOST: Final = 0.5
_FULL: Final = 0.75
_MOVING: Final = 0.25
_SLOW_LOADS: Final = 1.5
_FEWEST_LOADS: Final = 5
_OFF_COST: Final = 1.5
_DROPPED: Final = 0.2
_MERGED: Final = 0.2  # share of all tokens, most of which arrive as one delta each
_FEW: Final = 3
_WORSE: Final = 0.05
_ERRORS: Final = 4.0
_FEWEST_ANSWERS: Final = 10  # ten seconds have fewer answers than the alert's five minutes
_NETWORK_FULL: Final = 0.7
_FEWEST_PROMPTS: Final = 50
_MOST_SHIFTED: Final = 0.25  # the index above which populations are commonly considered different
_FEWEST_STEPS: Final = 100
_STEP: Final = "replyline_worker_step_seconds"
_KAFKA: Final = "replyline_kafka_seconds"
_FALLBACKS: Final = "replyline_gateway_fallbacks_total"

Rule = Callable[[System], Iterator[str]]


def _p95(found: float | None, limit_s: float, what: str, where: str) -> Iterator[str]:
    if found is not None and found > limit_s:
        told = "over the longest that is told apart" if math.isinf(found) else f"up to {1_000 * found:,.0f} ms"
        yield f"{what} at {where}: P95 {told} (limit {1_000 * limit_s:,.0f} ms)"


def _not_ready(system: System, check: Literal["engine", "hardware", "kafka", "redis"]) -> Iterator[str]:
    for url, window in system.all_windows:
        if window.lowest("replyline_ready", check=check) == 0:
            yield f"{url} is not ready: {check}"


def _slow(probe: Probe, limit_s: float, what: str) -> Iterator[str]:
    match probe:
        case str():
            yield f"{what}: {probe}"
        case Answered(seconds) if seconds > limit_s:
            yield f"{what} took {1_000 * seconds:,.0f} ms (limit {1_000 * limit_s:,.0f} ms)"


def process(system: System) -> Iterator[str]:
    """Find a process that does not answer, or a gateway without workers."""
    if not any(found.role is Role.GATEWAY for found in system.processes):
        yield "no gateway is known: name one with --gateway"
    for found in system.processes:
        if isinstance(found.seen, str):
            yield f"{found.role} {found.url}: {found.seen}"
    for url, window in system.gateways:
        if not window.now("replyline_gateway_workers"):
            yield f"{url} has no report from any worker"
    yield from _not_ready(system, "engine")
    yield from _not_ready(system, "hardware")


def bandwidth(system: System) -> Iterator[str]:
    """Find a full network, which delays all traffic."""
    for url, window in system.all_windows:
        speed = window.now("replyline_machine_network_speed_bytes")
        for kind, kv_kind in (("received", "load"), ("sent", "save")):
            rate = window.rate("replyline_machine_network_bytes_total", kind=kind)
            if speed and rate / speed > _NETWORK_FULL:
                kv = window.rate("replyline_kv_bytes_total", what=kv_kind)
                yield (
                    f"the machine of {url} has {kind} {rate / 1e6:,.0f} MB/s, {rate / speed:.0%} of what its network "
                    f"carries; {kv / rate:.0%} of it is this worker's KV"
                    if kv
                    else f"the machine of {url} has {kind} {rate / 1e6:,.0f} MB/s, {rate / speed:.0%} of what its "
                    "network carries"
                )


def broker(system: System) -> Iterator[str]:
    yield from _slow(system.broker, _BROKER_ASKED_S, "asking Kafka for its topics")
    yield from _not_ready(system, "kafka")
    for url, window in system.gateways:
        yield from _p95(window.quantile(_KAFKA, 0.95, what="request"), _BROKER_S, "a request's acknowledgement", url)
    for url, window in system.workers:
        yield from _p95(window.quantile(_KAFKA, 0.95, what="reply"), _BROKER_S, "replies' acknowledgement", url)
    for url, window in system.all_windows:
        yield from _p95(window.quantile(_KAFKA, 0.95, what="commit"), _BROKER_S, "a commit", url)
        failed = window.gain("replyline_kafka_refused_total", what="reply")
        if failed:
            yield f"{url} had to send {counted(failed, 'terminal event')} again"


def redis(system: System) -> Iterator[str]:
    yield from _slow(system.redis, _REDIS_S, "a PING to Redis")
    yield from _not_ready(system, "redis")
    for url, window in system.all_windows:
        without = window.gain("replyline_history_unavailable_total")
        if without:
            yield f"{url} went without Redis {counted(without, 'time')}"
        unkept = window.gain("replyline_kv_dropped_total", reason="unavailable")
        if unkept:
            yield f"{url} could not keep the KV of {counted(unkept, 'turn')}: Redis was away"


def gpu_memory(system: System) -> Iterator[str]:
    for url, window in system.workers:
        devices = {dict(labels)["gpu"] for labels in window.after.series.get("replyline_gpu_memory_bytes", {})}
        for gpu in sorted(devices):
            used = window.now("replyline_gpu_memory_bytes", gpu=gpu, state="used")
            whole = window.now("replyline_gpu_memory_bytes", gpu=gpu, state="total")
            if whole and used / whole > _GPU_FULL:
                yield f"GPU {gpu} at {url}: {used / whole:.0%} of {whole / 2**30:,.0f} GiB are taken"


def gateway_loop(system: System) -> Iterator[str]:
    for url, window in system.gateways:
        yield from _p95(
            window.quantile("replyline_event_loop_lag_seconds", 0.95), _LOOP_LATE_S, "the event loop is late", url
        )
        cores = window.rate("process_cpu_seconds_total")
        if cores > _ONE_CORE:
            yield f"{url} takes {cores:.2f} of one core, and can use no other"


def network(system: System) -> Iterator[str]:
    yield from _slow(system.socket, _SOCKET_S, "a WebSocket's ping on the customers' way")


def clients(system: System) -> Iterator[str]:
    said = sum(window.gain("replyline_worker_tokens_total", kind="output") for _, window in system.workers)
    for url, window in system.gateways:
        merged = window.gain("replyline_gateway_deltas_merged_total")
        closed = window.gain("replyline_gateway_closes_total", code="4008")
        if closed or merged > max(_FEW, _MERGED * said):
            yield f"{url}: {merged:,.0f} deltas were merged for clients that do not read, {closed:.0f} of them closed"


def kv(system: System) -> Iterator[str]:
    for url, window in system.workers:
        moving = window.gain(f"{_STEP}_sum", kind="transfer") / window.seconds
        if moving > _MOVING:
            yield f"{url} moves KV for {moving:.0%} of its time"
        loaded = window.mean("replyline_kv_seconds", what="load")
        anew = window.mean("replyline_kv_seconds", what="recompute")
        enough = window.gain("replyline_kv_seconds_count", what="load") >= _FEWEST_LOADS
        if enough and loaded is not None and anew is not None and loaded > _SLOW_LOADS * anew:
            yield f"{url}: loading KV takes {1_000 * loaded:,.0f} ms, computing it anew {1_000 * anew:,.0f} ms"
        answered = window.gain("infer_total")
        dropped = window.gain("replyline_kv_dropped_total") - window.gain(
            "replyline_kv_dropped_total", reason="unavailable"
        )
        if dropped > max(_FEW, _DROPPED * answered):
            yield f"{url}: {dropped:.0f} blocks or turns of KV were dropped beside {answered:.0f} answers"


def model(system: System) -> Iterator[str]:
    """Find a model that is worse than the others by more than chance (`CanaryWorse`)."""
    counted: dict[str, tuple[float, float]] = {}
    for _, window in system.workers:
        name, bad, answers = _model_of(window), *_bad_of_all(window)
        before = counted.get(name, (0.0, 0.0))
        counted[name] = before[0] + bad, before[1] + answers
    all_bad, everything = (sum(column) for column in zip(*counted.values(), strict=True)) if counted else (0.0, 0.0)
    for name, (bad, answers) in counted.items():
        if worse(bad, answers, all_bad - bad, everything - answers):
            yield (
                f"{name} fails or misses its promise in {bad / answers:.0%} of {answers:.0f} answers, "
                f"the others in {(all_bad - bad) / (everything - answers):.0%} of {everything - answers:.0f}"
            )


def _model_of(window: Window) -> str:
    names = [dict(labels) for labels in window.after.series.get("replyline_worker_model_info", {})]
    return " ".join(f"{each['model']} {each['revision']} (release {each['release']})" for each in names)


def _bad_of_all(window: Window) -> tuple[float, float]:
    gain = {each: window.gain("replyline_worker_outcomes_total", outcome=each) for each in ("kept", "missed", "failed")}
    return gain["missed"] + gain["failed"], sum(gain.values())


def worse(bad: float, answers: float, other_bad: float, other_answers: float) -> bool:
    """Return whether a share of bad answers exceeds another one by more than `_WORSE` and by four standard errors of
    the difference (the pooled two-proportion z-test), with enough answers on both sides."""
    if min(answers, other_answers) < _FEWEST_ANSWERS:
        return False
    share = (bad + other_bad) / (answers + other_answers)
    error = math.sqrt(share * (1 - share) * (1 / answers + 1 / other_answers))
    return bad / answers - other_bad / other_answers > max(_WORSE, _ERRORS * error)


def skew(system: System) -> Iterator[str]:
    """Find a worker whose requests wait while another worker of the same buckets has free slots."""
    hot: list[tuple[float, str]] = []
    cold: list[tuple[float, str]] = []
    for url, window in system.workers:
        slots, used, waiting = (window.now("replyline_worker_load", what=what) for what in ("slots", "used", "waiting"))
        told = f"{url} has {used:.0f} of {slots:.0f} slots taken, and {waiting:.0f} wait"
        if slots and waiting > max(_FEW, slots * _MOST):
            hot.append((waiting, told))
        elif slots and not waiting and used <= slots * _MOST:
            cold.append((used / slots, told))
    if hot and cold:
        yield max(hot)[1]
        yield min(cold)[1]


def lengths(system: System) -> Iterator[str]:
    """Find an engine that is full because prompts have become longer, by the population stability index."""
    for url, window in system.workers:
        then = Distribution.before(window, "replyline_worker_prompt_tokens")
        now = Distribution.meanwhile(window, "replyline_worker_prompt_tokens")
        if min(then.count, now.count) < _FEWEST_PROMPTS or _busy(window) < _BUSY:
            continue
        index = stability_index(then, now)
        if index > _MOST_SHIFTED and now.mean > then.mean:
            yield (
                f"{url}: prompts have {now.mean:,.0f} tokens, before {then.mean:,.0f} (stability index {index:.2f}, "
                f"alike below {_MOST_SHIFTED})"
            )


def batches(system: System) -> Iterator[str]:
    """Find batches of two kinds, nearly empty and full ones, while requests wait."""
    for url, window in system.workers:
        slots = window.now("replyline_worker_load", what="slots")
        rows = Distribution.meanwhile(window, "replyline_worker_batch_rows")
        if rows.count < _FEWEST_STEPS or not window.now("replyline_worker_load", what="waiting"):
            continue
        few, many = rows.share_up_to(slots / 4), 1 - rows.share_up_to(slots * 3 / 4)
        if middle_is_empty(few, many):
            yield (
                f"{url}: {few:.0%} of its steps decode a quarter of {slots:.0f} slots or fewer, {many:.0%} three "
                f"quarters or more; {rows.mean:.1f} on average, with a deviation of {rows.deviation:.1f}"
            )


def prefill(system: System) -> Iterator[str]:
    yield from _saturated(system, "prefill", "prompts")


def decode(system: System) -> Iterator[str]:
    yield from _saturated(system, "decode", "answers")


def _busy(window: Window) -> float:
    """Return the share of the time in which a worker's engine computes."""
    return sum(window.gain(f"{_STEP}_sum", kind=kind) for kind in ("prefill", "decode", "transfer")) / window.seconds


def _without_a_worker(window: Window) -> float:
    """Return for how many questions a gateway used no worker, because of the time they had taken or would take."""
    return (
        window.gain(_FALLBACKS, reason="deadline")
        + window.gain(_FALLBACKS, reason="infeasible")
        + window.gain(_FALLBACKS, reason="breaker")
    )


def _saturated(system: System, kind: Literal["prefill", "decode"], of_what: str) -> Iterator[str]:
    turned_away = sum(_without_a_worker(window) for _, window in system.gateways)
    for url, window in system.workers:
        busy = {part: window.gain(f"{_STEP}_sum", kind=part) for part in ("prefill", "decode", "transfer")}
        whole = sum(busy.values())
        slots, used = (
            window.now("replyline_worker_load", what="slots"),
            window.now("replyline_worker_load", what="used"),
        )
        waiting = window.now("replyline_worker_load", what="waiting")
        # A single answer keeps an engine busy, although more could be computed in the same batch. An engine whose
        # gateways send no more questions because it is too slow has free slots, too.
        full = used + waiting >= _FULL * slots or turned_away >= _FEW
        if full and whole / window.seconds > _BUSY and busy[kind] / whole > _MOST:
            yield (
                f"{url} computes {whole / window.seconds:.0%} of the time, {busy[kind] / whole:.0%} of it {of_what}; "
                f"{used:.0f} of {slots:.0f} slots are taken, {waiting:.0f} wait"
            )
            ratio = window.mean("replyline_worker_cost_ratio", kind=kind)
            if ratio is not None and ratio > _OFF_COST:
                yield f"{url}: a {kind} call takes {ratio:.1f} times what it was measured to take"


def queue(system: System) -> Iterator[str]:
    """Find requests that wait although no engine is full: their topic has no reader, or too few."""
    slots = sum(window.now("replyline_worker_load", what="slots") for _, window in system.workers)
    lag = {} if system.lag is None or isinstance(system.lag, str) else system.lag
    for bucket, records in sorted(lag.items()):
        if records > max(_FEW, slots):
            yield f"{records:,} records wait in the bucket {bucket}"
    for url, window in system.workers:
        if window.now("replyline_worker_load", what="waiting") > window.now("replyline_worker_load", what="slots"):
            yield f"{url}: {window.now('replyline_worker_load', what='waiting'):.0f} requests wait for a slot"
        if window.now("replyline_worker_intake_paused"):
            yield f"{url} has paused its intake"
    for url, window in system.gateways:
        without = _without_a_worker(window)
        if without >= _FEW:
            yield f"{url}: for {without:.0f} questions no worker had time, so the FAQ answered or they were refused"


RULES: Final[Mapping[str, Rule]] = {
    "bandwidth": bandwidth,
    "broker": broker,
    "process": process,
    "redis": redis,
    "gpu_memory": gpu_memory,
    "gateway_loop": gateway_loop,
    "network": network,
    "clients": clients,
    "kv": kv,
    "model": model,
    "skew": skew,
    "lengths": lengths,
    "batches": batches,
    "prefill": prefill,
    "decode": decode,
    "queue": queue,
}


def found_in(system: System) -> dict[str, list[str]]:
    """Return the evidence against each part, starting with the part that explains the others; empty if nothing is at
    its limit."""
    return {cause: evidence for cause, rule in RULES.items() if (evidence := list(rule(system)))}
