"""The interface of an inference engine.

An engine owns `num_slots` slots. A slot holds the keys and values (KV) of one sequence, at most `max_length` tokens.
The worker assigns the slots; the engine only computes. Two conventions keep every engine fast:

* **Active rows are compact.** `decode` gets rows for slots `0 .. n-1` in order: the engine binds one contiguous view of
  its KV arrays (ONNX Runtime) or replays one captured graph for each batch size (CUDA). The worker keeps them compact
  with `move`.
* **Sampling is stateless.** A token's random number is a function of (seed, position), so a sequence that is computed
  again elsewhere, alone or in another batch, gives the same tokens.

Engines are synchronous and owned by one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, Self, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.model.folder import Manifest
from workers.engine.kv_layout import KvLayout

DeviceKind = Literal["cpu", "gpu"]
_REVISION_CHARS: Final = 12  # characters of a SHA-256, enough to distinguish models
MAX_PROPOSED: Final = 32
"""Most proposed tokens of a step, over all of its rows."""


def short_revision(revision: str) -> str:
    """Return the `revision` of answers if no version of the registry is served."""
    return revision[:_REVISION_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Fixed facts about a model and its engine.

    Attributes:
        device: where it computes.
        num_slots: requests computed together, each of at most `max_length` tokens.
        kernel: the engine's own kernel in use, if it has several.
    """

    name: str
    device: DeviceKind
    model: str
    revision: str
    precision: str
    num_slots: int
    max_length: int
    kernel: str = ""

    @property
    def computed_by(self) -> str:
        """Return the engine and kernel for display and as a key of measurements: `onnx`, `native avx2`."""
        return f"{self.name} {self.kernel}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo(ModelInfo):
    """Facts about a loaded engine.

    Attributes:
        mixes: one call computes decode rows and prompt chunks together.
        verifies: such a call also verifies proposed tokens.
    """

    max_prefill_rows: int
    kv_layout: KvLayout
    stop_token_ids: frozenset[int]
    mixes: bool = False
    verifies: bool = False

    @classmethod
    def from_manifest(
        cls,
        manifest: Manifest,
        *,
        name: str,
        device: DeviceKind,
        num_slots: int,
        max_length: int,
        max_prefill_rows: int,
        kv_dtype: np.dtype[Any],
        mixes: bool = False,
        verifies: bool = False,
        kernel: str = "",
    ) -> Self:
        a = manifest.architecture
        return cls(
            name=name,
            device=device,
            model=manifest.name,
            revision=manifest.revision,
            precision=manifest.precision,
            num_slots=num_slots,
            max_length=max_length,
            max_prefill_rows=max_prefill_rows,
            kv_layout=KvLayout(layers=a.num_layers, parts=2, heads=a.num_kv_heads, dim=a.head_dim, dtype=kv_dtype.str),
            stop_token_ids=frozenset(manifest.stop_token_ids),
            mixes=mixes,
            verifies=verifies,
            kernel=kernel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is picked. `temperature == 0` is greedy; then `top_p` and `seed` are ignored."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillChunk:
    """Prompt tokens to add to a slot that already holds `past` tokens.

    `sampling` is set for the last chunk of a prompt; only then is a token sampled.
    """

    slot: int
    past: int
    token_ids: Sequence[int]
    sampling: Sampling | None


class DecodeRow(Struct, frozen=True, kw_only=True, gc=False):
    """One sequence's next step: add `token_id` at position `past` and sample one token.

    `proposed` are tokens that may follow `token_id`, for `VerifyingEngine.verify`.
    """

    slot: int
    past: int
    token_id: int
    sampling: Sampling
    proposed: tuple[int, ...] = ()


class Engine(Protocol):
    """Computes tokens. A device failure raises `shared.errors.EngineError`, an invalid call `ValueError`."""

    @property
    def info(self) -> EngineInfo: ...

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        """Add each chunk to its slot; return the sampled token of each chunk that asks for one, else None.

        Several chunks, at most `info.max_prefill_rows`, need `past == 0` and consecutive, ascending slots; the tokens
        are the same as with one call for each chunk.
        """

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        """Compute one step and return the sampled token of each row.

        The rows are for slots `0 .. len(rows)-1` in order, or for any slots if `info.mixes`.
        """

    def move(self, *, source: int, target: int, length: int) -> None:
        """Copy the KV of the first `length` tokens from slot `source` to slot `target`."""

    def export_kv(self, *, slot: int, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of the KV of tokens `start .. stop-1` of a slot: `info.kv_layout.shape(stop - start)`."""

    def import_kv(self, *, slot: int, start: int, values: NDArray[Any]) -> None:
        """Write KV from `export_kv` (of the same model, revision and precision) at token `start`.

        Its floats may have been converted to half precision.
        """

    def close(self) -> None:
        """Free memory and device. Idempotent."""


@runtime_checkable
class MixingEngine(Engine, Protocol):
    """An engine with `info.mixes`."""

    def mixed(self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> tuple[list[int | None], list[int]]:
        """Compute chunks and decode rows in one call, which reads the weights once; return the tokens of both.

        The tokens are those that `prefill` and `decode` would return. The chunks, at most `info.max_prefill_rows`, and
        the rows are for different slots, in any order and with any pasts. Either may be empty.
        """


@runtime_checkable
class VerifyingEngine(MixingEngine, Protocol):
    """An engine with `info.verifies`."""

    def verify(
        self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]
    ) -> tuple[list[int | None], list[list[int]]]:
        """Compute a step as `mixed` does, of rows with at most `MAX_PROPOSED` proposed tokens together.

        Returns:
            The chunks' tokens; and of each row the tokens that steps without proposals would return one after another,
            to the bit: its proposed tokens as long as they are the sampled ones, then one more. The slot's KV behind
            the accepted tokens is invalid.
        """
