"""The right texts of a question as the product makes them: its own preparer, prompts, policy and engine, over the
conversation's turns as Redis and Kafka have them. So workers run as shipped, with history, entries and a system text.

A worker's prompt holds the last turns of those that had ended when the question was asked (docs/decisions/0038): no
other and no fewer, while Redis is there. If Redis was away from a process since the first of them, an answer that lacks
some is right too, and is counted as `short`.
"""

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any, Final

import msgspec

from shared.conversation.turn import Turn
from shared.faq import FaqIndex
from shared.faq.fallback import choose_fallback
from shared.faq.in_step import Freshness
from shared.faq.speech.words import WaysOn
from shared.settings import Settings
from shared.wire.messages import ChatRequest
from shared.wire.outcome import BY_MODEL
from shared.wire.requests import settle
from tests.chaos.ledger.recorded import Recorded
from tests.chaos.ledger.requests import Ledger, Page, Question
from tests.chaos.ledger.verdict import Rights
from workers.building import _make_preparer, make_prompts
from workers.engine import DecodeRow, Engine, PrefillChunk
from workers.engine.load_model import load_model
from workers.intake.prepare import Preparer
from workers.request.job import Job

_MOST_TRIES: Final = 6_000
_TELLING_TOKENS: Final = 8  # two prompts' texts differ by this point


@dataclass
class _Remembered:
    """A history with just these turns."""

    said: Sequence[Turn] = ()

    async def turns(self, *_: object, **__: object) -> list[Turn]:
        return list(self.said)


@dataclass(frozen=True)
class _Faq:
    index: FaqIndex
    freshness: Freshness

    async def vector_of(self, text: str) -> None:
        del text


class Speaker:
    """A worker of one version, alone, with these settings."""

    def __init__(self, settings: Settings) -> None:
        paces = {"slots": 1, "fake_decode_ms_per_step": 0.0, "fake_prefill_ms_per_token": 0.0}
        loaded = load_model(settings.model_copy(update={"worker": settings.worker.model_copy(update=paces)}))
        self._engine: Engine = loaded.engine
        self.settings, self.revision, self._history = settings, self._engine.info.revision, _Remembered()
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)
        faq: Any = _Faq(FaqIndex.load(), Freshness(0.0))
        history: Any = self._history
        self._preparer: Preparer = _make_preparer(
            settings,
            self.revision,
            loaded,
            prompts=make_prompts(settings, loaded),
            faq=faq,
            history=history,
            kv=None,
            standing=lambda _: (),
        )

    @property
    def ways_on(self) -> WaysOn:
        """Return what a customer can do if no entry answers."""
        return self._preparer.policy.ways_on

    def job(self, request: ChatRequest, turns: Sequence[Turn]) -> Job:
        """Return the job that a worker prepares for a request after these turns."""
        self._history.said = turns
        now = request.created_unix_ms or 0
        preparing = self._preparer.prepare(settle(request, self.settings.request_defaults, now), now)
        job = self._loop.run_until_complete(preparing)
        assert isinstance(job, Job), "no turn is its own"
        return job

    def kv(self, job: Job) -> bytes:
        """Return the KV of a prompt's last token: no other's is the same."""
        prompt = list(job.sequence.prompt_ids)
        self._engine.prefill([PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=job.sequence.sampling)])
        return self._engine.export_kv(slot=0, start=len(prompt) - 1, stop=len(prompt)).tobytes()

    def written(self, job: Job, said: Sequence[str] = ("",)) -> str | None:
        """Return the model's whole answer, or None as soon as it agrees with no text in `said`."""
        sequence, engine, answer = job.sequence, self._engine, job.answer
        prompt, num_tokens = list(sequence.prompt_ids), 0
        chunk = PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=sequence.sampling)
        token = engine.prefill([chunk])[0]
        while token is not None and token not in engine.info.stop_token_ids:
            answer.add(token)
            num_tokens += 1
            if answer.stopped or num_tokens >= sequence.max_output_tokens:
                break
            if num_tokens == _TELLING_TOKENS and not _begins_as(answer.so_far().delta, said):
                return None
            past = len(prompt) + num_tokens - 1
            (token,) = engine.decode([DecodeRow(slot=0, past=past, token_id=token, sampling=sequence.sampling)])
        answer.finish()
        return answer.text


