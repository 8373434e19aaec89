"""A mixture of 8 experts, 2 for each token, on random weights, and a dense model with as many active weights.

    .venv/bin/python -m tests.bench.engines.experts write .models/experts-source
    .venv/bin/python -m tests.bench.engines.experts compare

`write` makes a Mixtral in the demo model's sizes and with its tokenizer, for `replyline model prepare --source`.
`compare` measures the native engine on it and on a Llama whose MLP is as wide as two experts, in turns, and the share
of places at which 8 bits predict the token of float32.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np

from ops.model.numerics.forward import PlainProducts, predict
from ops.model.prepare import default_source, prepare_model
from shared.model.folder import ModelFolder
from tests.support.models.families import family_tensors
from tests.support.models.fixtures import safetensors
from tests.support.models.native_library import native_library
from tests.support.models.teacher_forced import native_forced
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.native.engine import NativeEngine
from workers.graph.sources.opening import open_source

_GREEDY: Final = Sampling()
_WIDTH: Final = 768  # of an expert: two are as wide as the demo model's MLP
_CONTEXT: Final = 64
_STEPS: Final = 16
_ROWS: Final = (1, 4, 8, 16)


def config_of(layers: int, *, experts: bool) -> dict[str, Any]:
    """Return the demo model's sizes, as a Mixtral or as a Llama with as many active weights."""
    demo = open_source(default_source()).checkpoint.architecture
    common = {
        "hidden_act": "silu",
        "hidden_size": demo.hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": demo.num_heads,
        "num_key_value_heads": demo.num_kv_heads,
        "vocab_size": demo.vocab_size,
        "rms_norm_eps": demo.norm_epsilon,
        "rope_theta": demo.rope_theta,
        "max_position_embeddings": demo.max_positions,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }
    if not experts:
        return common | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "intermediate_size": 2 * _WIDTH,
        }
    return common | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "intermediate_size": _WIDTH,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }


def write(folder: Path, config: dict[str, Any]) -> None:
    """Write a Hugging Face folder of random weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    (folder / "tokenizer.json").write_bytes(open_source(default_source()).tokenizer)
    (folder / "model.safetensors").write_bytes(safetensors(family_tensors(config, 1)))


def compare(layers: int, rounds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="replyline-experts-") as name:
        folders = []
        for experts in (True, False):
            source = Path(name) / ("experts" if experts else "dense")
            write(source, config_of(layers, experts=experts))
            folders.append(prepare_model(Path(name) / "models", "int8", source=source))
        share, places = agreement(Path(name) / "experts", folders[0])
        lines = [f"8 bits predict float32's token at {share:.3f} of {places} places"]
        engines = [
            NativeEngine(folder, native_library(), num_slots=16, max_length=256, threads=2, max_prefill_rows=16)
            for folder in folders
        ]
        for rows in _ROWS:
            lines += [_line(f"decode of {rows} rows", _in_turns(engines, rounds, partial(_decode_s, rows=rows)))]
        lines.append(_line("prompt of 128 tokens", _in_turns(engines, rounds, _prefill_s)))
    return "\n".join(lines)


def _in_turns(engines: Sequence[NativeEngine], rounds: int, measure: Callable[[NativeEngine], float]) -> np.ndarray:
    return np.array([[measure(engine) for engine in engines] for _ in range(rounds)])


def _line(what: str, seconds: np.ndarray) -> str:
    """Return the median of each round's ratio: what else runs on the machine slows both."""
    ratio = median(seconds[:, 1] / seconds[:, 0])
    ms = np.median(seconds, axis=0) * 1_000
    return f"{what}: experts {ms[0]:.2f} ms, dense {ms[1]:.2f} ms, speed {ratio:.2f} (n={len(seconds)})"


def _ids(row: int, count: int) -> list[int]:
    return [int(bits) % 49_000 for bits in np.random.PCG64(row).random_raw(count)]


def _decode_s(engine: NativeEngine, rows: int) -> float:
    """Return the seconds of the fastest of some steps of different rows."""
    for row in range(rows):
        tokens = engine.prefill([PrefillChunk(slot=row, past=0, token_ids=_ids(row, _CONTEXT), sampling=_GREEDY)])
        assert tokens
    taken = []
    for step in range(_STEPS):
        given = [
            DecodeRow(slot=row, past=_CONTEXT + step, token_id=_ids(row + 100 * step, 1)[0], sampling=_GREEDY)
            for row in range(rows)
        ]
        start = time.perf_counter()
        engine.decode(given)
        taken.append(time.perf_counter() - start)
    return min(taken)


def _prefill_s(engine: NativeEngine) -> float:
    chunk = PrefillChunk(slot=0, past=0, token_ids=_ids(7, 128), sampling=_GREEDY)
    start = time.perf_counter()
    engine.prefill([chunk])
    return time.perf_counter() - start


def agreement(source: Path, folder: ModelFolder) -> tuple[float, int]:
    """Return the share of places at which 8 bits predict float32's token, and the number of places."""
    text = _ids(3, 128)
    top = predict(open_source(source).checkpoint, [text], PlainProducts()).top
    found = native_forced(folder, text[:32], text[32:63]).argmax(axis=1)
    return float(np.mean(found == top[31:62])), len(found)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("target", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("--rounds", type=int, default=9)
    for each in (writing, comparing):
        each.add_argument("--layers", type=int, default=4)
    given = parser.parse_args(arguments)
    if given.command == "write":
        write(given.target, config_of(given.layers, experts=True))
        sys.stdout.write(f"written: {given.target}; run: replyline model prepare --source {given.target}\n")
        return 0
    sys.stdout.write(compare(given.layers, given.rounds) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
