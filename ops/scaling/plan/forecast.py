"""Turn a forecast into a plan. Pure, except for the model's manifest, from which the size of a conversation's KV is
read."""

import math
from collections.abc import Callable

from ops.operate.doctor.kv_memory import SESSION_TOKENS, kv_facts
from ops.scaling.plan.limits import MOST_WORKERS, curve, limits
from ops.scaling.plan.options import PlanOptions
from ops.scaling.plan.queueing import asked_per_s, fewest_servers, in_system
from ops.scaling.plan.report import Formulas, Result, WhatIf
from ops.scaling.plan.sizes import Demand, Plan, Prices, Sizing
from ops.scaling.plan.worker_rate import Mix, largest_rate, mix_of, point_at
from ops.virtual_worker.experiment import Experiment
from shared.settings import Settings

TIMES = (1.0, 2.0, 5.0, 8.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, MOST_WORKERS)
_HEAVIEST_LOAD = 40.0
_WAITING_SHARE = 0.95


def make_plan(
    forecast: PlanOptions, experiment: Experiment, settings: Settings, tell: Callable[[int], None]
) -> tuple[Result, Mix]:
    """Make a plan. Raises `SettingsError` if the goal cannot be reached at any rate."""
    mix = mix_of(forecast.mix, experiment)
    worker, points = largest_rate(forecast.mix, mix, experiment, forecast.attainment, tell)
    demand = _demand(forecast, mix, settings)
    sizing = _sizing(forecast, demand, mix, worker.per_s, settings)
    plan = sizing.plan()
    what_if: list[WhatIf] = []
    for times in TIMES:
        what_if.append(_what_if(times, sizing.plan(times), plan.workers, demand, mix, experiment))
        tell(len(points) + len(what_if))
    each_per_s = worker.per_s * (1 - forecast.headroom)
    result = Result(
        demand=demand,
        worker=worker,
        points=points,
        plan=plan,
        formulas=_formulas(forecast, experiment, mix, demand, plan),
        what_if=what_if,
        curve=curve(sizing.at, each_per_s, COUNTS),
        limits=limits(sizing.at, each_per_s, settings),
        assumptions=_assumptions(forecast, experiment, settings.model.dir.name),
    )
    return result, mix


def _sizing(forecast: PlanOptions, demand: Demand, mix: Mix, worker_per_s: float, settings: Settings) -> Sizing:
    facts = kv_facts(settings.model.dir, settings.kv)
    return Sizing(
        demand=demand,
        mix=mix,
        worker_per_s=worker_per_s,
        headroom=forecast.headroom,
        reply_interval_ms=settings.worker.reply_interval_ms,
        max_connections=settings.gateway.max_connections,
        session_bytes=None if facts is None else float(facts.session_bytes[facts.precision]),
        prices=Prices(
            worker=forecast.worker_price,
            gateway=forecast.gateway_price,
            broker=forecast.broker_price,
            redis_gib=forecast.redis_price,
        ),
    )


def _what_if(times: float, then: Plan, workers: int, demand: Demand, mix: Mix, experiment: Experiment) -> WhatIf:
    """Return what `times` the peak would need, and the share that the planned workers would answer in time at that
    load."""
    per_s = demand.per_s * times
    load = min(per_s / workers / mix.capacity_per_s, _HEAVIEST_LOAD)
    return WhatIf(
        times=times,
        per_s=per_s,
        workers=then.workers,
        cost_per_hour=then.cost_per_hour,
        attainment_as_planned=point_at(mix.kind, load, experiment, mix.capacity_per_s).attainment,
    )


def _demand(forecast: PlanOptions, mix: Mix, settings: Settings) -> Demand:
    if forecast.rate is not None:
        per_s = forecast.rate
        # Little's law over the whole conversation.
        chats = math.ceil(per_s * (forecast.think_s + mix.service_s))
    else:
        assert forecast.chats is not None
        chats = forecast.chats
        per_s = asked_per_s(chats, forecast.think_s, mix.service_s)
    ttl_s = settings.kv.ttl_s
    return Demand(
        per_s=per_s * forecast.surge,
        chats=round(chats * forecast.surge),
        kept=chats * forecast.surge + per_s / forecast.turns * ttl_s,
    )


def _formulas(forecast: PlanOptions, experiment: Experiment, mix: Mix, demand: Demand, plan: Plan) -> Formulas:
    promise = experiment.costs.promise
    servers = fewest_servers(
        plan.questions_per_s,
        mix.service_s,
        mix.variation,
        within_s=promise.first_token_ms / 1_000,
        share=_WAITING_SHARE,
    )
    return Formulas(
        open_workers=math.ceil(servers / experiment.slots),
        busy_slots=in_system(demand.per_s, mix.service_s),
        chats_per_s=None if forecast.chats is None else asked_per_s(forecast.chats, forecast.think_s, mix.service_s),
    )


def _assumptions(forecast: PlanOptions, experiment: Experiment, model: str) -> dict[str, str]:
    promise = experiment.costs.promise
    return {
        "engine": f"{experiment.costs.name}: {experiment.costs.source}; {experiment.slots} slots",
        "deadlines": f"{promise.first_token_ms} ms to the first token, {promise.deadline_ms} ms in all",
        "headroom": f"{forecast.headroom:.0%} of everything is free at a peak of {forecast.surge:g} times the forecast",
        "gateways": "3.8 CPU s per 100,000 deltas and 2 ms a question, given (docs/measured.md: half); 0.6 of a core",
        "brokers": "50 MB/s each, given, not measured; three replicas where there is more than one worker",
        "Redis": f"{SESSION_TOKENS:,} tokens a conversation, of {model}, for as long as it is kept after its last use",
        "a worker more": "carries as much as the first, whose rate is simulated: even shares are assumed",
        "not in it": "who asks in one conversation without a pause stays at one worker; what KV reuse saves on later "
        "turns",
    }
