"""The rows of docs/reliability.md's table: what is promised, the figure to reach, and what tries it. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from shared.errors import SettingsError


class By(Enum):
    """What tries a promise: tests that take the fixture `reliability`, or a program of ours."""

    TESTS = "pytest --reliability"
    LEDGER = "replyline chaos run"
    NETWORK = "replyline chaos network"
    ROLL = "replyline chaos run --faults roll"
    MENU = "replyline chaos run --faults burst, partition, …"
    ALERTS = "replyline chaos alerts"


@dataclass(frozen=True, slots=True)
class Promise:
    row: str
    test: str
    target: str
    by: By = By.TESTS


PROMISES: Final = (
    Promise("1", "Autobahn against the gateway's serve settings", "301 cases; not passed ⊆ 7.1.5, 9.3.1-3, 9.4.1-3"),
    Promise("2", "protocol properties, both codecs", "1,000 runs × 50 steps; 10,000 examples a message type"),
    Promise("3", "bad input", "100,000 tried, 0 crashes, 0 unhandled; a neighbour's p99 ≤ 2×"),
    Promise(
        "4",
        "ledger: an open loop while workers, gateways, Redis and brokers are killed",
        "20,000 requests, 50 worker, 20 gateway, 10 Redis kills, 20 rebalances: lost, doubled, out of order, foreign "
        "0; all ends ≤ deadline + 250 ms",
        By.LEDGER,
    ),
    Promise("5", "network faults: 6 × (client, Kafka, Redis)", "18 cells × 500 requests, same invariants", By.NETWORK),
    Promise("6", "resume", "cut at every event × 2 codecs and 1,000 random cuts: identical, or recovered: false"),
    Promise("9", "connections held; reconnect storm", "5,000 for 10 min, 0 drops, ≤ 25 KiB each; 2,000 back in ≤ 10 s"),
    Promise(
        "10",
        "overload 1× to 10× capacity, open loop",
        "goodput at 10× ≥ 80 % of peak; refusal < 50 ms; work begun late ≤ 1 %; recovery ≤ 10 s",
    ),
    Promise("11", "one tenant at 50×", "others: 0 refusals, p99 ≤ 1.5×"),
    Promise("12", "slow readers", "100 of 1,000: growth ≤ 64 MiB; closed 4008 ≤ 10 s; others' p99 ≤ +10 %"),
    Promise("13", "rolling restart of every process under load", "20 rounds, 0 failed requests", By.ROLL),
    Promise("15", "Origin matrix", "30 bad refused, 5 good accepted"),
    Promise("16", "tokens", "25 refused; expiry closes ≤ 5 s"),
    Promise("17", "flood and slowloris", "500 half-open closed ≤ 10 s; 65,537 B: 1009; rate limit exact ± 1"),
    Promise("18", "isolation canaries", "1,000 sessions, 10 tenants: 0 elsewhere"),
    Promise("20", "model files", "30 refused before anything is deserialised"),
    Promise("21", "Kafka poison and forged records", "1,000 dead letters with a reason; good records delayed ≤ 10 s"),
    Promise("22", "erasure", "0 keys in Redis and workers ≤ 5 s; 50 planted strings: 0 in logs"),
    Promise("23", "XSS through model output", "100 payloads in a real browser, 0 executed"),
    Promise("24", "alerts of the chaos driver's faults", "each fires within 60 s of its fault", By.ALERTS),
    Promise("25", "diagnosis", "at least 9 of 10 named, in ≤ 60 s each"),
    Promise(
        "26",
        "bursts, slow Kafka and Redis, partitions, noise, a full disk, wrong clocks, engines that hang",
        "≥ 3 of each, 5 bursts, 10 clocks; lost, doubled, out of order, foreign 0; all ends ≤ deadline + 250 ms",
        By.MENU,
    ),
)  # fmt: skip


def choose(only: str | None) -> tuple[Promise, ...]:
    """`5,13`, in the table's order; None: all. Raises `SettingsError`."""
    if only is None:
        return PROMISES
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [promise.row for promise in PROMISES]
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise SettingsError(f"--only {', '.join(wrong) or repr(only)}: no such row; rows: {', '.join(known)}")
    return tuple(promise for promise in PROMISES if promise.row in names)
