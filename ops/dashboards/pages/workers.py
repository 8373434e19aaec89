"""The workers, what each computes with, and the machines under all processes."""

from typing import Final

from ops.dashboards.grafana import queries as ask
from ops.dashboards.grafana.panels import Page, panel
from shared.telemetry import metrics

_OURS: Final = '{job=~"gateway|worker"}'
_BY_MODE: Final = ask.per_second(metrics.machine_cpu, "instance", "mode")
_ALL_MODES: Final = ask.per_second(metrics.machine_cpu, "instance")
_MEMORY: Final = ask.name_of(metrics.machine_memory)
_OUTPUT: Final = ask.per_second(metrics.tokens, "instance", where='kind="output"')
_DECODES: Final = ask.per_second(metrics.step_time, "instance", where='kind="decode"')
_ENDED: Final = ask.by_model(metrics.outcomes, where='outcome!="withdrawn"')
_BAD: Final = ask.by_model(metrics.outcomes, where='outcome=~"failed|missed"')
_MODEL: Final = "{{model}} {{revision}} {{release}}"

WORKERS = Page(
    "workers",
    "workers and hardware",
    (
        panel(
            "Slots in use and those who wait, by worker",
            "Good: waiting near nothing, alike at all. One alone: its partitions have more than their share.",
            "short",
            (ask.total(metrics.slots_used, "instance", where='job="worker"'), "in use, {{instance}}"),
            (ask.total(metrics.waiting, "instance", where='job="worker"'), "waiting, {{instance}}"),
        ),
        panel(
            "Busy, by worker",
            "Good: below 0.9. At 1 the engine never waits: this is the capacity.",
            "percentunit",
            (ask.busy(metrics.step_time, "instance"), "{{instance}}"),
        ),
        panel(
            "Tokens",
            "Good: output as the questions. Falling with slots full: each step takes longer.",
            "cps",
            (ask.per_second(metrics.tokens, "kind"), "{{kind}}"),
            (ask.per_second(metrics.kv_tokens, "level"), "spared: {{level}}"),
        ),
        panel(
            "Rows of a decode step",
            "Good: as many as wait to be decoded. Few rows with many waiting: prefill holds them up.",
            "short",
            (f"{_OUTPUT} / {_DECODES}", "{{instance}}"),
        ),
        panel(
            "Actual by predicted time of a call",
            "Good: 0.9 to 1.1. Over 1.5 or under 0.7 plans and promises are wrong: other work on the machine, or heat.",
            "short",
            (ask.quantile(0.5, metrics.cost_ratio, "kind"), "P50 {{kind}}"),
            (ask.quantile(0.95, metrics.cost_ratio, "kind"), "P95 {{kind}}"),
        ),
        panel(
            "How requests end",
            "Good: stop and max_output_tokens. infeasible: given up for others; deadline: cut.",
            "reqps",
            (ask.per_second(metrics.served, "reason"), "{{reason}}"),
            stacked=True,
        ),
        panel(
            "Workers by model",
            "Good: one line. Two: a new model, revision or release serves beside the old; compare them below.",
            "short",
            (
                f"count by (model, revision, engine, release) ({ask.name_of(metrics.model_info)})",
                f"{_MODEL} {{{{engine}}}}",
            ),
            stacked=True,
        ),
        panel(
            "Failed or missed, by model",
            "Good: under 5 %, and the same for all. One alone higher: CanaryWorse; stop its workers.",
            "percentunit",
            (f"({_BAD} or 0 * {_ENDED}) / {_ENDED}", _MODEL),
        ),
        panel(
            "Whole answer by model, P99",
            "Good: alike, and under the promise. Longer at one: it says more, or decodes slower.",
            "s",
            (ask.quantile_by_model(0.99, metrics.infer_duration), _MODEL),
            (ask.highest(metrics.promise, where='deadline="whole"'), "promise"),
        ),
        panel(
            "GPU: share of time with a kernel running",
            "Good: follows the load. No data: no engine on a GPU, or NVML cannot be read (gpu_unwatched in the log).",
            "percentunit",
            (ask.highest(metrics.gpu_utilization, "instance", "gpu"), "{{instance}} {{gpu}}"),
        ),
        panel(
            "GPU memory",
            "Good: flat after the start. Rising: another process on the device.",
            "bytes",
            (ask.highest(metrics.gpu_memory, "instance", "gpu", "state"), "{{instance}} {{gpu}} {{state}}"),
        ),
        panel(
            "GPU temperature",
            "Good: under 80 °C. From about 85 °C it slows itself down; the cost model shows it.",
            "celsius",
            (ask.highest(metrics.gpu_temperature, "instance", "gpu"), "{{instance}} {{gpu}}"),
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
            "CPU of a process",
            "Good: a gateway below 0.8 of a core. At 1 its event loop is the bottleneck: start another.",
            "cores",
            (f"rate(process_cpu_seconds_total{_OURS}[$__rate_interval])", "{{job}} {{instance}}"),
        ),
        panel(
            "Event loop late, P99",
            "Good: under 10 ms. Over 100 ms everything that the process does is late by that.",
            "s",
            (ask.quantile(0.99, metrics.event_loop_lag, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "Clock that was set",
            "Good: 0. Else the wall clock was set under a running process: it tells others of times by it in seconds.",
            "s",
            (ask.highest(metrics.clock_set, "job", "instance"), "{{job}} {{instance}}"),
        ),
    ),
)
