"""`replyline bench faq`: what a search takes, and an index, in an FAQ of any size.

The entries are the packaged ones over and over, each about another made-up product with a name and an SKU of its own:
so the words that all customers use stand in as many entries as in a large shop, and each entry has words that only it
has. Questions are of four kinds, in turn: of an SKU, of a name with one letter dropped, in general, and one that leans
on the turn before it.
"""

import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ops.measure.environment import environment
from ops.measure.quantiles import quantiles
from ops.measure.runner import check_writable, markdown, verdict, write_json
from shared.conversation.turn import Turn
from shared.faq import FaqEntry, FaqIndex
from shared.faq.entries import LANGUAGES, PACKAGED_PATH, read_entries
from shared.process.lifetime import settle_heap
from shared.wire.messages import Language

TARGET_MS: Final = 1.0
_WARMUP: Final = 50
_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bdfgklmnprstvz"
_CHARACTERS: Final = "云星月风雪海山林石河湖松竹梅兰菊鹿鹤虎龙金银玉铁木火水土光影红青白黑紫橙晨夜春秋"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What the index took. `memory_mib` is the most at once, what building alone needs included."""

    seconds: float
    cpu_seconds: float
    memory_mib: int


def bench_faq(*, entries: int, searches: int, seed: int, json_path: Path | None) -> None:
    check_writable(json_path)
    pick = random.Random(seed)
    texts = make_entries(entries, pick)
    before_mib = _peak_mib()
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    index = FaqIndex(texts)
    built = Built(
        seconds=round(time.perf_counter() - started_s, 1),
        cpu_seconds=round(time.process_time() - started_cpu_s, 1),
        memory_mib=round(_peak_mib() - before_mib),
    )
    settle_heap()
    print(
        f"{entries:,} entries in each language, indexed in {built.seconds} s ({built.cpu_seconds} s of CPU), "
        f"{built.memory_mib:,} MiB more at the most"
    )
    rows, result = [], {}
    for language in LANGUAGES:
        wall_ms, cpu_ms = measure(index, language, searches, pick)
        wall, cpu = quantiles(wall_ms), quantiles(cpu_ms)
        rows.append((language, searches, wall.p50, wall.p99, cpu.p50, cpu.p99))
        result[language] = {"wall_ms": wall, "cpu_ms": cpu}
    print(markdown(("language", "searches", "p50 ms", "p99 ms", "CPU p50 ms", "CPU p99 ms"), rows))
    print(f"a search: {verdict(max(spreads['wall_ms'].p50 or 0.0 for spreads in result.values()), TARGET_MS)}")
    environs = environment(engine="none", broker="unknown")
    write_json(json_path, {"entries": entries, "built": built, "search": result, "environment": environs})


def make_entries(count: int, pick: random.Random) -> list[FaqEntry]:
    """`count` entries in each language."""
    packaged = {
        language: [entry for entry in read_entries(PACKAGED_PATH) if entry.language == language]
        for language in LANGUAGES
    }
    entries = []
    for number in range(count):
        for language, originals in packaged.items():
            name = _name(number, language, pick)
            entries.append(_about(originals[number % len(originals)], number, name))
    return entries


def measure(index: FaqIndex, language: Language, searches: int, pick: random.Random) -> tuple[list[float], list[float]]:
    """Milliseconds of each search after the first ones, by the clock and of the CPU (which others do not move)."""
    wall_ms, cpu_ms = [], []
    own = [entry for entry in index.entries if entry.language == language]
    for number, (text, previous) in enumerate(_questions(own, _WARMUP + searches, pick)):
        started_ns, started_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        index.search(text, language=language, previous=previous)
        if number >= _WARMUP:
            cpu_ms.append((time.thread_time_ns() - started_cpu_ns) / 1e6)
            wall_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
    return wall_ms, cpu_ms


def _name(number: int, language: Language, pick: random.Random) -> str:
    series = f"{chr(65 + number // 260_000 % 26)}{chr(65 + number // 10_000 % 26)}"
    sku = f"{series}-{number % 10_000:04d}-{chr(65 + number % 26)}"
    if language == "en":
        return f"{''.join(pick.choice(letters) for letters in (_CONSONANTS, _VOWELS) * 4).title()} {sku}"
    return f"{''.join(pick.choices(_CHARACTERS, k=3))} {sku}"


def _about(entry: FaqEntry, number: int, name: str) -> FaqEntry:
    return msgspec.structs.replace(
        entry,
        id=f"{entry.id}-{number}",
        question=f"{name}: {entry.question}",
        alternatives=tuple(f"{alternative} ({name})" for alternative in entry.alternatives),
    )


def _questions(entries: Sequence[FaqEntry], count: int, pick: random.Random) -> Iterator[tuple[str, tuple[Turn, ...]]]:
    for number in range(count):
        entry = pick.choice(entries)
        name, _, asked = entry.question.partition(": ")
        before = Turn(request_id="before", user=entry.question, assistant=entry.answer, source="faq")
        yield (
            (f"{asked} {name.split()[-1]}", ()),
            (f"{name.split()[0][1:]} {pick.choice(entry.alternatives)}", ()),
            (f"please {asked}", ()),
            ("and how long does that take?" if entry.language == "en" else "那要多久呢", (before,)),
        )[number % 4]


def _peak_mib() -> float:
    """The most memory that this process has held. Bytes on macOS, KiB elsewhere."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
