"""Choose each sequence's next token from the logits of a decode step, which are in GPU memory.

A row of logits has one number per token of the vocabulary (about 600 KB for 150,000 tokens), so copying all rows to the
host would take longer than many steps. The GPU therefore reduces each row first, and the host copies the least that
determines the token:

- a greedy row: the token with the largest logit, and that logit, which the decoder's graph computes;
- a row that samples: sums over blocks of the vocabulary, which the sampler's graph computes, and then the largest
  logits (top-p below 1) or one block (top-p of 1);
- a row for which these do not determine the token because of rounding: the whole row.

The chosen token is the same in all three cases.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.errors import EngineError
from workers.engine import Sampling
from workers.engine.device import BareDevice, Execution, Staging, Stream
from workers.engine.device.sampling import (
    BLOCK_TOKENS,
    NUM_CANDIDATES,
    draw_from_block,
    draw_from_candidates,
    find_block,
    from_a_nucleus,
    from_a_part,
)
from workers.engine.sampling import sample
from workers.graph.sampler import sampler_graph

_LOGIT_BYTES = 4


class TokenReader:
    """The logits `[rows, vocabulary]` of one step for up to `max_rows` rows, and the values found in them."""

    def __init__(
        self, device: BareDevice, compute: Stream, sampler: Execution, *, max_rows: int, vocab_size: int
    ) -> None:
        self._compute = compute
        self._sampler = sampler
        self._vocab_size = vocab_size
        self._logits = device.allocate(max_rows * vocab_size * _LOGIT_BYTES)
        self._found = Staging(device, {"token_ids": ((max_rows,), np.int64), "peaks": ((max_rows, 1), np.float32)})
        self._temperatures = Staging(device, {"temperature": ((max_rows, 1), np.float32)})
        self._parts = Staging(
            device,
            {
                "candidate_logits": ((max_rows, _num_candidates(vocab_size)), np.float32),
                "candidate_ids": ((max_rows, _num_candidates(vocab_size)), np.int64),
                "block_mass": ((max_rows, -(-vocab_size // BLOCK_TOKENS)), np.float32),
            },
        )
        self._blocks = device.allocate_pinned(max_rows * BLOCK_TOKENS * _LOGIT_BYTES).view(np.float32)
        self._row = device.allocate_pinned(vocab_size * _LOGIT_BYTES).view(np.float32)

    def bind(self, decoder: Execution, rows: int) -> None:
        """Bind a decoder execution's outputs to this memory."""
        decoder.bind("logits", self._logits, (rows, self._vocab_size))
        decoder.bind("token_ids", self._found.addresses["token_ids"], (rows,))
        decoder.bind("peaks", self._found.addresses["peaks"], (rows, 1))

    def fetch(self) -> None:
        """Enqueue, after the decoder, the copies that every row needs."""
        self._found.fetch(self._compute)

    def tokens(self, samplings: Sequence[Sampling | None], positions: Sequence[int]) -> list[int | None]:
        """Return the token of each row that has a sampling, after the copies of `fetch` have ended.

        Args:
            samplings: how to sample each row; None for no token.
            positions: the position of each row's token in its sequence.

        Raises:
            EngineError: a row with a sampling has no finite maximum.
        """
        wanted = {row: sampling for row, sampling in enumerate(samplings) if sampling is not None}
        rows = list(wanted)
        greedy, peaks = self._found.host["token_ids"], self._found.host["peaks"]
        if not (np.isfinite(peaks[rows]).all() and (greedy[rows] < self._vocab_size).all()):
            raise EngineError("the engine computed logits that are not finite; restart the worker")
        tokens: list[int | None] = [None] * len(samplings)
        for row in rows:
            tokens[row] = int(greedy[row])
        drawn = {row: sampling for row, sampling in wanted.items() if sampling.temperature > 0}
        if drawn:
            settled = self._drawn_from_parts(drawn, positions, len(samplings))
            for row, sampling in drawn.items():
                tokens[row] = settled[row] if row in settled else self._from_whole_row(row, sampling, positions[row])
        return tokens

    def _drawn_from_parts(
        self, drawn: Mapping[int, Sampling], positions: Sequence[int], num_rows: int
    ) -> dict[int, int]:
        """Return the tokens of the rows for which a part of the logits is enough."""
        partial = {row: sampling for row, sampling in drawn.items() if from_a_part(sampling)}
        if not partial:
            return {}
        self._run_sampler(partial, num_rows)
        parts = self._parts.host
        tokens: dict[int, int | None] = {}
        blocks: dict[int, int] = {}
        for row, sampling in partial.items():
            mass = parts["block_mass"][row]
            if from_a_nucleus(sampling):
                logits, token_ids = parts["candidate_logits"][row], parts["candidate_ids"][row]
                tokens[row] = draw_from_candidates(logits, token_ids, mass, sampling, positions[row])
            elif (block := find_block(mass, sampling, positions[row])) is not None:
                blocks[row] = block
        for row, logits in self._fetch_blocks(blocks).items():
            mass, peak = parts["block_mass"][row], float(self._found.host["peaks"][row, 0])
            tokens[row] = draw_from_block(logits, mass, partial[row], positions[row], block=blocks[row], peak=peak)
        return {row: token for row, token in tokens.items() if token is not None}

    def _run_sampler(self, partial: Mapping[int, Sampling], num_rows: int) -> None:
        """Run the sampler's graph and copy its results for `partial`'s rows."""
        temperatures = self._temperatures.host["temperature"]
        temperatures[:num_rows] = 1.0  # the other rows are computed too, and ignored
        for row, sampling in partial.items():
            temperatures[row] = sampling.temperature
        self._temperatures.send(self._compute)
        self._sampler.bind("logits", self._logits, (num_rows, self._vocab_size))
        self._sampler.bind("temperature", self._temperatures.addresses["temperature"], (num_rows, 1))
        for name, array in self._parts.host.items():
            self._sampler.bind(name, self._parts.addresses[name], (num_rows, array.shape[1]))
        self._compute.run(self._sampler)
        for name, array in self._parts.host.items():
            for row, sampling in partial.items():
                if name == "block_mass" or from_a_nucleus(sampling):
                    offset = self._parts.offsets[name] + row * array.strides[0]
                    target, source = self._parts.host_address + offset, self._parts.device_address + offset
                    self._compute.copy(target, source, array.strides[0])
        self._compute.synchronize()

    def _fetch_blocks(self, blocks: Mapping[int, int]) -> dict[int, NDArray[np.float32]]:
        """Return the logits of one block of each row."""
        fetched = {}
        for row, block in blocks.items():
            first = block * BLOCK_TOKENS
            count = min(BLOCK_TOKENS, self._vocab_size - first)
            fetched[row] = self._blocks[row * BLOCK_TOKENS :][:count]
            source = self._logits + (row * self._vocab_size + first) * _LOGIT_BYTES
            self._compute.copy(fetched[row].ctypes.data, source, count * _LOGIT_BYTES)
        if fetched:
            self._compute.synchronize()
        return fetched

    def _from_whole_row(self, row: int, sampling: Sampling, position: int) -> int:
        num_bytes = self._vocab_size * _LOGIT_BYTES
        self._compute.copy(self._row.ctypes.data, self._logits + row * num_bytes, num_bytes)
        self._compute.synchronize()
        [token] = sample(self._row[np.newaxis], [sampling], [position])
        return token


def sampler_for(vocab_size: int) -> bytes:
    """Return the graph from which a reader's sampler must be built."""
    return sampler_graph(vocab_size, _num_candidates(vocab_size), BLOCK_TOKENS)


def _num_candidates(vocab_size: int) -> int:
    return min(NUM_CANDIDATES, vocab_size)
