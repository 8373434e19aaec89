"""Small real models with distinct tokens, and their expected texts.

Their weights are random. They generate only letters and spaces: the other rows of the last matrix are zero. A `bad` one
ends its answer before the first word, for about that share of the questions.
"""

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ops.model.prepare import prepare_model
from shared.conversation.turn import Turn
from shared.model.chat_template import ChatTemplate
from shared.model.folder import ModelFolder
from shared.model.tokenizer import Tokenizer
from tests.support.models.families import family_tensors, write_family
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.onnx import OnnxEngine
from workers.prompt.conversation import PromptBuilder

MAX_LENGTH: Final = 1_024
HISTORY_TURNS: Final = 3
_CONFIG: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "max_position_embeddings": MAX_LENGTH,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}
_END: Final = 2
_FIRST_BYTE: Final = 3
_LETTERS: Final = [_FIRST_BYTE + byte for byte in b" abcdefghijklmnopqrstuvwxyz"]
# A batch of another size adds in another order. Two logits of 2.77 that differed by 7e-7 have changed places so.
_TIE: Final = 1e-5
_GREEDY: Final = Sampling(temperature=0.0)
_CHUNK: Final = 256
_PROBES: Final = 500


def question_of(chance: random.Random) -> str:
    """Return a question; no two are alike."""
    return f"Where is parcel {chance.getrandbits(64):016x}?"


class Speaker:
    """A prepared model by itself: what it answers, without neighbours, KV of others or a gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = ModelFolder.open(folder)
        self._engine = OnnxEngine(self.folder, num_slots=1, max_length=MAX_LENGTH, threads=1, spinning=False)
        tokenizer = Tokenizer.load(folder)
        self._token_bytes = tokenizer.decode_bytes
        template = ChatTemplate.for_tokenizer(tokenizer, self.folder.manifest.chat_template)
        self._prompts = PromptBuilder(template, system="", most_turns=HISTORY_TURNS)

    def says(self, question: str, num_tokens: int, turns: Sequence[Turn] = (), *, like: str = "") -> str:
        """Return its greedy answer, of at most `num_tokens` tokens, to a question after these turns. At a tie of two
        logits it continues as `like` does."""
        built = self._prompts.build(turns=turns, grounding=(), question=question, max_tokens=MAX_LENGTH - num_tokens)
        liked, tokens = [*(_FIRST_BYTE + byte for byte in like.encode()), _END], list[int]()
        self._prefilled(list(built.ids))
        while len(tokens) < num_tokens:
            token = likeliest(self._engine._logits[0], liked[min(len(tokens), len(liked) - 1)])
            if token == _END:
                break
            tokens.append(token)
            past = len(built.ids) + len(tokens) - 1
            self._engine.decode([DecodeRow(slot=0, past=past, token_id=token, sampling=_GREEDY)])
        return self._token_bytes(tokens).decode()

    def logits(self, questions: Sequence[str]) -> np.ndarray:
        """Return the logits `[question, vocabulary]` before the first token of each answer."""
        found = []
        for question in questions:
            built = self._prompts.build(turns=(), grounding=(), question=question, max_tokens=MAX_LENGTH)
            self._prefilled(list(built.ids))
            found.append(self._engine._logits[0].copy())
        return np.array(found)

    def close(self) -> None:
        self._engine.close()

    def _prefilled(self, ids: list[int]) -> int | None:
        token = None
        for past in range(0, len(ids), _CHUNK):
            chunk = PrefillChunk(slot=0, past=past, token_ids=ids[past : past + _CHUNK], sampling=_GREEDY)
            (token,) = self._engine.prefill([chunk])
        return token


def likeliest(logits: np.ndarray, liked: int) -> int:
    """Return the token with the largest logit, or `liked` if its logit is the same but for rounding."""
    return liked if logits[liked] >= logits.max() - _TIE else int(logits.argmax())


def prepare_speaker(folder: Path, name: str, *, bad: float = 0.0) -> Path:
    """Prepare the model of that name in fp32, unless it is there; return its folder."""
    if (folder / f"{name}-fp32").is_dir():
        return folder / f"{name}-fp32"
    tensors = family_tensors(_CONFIG, zlib.crc32(name.encode()))
    head = tensors["lm_head.weight"]
    ends = _ending_row(_prepared(folder, f"{name}-probe", tensors), head, bad) if bad else 0.0
    silent = np.ones(len(head), bool)
    silent[_LETTERS] = False
    head[silent] = 0.0
    head[_END] = ends
    return _prepared(folder, name, tensors)


def _ending_row(probe: Path, head: np.ndarray, bad: float) -> np.ndarray:
    """Return a last matrix's row for the end with which such a share of the answers begins: one of the rows that there
    are, the least that has to be made longer for it."""
    speaker = Speaker(probe)
    logits = speaker.logits([question_of(random.Random(number)) for number in range(_PROBES)])
    speaker.close()
    best = logits[:, _LETTERS].max(axis=1, keepdims=True)
    longer = np.sort(np.where(logits > 0, best / np.maximum(logits, 1e-9), np.inf), axis=0)[round(bad * _PROBES)]
    longer[_LETTERS] = np.inf
    return np.asarray(head[longer.argmin()] * longer.min())


def _prepared(folder: Path, name: str, tensors: dict[str, np.ndarray]) -> Path:
    write_family(folder / "sources" / name, _CONFIG, tensors)
    return prepare_model(folder, "fp32", source=folder / "sources" / name).path
