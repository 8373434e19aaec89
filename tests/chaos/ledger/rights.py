"""The only right texts of a question: what the fake engine writes of it, and what the fallback says.

For the world, whose prompts are the system text and the question: then the model's text is a function of the question
and of its length. Workers as shipped have `tests/chaos/ledger/shipped.py`.
"""

from collections.abc import Sequence
from typing import Final

from shared.faq import FaqIndex
from shared.faq.fallback import choose_fallback
from shared.settings import Settings
from tests.chaos.ledger.requests import Question
from tests.chaos.ledger.verdict import Rights
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.engine.load_model import load_model
from workers.prompt.conversation import PromptBuilder

_MAX_LENGTH: Final = 2_048
_GREEDY: Final = Sampling(temperature=0.0)


class Oracle:
    """Answers as a worker without neighbours, cache or history does; `system` is its system text."""

    def __init__(self, system: str = "", *, others: Sequence[str] = (), revisions: Sequence[str] = ()) -> None:
        """`others`: the system texts of workers that write beside it, and other answers. `revisions`: the registry's
        versions, beside the one that a worker serves where the registry names none for its lane."""
        worker = Settings().worker.model_copy(update={"engine": "fake", "slots": 1, "max_length": _MAX_LENGTH})
        settings = Settings().model_copy(update={"worker": worker})
        store = settings.model.versions_dir
        folders = [settings.model.dir, *(store / revision for revision in revisions)]
        models = [settings.model.model_copy(update={"dir": folder}) for folder in folders]
        loaded = [load_model(settings.model_copy(update={"model": model})) for model in models]
        self._engines, self._tokenizer = [each.engine for each in loaded], loaded[0].tokenizer
        self._prompts = [PromptBuilder(loaded[0].template, system=each, most_turns=0) for each in (system, *others)]
        self._faq = FaqIndex.load()

    def __call__(self, question: Question) -> Rights:
        text = question.text
        fallback = choose_fallback(text, self._faq.search(text))
        model, *others = [
            self._written(engine, prompts, text, question.max_output_tokens)
            for engine in self._engines
            for prompts in self._prompts
        ]
        return Rights(model, fallback.text, tuple(others), choose_fallback("", ()).text)

    def kv(self, question: Question) -> bytes:
        """Return the KV of a question's last token: no other's is the same."""
        prompt, _ = self._prefilled(self._engines[0], self._prompts[0], question.text)
        return self._engines[0].export_kv(slot=0, start=len(prompt) - 1, stop=len(prompt)).tobytes()

    @staticmethod
    def _prefilled(engine: Engine, prompts: PromptBuilder, text: str) -> tuple[list[int], int | None]:
        """Return the prompt and the answer's first token."""
        prompt = list(prompts.build(turns=[], grounding=[], question=text, max_tokens=_MAX_LENGTH).ids)
        chunk = PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=_GREEDY)
        return prompt, engine.prefill([chunk])[0]

    def _written(self, engine: Engine, prompts: PromptBuilder, text: str, num_tokens: int) -> str:
        prompt, token = self._prefilled(engine, prompts, text)
        tokens: list[int] = []
        while token is not None and len(tokens) < num_tokens:
            tokens.append(token)
            (token,) = engine.decode(
                [DecodeRow(slot=0, past=len(prompt) + len(tokens) - 1, token_id=token, sampling=_GREEDY)]
            )
        return self._tokenizer.decode_bytes(tokens).decode()
