"""`replyline bench knee`: the largest rate at which latency and goodput are still within bounds.

An open loop at one rate after another, up by half until one fails, then between, to within five percent; each rate is
tried until most of its tries agree. A rate's requests are all settled before the next one begins.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.load.bench import connections_for, target
from ops.load.clients import Load, Question
from ops.load.figures.report import summarise
from ops.load.figures.tries import TITLES, Bounds, Try, decided, rows_of
from ops.load.pages.knee import KneeFacts, knee_page
from ops.load.system import Broker
from ops.measure.arrivals import schedule
from ops.measure.environment import environment
from ops.measure.runner import check_writable, markdown, write_html, write_json
from ops.measure.search import StepSearch
from ops.measure.usage import raise_file_limit
from ops.texts.prompts import mixed_lengths, parse_mix, question
from shared.errors import SettingsError
from shared.settings import Settings
from shared.wire.messages import Limits

# Rates are searched in tenths of a request a second.
_PER_UNIT: Final = 10
_WARM_UP_S: Final = 5.0
_SPARE_FILES: Final = 256
_SPARE_ARRIVALS: Final = 50
_MOST_RATE: Final = 100_000.0
_MOST_TRIES: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeOptions:
    bounds: Bounds
    start: float
    limit: float
    seconds: float
    tries: int
    mix: str
    max_output_tokens: int
    deadline_ms: int | None
    url: str | None
    broker: Broker
    seed: int
    json_path: Path | None
    html_path: Path | None = None

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        bounds = self.bounds
        ranges: dict[str, tuple[float | None, float, float]] = {
            "--ttft-p99-ms": (bounds.ttft_p99_ms, 0.001, math.inf),
            "--e2e-p99-ms": (bounds.e2e_p99_ms, 0.001, math.inf),
            "--goodput": (bounds.goodput, 0, 1),
            "--start": (self.start, 1 / _PER_UNIT, _MOST_RATE),
            "--limit": (self.limit, self.start, _MOST_RATE),
            "--seconds": (self.seconds, 1, 3_600),
            "--tries": (self.tries, 1, _MOST_TRIES),
            "--max-output-tokens": (self.max_output_tokens, 1, math.inf),
            "--deadline-ms": (self.deadline_ms, 1, math.inf),
        }
        faults = [
            f"{name} {value:g}: must be {least:g} or more" + (f", {most:g} at most" if most < math.inf else "")
            for name, (value, least, most) in ranges.items()
            if value is not None and not least <= value <= most
        ]
        if faults:
            raise SettingsError("\n".join(faults))
        parse_mix(self.mix)
        check_writable(self.json_path)
        check_writable(self.html_path, "--html")


async def bench_knee(options: KneeOptions, settings: Settings, command: str, console: Console) -> None:
    """Raises `SettingsError`, `ConnectFailed`, `ServiceError`."""
    options.check()
    async with target(options.url, options.broker, settings, console) as (url, engine, broker):
        facts = environment(engine=engine, broker=broker)
        search = StepSearch(start=round(options.start * _PER_UNIT), limit=int(options.limit * _PER_UNIT))
        tried: list[Try] = []
        await _try(url, options.start, min(_WARM_UP_S, options.seconds), options, -1)
        while (units := search.next_load()) is not None:
            passes: list[bool] = []
            while (passed := decided(passes, options.tries)) is None:
                one = await _try(url, units / _PER_UNIT, options.seconds, options, len(tried))
                tried.append(one)
                passes.append(not one.broken)
                told = ", ".join(one.broken) or "within bounds"
                console.print(f"{one.rate:g}/s: {told}", highlight=False)
            search.passed(passed=passed)
    rate = search.best / _PER_UNIT
    _print(rate, tried, at_limit=search.lowest_failed is None)
    result = {"rate": rate, "bounds": options.bounds, "tries": tried, "environment": facts}
    write_json(options.json_path, result)
    if options.html_path is not None:
        search_told = KneeFacts(
            rate=rate,
            at_limit=search.lowest_failed is None,
            bounds=options.bounds,
            tries=tried,
            environment=facts,
            asked=_asked(options, command),
        )
        write_html(options.html_path, knee_page(search_told), console)


def _asked(options: KneeOptions, command: str) -> dict[str, str]:
    deadline = "the gateway's" if options.deadline_ms is None else f"{options.deadline_ms} ms"
    return {
        "command": command,
        "each try": f"{options.seconds:g} s of Poisson arrivals, then all are waited for",
        "a rate passes": f"when most of {options.tries} tries do, each with other arrivals",
        "search": f"from {options.start:g} /s up by half until one fails, then between; {options.limit:g} at most",
        "questions": f"{options.mix}; answers of {options.max_output_tokens} tokens at most",
        "deadline": deadline,
        "seed": str(options.seed),
    }


async def _try(url: str, rate: float, seconds: float, options: KneeOptions, number: int) -> Try:
    """Each with arrivals of its own: what one seed brings together by chance, another does not."""
    load = Load(url=url)
    seed = options.seed * 10_007 + number
    try:
        limits = await load.open(1)
        load.max_inflight = limits.max_inflight
        times = _times(rate, seconds, seed)
        questions = _questions(options, limits, len(times), seed)
        connections = connections_for(rate, questions[0].deadline_ms, len(times), limits)
        raise_file_limit(connections + _SPARE_FILES)
        await load.open(connections)
        await load.open_loop(questions, times, lambda _done: None)
    finally:
        load.close()
    report = summarise(load.outcomes)
    return Try(
        rate=rate,
        requests=report.requests,
        ttft_ms=report.ttft_ms,
        e2e_ms=report.e2e_ms,
        in_time=report.goodput.share,
        errors=report.errors.total,
        broken=options.bounds.broken_by(report),
    )


def _times(rate: float, seconds: float, seed: int) -> list[float]:
    """Poisson arrivals within the time; one at least."""
    most = math.ceil(rate * seconds * 2) + _SPARE_ARRIVALS
    drawn = schedule("poisson", rate=rate, count=most, seed=seed)
    return list(takewhile(lambda at_s: at_s < seconds, drawn)) or [0.0]


def _questions(options: KneeOptions, limits: Limits, count: int, seed: int) -> list[Question]:
    return [
        Question(
            text=question(length, seed * 1_000_003 + number),
            max_output_tokens=options.max_output_tokens,
            deadline_ms=options.deadline_ms or limits.deadline_ms,
            ask_deadline=options.deadline_ms is not None,
        )
        for number, length in enumerate(mixed_lengths(parse_mix(options.mix), count, seed))
    ]


def _print(rate: float, tried: Sequence[Try], *, at_limit: bool) -> None:
    print(markdown(TITLES, rows_of(tried)))
    if not rate:
        print("knee: below the first rate; give a lower --start, or wider bounds")
    else:
        print(f"knee: {rate:g} requests/s" + (" (--limit; it may be higher)" if at_limit else ""))
