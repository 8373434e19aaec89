"""transformers' own `generate`, as it is measured: as a user of the library would have it, greedy, with its own cache,
on the GPU where torch has one."""

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from shared.errors import ModelError

DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16"}
_WARM_TOKENS: Final = 4


class Transformers:
    """Prefill is what one new token takes; decode is what all take, minus that."""

    def __init__(self, source: Path, dtype: str, threads: int, vocab_size: int) -> None:
        """Load a Hugging Face folder. Raises `ModelError`."""
        torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("transformers")
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            model = library.AutoModelForCausalLM.from_pretrained(str(source), dtype=getattr(torch, DTYPES[dtype]))
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(f"transformers cannot load {source} ({' '.join(str(error).split())})") from error
        self._generate_s = _generating(torch, model.to(device).eval(), device, vocab_size)
        runtime = f"transformers {library.__version__}, torch {torch.__version__}"
        self.what: dict[str, Any] = {"engine": "transformers", "precision": dtype, "runtime": runtime}

    def decode(self, rows: int, context: int, new_tokens: int) -> tuple[float, float | None]:
        self._generate_s(rows, context, min(_WARM_TOKENS, new_tokens))
        first_s = self._generate_s(rows, context, 1)
        return self._generate_s(rows, context, new_tokens + 1) - first_s, None

    def prefill(self, tokens: int, past: int) -> float | None:
        """Return None over a past, which its users have no call for."""
        return None if past else self._generate_s(1, tokens, 1)

    def mixed(self, _rows: int, _context: int, _tokens: int) -> tuple[float, float] | None:
        return None


def _generating(torch: Any, model: Any, device: str, vocab_size: int) -> Callable[[int, int, int], float]:
    def generate_s(rows: int, context: int, new_tokens: int) -> float:
        random = Random(rows)
        ids = torch.tensor([[random.randrange(vocab_size) for _ in range(context)] for _ in range(rows)], device=device)
        asked = {"min_new_tokens": new_tokens, "max_new_tokens": new_tokens, "do_sample": False, "pad_token_id": 0}
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), **asked)
        if ids.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return generate_s
