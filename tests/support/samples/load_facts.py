"""A load's facts as tests of reports make them: every source, a surge, refusals."""

import random
from typing import get_args

from ops.client.outcome import Outcome
from ops.load.figures.groups import reports
from ops.load.figures.report import Run, summarise
from ops.load.figures.tries import Bounds, Try
from ops.load.pages.knee import KneeFacts
from ops.load.pages.load import LoadFacts
from ops.measure.environment import Environment
from ops.measure.quantiles import Quantiles
from shared.wire.messages import Source

SOURCES: tuple[Source, ...] = get_args(Source)
ENVIRONMENT = Environment(
    date="2026-11-22T01:02:03+00:00",
    cpu="A CPU @ 2 GHz",
    cores=2,
    load_1min=0.1,
    system="Linux 6",
    python="3.11.2",
    versions={"replyline": "0.1.0", "websockets": "15.0"},
    engine="onnx smollm2-135m",
    broker="Apache Kafka 3.9",
)


def outcomes_of(count: int, seed: int = 1) -> list[Outcome]:
    """Log-normal latencies, longer in the middle; one in ten not by the model, one in fifty refused."""
    draw = random.Random(seed)
    found = []
    at_s = 0.0
    for number in range(count):
        at_s += draw.expovariate(8.0 if number % 300 < 200 else 30.0)
        outcome = Outcome(scheduled_s=100.0 + at_s, deadline_ms=4_000)
        found.append(outcome)
        if number % 50 == 49:
            outcome.error = "rate_limited"
            continue
        ttft_s = draw.lognormvariate(-1.6, 0.5) * (3 if number % 300 >= 200 else 1)
        source = SOURCES[number % len(SOURCES)] if number % 10 == 0 else "model"
        outcome.sent_s, outcome.source, outcome.status, outcome.reason = 100.0 + at_s, source, "completed", "stop"
        outcome.first_s = outcome.sent_s + ttft_s
        outcome.done_s = outcome.last_s = outcome.first_s + draw.lognormvariate(0.2, 0.4)
        outcome.output_tokens = 40
    return found


def load_facts(count: int = 400, **changed: object) -> LoadFacts:
    outcomes = outcomes_of(count)
    run = Run(
        command="replyline bench traffic promotion --rate 8",
        loop="open",
        clients=None,
        rate=8.0,
        arrivals="promotion",
        connections=31,
        warmup=0,
        seed=1,
        input="promotion",
        max_output_tokens=None,
        deadline_ms=None,
    )
    half = len(outcomes) // 2
    facts: dict[str, object] = {
        "title": "Traffic: promotion",
        "told": "Questions of a shop's customers at a promotion.",
        "outcomes": outcomes,
        "report": summarise(outcomes),
        "run": run,
        "environment": ENVIRONMENT,
        "grouped_by": "phase",
        "groups": reports({"at other times": outcomes[:half], "in the surge": outcomes[half:]}),
        "first_token_ms": 1_000.0,
        "deadline_ms": 4_000.0,
        "settings": {"worker": "8 slots"},
        "surges": [(outcomes[half].scheduled_s - 100.0, outcomes[-1].scheduled_s - 100.0)],
    }
    return LoadFacts(**(facts | changed))  # type: ignore[arg-type]


def knee_facts(rates: tuple[float, ...] = (4.0, 6.0, 9.0, 13.5, 11.2, 10.1), knee: float = 10.1) -> KneeFacts:
    def tried(rate: float) -> Try:
        over = rate > knee
        p99 = 180.0 + 25 * rate + (900 if over else 0)
        return Try(
            rate=rate,
            requests=round(rate * 20),
            ttft_ms=Quantiles(p50=p99 / 3, p95=p99 / 1.5, p99=p99),
            e2e_ms=Quantiles(p50=p99, p95=2 * p99, p99=3 * p99),
            in_time=0.9 if over else 0.99,
            errors=0,
            broken=[f"TTFT p99 {p99:.2f} ms"] if over else [],
        )

    return KneeFacts(
        rate=knee,
        at_limit=False,
        bounds=Bounds(ttft_p99_ms=500.0, e2e_p99_ms=None, goodput=0.95),
        tries=[tried(rate) for rate in rates],
        environment=ENVIRONMENT,
        asked={"command": "replyline bench knee", "seed": "0"},
    )
