"""`replyline bench knee`: find the largest rate at which latency and goodput stay within bounds.

An open loop runs at one rate after another: increased by half until one fails, then in between, to within five percent.
Each rate is tried until the majority of its tries is known. All requests of a try are settled before the next one
begins.
"""

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.plan import plan_of
from ops.lab.load.bench import connections_for, faq_questions, open_files, target, texts_of
from ops.lab.load.figures.report import summarise
from ops.lab.load.figures.tries import TITLES, Bounds, Try, decided, rows_of
from ops.lab.load.options import KneeOptions
from ops.lab.load.pages.knee import KneeFacts, knee_page
from ops.measure.arrivals import schedule
from ops.measure.runner import markdown, write_html, write_json
from ops.measure.search import StepSearch
from shared.settings import Settings

# Rates are searched in steps of 0.1 requests per second.
_PER_UNIT: Final = 10
_WARM_UP_S: Final = 5.0
_SPARE_ARRIVALS: Final = 50


async def bench_knee(options: KneeOptions, settings: Settings, command: str, console: Console) -> None:
    """Find the knee. Raises `SettingsError`, `ConnectFailed`, `ServiceError`."""
    bounds = Bounds(ttft_p99_ms=options.ttft_p99_ms, e2e_p99_ms=options.e2e_p99_ms, goodput=options.goodput)
    faq = faq_questions(settings.faq.path)
    async with target(options.url, options.broker, settings, console) as (url, facts):
        search = StepSearch(start=round(options.start * _PER_UNIT), limit=int(options.limit * _PER_UNIT))
        tried: list[Try] = []
        await _try(url, options.start, min(_WARM_UP_S, options.seconds), options, bounds, faq, -1)
        while (units := search.next_load()) is not None:
            passes: list[bool] = []
            while (passed := decided(passes, options.tries)) is None:
                one = await _try(url, units / _PER_UNIT, options.seconds, options, bounds, faq, len(tried))
                tried.append(one)
                passes.append(not one.broken)
                told = ", ".join(one.broken) or "within bounds"
                console.print(f"{one.rate:g}/s: {told}", highlight=False)
            search.passed(passed=passed)
    found = KneeFacts(
        rate=search.best / _PER_UNIT,
        at_limit=search.lowest_failed is None,
        bounds=bounds,
        tries=tried,
        environment=facts,
        asked=_asked(options, command),
    )
    print(markdown(TITLES, rows_of(tried)))
    if not found.rate:
        print("knee: below the first rate; use a lower --start, or wider bounds")
    else:
        print(f"knee: {found.rate:g} requests/s" + (" (--limit; it may be higher)" if found.at_limit else ""))
    write_json(options.json_path, {"rate": found.rate, "bounds": bounds, "tries": tried, "environment": facts})
    if options.html_path is not None:
        write_html(options.html_path, knee_page(found), console)


def _asked(options: KneeOptions, command: str) -> dict[str, str]:
    deadline = "the gateway's" if options.deadline_ms is None else f"{options.deadline_ms} ms"
    return {
        "command": command,
        "each try": f"{options.seconds:g} s of Poisson arrivals, then wait for all answers",
        "a rate passes": f"if most of {options.tries} tries do, each with different arrivals",
        "search": f"from {options.start:g} /s, up by half until one fails, then in between; at most {options.limit:g}",
        "questions": f"{options.mix or 'those of the FAQ'}; answers of {options.max_output_tokens} tokens at most",
        "deadline": deadline,
        "seed": str(options.seed),
    }


async def _try(
    url: str, rate: float, seconds: float, options: KneeOptions, bounds: Bounds, faq: Sequence[str], number: int
) -> Try:
    """Run one try. Each has its own arrivals, so that a coincidence in one does not decide."""
    seed = options.seed * 10_007 + number
    limits = await LoadRun(url).look()
    times = _times(rate, seconds, seed)
    plan = plan_of(
        texts_of(len(times), seed, faq, mix=options.mix),
        limits,
        max_output_tokens=options.max_output_tokens,
        deadline_ms=options.deadline_ms,
        times=times,
    )
    connections = connections_for(rate, plan[0].deadline_ms, len(times), limits)
    open_files(connections)
    report = summarise(await LoadRun(url, connections=connections, max_inflight=limits.max_inflight).run(plan))
    return Try(
        rate=rate,
        requests=report.requests,
        ttft_ms=report.ttft_ms,
        e2e_ms=report.e2e_ms,
        in_time=report.goodput.share,
        errors=report.errors.total,
        broken=bounds.broken_by(report),
    )


def _times(rate: float, seconds: float, seed: int) -> list[float]:
    """Return Poisson arrivals within the time, at least one."""
    most = math.ceil(rate * seconds * 2) + _SPARE_ARRIVALS
    drawn = schedule("poisson", rate=rate, count=most, seed=seed)
    return list(takewhile(lambda at_s: at_s < seconds, drawn)) or [0.0]
