"""An operator's own figure, asked of Prometheus: a rollout whose figure exceeds its bound is rolled back."""

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from gateway.outbound.calls import CallError, Calls
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.policy import Health

_INTERVAL_S: Final = 2.0


@dataclass(slots=True)
class Prometheus:
    """`url` is the server's address, "" without one. `value` is the query's newest value, or why it has no value."""

    calls: Calls
    url: str
    query: str | None = None
    value: float | str | None = None

    async def follow(self) -> None:
        """Ask every two seconds, until cancelled."""
        while True:
            if (query := self.query) is not None:
                value = await asked(self.calls, self.url, query)
                self.value = value if query == self.query else self.value
            await asyncio.sleep(_INTERVAL_S)

    def bounded(self, health: Health, plan: Plan) -> Health:
        """Return the health, with `beyond` set if the plan's figure exceeds its bound, and a line in `unknown` if the
        figure has no value."""
        if plan.query != self.query:
            self.query, self.value = plan.query, None if plan.query is None else "it was not asked yet"
        if isinstance(self.value, str):
            return replace(health, unknown=[*health.unknown, f"{plan.query}: {self.value}"])
        if self.value is None or self.value <= plan.at_most:
            return health
        return replace(health, beyond=f"{plan.query} is {self.value:g}, above {plan.at_most:g}")


async def asked(calls: Calls, url: str, query: str) -> float | str:
    """Return the one finite number that is a query's value now, or why it has no such value."""
    try:
        page = await calls.call("GET", f"{url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}")
        data: Any = msgspec.json.decode(page)["data"]
        samples = [data["result"]] if data["resultType"] == "scalar" else [each["value"] for each in data["result"]]
        found = [float(value) for _, value in samples]
    except (CallError, msgspec.MsgspecError, RecursionError, ValueError, LookupError, TypeError) as error:
        return f"no answer by REPLYLINE_ROLLOUT__PROMETHEUS_URL={url} ({error})"
    is_number = len(found) == 1 and math.isfinite(found[0])
    return found[0] if is_number else f"one finite number is needed, not {found[:3]}"
