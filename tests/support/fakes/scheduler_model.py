"""An engine that records whose token is at each position, and small sequences for it."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

import numpy as np

from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket
from tests.support.builders.worker import LinearCosts, sequence
from workers.engine import MAX_PROPOSED, EngineInfo
from workers.engine.calls import check_decode, check_mixed, check_prefill, check_range
from workers.engine.kv_layout import KvLayout, KvPieces
from workers.schedule.goodput import build_scheduler
from workers.schedule.lengths import OutputLengths
from workers.schedule.policy import Costs
from workers.schedule.scheduler import EngineStep, Scheduler, SchedulerLimits
from workers.schedule.sequence import Finished, Sequence, Token
from workers.schedule.slots import Export, Import, Move, Transfer

STOP = -1
MAX_LENGTH = 64


@dataclass(slots=True)
class ModelEngine:
    """An engine that records whose token is at each position of each slot. Positions that a call leaves undefined are
    cleared."""

    info: EngineInfo
    kv: list[list[int]] = field(init=False)
    exported: list[Export] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kv = [[] for _ in range(self.info.num_slots)]

    def run(self, step: EngineStep) -> None:
        """Transfers, decode, prefill; of an engine that mixes the prompts first, for the order must not matter."""
        for item in step.transfers:
            self._transfer(item)
        if self.info.mixes and step.prefill:
            check_mixed(self.info, step.prefill, step.decode)
            self._prefill(step)
        if step.decode:
            check_decode(self.info, step.decode, max_proposed=MAX_PROPOSED if step.sources else 0)
            for row, sequence in zip(step.decode, step.decoded, strict=True):
                assert row.token_id == sequence.output_ids[-1]
                self._append(row.slot, row.past, [row.token_id], sequence)
                self.kv[row.slot] += row.proposed  # accepted or not
        if step.prefill and not self.info.mixes:
            check_prefill(self.info, step.prefill)
            self._prefill(step)

    def _prefill(self, step: EngineStep) -> None:
        for chunk, row in zip(step.prefill, step.prefilled, strict=True):
            self._append(chunk.slot, chunk.past, chunk.token_ids, row)

    def _transfer(self, item: Transfer) -> None:
        match item:
            case Move():
                check_range(self.info, item.source, 0, item.length)
                check_range(self.info, item.target, 0, item.length)
                assert len(self.kv[item.source]) >= item.length, "what is moved is there"
                self.kv[item.target] = self.kv[item.source][: item.length]
            case Import():
                values = item.values.reshape(-1).tolist()
                check_range(self.info, item.slot, item.start, item.start + len(values))
                self.kv[item.slot] = [*self.kv[item.slot][: item.start], *values]
            case Export():
                known = [*item.sequence.prompt_ids, *item.sequence.output_ids]
                exported = self.kv[item.slot][: item.stop]
                assert exported == known[: item.stop], "a sequence's own tokens are exported, all that were computed"
                self.exported.append(item)

    def _append(self, slot: int, past: int, token_ids: Tokens[int], sequence: Sequence) -> None:
        self.kv[slot] = [*self.kv[slot][:past], *token_ids]
        known = [*sequence.prompt_ids, *sequence.output_ids]
        assert self.kv[slot] == known[: past + len(token_ids)], "the slot holds exactly the sequence's own tokens"


def engine_info(num_slots: int, max_prefill_rows: int, *, mixes: bool = False) -> EngineInfo:
    return EngineInfo(
        name="model",
        device="cpu",
        model="model",
        revision="1",
        precision="none",
        num_slots=num_slots,
        max_length=MAX_LENGTH,
        max_prefill_rows=max_prefill_rows,
        kv_layout=KvLayout(layers=1, parts=1, heads=1, dim=1, dtype="<u8"),
        stop_token_ids=frozenset({STOP}),
        mixes=mixes,
    )


def make_scheduler(
    num_slots: int = 2,
    chunk: int = 8,
    rows: int = 4,
    *,
    max_running_tokens: int = 10_000,
    decode_stall_ms: float = 0.0,
    reuse_kv: bool = False,
    lengths: OutputLengths | None = None,
    mixes: bool = False,
    speculates: bool = False,
    costs: Costs | None = None,
) -> Scheduler:
    limits = SchedulerLimits(
        num_slots=num_slots,
        prefill_chunk_tokens=chunk,
        max_prefill_rows=rows,
        stop_token_ids=frozenset({STOP}),
        max_running_tokens=max_running_tokens,
        decode_stall_ms=decode_stall_ms,
        reuse_kv=reuse_kv,
        mixes=mixes,
        speculation="tenant" if speculates else "off",
    )
    return build_scheduler(limits=limits, costs=costs or LinearCosts(), lengths=lengths or OutputLengths())


def make_sequence(
    name: str,
    *,
    prompt: int = 4,
    output: int = 3,
    soft: int = 1_000,
    hard: int = 2_000,
    arrived: float = 0.0,
    bucket: Bucket = "short",
    tenant: str = "t",
    session: str = "",
) -> Sequence:
    start = 1_000 * int(name[1:])
    return sequence(
        name,
        range(start, start + prompt),
        output=output,
        deadline=Deadline(first_token_unix_ms=soft, deadline_unix_ms=hard),
        arrived_unix_ms=arrived,
        bucket=bucket,
        tenant=tenant,
        session=session,
    )


def pieces_of(token_ids: Tokens[int]) -> KvPieces:
    """KV that comes with a sequence, in pieces of five tokens: for `ModelEngine` the tokens themselves."""
    cells = np.array(token_ids, np.int64)
    return KvPieces(tuple(cells[at : at + 5].reshape(1, 1, 1, -1, 1) for at in range(0, len(cells), 5)))


def complete(scheduler: Scheduler, step: EngineStep, token_id: int = 7, now: float = 0.0) -> list[Token | Finished]:
    prefilled = [None if chunk.sampling is None else token_id for chunk in step.prefill]
    return scheduler.complete(step, prefilled, [token_id] * len(step.decode), now)
