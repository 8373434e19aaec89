"""The processes and the machines under them; Kafka as they see it."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import highest, lowest, name_of, none_or_per_second, per_second, quantile, total
from shared.telemetry import metrics

_OURS = '{job=~"gateway|worker"}'
_BY_MODE = per_second(metrics.machine_cpu, "instance", "mode")
_ALL_MODES = per_second(metrics.machine_cpu, "instance")
_MEMORY = name_of(metrics.machine_memory)

PROCESSES = Page(
    "processes",
    "processes and machines",
    (
        panel(
            "Ready",
            "Good: 1 everywhere. 0: what that process misses; kafka at all of them is Kafka itself.",
            "bool",
            (lowest(metrics.ready, "job", "instance", "check"), "{{job}} {{instance}} {{check}}"),
        ),
        panel(
            "Draining",
            "Good: 0; 1 for seconds at a deployment. Longer: it does not get rid of what is in flight.",
            "bool",
            (highest(metrics.draining, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "Event loop late, P99",
            "Good: under 10 ms. Over 100 ms everything that the process does is late by that.",
            "s",
            (quantile(0.99, metrics.event_loop_lag, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "Garbage collector's pauses, P99",
            "Good: under 10 ms. Rising with the process's memory: something is held for good.",
            "s",
            (quantile(0.99, metrics.gc_pause, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "CPU of a process",
            "Good: a gateway below 0.8 of a core. At 1 its event loop is the bottleneck: start another.",
            "cores",
            (f"rate(process_cpu_seconds_total{_OURS}[$__rate_interval])", "{{job}} {{instance}}"),
        ),
        panel(
            "Memory of a process",
            "Good: flat after the first minutes. Rising for hours: a leak; see GatewayMemoryHigh.",
            "bytes",
            (f"process_resident_memory_bytes{_OURS}", "{{job}} {{instance}}"),
        ),
        panel(
            "Open files and sockets",
            "Good: a gateway's connections and some thirty. At the limit (ulimit -n) nobody new can connect.",
            "short",
            (f"process_open_fds{_OURS}", "{{job}} {{instance}}"),
        ),
        panel(
            "CPU of the machine",
            "Good: busy below 0.9, steal near 0. Steal: another machine on the same host takes it.",
            "percentunit",
            (f"{_BY_MODE} / on (instance) group_left {_ALL_MODES}", "{{instance}} {{mode}}"),
        ),
        panel(
            "Memory of the machine that is left",
            "Good: over 10 %. Under 5 % the kernel soon kills someone. Of the machine, not of a container.",
            "percentunit",
            (f'{_MEMORY}{{state="available"}} / ignoring (state) {_MEMORY}{{state="total"}}', "{{instance}}"),
        ),
        panel(
            "Clock that was set",
            "Good: 0. Else the wall clock was set under a running process: it tells others of times by it in seconds.",
            "s",
            (highest(metrics.clock_set, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "Kafka: rebalances",
            "Good: none but at deployments, one or two a process. Again and again: a member comes and goes.",
            "cps",
            (per_second(metrics.rebalances, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "Kafka: what it refused",
            "Good: nothing. commits: a rebalance came between; replies: not acknowledged, sent again.",
            "cps",
            (per_second(metrics.commits_failed, "job"), "commits, {{job}}"),
            (per_second(metrics.publish_retries, "job"), "replies, {{job}}"),
        ),
        panel(
            "Dead letters",
            "Good: none. `replyline dlq list` shows them, with the reason of each. waiting: not written yet, in all.",
            "cps",
            (per_second(metrics.dead_letters, "reason"), "{{reason}}"),
            (total(metrics.dead_letters_waiting), "waiting"),
        ),
        panel(
            "Records given up, kept nowhere",
            "Good: none. report, cancel: another release writes them, or nobody of ours; reply: its topic is missing.",
            "cps",
            (per_second(metrics.records_ignored, "what"), "{{what}}"),
        ),
        panel(
            "Traces lost",
            "Good: none. store: it is away; full: more are kept than it takes.",
            "cps",
            (none_or_per_second(metrics.traces_dropped, "why"), "lost, {{why}}"),
        ),
        panel(
            "Consumer lag, by worker",
            "Good: a few records. At one worker alone: look at that one.",
            "short",
            (total(metrics.consumer_lag, "instance"), "{{instance}}"),
        ),
    ),
)
