"""Turn a request into a job: history, matching FAQ entries, who answers, prompt, sequence."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from shared.conversation.history import History, TurnsMissing
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.faq.answer_policy import OFFERED, AnswerPolicy, Decision, DirectAnswer, Ground, Instead, Quote, Unknown
from shared.faq.entries import FaqHit
from shared.faq.fallback import Fallback, choose_fallback
from shared.faq.live import LiveFaq
from shared.faq.speech.clarify import asked_by, meant_by, says_neither
from shared.faq.terms import detect_language, language_within
from shared.faq.words.fold import plain
from shared.model.tokenizer import Tokenizer
from shared.process import clock
from shared.settings import WorkerSettings
from shared.telemetry import metrics
from shared.wire.messages import Bucket, Language, ReplyDone
from shared.wire.outcome import BY_MODEL, Grounding
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from shared.wire.topics import bucket_of_text
from workers.answer.guard import FactGuard
from workers.answer.stream import Answer
from workers.engine import Sampling
from workers.kv.cache import KvCache
from workers.prompt.conversation import MAX_CHARS_PER_TOKEN, BuildPrompt, Prompt, Prompts
from workers.request.job import Job
from workers.request.recent_answers import answered_by, is_of
from workers.schedule.prefixes import common_length
from workers.schedule.sequence import Sequence as TokenSequence

# Shorter texts are encoded faster than a thread can be started (about 50 µs).
_INLINE_CHARS = 2_000
# Turns that a client sends with its question may be as long as a message. A text of words has fewer characters a token,
# so what exceeds this does not fit a prompt, and is neither encoded nor searched for facts.
_TOLD_CHARS_PER_TOKEN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundAnswers:
    """What the FAQ says to a question: who answers, and what is sent if no model's answer can be.

    Attributes:
        instead: the answer if the model is not asked, or writes nothing that may be shown.
        quoted: the answer if the model writes that it does not know; None for `instead`.
        nearest: the answer if no model's answer comes in time.
    """

    decision: Decision
    instead: Fallback
    quoted: Fallback | None
    nearest: Fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    """Prepares jobs for one version, `revision`. `paraphrases`: its model may answer in words that the FAQ lacks."""

    revision: str
    settings: WorkerSettings
    tokenizer: Tokenizer
    prompts: Prompts
    faq: LiveFaq
    policy: AnswerPolicy
    guarded: bool
    paraphrases: bool
    min_score: float
    history: History
    max_length: int
    kv: KvCache | None
    standing: Callable[[SessionKey], Sequence[int]]

    async def prepare(self, order: Order, now_unix_ms: float) -> Job | ReplyDone:
        """Return the request's job, or the terminal event if the history already has its answer.

        Raises:
            ProtocolError: the request cannot be served.
        """
        build = self.prompts.builder_for(order.session)  # first: turns that are erased while read stay out of its cache
        remembered, turns_missing = await self._remembered(order, now_unix_ms)
        for turn in remembered:
            if (done := answered_by(turn, order, now_unix_ms + order.clock_ms)) is not None:
                return done
        turns = self._turns(remembered, order)
        asked = await self._asked(order, turns, now_unix_ms + order.clock_ms)
        bucket, composed = await self._composed(order, asked.decision, turns, build)
        prompt = composed or Prompt(ids=[], shared_tokens=0)
        sequence = self._sequence(order, bucket, prompt, now_unix_ms, held=self.guarded and composed is not None)
        return Job(
            order=order,
            bucket=bucket,
            sequence=sequence,
            answer=self._answer(order, prompt, turns, now_unix_ms, guarded=sequence.held),
            prompt=prompt,
            fallback=asked.instead if composed is None else asked.nearest,
            decided=composed is None,
            instead=asked.instead,
            quoted=asked.quoted,
            kv_unix_ms=None if composed is None else await self._restore(sequence, first=not turns),
            ready_unix_ms=clock.now_unix_ms(),
            turns_missing=turns_missing,
        )

    async def _remembered(self, order: Order, now_unix_ms: float) -> tuple[Sequence[Turn], bool]:
        """Return the conversation's turns, and whether some that the prompt needs are missing. Wait for a slow Redis if
        it needs them."""
        needs_them = order.request.turns is None and self.settings.history_turns > 0
        try:
            turns = await self.history.turns(
                order.session,
                limit=self.settings.history_turns,
                before_unix_ms=order.asked_unix_ms,
                request_id=order.request.id,
                generation=order.request.generation or 0,
                concurrent=order.request.concurrent,
                after=order.request.after if needs_them else None,
                patient_s=order.deadline.patience_s(now_unix_ms) if needs_them else 0.0,
            )
        except TurnsMissing as missing:
            if missing.answered:
                metrics.history_unavailable.labels("read").inc()
            return missing.found, needs_them
        return turns, False

    def _turns(self, remembered: Sequence[Turn], order: Order) -> list[Turn]:
        """Return the conversation's turns before this question, for this version's prompts."""
        most_chars = self.max_length * _TOLD_CHARS_PER_TOKEN
        earlier = _earlier_turns(remembered, order, limit=self.settings.history_turns, most_chars=most_chars)
        return [_in_tokens_of(self.revision, turn) for turn in earlier]

    async def _asked(self, order: Order, turns: Sequence[Turn], wire_unix_ms: float) -> _FoundAnswers:
        """Search the FAQ for the question, or for the entry that it chooses of those that the last answer offered."""
        offered = asked_by(turns[-1].output_text) if turns else ()
        text = plain(order.request.input)
        chosen = meant_by(text, offered)
        question = chosen or text
        most = max(self.settings.grounding_entries, OFFERED)
        vector = await self.faq.vector_of(question)
        found = self.faq.index.find(question, k=most, previous=turns, vector=vector)
        language = language_within(question, (turn.user for turn in reversed(turns)))
        decision: Decision = Unknown(language)
        if not (offered and says_neither(question)):
            decision = self.policy.decide(question, found.hits, found.parts, may_ask=not offered, language=language)
        freshness = self.faq.freshness
        if chosen or freshness.is_stale(wire_unix_ms):  # to the model "the first" would say nothing
            decision = _without_the_model(decision, question)
        nearest = choose_fallback(
            question,
            found.hits,
            min_score=self.min_score,
            confident=self.policy.thresholds.confident,
            ways_on=self.policy.ways_on,
            language=language,
        )
        return _FoundAnswers(
            decision=decision,
            instead=freshness.told(self.policy.reply(_without_the_model(decision, question)), wire_unix_ms),
            quoted=self._quoted(decision, found.hits, language, wire_unix_ms),
            nearest=freshness.told(nearest, wire_unix_ms),
        )

    def _quoted(
        self, decision: Decision, hits: Sequence[FaqHit], language: Language, wire_unix_ms: float
    ) -> Fallback | None:
        """Return a quote of the entries that the model is given; None if it is given none."""
        ids = {entry.id for entry in decision.entries} if isinstance(decision, Ground) else set[str]()
        given = tuple(hit for hit in hits if hit.entry.id in ids)
        return self.faq.freshness.told(self.policy.reply(Quote(given, language)), wire_unix_ms) if given else None

    async def _composed(
        self, order: Order, decision: Decision, turns: Sequence[Turn], build: BuildPrompt
    ) -> tuple[Bucket, Prompt | None]:
        """Return what `_compose` does, from a thread if there is much to encode."""
        if len(order.request.input) + sum([_chars_to_encode(turn) for turn in turns]) <= _INLINE_CHARS:
            return self._compose(order, decision, turns, build)
        return await asyncio.to_thread(self._compose, order, decision, turns, build)

    def _sequence(
        self, order: Order, bucket: Bucket, prompt: Prompt, now_unix_ms: float, *, held: bool
    ) -> TokenSequence:
        return TokenSequence(
            request_id=order.request.id,
            prompt_ids=prompt.ids,
            max_output_tokens=min(order.max_output_tokens, self.max_length - len(prompt.ids)),
            sampling=Sampling(temperature=order.temperature, top_p=order.top_p, seed=order.seed),
            deadline=order.deadline,
            arrived_unix_ms=now_unix_ms,
            bucket=bucket,
            session=order.session,
            shared_tokens=prompt.shared_tokens,
            shop_spans=prompt.shop_spans,
            generation=order.generation,
            held=held,
        )

    def _answer(
        self, order: Order, prompt: Prompt, turns: Sequence[Turn], now_unix_ms: float, *, guarded: bool
    ) -> Answer:
        request = order.request
        return Answer(
            request_id=request.id,
            session_id=request.session_id,
            attempt=int(now_unix_ms + order.clock_ms),
            token_bytes=self.tokenizer.token_bytes,
            stops=request.stop,
            guard=self._guard(request.input, prompt, turns) if guarded else None,
            revision=self.revision,
            lane=self.settings.lane,
        )

    async def _restore(self, sequence: TokenSequence, *, first: bool) -> tuple[float, float] | None:
        """Let a prompt begin with KV that was computed before; return when the search for it began and ended."""
        if self.kv is None:
            return None
        begun = clock.now_unix_ms()
        standing = common_length(sequence.prompt_ids, self.standing(sequence.session))
        sequence.begin_with(await self.kv.find(sequence, first=first, standing=standing))
        return begun, clock.now_unix_ms()

    def _guard(self, question: str, prompt: Prompt, turns: Sequence[Turn]) -> FactGuard:
        """Return the guard of an answer.

        Claims may come from the prompt's entries, which can be quoted, and from the shop's other texts, which cannot.
        """
        entries = [text for turn in turns for entry in turn.grounding for text in (entry.question, entry.answer)]
        shops = [text for turn in turns for text in _shops_words(turn)]
        customers = [turn.user for turn in turns]
        return FactGuard(
            prompt.grounding,
            (question, *customers),
            (self.settings.system_prompt, *entries, *shops),
            judge_words=not self.paraphrases,
        )

    def _compose(
        self, order: Order, decision: Decision, turns: Sequence[Turn], build: BuildPrompt
    ) -> tuple[Bucket, Prompt | None]:
        """Return the input's bucket, and the prompt; None if the model is not asked."""
        question = order.request.input
        if len(question) > self.max_length * MAX_CHARS_PER_TOKEN:
            raise ProtocolError("input_too_long", f"an input of {len(question)} characters does not fit", param="input")
        bucket = bucket_of_text(question, self.tokenizer.count)
        if not isinstance(decision, Ground):
            return bucket, None
        prompt = self._prompt(order, decision.grounding, turns, build)
        # without any of the entries the model would answer without grounding
        return bucket, prompt if prompt.grounding or not self.policy.grounded else None

    def _prompt(
        self, order: Order, entries: tuple[Grounding, ...], turns: Sequence[Turn], build: BuildPrompt
    ) -> Prompt:
        # In a long conversation an answer may be shorter than asked for, but not shorter than a quarter of the slot.
        reserved = min(order.max_output_tokens, self.max_length // 4)
        return build(
            turns=turns,
            grounding=entries,
            question=order.request.input,
            max_tokens=self.max_length - reserved,
            instructions=order.request.instructions,
        )


def _without_the_model(decision: Decision, question: str) -> Instead:
    """Return the answer if the model is not asked, or writes nothing that may be shown."""
    if not isinstance(decision, Ground):
        return decision
    language = detect_language(question)
    return DirectAnswer(decision.entries[:1], language) if decision.entries else Unknown(language)


def _earlier_turns(turns: Sequence[Turn], order: Order, *, limit: int, most_chars: int) -> list[Turn]:
    """Return the last turns before this question: those in the request, of together `most_chars`, else the remembered
    ones.

    A remembered turn with the request's id is either its own cancelled one, which is left out, or another question's,
    which is kept if it was asked before.
    """
    if (given := order.request.turns) is not None:
        told = [
            Turn(request_id=f"told-{place}", user=turn.user, output_text=turn.assistant, source="model")
            for place, turn in enumerate(given)
        ]
        newest = told[max(0, len(told) - limit) :][::-1]
        num_chars = accumulate([len(turn.user) + len(turn.output_text) for turn in newest])
        return [turn for turn, chars in zip(newest, num_chars, strict=True) if chars <= most_chars][::-1]
    before = [turn for turn in turns if turn.asked_unix_ms < order.asked_unix_ms and not is_of(turn, order)]
    return before[max(0, len(before) - limit) :]


def _in_tokens_of(revision: str, turn: Turn) -> Turn:
    """Return the turn for a version's prompts, without the output tokens if another version decoded them."""
    return turn if turn.revision == revision else msgspec.structs.replace(turn, output_ids=())


def _shops_words(turn: Turn) -> tuple[str, ...]:
    """Return a turn's answer if the shop wrote it, not the model."""
    return () if turn.source in BY_MODEL else (turn.output_text,)


def _chars_to_encode(turn: Turn) -> int:
    """Return the number of characters to encode; an answer with known tokens needs no encoding."""
    return len(turn.user) + (0 if turn.output_ids else len(turn.output_text))
