"""What a worker has counted: of tokens, and of its cache. Pure but for `read_counters`."""

import asyncio
from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from ops.measure.metrics_page import read_metrics

Counters = Mapping[str, float]

PROMPT_TOKENS: Final = "replyline_worker_prompt_tokens_total"
OUTPUT_TOKENS: Final = "replyline_worker_output_tokens_total"
WRITTEN_BYTES: Final = "replyline_kv_written_bytes_total"
_CACHE: Final = "replyline_kv_"
_POLL_S: Final = 0.1
_POLLS: Final = 50


def counters_of(page: str) -> dict[str, float]:
    """Every total of tokens and of the cache on a worker's `/metrics`, by its name and the values of its labels:
    `replyline_kv_tokens_total host`."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        if family.type != "counter":
            continue
        for sample in family.samples:
            wanted = sample.name in (PROMPT_TOKENS, OUTPUT_TOKENS) or sample.name.startswith(_CACHE)
            if wanted and sample.name.endswith("_total"):
                found[" ".join([sample.name, *sample.labels.values()])] = sample.value
    return found


def grown(before: Counters, after: Counters) -> dict[str, float]:
    """By how much each has grown."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


async def read_counters(url: str) -> dict[str, float]:
    """Now."""
    return counters_of(await asyncio.to_thread(read_metrics, url))


async def read_settled_counters(url: str) -> dict[str, float]:
    """When nothing is counted any more: what is written after an answer's end is in them. At most 5 s from now."""
    last = await read_counters(url)
    for _ in range(_POLLS):
        await asyncio.sleep(_POLL_S)
        last, before = await read_counters(url), last
        if last == before:
            break
    return last
