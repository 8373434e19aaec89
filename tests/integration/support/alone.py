"""The model's answer to a single user: no neighbour, no cache, no other conversation."""

from collections.abc import Sequence
from functools import lru_cache

from shared.conversation.turn import Turn
from shared.model.tokenizer import shown_text
from shared.settings import Settings
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.load_model import load_model
from workers.prompt.conversation import PromptBuilder

_GREEDY = Sampling(temperature=0.0)


class Alone:
    """One slot of the engine that `settings` name, and the prompts that a worker with these settings builds for a
    conversation without FAQ entries.
    """

    def __init__(self, settings: Settings) -> None:
        worker = settings.worker.model_copy(update={"slots": 1, "threads": 1})
        loaded = load_model(settings.model_copy(update={"worker": worker}))
        self._engine, self._tokenizer = loaded.engine, loaded.tokenizer
        self.model = self._engine.info.model
        self._max_length = worker.max_length
        self._prompts = PromptBuilder(loaded.template, system=worker.system_prompt, most_turns=worker.history_turns)
        self.answers = lru_cache(None)(self._answers)
        """(questions, tokens of each answer) → the answers, one a question."""

    def _answers(self, questions: tuple[str, ...], num_tokens: int) -> tuple[str, ...]:
        turns: list[Turn] = []
        answers: list[str] = []
        for number, question in enumerate(questions):
            prompt = self._prompts.build(
                turns=turns, grounding=[], question=question, max_tokens=self._max_length - num_tokens
            )
            output_ids = self._written(prompt.ids, num_tokens)
            answers.append(shown_text(b"".join(self._tokenizer.token_bytes(token_id) for token_id in output_ids)))
            turn = Turn(
                request_id=str(number),
                user=question,
                output_text=answers[-1],
                source="model",
                output_ids=tuple(output_ids),
                window_start=prompt.window_start or str(number),
            )
            if turn.output_text:  # an empty text is not remembered
                turns.append(turn)
        return tuple(answers)

    def _written(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        token = self._engine.prefill([PrefillChunk(slot=0, past=0, token_ids=list(prompt), sampling=_GREEDY)])[0]
        tokens: list[int] = []
        while token is not None and len(tokens) < num_tokens and token not in self._engine.info.stop_token_ids:
            tokens.append(token)
            row = DecodeRow(slot=0, past=len(prompt) + len(tokens) - 1, token_id=token, sampling=_GREEDY)
            (token,) = self._engine.decode([row])
        return tokens