def speakers_of(settings: Settings, revisions: Sequence[str] = ()) -> list[Speaker]:
    """Return a worker of these settings for each of the registry's versions, and one for the version that it serves if
    the registry names none."""
    folders = [settings.model.dir, *(settings.model.versions_dir / revision for revision in revisions)]
    models = [settings.model.model_copy(update={"dir": folder}) for folder in folders]
    return [Speaker(settings.model_copy(update={"model": model})) for model in models]


class Shipped:
    """`rights_of` of a ledger's questions, to be asked in the order in which they were asked."""

    def __init__(self, ledger: Ledger, recorded: Recorded, speakers: Sequence[Speaker]) -> None:
        self._ledger, self._recorded, self._speakers = ledger, recorded, speakers
        self._faq = FaqIndex.load()
        self._windows: dict[str, str | None] = {}
        self._found: dict[str, Rights] = {}
        self._made: dict[str, list[tuple[Speaker, Job]]] = defaultdict(list)
        self.num_short = 0

    def __call__(self, question: Question) -> Rights:
        if question.event_id not in self._found:
            self._found[question.event_id] = self._rights_of(question)
        return self._found[question.event_id]

    def kv(self, question: Question) -> Iterator[bytes]:
        """Yield the KV of the last token of each prompt that the question's answers may have been written from."""
        self(question)
        for speaker, job in self._made[question.event_id]:
            yield speaker.kv(job)

    def says(self, page: Page, revision: str) -> bool:
        """Return whether a worker of that version can have written the text that the page's client received last."""
        said, speakers = _said(page)[-1:], [each for each in self._speakers if each.revision == revision]
        tries = self._tries(self._requests(page), speakers)
        texts = (speaker.written(speaker.job(asked, turns), said) for asked, turns, speaker, _ in tries)
        return not said or any(text is not None and text.startswith(said[0]) for text in islice(texts, _MOST_TRIES))

    def _requests(self, page: Page) -> list[ChatRequest]:
        return [request for each in page.response_ids for request in self._recorded.requests[each]]

    def _rights_of(self, question: Question) -> Rights:
        page = self._ledger.pages[question.event_id]
        ways_on = self._speakers[0].ways_on
        fallback = choose_fallback(question.text, self._faq.search(question.text), ways_on=ways_on).text
        unread = choose_fallback("", (), ways_on=ways_on).text
        said, texts, decided = _said(page), dict[str, None](), dict[str, None]()
        tries = self._tries(self._requests(page), self._speakers)
        for number, (request, turns, speaker, lacks) in enumerate(islice(tries, _MOST_TRIES)):
            job = speaker.job(request, turns)
            text = None if job.decided else speaker.written(job, said if number else ("",))
            instead = {each.text for each in (job.fallback, job.instead) if each is not None}
            if number == 0 or any(each in instead or (text or "").startswith(each) for each in said):
                texts.update(dict.fromkeys([text] if text is not None else []))
                decided.update(dict.fromkeys(instead))
                self._made[question.event_id] += [] if job.decided else [(speaker, job)]
                self._windows[request.id] = job.prompt.window_start or (None if job.decided else request.id)
            if all(any(right.startswith(each) for right in (*texts, fallback, unread, *decided)) for each in said):
                self.num_short += lacks
                break
        model, *others = texts or [""]
        return Rights(model, fallback, tuple(others), unread, decided=tuple(decided))

    def _tries(
        self, requests: Sequence[ChatRequest], speakers: Sequence[Speaker]
    ) -> Iterator[tuple[ChatRequest, list[Turn], Speaker, bool]]:
        """Yield the histories that a request may have been prepared with, by each version: all that it should see; and
        fewer, which `lacks` says, if Redis was away."""
        most = self._speakers[0].settings.worker.history_turns
        options = [(request, self._earlier(request)) for request in requests]
        for lacks in (False, True):
            for request, earlier in options:
                if lacks and not self._recorded.may_lack_turns(request, earlier):
                    continue
                right = [turns[0] for turns in earlier[max(0, len(earlier) - most) :]]
                for chosen in _once(self._lacking(request, earlier, most)) if lacks else [right]:
                    for speaker in speakers:
                        yield request, [self._in_its_window(turn) for turn in chosen], speaker, lacks

    def _earlier(self, request: ChatRequest) -> list[list[Turn]]:
        """Return the turns in a request's prompt by the clocks of their gateways, without those of questions that were
        asked after this one's answer had ended or whose turn was written after its own. A gateway whose clock is ahead
        dates its question after them."""
        page = self._ledger.page_of(request.id)
        ended_s = page.ends[0][0] if page is not None and page.ends else float("inf")
        earlier = [turns for turns in self._recorded.earlier(request) if self._asked_s(turns[0]) <= ended_s]
        if self._recorded.may_lack_turns(request, earlier):  # turns may have waited to be written
            return earlier
        written = [turn.request_id for turn in self._recorded.kept[request.session_id]]
        own = max((place for place, name in enumerate(written) if name == request.id), default=len(written))
        later = {*written[own:]} - {*written[:own]}
        return [turns for turns in earlier if turns[0].request_id not in later]

    def _asked_s(self, turn: Turn) -> float:
        page = self._ledger.page_of(turn.request_id)
        return float("-inf") if page is None else page.asked_s

    def _lacking(self, request: ChatRequest, earlier: Sequence[Sequence[Turn]], most: int) -> Iterator[Sequence[Turn]]:
        """Yield the histories that a prompt may have without some of these turns: first without the oldest, more each
        time; then those written in one period, as that period wrote them: so a Redis that was lost begins, and so a
        worker remembers those that its Redis did not acknowledge. If the request's own turn names the first
        turn of its prompt, then that one with any later and the nearest earlier ones; else any of the last few."""
        for first in range(max(1, len(earlier) - most + 1), len(earlier) + 1):
            yield [turns[0] for turns in earlier[first:]]
        names = [turns[0].request_id for turns in earlier]
        there = {id(turn) for turns in earlier for turn in turns}
        written = [turn for turn in self._recorded.kept[request.session_id] if id(turn) in there]
        for begin, end in combinations(range(len(written) + 1), 2):
            first_of: dict[str, Turn] = {}
            for turn in written[begin:end]:
                first_of.setdefault(turn.request_id, turn)
            yield [first_of[name] for name in names if name in first_of][-most:]
        begun = [turn.window_start for turn in self._recorded.kept[request.session_id] if turn.request_id == request.id]
        places = [names.index(name) for name in begun if name in names]
        for place in places:
            for later in choices_of(earlier[place + 1 :], most - 1):
                for num_before in range(min(most - 1 - len(later), place) + 1):
                    before = [turns[0] for turns in earlier[place - num_before : place]]
                    for turn in earlier[place]:
                        yield [*before, turn, *later]
        if not places:
            yield from choices_of(earlier[-most - 3 :], most)

    def _in_its_window(self, turn: Turn) -> Turn:
        """Return a turn with the start of its window, as its worker has written it."""
        if turn.window_start is not None:
            return turn
        window = self._windows.get(turn.request_id) if turn.source in BY_MODEL else None
        return msgspec.structs.replace(turn, window_start=window)


def _once(histories: Iterable[Sequence[Turn]]) -> Iterator[Sequence[Turn]]:
    """Yield each history once."""
    known = set[tuple[int, ...]]()
    for turns in histories:
        if (key := tuple(map(id, turns))) not in known:
            known.add(key)
            yield turns


def choices_of(earlier: Sequence[Sequence[Turn]], most: int) -> Iterator[list[Turn]]:
    """Yield each choice of at most `most` questions with one turn of each, the largest choice first."""
    for num in range(min(most, len(earlier)), -1, -1):
        for chosen in combinations(earlier, num):
            yield from map(list, product(*chosen))


def _said(page: Page) -> list[str]:
    """Return every text that a client was shown of an answer, each sending separately."""
    last = page.ends[0][1].output_text if page.ends else "".join(page.deltas)
    return [text for text in (*page.abandoned, last) if text]


def _begins_as(text: str, said: Sequence[str]) -> bool:
    return any(each.startswith(text[: len(each)]) for each in said)
