"""How often 8 and 4 bits agree with fp32: `python -m tests.bench.engines.agreement [PROMPTS]`, some minutes.

Every engine reads the same prompts; then fp32's likeliest token is given to all, step by step, and logits are compared.
"""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ops.lab.optimize.lessons import Encoder
from ops.lab.texts.calibration_set import DEMO, KINDS, Kind, read_texts
from ops.lifecycle.learn.examples import Example
from ops.measure.runner import markdown
from ops.model.prepare import prepare_model
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.model.chat_template import ChatTemplate
from shared.model.folder import ModelFolder
from shared.model.tokenizer import Tokenizer
from tests.support.models.native_library import native_library
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.native.engine import NativeEngine
from workers.engine.onnx import OnnxEngine

ROWS: Final = 8
TOKENS: Final = 32
KERNELS: Final = 2  # the fastest of this machine
LONGEST: Final = 1_024
GREEDY: Final = Sampling()


def fixed_prompts(folder: ModelFolder, count: int, kinds: Collection[Kind] = KINDS) -> list[list[int]]:
    """Customers' texts of the demo, spread evenly over the file's common ones, rare ones and those with article
    numbers, as a worker frames them; a wording of an FAQ entry has that entry before it."""
    encoder = Encoder(ChatTemplate.for_tokenizer(Tokenizer.load(folder.path), folder.manifest.chat_template))
    entries = {entry.id: (entry.as_grounding(),) for entry in read_entries(PACKAGED_PATH)}
    texts = [text for text in read_texts(DEMO.read_bytes(), DEMO.name) if text.role == "user" and text.kind in kinds]
    examples = [
        Example(question=text.text, grounding=entries.get(text.group or "", ()))
        for text in (texts[at] for at in np.linspace(0, len(texts) - 1, count).astype(int))
    ]
    return [encoder.prompt(example, max_tokens=LONGEST - TOKENS) for example in examples]


class Forced:
    """An engine that is given every token; `same` and `nats` collect, at each place, whether its likeliest token is
    fp32's and the divergence of its probabilities from fp32's."""

    def __init__(self, engine: OnnxEngine | NativeEngine) -> None:
        self.engine = engine
        self.same: list[bool] = []
        self.nats: list[float] = []

    def compare(self, wanted: np.ndarray, here: np.ndarray) -> None:
        found = log_probabilities(self.engine.logits[here])
        self.same += (wanted.argmax(axis=1) == found.argmax(axis=1)).tolist()
        self.nats += np.sum(np.exp(wanted) * (wanted - found), axis=1).tolist()


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    found = logits.astype(np.float64)
    found -= found.max(axis=1, keepdims=True)
    found -= np.log(np.exp(found).sum(axis=1, keepdims=True))
    return found


def compare(original: OnnxEngine, others: Sequence[Forced], batch: Sequence[Sequence[int]]) -> None:
    """Over fp32's greedy answers, the token that ends one included."""
    tokens: list[int] = []
    for slot, ids in enumerate(batch):  # one by one: logits are those of a call's last step
        chunk = PrefillChunk(slot=slot, past=0, token_ids=ids, sampling=GREEDY)
        tokens += [token for token in original.prefill([chunk]) if token is not None]
        wanted = log_probabilities(original.logits[:1])
        for other in others:
            other.engine.prefill([chunk])
            other.compare(wanted, np.array([0]))
    going = np.ones(len(batch), bool)
    for done in range(TOKENS - 1):
        going &= [token not in original.info.stop_token_ids for token in tokens]
        if not going.any():
            return
        rows = [
            DecodeRow(slot=slot, past=len(ids) + done, token_id=tokens[slot], sampling=GREEDY)
            for slot, ids in enumerate(batch)
        ]
        tokens = original.decode(rows)
        here = np.flatnonzero(going)
        wanted = log_probabilities(original.logits[here])
        for other in others:
            other.engine.decode(rows)
            other.compare(wanted, here)


def compared(
    original: OnnxEngine, engines: Mapping[str, OnnxEngine | NativeEngine], prompts: Sequence[Sequence[int]]
) -> dict[str, Forced]:
    """Return each engine's agreement with the original over its answers to the prompts."""
    others = {name: Forced(engine) for name, engine in engines.items()}
    for start in range(0, len(prompts), ROWS):
        compare(original, list(others.values()), prompts[start : start + ROWS])
    return others


def main(count: int) -> None:
    folders = {precision: prepare_model(Path(".models"), precision) for precision in ("fp32", "int8", "q4")}
    threads = os.cpu_count() or 1

    def onnx(precision: str) -> OnnxEngine:
        return OnnxEngine(
            folders[precision], num_slots=ROWS, max_length=LONGEST, threads=threads, max_prefill_rows=ROWS
        )

    def native(precision: str, kernel: str) -> NativeEngine:
        library = native_library(kernel)
        return NativeEngine(folders[precision], library, num_slots=ROWS, max_length=LONGEST, threads=threads)

    fastest = native_library().kernels[:KERNELS]
    engines = {"onnx int8": onnx("int8")} | {
        f"native {precision}, {kernel}": native(precision, kernel) for precision in ("int8", "q4") for kernel in fastest
    }
    others = compared(onnx("fp32"), engines, fixed_prompts(folders["fp32"], count))
    rows = []
    for name, other in others.items():
        share = float(np.mean(other.same))
        error = (share * (1 - share) / len(other.same)) ** 0.5
        rows.append((name, len(other.same), round(share, 4), round(error, 4), round(float(np.mean(other.nats)), 5)))
    print(markdown(("engine", "places", "agreement with fp32", "standard error", "divergence, nats"), rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
