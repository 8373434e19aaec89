"""Whole conversations at many clients, a closed loop, with the cache and without: each round the same ones on both."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from rich.console import Console

from ops.measure.quantiles import Quantiles, quantiles
from ops.measure.runner import progress_bar
from ops.texts.conversations import Conversation
from tests.bench.kv.client import Conversed, converse_all
from tests.bench.kv.counters import OUTPUT_TOKENS, PROMPT_TOKENS, grown
from tests.bench.kv.ratios import median_ratio, ratio
from tests.bench.kv.system import Pair, Side

What = Literal["on", "off", "peer"]


class WholeRun(Struct, frozen=True, kw_only=True):
    """One system's part of a round. `prompt_tokens` are those of all prompts, `computed_tokens` those of them that the
    worker computed. `cut`: by the model, but not to its end nor as far as was asked. `cache`: the worker's counters."""

    what: What
    turns: int
    elapsed_s: float
    model_answers: int
    fallbacks: int
    refusals: int
    cut: int
    prompt_tokens: int
    computed_tokens: int | None
    output_tokens: int
    ttft_ms: Quantiles
    cache: dict[str, float]

    @property
    def answers_per_s(self) -> float:
        return self.model_answers / self.elapsed_s if self.elapsed_s else 0.0


class WholeRound(Struct, frozen=True, kw_only=True):
    on: WholeRun
    off: WholeRun
    peer: WholeRun | None = None


def throughput_ratio(rounds: Sequence[WholeRound]) -> float | None:
    """Model answers a second with the cache by those without; the median of the rounds."""
    return median_ratio((one.on.answers_per_s, one.off.answers_per_s) for one in rounds)


def throughput_vs_peer(rounds: Sequence[WholeRound]) -> float | None:
    return median_ratio((one.on.answers_per_s, one.peer.answers_per_s) for one in rounds if one.peer is not None)


def time_ratio(rounds: Sequence[WholeRound]) -> float | None:
    """The time with the cache by that without; the median of the rounds."""
    return median_ratio((one.on.elapsed_s, one.off.elapsed_s) for one in rounds)


def prefill_share(rounds: Sequence[WholeRound]) -> float | None:
    """Prompt tokens computed in all rounds with the cache by those without."""
    return ratio(
        sum(one.on.computed_tokens or 0 for one in rounds), sum(one.off.computed_tokens or 0 for one in rounds)
    )


def run_of(what: What, done: Conversed, counted: dict[str, float] | None) -> WholeRun:
    """`counted`: by how much the worker's counters grew."""
    answers = done.answers
    by_model = [answer for answer in answers if answer.by_model]
    fallbacks = sum(answer.fallback for answer in answers)
    refusals = sum(answer.error is not None for answer in answers)
    cache = {name: value for name, value in (counted or {}).items() if name not in (PROMPT_TOKENS, OUTPUT_TOKENS)}
    return WholeRun(
        what=what,
        turns=len(answers),
        elapsed_s=round(done.elapsed_s, 4),
        model_answers=len(by_model),
        fallbacks=fallbacks,
        refusals=refusals,
        cut=len(answers) - len(by_model) - fallbacks - refusals,
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        computed_tokens=None if counted is None else int(counted.get(PROMPT_TOKENS, 0)),
        output_tokens=sum(answer.output_tokens for answer in answers),
        ttft_ms=quantiles(answer.ttft_ms for answer in by_model if answer.ttft_ms is not None),
        cache=cache,
    )


def parts(conversations: Sequence[Conversation], rounds: int) -> list[list[Conversation]]:
    """A part of them for each round, of like size and with both languages; each is in one round only."""
    size, more = divmod(len(conversations), rounds)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(rounds)]
    return [list(conversations[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


async def run_side(
    side: Side,
    what: What,
    conversations: Sequence[Conversation],
    *,
    clients: int,
    max_output_tokens: int,
    most_turns: int,
    console: Console,
) -> WholeRun:
    turns = sum(min(most_turns, len(one.turns)) for one in conversations)
    before = await side.counters()
    with progress_bar(console, f"cache {what}: answers", turns) as progress:
        done = await converse_all(
            side.url,
            conversations,
            clients=clients,
            max_output_tokens=max_output_tokens,
            most_turns=most_turns,
            progress=progress,
        )
    return run_of(what, done, grown(before, await side.settled_counters()))


async def run_round(
    pair: Pair,
    number: int,
    conversations: Sequence[Conversation],
    *,
    clients: int,
    max_output_tokens: int,
    most_turns: int,
    console: Console,
) -> WholeRound:
    """The same conversations on both, one system after the other."""
    runs: dict[What, WholeRun] = {}
    for side in pair.in_turn(number):
        what: What = "on" if side is pair.on else "off"
        runs[what] = await run_side(
            side,
            what,
            conversations,
            clients=clients,
            max_output_tokens=max_output_tokens,
            most_turns=most_turns,
            console=console,
        )
    return WholeRound(on=runs["on"], off=runs["off"])
