"""`replyline bench kv`: what the conversations' kept keys and values (KV) are worth, and what they cost.

Whole systems on embedded Kafka, with the cache and without, each with its own Redis; multi-turn conversations in
English and Chinese, greedy, with deadlines so long that nothing is cut. Cells: `ttft` (turn 5 at about 1,000 tokens of
context, from each level), `whole` (many clients: answers a second, prompt tokens computed), `write` (bytes to Redis a
turn), `slow` and `down` (Redis 100 ms away, Redis killed), and, where it is named, `window` (turns 6 to 10 under each
`worker.history_window`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Self, get_args

import msgspec
from rich.console import Console

from ops.measure.environment import environment
from ops.measure.runner import check_writable, progress_bar, write_json
from ops.texts.conversations import Conversation, choose, load_conversations
from shared.errors import SettingsError
from shared.faq import FaqIndex
from shared.model.folder import ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.settings import Settings
from tests.bench.kv.outage import Trouble, measure_outage
from tests.bench.kv.peer import Peer, converse_with_peer, grounded_system_text
from tests.bench.kv.ratios import FAKE_LAYOUT, bytes_per_token, layout_of
from tests.bench.kv.system import Pair, alike, systems
from tests.bench.kv.table import Cells, ratios_of, show_cells
from tests.bench.kv.ttft import Cell, measure_ttft
from tests.bench.kv.whole import WholeRound, parts, run_of, run_round
from tests.bench.kv.window import MODES, WindowRun, long_conversations, measure_window
from tests.bench.kv.write import WriteRow, measure_writes, rows_of

PairCell = Literal["ttft", "whole", "write", "slow", "down"]
"""Measured with the cache and without."""
CellName = Literal[PairCell, "window"]

CELLS: Final[tuple[CellName, ...]] = get_args(CellName)
_PAIR_CELLS: Final[tuple[PairCell, ...]] = get_args(PairCell)
_MOST_CLIENTS: Final = 64
_MOST_ROUNDS: Final = 20
_MOST_TOKENS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOptions:
    """`conversations` are those of `whole`; the other cells take fewer. `most_turns` is of `whole` and the outages."""

    conversations: int
    rounds: int
    clients: int
    max_output_tokens: int
    cells: tuple[str, ...]
    peer: str | None
    json_path: Path | None
    most_turns: int = 7
    ttft_conversations: int = 6
    ttft_context_tokens: int = 1_000
    write_conversations: int = 4
    outage_conversations: int = 12
    outage_turns: int = 3
    outage_rounds: int = 3
    window_conversations: int = 4
    share_systems: bool = False

    def reduced(self) -> Self:
        """For a quick look: every cell, few of each."""
        return replace(
            self,
            conversations=min(self.conversations, 4),
            rounds=1,
            clients=min(self.clients, 4),
            max_output_tokens=min(self.max_output_tokens, 16),
            most_turns=2,
            ttft_conversations=1,
            ttft_context_tokens=400,
            write_conversations=1,
            outage_conversations=2,
            outage_turns=2,
            outage_rounds=1,
            window_conversations=1,
            share_systems=True,
        )

    def groups(self) -> list[list[PairCell]]:
        """The cells in their order, each group on two systems of its own. A proxy before Redis costs time of its own:
        only a reduced run measures everything behind it."""
        wanted = [name for name in _PAIR_CELLS if name in self.cells]
        if not wanted:
            return []
        if self.share_systems:
            return [wanted]
        healthy = [name for name in wanted if name not in ("slow", "down")]
        troubled: list[PairCell] = [name for name in wanted if name in ("slow", "down")]
        return [group for group in (healthy, troubled) if group]

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        known = ", ".join(CELLS)
        faults = [f"--cells {name}: none of {known}" for name in self.cells if name not in CELLS]
        if not self.cells:
            faults.append(f"--cells: name some of {known}, comma-separated")
        for name, value, most in (
            ("--conversations", self.conversations, 1_000),
            ("--rounds", self.rounds, _MOST_ROUNDS),
            ("--clients", self.clients, _MOST_CLIENTS),
            ("--max-output-tokens", self.max_output_tokens, _MOST_TOKENS),
        ):
            if not 1 <= value <= most:
                faults.append(f"{name} {value}: must be 1 to {most}")
        if self.rounds > self.conversations >= 1:
            faults.append(f"--rounds {self.rounds}: is above --conversations {self.conversations}")
        if self.peer is not None and "whole" not in self.cells:
            faults.append(f"--peer {self.peer}: is asked in the cell whole; name it in --cells")
        if faults:
            raise SettingsError("\n".join(faults))
        if self.peer is not None:
            Peer(self.peer)
        check_writable(self.json_path)


async def bench_kv(settings: Settings, options: KvOptions, console: Console) -> None:
    everything = load_conversations()
    conversations = choose(everything, options.conversations)
    bench = _Bench(settings, options, conversations, everything, console)
    facts = environment(engine=f"{settings.worker.engine} {settings.model.dir.name}", broker="embedded")
    measured = Cells()
    for group in options.groups():
        async with systems(settings, slots=options.clients, behind_proxy="slow" in group, console=console) as pair:
            for name in group:
                setattr(measured, name, await bench.measure(name, pair))
    if "window" in options.cells:
        measured.window = await bench.window()
    ratios = ratios_of(measured)
    print(show_cells(measured, ratios))
    asked = {
        "conversations": options.conversations,
        "rounds": options.rounds,
        "clients": options.clients,
        "max_output_tokens": options.max_output_tokens,
        "cells": options.cells,
        "precision": settings.kv.precision,
        "bytes_per_token": bench.token_bytes,
    }
    result = {**msgspec.to_builtins(ratios), **asked, "raw": measured, "environment": facts}
    write_json(options.json_path, result)


class _Bench:
    def __init__(
        self,
        settings: Settings,
        options: KvOptions,
        conversations: Sequence[Conversation],
        everything: Sequence[Conversation],
        console: Console,
    ) -> None:
        fake = settings.worker.engine == "fake"
        layout = FAKE_LAYOUT if fake else layout_of(ModelFolder.open(settings.model.dir).manifest.architecture)
        self.token_bytes = bytes_per_token(layout, settings.kv.precision)
        self._count = (Tokenizer.byte_level() if fake else Tokenizer.load(settings.model.dir)).count
        self._settings = settings
        self._options = options
        self._conversations = conversations
        self._everything = everything
        self._console = console

    async def measure(self, name: PairCell, pair: Pair) -> Sequence[object]:
        """What goes into `Cells` under that name."""
        match name:
            case "ttft":
                return await self._ttft(pair)
            case "whole":
                return await self._whole(pair)
            case "write":
                return await self._write(pair)
            case "slow" | "down":
                return await self._outage(pair, name)

    async def window(self) -> list[WindowRun]:
        """On two systems of its own."""
        conversations = long_conversations(self._everything, self._options.window_conversations)
        envs = [{"WORKER__HISTORY_WINDOW": mode} for mode in MODES]
        async with alike(self._settings, envs, slots=self._options.clients, console=self._console) as sides:
            return await measure_window(
                dict(zip(MODES, sides, strict=True)),
                conversations,
                max_output_tokens=self._options.max_output_tokens,
                console=self._console,
            )

    async def _ttft(self, pair: Pair) -> list[Cell]:
        return await measure_ttft(
            self._settings,
            pair,
            choose(self._everything, self._options.ttft_conversations),
            context_tokens=self._options.ttft_context_tokens,
            slots=self._options.clients,
            count=self._count,
            console=self._console,
        )

    async def _write(self, pair: Pair) -> list[WriteRow]:
        some = choose(self._everything, self._options.write_conversations)
        tokens = self._options.max_output_tokens
        return rows_of(
            await measure_writes(pair.on, some, max_output_tokens=tokens, console=self._console), self.token_bytes
        )

    async def _outage(self, pair: Pair, trouble: Trouble) -> list[WholeRound]:
        options = self._options
        return await measure_outage(
            pair,
            trouble,
            choose(self._everything, options.outage_conversations),
            clients=options.clients,
            rounds=options.outage_rounds,
            max_output_tokens=options.max_output_tokens,
            most_turns=options.outage_turns,
            console=self._console,
        )

    async def _whole(self, pair: Pair) -> list[WholeRound]:
        options = self._options
        rounds: list[WholeRound] = []
        for number, part in enumerate(parts(self._conversations, options.rounds)):
            self._console.print(f"whole conversations: round {number + 1} of {options.rounds}")
            one = await run_round(
                pair,
                number,
                part,
                clients=options.clients,
                max_output_tokens=options.max_output_tokens,
                most_turns=options.most_turns,
                console=self._console,
            )
            rounds.append(one if options.peer is None else await self._beside_peer(Peer(options.peer), one, part))
        return rounds

    async def _beside_peer(self, peer: Peer, one: WholeRound, conversations: Sequence[Conversation]) -> WholeRound:
        worker, options = self._settings.worker, self._options
        faq = FaqIndex.load(self._settings.faq.path)
        with progress_bar(self._console, "the peer: answers", one.on.turns) as progress:
            done = await converse_with_peer(
                peer,
                conversations,
                clients=options.clients,
                max_output_tokens=options.max_output_tokens,
                most_turns=options.most_turns,
                system_text=grounded_system_text(faq, worker.system_prompt, worker.grounding_entries),
                progress=progress,
            )
        return msgspec.structs.replace(one, peer=run_of("peer", done, None))
