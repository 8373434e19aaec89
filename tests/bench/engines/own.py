"""An engine of ours, as it is measured: the same random tokens in each slot, computed once and copied."""

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any, Final

from shared.errors import ModelError
from shared.settings import Settings
from workers.engine import DecodeRow, Engine, MixingEngine, PrefillChunk, Sampling
from workers.engine.load_model import load_model

# What each engine calls into: all else of a step is Python of ours. (module, class, its methods)
_STREAM_CALLS: Final = ("copy", "run", "launch", "synchronize")
RUNTIME_CALLS: Final = {
    "onnx": ("onnxruntime", "InferenceSession", ("run_with_iobinding",)),
    "tensorrt": ("workers.engine.tensorrt.cuda", "CudaStream", _STREAM_CALLS),
    "tensorrt-rtx": ("workers.engine.tensorrt.cuda", "CudaStream", _STREAM_CALLS),
    # On the CPU the decoder itself is Python too, and counts as torch's: `run` is all of it.
    "torch": ("workers.engine.torch.device", "TorchStream", _STREAM_CALLS),
}
_LIBRARIES: Final = {"onnx": "onnxruntime", "tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx", "torch": "torch"}
_GREEDY: Final = Sampling()
_WARM_STEPS: Final = 4
_REPEATS: Final = 3


@dataclass(slots=True)
class RuntimeClock:
    """Adds up the time inside the calls that it watches; a call within another counts once."""

    seconds: float = 0.0
    _depth: int = 0

    def watch(self, owner: type, names: Sequence[str]) -> None:
        """Replace these methods of a class, for the rest of the process, by ones that are timed."""
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - start

        return timed


@dataclass(slots=True, kw_only=True)
class OwnEngine:
    """Prompts are given as a worker gives them, in calls of at most `chunk` tokens. The first `full` slots hold the
    same first `length` of `tokens`."""

    engine: Engine
    clock: RuntimeClock | None
    chunk: int
    tokens: list[int]
    what: dict[str, Any]
    full: int = 0
    length: int = field(default=-1)

    @classmethod
    def load(cls, settings: Settings) -> "OwnEngine":
        """Load the engine that the settings name. Raises `ReplylineError`, also where another one would serve."""
        name = settings.worker.engine
        start = time.perf_counter()
        model = load_model(settings, verify=False)  # as a worker does, which has looked at the files
        load_s = time.perf_counter() - start
        if model.info.name != name:
            raise ModelError(f"engine {name} cannot be measured: {model.info.name} computes instead (above)")
        clock = RuntimeClock() if name in RUNTIME_CALLS else None
        if clock is not None:
            module, owner, names = RUNTIME_CALLS[name]
            clock.watch(getattr(importlib.import_module(module), owner), names)
        library = _LIBRARIES.get(name)
        runtime = (
            model.info.computed_by if library is None else f"{library} {importlib.import_module(library).__version__}"
        )
        random, info = Random(1), model.info
        most = 256  # the ids of bytes: every vocabulary has them
        return cls(
            engine=model.engine,
            clock=clock,
            chunk=settings.worker.prefill_chunk_tokens,
            tokens=[random.randrange(most) for _ in range(info.max_length)],
            what={
                "engine": name,
                "precision": info.precision,
                "runtime": runtime,
                "load_s": load_s,
            },
        )

    def decode(self, rows: int, context: int, new_tokens: int) -> tuple[float, float | None]:
        """Return the seconds of these steps, and how many of the seconds the runtime used."""
        self.fill(rows, context)
        self.steps(rows, context, min(_WARM_STEPS, new_tokens))
        before, start = self._runtime_s(), time.perf_counter()
        self.steps(rows, context, new_tokens)
        seconds, after = time.perf_counter() - start, self._runtime_s()
        return seconds, None if before is None or after is None else after - before

    def prefill(self, tokens: int, past: int) -> float | None:
        """Return the seconds in which a prompt's tokens are added to `past`, and the first of its answer is there."""
        self.fill(1, past)
        return median(_timed(lambda: self.add(0, past, past + tokens)) for _ in range(_REPEATS))

    def mixed(self, rows: int, context: int, tokens: int) -> tuple[float, float] | None:
        """Return the seconds of a mixed step, and those of its two parts apart; None where the engine has none."""
        engine = self.engine
        if not engine.info.mixes or not isinstance(engine, MixingEngine):
            return None
        self.fill(rows, context)
        self.full = rows
        chunks = [PrefillChunk(slot=rows, past=0, token_ids=self.tokens[:tokens], sampling=_GREEDY)]
        asked = self._rows([0] * rows, context)
        together: list[float] = []
        apart: list[float] = []
        for _ in range(_REPEATS):
            together.append(_timed(lambda: engine.mixed(chunks, asked)))
            apart.append(_timed(lambda: (engine.decode(asked), engine.prefill(chunks))))
        return median(together), median(apart)

    def fill(self, slots: int, length: int) -> None:
        """Fill `slots` slots with `length` tokens each."""
        if length != self.length:
            self.add(0, 0, length)
            self.full, self.length = 1, length
        for slot in range(self.full, slots):
            if length:
                self.engine.move(source=0, target=slot, length=length)
        self.full = max(self.full, slots)

    def add(self, slot: int, start: int, stop: int) -> None:
        """Add its tokens to a slot, as a worker does."""
        for past in range(start, stop, self.chunk):
            end = min(past + self.chunk, stop)
            sampling = _GREEDY if end == stop else None
            self.engine.prefill(
                [PrefillChunk(slot=slot, past=past, token_ids=self.tokens[past:end], sampling=sampling)]
            )

    def steps(self, rows: int, context: int, steps: int) -> None:
        """Decode `steps` steps of the first rows, greedily."""
        tokens = [0] * rows
        for past in range(context, context + steps):
            tokens = self.engine.decode(self._rows(tokens, past))

    @staticmethod
    def _rows(tokens: Sequence[int], past: int) -> list[DecodeRow]:
        return [DecodeRow(slot=slot, past=past, token_id=one, sampling=_GREEDY) for slot, one in enumerate(tokens)]

    def _runtime_s(self) -> float | None:
        return None if self.clock is None else self.clock.seconds


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
