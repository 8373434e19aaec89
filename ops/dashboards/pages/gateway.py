"""The edge: who is connected, who is refused, what admission thinks."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import highest, lowest, none_or_per_second, per_second, total
from shared.telemetry import metrics

_HERE = 'job="gateway"'

GATEWAY = Page(
    "gateway",
    "gateway and clients",
    (
        panel(
            "Connections",
            "Good: alike at all gateways. A cliff: a gateway went, its clients are at the others a second later.",
            "short",
            (total(metrics.connections, "instance", where=_HERE), "{{instance}}"),
        ),
        panel(
            "Connections closed by us",
            "Good: few. 4001: this gateway goes; 4008: slow clients; the others: docs/protocol.md.",
            "cps",
            (none_or_per_second(metrics.closes, "code"), "{{code}}"),
        ),
        panel(
            "Messages refused",
            "Good: few, and the clients' own doing. Which code means what: docs/protocol.md.",
            "cps",
            (none_or_per_second(metrics.refused, "code"), "{{code}}"),
        ),
        panel(
            "Over a minute's limit",
            "Good: none. One client or one tenant does too much of that kind; the others are not touched.",
            "cps",
            (none_or_per_second(metrics.quota_refusals, "of"), "of a {{of}}"),
            (none_or_per_second(metrics.quota_refusals, "kind"), "by {{kind}}"),
        ),
        panel(
            "In flight",
            "Good: it falls again after a surge.",
            "short",
            (total(metrics.inflight, "instance", where=_HERE), "in flight, {{instance}}"),
        ),
        panel(
            "Breaker",
            "Good: 0. 1: trying again; 2: only the FAQ answers there.",
            "short",
            (highest(metrics.breaker_state, "instance", where=_HERE), "{{instance}}"),
        ),
        panel(
            "Memory level",
            "Good: 0. 1: answers from the FAQ; 2: nobody new is let in and the gateway is not ready.",
            "short",
            (highest(metrics.memory_level, "instance", where=_HERE), "{{instance}}"),
            (per_second(metrics.connections_refused, "instance"), "refused a second, {{instance}}"),
        ),
        panel(
            "Slow clients: deltas joined",
            "Good: few. Many: clients behind slow networks get the same text in larger pieces.",
            "cps",
            (per_second(metrics.deltas_merged), "joined"),
        ),
        panel(
            "Replies that nobody waits for",
            "Good: few, after cancels and deadlines. undecodable: versions that do not fit.",
            "cps",
            (none_or_per_second(metrics.replies_dropped, "why"), "{{why}}"),
        ),
        panel(
            "From the inbox to the buckets",
            "Good: what other producers send. Nothing while they send: the router does not read.",
            "reqps",
            (none_or_per_second(metrics.routed, "bucket"), "{{bucket}}"),
        ),
        panel(
            "Ready",
            "Good: 1. 0: /ready names it as missing. Without kafka or redis a gateway serves, degraded.",
            "bool",
            (lowest(metrics.ready, "instance", "check", where=_HERE), "{{instance}} {{check}}"),
        ),
    ),
)
