"""From a request to a job: what was said before, which FAQ entries fit, the prompt, the sequence."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import ProtocolError
from shared.fallback import choose_fallback
from shared.faq import FaqHit, FaqIndex
from shared.history import History
from shared.messages import Bucket, ChatRequest, Grounding
from shared.requests import Defaults, Order, settle
from shared.settings import WorkerSettings
from shared.tokenizer import Tokenizer
from shared.topics import BucketEdges
from workers.answer import Answer
from workers.conversation import PromptBuilder
from workers.engine import Sampling
from workers.job import Job
from workers.sequence import Sequence as TokenSequence

# Shorter texts are encoded in less time than a thread takes to be asked (about 50 µs).
_INLINE_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    settings: WorkerSettings
    defaults: Defaults
    tokenizer: Tokenizer
    prompts: PromptBuilder
    faq: FaqIndex
    min_score: float
    history: History
    max_length: int
    edges: BucketEdges

    async def prepare(self, request: ChatRequest, now_unix_ms: float) -> Job:
        """Raises `ProtocolError` for a request that cannot be served."""
        order = settle(request, self.defaults, now_unix_ms)
        remembering = asyncio.create_task(
            self.history.turns(
                order.tenant,
                request.session_id,
                limit=self.settings.history_turns,
                before_unix_ms=order.created_unix_ms,
            )
        )
        await asyncio.sleep(0)  # Redis is asked now, and answers while the FAQ is searched
        hits = self.faq.search(request.input, k=max(self.settings.grounding_entries, 1))
        entries = _grounding(hits, self.settings.grounding_entries)
        turns = await remembering
        exchanged = [(turn.user, turn.assistant) for turn in turns]
        size = len(request.input) + sum(len(user) + len(assistant) for user, assistant in exchanged)
        if size <= _INLINE_CHARS:
            bucket, prompt_ids = self._prompt(order, entries, exchanged)
        else:
            bucket, prompt_ids = await asyncio.to_thread(self._prompt, order, entries, exchanged)
        return Job(
            order=order,
            bucket=bucket,
            sequence=TokenSequence(
                request_id=request.id,
                prompt_ids=prompt_ids,
                max_output_tokens=min(order.max_output_tokens, self.max_length - len(prompt_ids)),
                sampling=Sampling(temperature=order.temperature, top_p=order.top_p, seed=order.seed),
                deadline=order.deadline,
                arrived_unix_ms=now_unix_ms,
                bucket=bucket,
                tenant=order.tenant,
            ),
            answer=Answer(
                request_id=request.id,
                session_id=request.session_id,
                attempt=int(now_unix_ms),
                token_bytes=self.tokenizer.token_bytes,
                stops=request.stop,
            ),
            grounding=entries,
            fallback=choose_fallback(request.input, hits, min_score=self.min_score),
        )

    def _prompt(
        self, order: Order, entries: tuple[Grounding, ...], turns: list[tuple[str, str]]
    ) -> tuple[Bucket, list[int]]:
        """The bucket that the input belongs to, and the prompt's token ids."""
        question = order.request.input
        if len(question) > self.max_length * _MAX_CHARS_PER_TOKEN:
            raise ProtocolError("input_too_long", f"an input of {len(question)} characters does not fit", param="input")
        # An answer may be shorter than asked where the conversation is long, never shorter than a quarter of the slot.
        reserved = min(order.max_output_tokens, self.max_length // 4)
        prompt_ids = self.prompts.build(
            grounding=entries,
            turns=turns,
            question=question,
            max_tokens=self.max_length - reserved,
        )
        return self.edges.bucket_of_text(question, self.tokenizer.count), prompt_ids


def _grounding(hits: Sequence[FaqHit], most: int) -> tuple[Grounding, ...]:
    """The best entries; one that fits much worse than the best would only lead a model astray."""
    return tuple(hit.entry.as_grounding() for hit in hits[:most] if hit.score >= _LEAST_SHARE * hits[0].score)


# No text is shorter in tokens than this: it spares the tokenizer what cannot fit anyhow.
_MAX_CHARS_PER_TOKEN = 64
_LEAST_SHARE = 0.7
