"""Conversations of ten and more turns, under both ways that a prompt's window of the history moves: the time to the
first token, and how much of each prompt the worker computed.

One client, the two systems in turn, both with the cache: what differs is `worker.history_window` alone. A long
conversation is two of one language, one after the other, so that its later questions are new ones.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct
from rich.console import Console

from ops.measure.runner import progress_bar
from ops.texts.conversations import Conversation
from shared.errors import SettingsError
from tests.bench.kv.client import Answered, Talk
from tests.bench.kv.ratios import middle, ratio
from tests.bench.kv.system import Side

Mode = Literal["sliding", "strides"]

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
TURNS: Final = 10
LATER: Final = 6
"""From this turn on a conversation is longer than `worker.history_turns` of earlier ones, or as long."""


class WindowTurn(Struct, frozen=True, kw_only=True):
    """One answer. `computed_tokens` of its prompt were not there before."""

    turn: int
    ttft_ms: float | None
    prompt_tokens: int
    computed_tokens: int


class WindowRun(Struct, frozen=True, kw_only=True):
    """All conversations under one mode. `not_by_model`: how many answers the model did not write to their end."""

    mode: Mode
    turns: list[WindowTurn]
    not_by_model: int

    def of(self, first: int, last: int) -> list[WindowTurn]:
        """The answers to turns `first` to `last`."""
        return [one for one in self.turns if first <= one.turn <= last]


def long_conversations(conversations: Sequence[Conversation], count: int) -> list[Conversation]:
    """`count` of at least `TURNS` turns, the languages in turn. Raises `SettingsError` where there are too few."""
    joined: list[Conversation] = []
    for language in ("en", "zh"):
        alike = [one for one in conversations if one.language == language]
        for first, then in zip(alike[::2], alike[1::2], strict=False):
            joined.append(
                Conversation(id=f"{first.id}+{then.id}", language=first.language, turns=(*first.turns, *then.turns))
            )
    half = len([one for one in joined if one.language == "en"])
    in_turn = [one for pair in zip(joined[:half], joined[half:], strict=False) for one in pair]
    if count > len(in_turn):
        raise SettingsError(f"{count} long conversations: there are {len(in_turn)}; ask for at most so many")
    return in_turn[:count]


def run_of(mode: Mode, answers: Sequence[Answered]) -> WindowRun:
    return WindowRun(
        mode=mode,
        turns=[
            WindowTurn(
                turn=answer.turn,
                ttft_ms=None if answer.ttft_ms is None else round(answer.ttft_ms, 1),
                prompt_tokens=answer.prompt_tokens,
                computed_tokens=answer.prompt_tokens - answer.cached_tokens,
            )
            for answer in answers
        ],
        not_by_model=sum(not answer.by_model for answer in answers),
    )


def window_ratio(runs: Sequence[WindowRun]) -> float | None:
    """The later turns' TTFT under `strides` by that under `sliding`, of the medians."""
    medians = {run.mode: middle(one.ttft_ms for one in run.of(LATER, TURNS)) for run in runs}
    return ratio(medians.get("strides"), medians.get("sliding"))


async def measure_window(
    sides: Mapping[Mode, Side], conversations: Sequence[Conversation], *, max_output_tokens: int, console: Console
) -> list[WindowRun]:
    """The first `TURNS` turns of each. Raises `ConnectFailed`."""
    answers: dict[Mode, list[Answered]] = {mode: [] for mode in sides}
    with progress_bar(console, "both windows: answers", len(conversations) * TURNS * len(sides)) as progress:
        for number, conversation in enumerate(conversations):
            for mode in list(sides)[:: -1 if number % 2 else 1]:
                async with Talk(sides[mode].url, conversation) as talk:
                    for turn in range(1, TURNS + 1):
                        answers[mode].append(await talk.ask(turn, max_output_tokens))
                        progress(sum(map(len, answers.values())))
    return [run_of(mode, said) for mode, said in answers.items()]
