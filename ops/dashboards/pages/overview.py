"""Is it real? One minute."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import highest, lowest, none_or_per_second, per_second, quantile, share, total
from shared.telemetry import metrics

OVERVIEW = Page(
    "overview",
    "overview",
    (
        panel(
            "Questions",
            "Good: the shape of the day. A fall to nothing is the way here, a leap is a promotion.",
            "reqps",
            (per_second(metrics.accepted, "bucket"), "{{bucket}}"),
            stacked=True,
        ),
        panel(
            "Answers by source",
            "Good: follows the questions; busy none. faq is a worker's choice, or stands in: see fallbacks by reason.",
            "reqps",
            (per_second(metrics.answers, "source"), "{{source}}"),
            stacked=True,
        ),
        panel(
            "First text, the model's",
            "Good: P99 under the promise. It cannot rise beyond: there the FAQ answers; look at fallbacks.",
            "s",
            (quantile(0.5, metrics.ttft), "P50"),
            (quantile(0.99, metrics.ttft), "P99"),
            (highest(metrics.promise, where='deadline="first_token"'), "promise"),
        ),
        panel(
            "Deadlines met by the workers",
            "Good: over 95 %. first_token falls first where requests wait, whole where answers are cut.",
            "percentunit",
            (share(metrics.deadlines, 'outcome="met"', "deadline"), "{{deadline}}"),
        ),
        panel(
            "Fallbacks by reason",
            "Good: none. deadline: slow workers; broker: Kafka; worker: given up there; others: admission.",
            "reqps",
            (none_or_per_second(metrics.fallbacks, "reason"), "{{reason}}"),
            stacked=True,
        ),
        panel(
            "Workers that report",
            "Good: as many as were started, the same at each gateway. Fewer at one: it does not hear them.",
            "short",
            (lowest(metrics.workers_known, "instance", where='job="gateway"'), "{{instance}}"),
        ),
        panel(
            "Slots and those who wait",
            "Good: waiting near nothing, slots below their number. Both up: more comes than the workers can do.",
            "short",
            (total(metrics.slots), "slots"),
            (total(metrics.slots_used), "in use"),
            (total(metrics.waiting), "waiting"),
        ),
        panel(
            "Consumer lag",
            "Good: a few records that come and go. Rising while slots are free: a worker does not read.",
            "short",
            (total(metrics.consumer_lag, "bucket"), "{{bucket}}"),
        ),
        panel(
            "What must not happen",
            "Good: nothing at all. late: told over 250 ms after the deadline; faults: our own, see the log.",
            "cps",
            (per_second(metrics.late_terminals), "late ends"),
            (per_second(metrics.faults), "faults"),
            (per_second(metrics.dead_letters), "dead letters"),
        ),
        panel(
            "Connections and requests in flight",
            "Good: alike at all gateways; in flight falls after a surge. A cliff: a gateway went, its clients moved.",
            "short",
            (total(metrics.connections, "instance", where='job="gateway"'), "connections, {{instance}}"),
            (total(metrics.inflight, "instance", where='job="gateway"'), "in flight, {{instance}}"),
        ),
        panel(
            "Refused and closed by us",
            "Good: few, and the clients' own doing. Which code means what: docs/protocol.md.",
            "cps",
            (none_or_per_second(metrics.refused, "code"), "refused {{code}}"),
            (none_or_per_second(metrics.closes, "code"), "closed {{code}}"),
        ),
        panel(
            "Breaker and memory level",
            "Good: 0. breaker 1: trying again, 2: only the FAQ answers; memory 1: the FAQ answers, 2: nobody new.",
            "short",
            (highest(metrics.breaker_state, "instance", where='job="gateway"'), "breaker, {{instance}}"),
            (highest(metrics.memory_level, "instance", where='job="gateway"'), "memory, {{instance}}"),
        ),
        panel(
            "Ready",
            "Good: 1 everywhere. 0: what that process misses; kafka at all of them is Kafka itself. Draining: seconds.",
            "bool",
            (lowest(metrics.ready, "job", "instance", "check"), "{{job}} {{instance}} {{check}}"),
            (highest(metrics.draining, "job", "instance"), "draining, {{job}} {{instance}}"),
        ),
    ),
)
