"""Compute the size that a HorizontalPodAutoscaler would ask for, with Kubernetes' own arithmetic. Pure.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ and, for details that are missing
there, the code of `pkg/controller/podautoscaler`.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

SYNC_MS: Final = 15_000.0
TOLERANCE: Final = 0.1
_STABILIZATION_MS: Final = 300_000.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A scaling policy: by how many pods, or by how many percent, a fleet may change within `period_ms`."""

    kind: Literal["pods", "percent"]
    value: int
    period_ms: float = SYNC_MS


UP: Final = (Rule("percent", 100), Rule("pods", 4))
DOWN: Final = (Rule("percent", 100),)


def of_utilisation(utilisation: float, target: float, *, ready: int, loading: int) -> int:
    """Return the replicas for a mean utilisation of the `ready` pods. Pods that are `loading` count as idle for a
    scale-up and are ignored for a scale-down."""
    current, ratio = ready + loading, utilisation / target
    pods = current if loading and ratio > 1 else ready
    if loading and ratio > 1:
        ratio *= ready / current
        if ratio < 1:  # the direction turned
            return current
    if not pods or abs(1 - ratio) <= TOLERANCE:
        return current
    return math.ceil(ratio * pods)


def of_average(total: float, target: float, *, replicas: int) -> int:
    """Return the replicas for an external metric with the value `total`, of which each pod should have `target`."""
    if replicas and abs(1 - total / (target * replicas)) <= TOLERANCE:
        return replicas
    return math.ceil(total / target)


@dataclass(slots=True, kw_only=True)
class Behaviour:
    """The `behavior` of an autoscaler with Kubernetes' defaults: how fast a recommendation is followed."""

    least: int
    most: int
    up: Sequence[Rule] = UP
    down: Sequence[Rule] = DOWN
    stabilization_ms: float = _STABILIZATION_MS
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _changes: deque[tuple[float, int]] = field(default_factory=deque)

    def follow(self, desired: int, current: int, now_ms: float) -> int:
        """Return the replicas to ask for now, within `least` and `most`. It is at least the highest recommendation of
        the stabilization window, and changes no more than the rules allow."""
        self._recommended.append((now_ms, desired))
        while self._recommended[0][0] <= now_ms - self.stabilization_ms and len(self._recommended) > 1:
            self._recommended.popleft()
        if desired < current:
            desired = min(current, max(replicas for _, replicas in self._recommended))
        bounded = min(max(desired, self.least), self.most)
        if bounded > current:
            bounded = min(bounded, max(current, self._limit(self.up, current, now_ms, max, +1)))
        elif bounded < current:
            bounded = max(bounded, min(current, self._limit(self.down, current, now_ms, min, -1)))
        if bounded != current:
            self._changes.append((now_ms, bounded - current))
        return bounded

    def _limit(
        self, rules: Sequence[Rule], current: int, now_ms: float, choose: Callable[[Sequence[int]], int], sign: int
    ) -> int:
        """Return the largest change that one of the rules allows, from the size when the rule's period began."""
        limits = []
        for rule in rules:
            began = current - sum(change for at, change in self._changes if at > now_ms - rule.period_ms)
            if rule.kind == "pods":
                limits.append(began + sign * rule.value)
            else:
                moved = began * (1 + sign * rule.value / 100)
                limits.append(math.ceil(moved - 1e-9) if sign > 0 else math.floor(moved + 1e-9))
        longest_ms = max(rule.period_ms for rule in (*self.up, *self.down))
        while self._changes and self._changes[0][0] <= now_ms - longest_ms:
            self._changes.popleft()
        return choose(limits)
