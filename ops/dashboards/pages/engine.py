"""The engine and the device under it."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import busy, highest, mean, per_second, quantile
from shared.telemetry import metrics

_PADDING = per_second(metrics.padding_tokens)

ENGINE = Page(
    "engine",
    "engine",
    (
        panel(
            "Tokens",
            "Good: output in proportion to the questions. Falling with slots full: each step takes longer.",
            "cps",
            (per_second(metrics.output_tokens), "output"),
            (per_second(metrics.prompt_tokens), "prompt, computed"),
            (_PADDING, "padding"),
        ),
        panel(
            "Padding of what prefill computes",
            "Good: under 20 %. More: questions of very different length share a call.",
            "percentunit",
            (f"{_PADDING} / ({_PADDING} + {per_second(metrics.prompt_tokens)})", "of all tokens"),
        ),
        panel(
            "Mean time of a step's parts",
            "Good: flat. decode rising with the same rows: longer contexts, other work on the machine, or heat.",
            "s",
            (mean(metrics.step_time, "kind"), "{{kind}}"),
        ),
        panel(
            "P99 of a step's parts",
            "Good: no more than twice the mean. transfer: KV is carried between slots and host.",
            "s",
            (quantile(0.99, metrics.step_time, "kind"), "{{kind}}"),
        ),
        panel(
            "Busy, by worker",
            "Good: below 0.9. At 1 the engine never waits: this is the capacity.",
            "percentunit",
            (busy(metrics.step_time, "instance"), "{{instance}}"),
        ),
        panel(
            "Rows of a decode step",
            "Good: follows the load. At the number of slots: full.",
            "short",
            (mean(metrics.batch_rows, "instance"), "{{instance}}"),
        ),
        panel(
            "GPU: share of time with a kernel running",
            "Good: follows the load. No data: no engine on a GPU, or NVML cannot be read (gpu_unwatched in the log).",
            "percentunit",
            (highest(metrics.gpu_utilization, "instance", "gpu"), "{{instance}} {{gpu}}"),
        ),
        panel(
            "GPU memory",
            "Good: flat after the start. Rising: another process on the device.",
            "bytes",
            (highest(metrics.gpu_memory, "instance", "gpu", "state"), "{{instance}} {{gpu}} {{state}}"),
        ),
        panel(
            "GPU temperature",
            "Good: under 80 °C. From about 85 °C it slows itself down; the cost model shows it.",
            "celsius",
            (highest(metrics.gpu_temperature, "instance", "gpu"), "{{instance}} {{gpu}}"),
        ),
    ),
)
