"""An engine without a model: scripted latencies, and tokens that are a pure function of the sequence.

It stores KV as real engines do: eight bytes for each token, which depend on every token before it. The next token is
drawn from a digest of all of them, so a slot with a stale, misplaced or missing part gives other tokens.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.model.tokenizer import BYTE_LEVEL_SPECIALS
from shared.process.threads import sleep
from workers.engine import DecodeRow, EngineInfo, PrefillChunk, Sampling
from workers.engine.calls import MixedCalls, check_import, check_range, follows
from workers.engine.kv_layout import KvLayout
from workers.engine.sampling import split_mix

# Lower-case letters and space in the vocabulary of `Tokenizer.byte_level`, whose `<|im_end|>` ends an answer.
BYTE_LEVEL_VOCABULARY: Final = tuple(len(BYTE_LEVEL_SPECIALS) + byte for byte in b"abcdefghijklmnopqrstuvwxyz ")
FAKE_REVISION: Final = "fake-1"
BYTE_LEVEL_STOP: Final = BYTE_LEVEL_SPECIALS.index("<|im_end|>")

_LAYOUT: Final = KvLayout(layers=1, parts=1, heads=1, dim=1, dtype="<u8")
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


class FakeEngine(MixedCalls):
    """An `Engine` that emits ids of `vocabulary`. Each `revision` has its own KV and answers.

    Each step ends an answer with `stop_token_id` with a probability of 1 / `mean_answer_tokens` (None: never), which
    depends only on the sequence. A call sleeps its scripted milliseconds: a prefill by its tokens, a decode by the step
    and its rows, a mixed call by all of them; zero does not sleep.
    """

    def __init__(
        self,
        *,
        num_slots: int,
        max_length: int,
        max_prefill_rows: int = 8,
        vocabulary: Sequence[int] = BYTE_LEVEL_VOCABULARY,
        stop_token_id: int = BYTE_LEVEL_STOP,
        mean_answer_tokens: int | None = None,
        prefill_ms_per_token: float = 0.0,
        decode_ms_per_step: float = 0.0,
        decode_ms_per_row: float = 0.0,
        revision: str = FAKE_REVISION,
        mixes: bool = False,
    ) -> None:
        if not vocabulary:
            raise ValueError("the fake engine needs at least one token to emit")
        self._vocabulary = tuple(vocabulary)
        self._stop_token_id = stop_token_id
        self._mean_answer_tokens = mean_answer_tokens
        self._prefill_ms_per_token = prefill_ms_per_token
        self._decode_ms_per_step = decode_ms_per_step
        self._decode_ms_per_row = decode_ms_per_row
        self._begin = (
            0 if revision == FAKE_REVISION else int.from_bytes(blake2b(revision.encode(), digest_size=8).digest())
        )
        self._kv: NDArray[np.uint64] = np.zeros((num_slots, max_length), _LAYOUT.numpy_dtype)
        self._info = EngineInfo(
            name="fake",
            device="cpu",
            model="fake",
            revision=revision,
            precision="none",
            num_slots=num_slots,
            max_length=max_length,
            max_prefill_rows=min(max_prefill_rows, num_slots),
            kv_layout=_LAYOUT,
            stop_token_ids=frozenset({stop_token_id}),
            mixes=mixes,
            verifies=mixes,
        )

    def move(self, *, source: int, target: int, length: int) -> None:
        check_range(self._info, source, 0, length)
        check_range(self._info, target, 0, length)
        self._kv[target, :length] = self._kv[source, :length]

    def export_kv(self, *, slot: int, start: int, stop: int) -> NDArray[np.uint64]:
        check_range(self._info, slot, start, stop)
        return self._kv[slot, start:stop].reshape(_LAYOUT.shape(stop - start)).copy()

    def import_kv(self, *, slot: int, start: int, values: NDArray[np.uint64]) -> None:
        num_tokens = check_import(self._info, slot, start, values)
        self._kv[slot, start : start + num_tokens] = values.reshape(num_tokens)

    def close(self) -> None:
        """Do nothing, since nothing is allocated."""

    def _compute(
        self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]
    ) -> tuple[list[int | None], list[list[int]]]:
        num_tokens = sum([1 + len(row.proposed) for row in rows])
        decode_ms = self._decode_ms_per_step + self._decode_ms_per_row * num_tokens if rows else 0.0
        _sleep_ms(decode_ms + self._prefill_ms_per_token * sum([len(chunk.token_ids) for chunk in chunks]))
        for row in rows:
            for place, token_id in enumerate((row.token_id, *row.proposed), row.past):
                self._append_one(row.slot, place, token_id)
        return [self._prefill_one(chunk) for chunk in chunks], [self._decode_one(row) for row in rows]

    def _decode_one(self, row: DecodeRow) -> list[int]:
        tokens = [self._next_token(row.slot, row.past + 1, row.sampling)]
        for place, proposed in enumerate(row.proposed, row.past + 2):
            if not follows(tokens, proposed):
                break
            tokens.append(self._next_token(row.slot, place, row.sampling))
        return tokens

    def _prefill_one(self, chunk: PrefillChunk) -> int | None:
        self._append(chunk.slot, chunk.past, chunk.token_ids)
        if chunk.sampling is None:
            return None
        return self._next_token(chunk.slot, chunk.past + len(chunk.token_ids), chunk.sampling)

    def _append(self, slot: int, past: int, token_ids: Sequence[int]) -> None:
        """Write one cell for each token: the sum over the tokens so far, each mixed with its position."""
        stop = past + len(token_ids)
        places: NDArray[np.uint64] = np.arange(past, stop, dtype=np.uint64)
        tokens: NDArray[np.uint64] = np.array(token_ids, np.uint64)
        mixed = _mix(np.multiply(tokens, _ODD, dtype=np.uint64) + places)
        mixed[:1] += self._kv[slot, past - 1 : past] if past else np.uint64(self._begin)
        self._kv[slot, past:stop] = np.cumsum(mixed)

    def _append_one(self, slot: int, past: int, token_id: int) -> None:
        """Write one token's cell, as `_append` does."""
        before = int(self._kv[slot, past - 1]) if past else self._begin
        odd = int(_ODD)  # the increment of `split_mix` before it mixes
        self._kv[slot, past] = np.uint64((before + split_mix((token_id - 1) * odd + past)) % 2**64)

    def _next_token(self, slot: int, length: int, sampling: Sampling) -> int:
        digest = split_mix(int(np.add.reduce(_mix(self._kv[slot, :length]))))
        if self._mean_answer_tokens is not None and split_mix(digest) % self._mean_answer_tokens == 0:
            return self._stop_token_id
        if sampling.temperature > 0:
            digest = split_mix(digest ^ sampling.seed)
        return self._vocabulary[digest % len(self._vocabulary)]


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finaliser to each value."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _sleep_ms(milliseconds: float) -> None:
    if milliseconds > 0:
        sleep(milliseconds / 1000)
