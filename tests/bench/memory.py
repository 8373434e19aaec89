"""`replyline bench memory`: what a worker holds when every slot is full, and whether it grows under load.

Embedded Kafka, the onnx engine with 16 slots of 2,048 tokens; as many closed-loop clients. Each one's first prompt and
answer together fill a slot; the later answers are short, so that many sequences come and go. The worker's resident
memory is read every second.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from ops.load.clients import Load, Question
from ops.load.figures.report import LoadReport, summarise
from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.metrics_page import read_metrics
from ops.measure.quantiles import slope
from ops.measure.runner import check_writable, markdown, verdict, wait_showing, write_json
from ops.measure.usage import peak_rss_bytes, rss_bytes
from ops.stack.processes import ServiceError
from ops.texts.prompts import fit
from shared.errors import SettingsError
from shared.model.tokenizer import Tokenizer
from shared.settings import PREFIX, Settings

SLOTS: Final = 16
SLOT_TOKENS: Final = 2_048
NEW_TOKENS: Final = 640  # an answer takes so much longer than a prompt that all slots are taken at once
LATER_NEW_TOKENS: Final = 64
_TEMPERATURE: Final = 2.0  # what is drawn so hardly ever ends an answer
RSS_TARGET_GIB: Final = 2.0
SLOPE_TARGET_MIB: Final = 1.0  # a minute; ten of them are within what an allocator moves
_TEMPLATE_TOKENS: Final = 9
_OPENING: Final = "Write a long and detailed guide for the staff of our shop. Explain each of these words in full:"
_GIB: Final = 1_024**3
_MIB: Final = 1_024**2
_SAMPLE_S: Final = 1.0
_DEADLINE_MS: Final = 600_000
# The first two thirds of a run may still touch pages of slots for the first time.
_MIN_SAMPLES: Final = 3


class MemoryResult(Struct, frozen=True, kw_only=True):
    """`most_running`: slots taken at once. `rounds`: answers for each slot. The slope is taken from when each slot was
    filled and used again."""

    start_gib: float
    rss_gib: float
    peak_gib: float
    slope_mib_per_min: float | None
    minutes: float
    most_running: int
    rounds: float
    answers: LoadReport | None


async def bench_memory(settings: Settings, console: Console, *, minutes: float, json_path: Path | None) -> None:
    if settings.worker.engine != "onnx":
        raise SettingsError(
            f"{PREFIX}WORKER__ENGINE={settings.worker.engine}: this bench is of the onnx engine; unset it"
        )
    check_writable(json_path)
    facts = environment(engine=f"onnx {settings.model.dir.name}", broker="embedded")
    count = Tokenizer.load(settings.model.dir).count
    texts = [fit(_OPENING, SLOT_TOKENS - NEW_TOKENS - _TEMPLATE_TOKENS, number, count) for number in range(2 * SLOTS)]
    with System(settings=settings, broker="embedded", env=_env()) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        worker, metrics_url = await system.start_worker()
        result = await _fill(worker.process.pid, url, metrics_url, texts, minutes, console)
    _print(result)
    write_json(json_path, {"result": result, "environment": facts})


def _env() -> dict[str, str]:
    return {
        "WORKER__SLOTS": str(SLOTS),
        "WORKER__MAX_LENGTH": str(SLOT_TOKENS),
        "WORKER__SYSTEM_PROMPT": "",
        "WORKER__GROUNDING_ENTRIES": "0",
        "WORKER__HISTORY_TURNS": "0",
        "LIMITS__MAX_INPUT_TOKENS": str(SLOT_TOKENS),
        "LIMITS__MAX_OUTPUT_TOKENS": str(SLOT_TOKENS),
        "PROMISE__FIRST_TOKEN_MS": str(_DEADLINE_MS),
        "PROMISE__DEADLINE_MS": str(_DEADLINE_MS),
        "PROMISE__MAX_DEADLINE_MS": str(_DEADLINE_MS),
    }


async def _fill(
    pid: int, url: str, metrics_url: str, texts: Sequence[str], minutes: float, console: Console
) -> MemoryResult:
    """Load for the given minutes and watch. Raises `ServiceError` where the load ends before them."""
    start_gib = rss_bytes(pid) / _GIB
    most = round(minutes * 60 * SLOTS) + len(texts)  # more than any CPU answers in that time
    questions = [
        Question(
            text=texts[number % len(texts)],
            max_output_tokens=NEW_TOKENS if number < SLOTS else LATER_NEW_TOKENS,
            deadline_ms=_DEADLINE_MS,
            temperature=_TEMPERATURE,
        )
        for number in range(most)
    ]
    load = Load(url=url, max_inflight=1)
    samples: list[_Sample] = []
    try:
        await load.open(SLOTS)
        driving = asyncio.create_task(load.closed_loop(questions, SLOTS, lambda _: None))
        watching = asyncio.create_task(_watch(pid, metrics_url, samples))
        waiting = asyncio.create_task(wait_showing(console, "seconds of load", minutes * 60))
        done, _ = await asyncio.wait({driving, watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (driving, watching, waiting):
            task.cancel()
        await asyncio.gather(driving, watching, waiting, return_exceptions=True)
        for task in done:
            task.result()
        if waiting not in done:
            raise ServiceError("the load ended early: the gateway is gone, or nothing is answered; run it again")
        rss_gib, peak_gib = rss_bytes(pid) / _GIB, peak_rss_bytes(pid) / _GIB
    finally:
        load.close()
    answered = [outcome for outcome in load.outcomes if outcome.done_s is not None or outcome.error is not None]
    steady_s = sorted(outcome.done_s or 0.0 for outcome in answered)[2 * SLOTS - 1 : 2 * SLOTS]
    steady = [(sample.at_s / 60, sample.mib) for sample in samples if steady_s and sample.at_s >= steady_s[0]]
    return MemoryResult(
        start_gib=round(start_gib, 3),
        rss_gib=round(rss_gib, 3),
        peak_gib=round(peak_gib, 3),
        slope_mib_per_min=round(slope(steady), 3) if len(steady) >= _MIN_SAMPLES else None,
        minutes=minutes,
        most_running=max((sample.running for sample in samples), default=0),
        rounds=round(len(answered) / SLOTS, 2),
        answers=summarise(answered) if answered else None,
    )


class _Sample(NamedTuple):
    at_s: float
    mib: float
    running: int


async def _watch(pid: int, metrics_url: str, samples: list[_Sample]) -> None:
    while True:
        running = await asyncio.to_thread(_slots_used, metrics_url)
        samples.append(_Sample(time.monotonic(), rss_bytes(pid) / _MIB, running))
        await asyncio.sleep(_SAMPLE_S)


def _slots_used(metrics_url: str) -> int:
    families = text_string_to_metric_families(read_metrics(metrics_url))
    return next(int(family.samples[0].value) for family in families if family.name == "replyline_worker_slots_used")


def _print(result: MemoryResult) -> None:
    header = (
        "worker",
        "loaded GiB",
        "all slots full GiB",
        "peak GiB",
        "slope MiB/min",
        "minutes",
        "slots at once",
        "rounds",
        "tokens a prompt",
    )
    answers = result.answers
    row = (
        f"{SLOTS} slots of {SLOT_TOKENS}",
        result.start_gib,
        result.rss_gib,
        result.peak_gib,
        result.slope_mib_per_min,
        result.minutes,
        result.most_running,
        result.rounds,
        SLOT_TOKENS - NEW_TOKENS,
    )
    print(markdown(header, [row]))
    print(f"peak GiB: {verdict(result.peak_gib, RSS_TARGET_GIB)}")
    print(f"MiB a minute: {verdict(result.slope_mib_per_min, SLOPE_TARGET_MIB)}")
    if answers is not None:
        print(
            f"answers by the model {answers.by_source['model']} of {answers.requests}, errors {answers.errors.by_code}"
        )
