"""From a request to a job: what was said before, which FAQ entries fit, the prompt, the sequence."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.errors import ProtocolError
from shared.fallback import choose_fallback
from shared.faq import FaqHit, FaqIndex
from shared.history import History
from shared.messages import Bucket, Grounding, ReplyDone
from shared.requests import Order
from shared.session_key import SessionKey
from shared.settings import WorkerSettings
from shared.tokenizer import Tokenizer
from shared.topics import BucketEdges
from shared.turn import Turn
from workers.answer import Answer
from workers.conversation import Prompt, PromptBuilder
from workers.engine import Sampling
from workers.job import Job
from workers.kv.cache import KvCache
from workers.prefixes import common_length
from workers.recent_answers import answered_by
from workers.sequence import Sequence as TokenSequence

# Shorter texts are encoded in less time than a thread takes to be asked (about 50 µs).
_INLINE_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    settings: WorkerSettings
    tokenizer: Tokenizer
    prompts: PromptBuilder
    faq: FaqIndex
    min_score: float
    history: History
    max_length: int
    edges: BucketEdges
    kv: KvCache | None
    standing: Callable[[SessionKey], Sequence[int]]

    async def prepare(self, order: Order, now_unix_ms: float) -> Job | ReplyDone:
        """The answer itself where the history has it. Raises `ProtocolError` for a request that cannot be served."""
        request = order.request
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
        for turn in turns:
            if (done := answered_by(turn, order, now_unix_ms)) is not None:
                return done
        if len(request.input) + sum([_chars_to_encode(turn) for turn in turns]) <= _INLINE_CHARS:
            bucket, prompt = self._prompt(order, entries, turns)
        else:
            bucket, prompt = await asyncio.to_thread(self._prompt, order, entries, turns)
        sequence = TokenSequence(
            request_id=request.id,
            prompt_ids=prompt.ids,
            max_output_tokens=min(order.max_output_tokens, self.max_length - len(prompt.ids)),
            sampling=Sampling(temperature=order.temperature, top_p=order.top_p, seed=order.seed),
            deadline=order.deadline,
            arrived_unix_ms=now_unix_ms,
            bucket=bucket,
            tenant=order.tenant,
            session_id=request.session_id,
            shared_tokens=prompt.shared_tokens,
            asked_unix_ms=order.created_unix_ms,
        )
        if self.kv is not None:
            standing = common_length(prompt.ids, self.standing(SessionKey(order.tenant, request.session_id)))
            await self.kv.restore(sequence, first=not turns, standing=standing)
        return Job(
            order=order,
            bucket=bucket,
            sequence=sequence,
            answer=Answer(
                request_id=request.id,
                session_id=request.session_id,
                attempt=int(now_unix_ms),
                token_bytes=self.tokenizer.token_bytes,
                stops=request.stop,
            ),
            prompt=prompt,
            fallback=choose_fallback(request.input, hits, min_score=self.min_score),
        )

    def _prompt(self, order: Order, entries: tuple[Grounding, ...], turns: Sequence[Turn]) -> tuple[Bucket, Prompt]:
        """The bucket that the input belongs to, and the prompt."""
        question = order.request.input
        if len(question) > self.max_length * _MAX_CHARS_PER_TOKEN:
            raise ProtocolError("input_too_long", f"an input of {len(question)} characters does not fit", param="input")
        # An answer may be shorter than asked where the conversation is long, never shorter than a quarter of the slot.
        reserved = min(order.max_output_tokens, self.max_length // 4)
        prompt = self.prompts.build(
            turns=turns, grounding=entries, question=question, max_tokens=self.max_length - reserved
        )
        return self.edges.bucket_of_text(question, self.tokenizer.count), prompt


def _grounding(hits: Sequence[FaqHit], most: int) -> tuple[Grounding, ...]:
    """The best entries; one that fits much worse than the best would only lead a model astray."""
    return tuple(hit.entry.as_grounding() for hit in hits[:most] if hit.score >= _LEAST_SHARE * hits[0].score)


def _chars_to_encode(turn: Turn) -> int:
    """An answer whose tokens are known is only looked up."""
    return len(turn.user) + (0 if turn.output_ids else len(turn.assistant))


# No text is shorter in tokens than this: it spares the tokenizer what cannot fit anyhow.
_MAX_CHARS_PER_TOKEN = 64
_LEAST_SHARE = 0.8
