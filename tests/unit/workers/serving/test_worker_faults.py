"""An exception in our code harms one answer of a worker: it is thrown at every call of its handlers, one at a time."""

import numpy as np
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from shared.errors import EngineError
from shared.wire.messages import Cancel, Reply, ReplyDelta, ReplyDone
from shared.wire.session_key import SessionKey
from tests.support.builders.worker import TOPIC, Bench, answer
from tests.support.hostile.saboteur import Saboteur, Thrown, each_call
from workers.answer.guard import FactGuard
from workers.answer.stream import Answer
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.fake import FakeEngine
from workers.engine.kv_layout import KvPieces
from workers.schedule.sequence import Prefix
from workers.serving.drafts import Progress

SLOTS = 2
# The end of each request without a fault.
ENDS = {
    "r0": ("incomplete", "max_output_tokens", "aaa"),
    "r1": ("completed", "stop", ""),
    "r2": ("completed", "stop", "Soon."),  # by the FAQ
    "r3": ("cancelled", "client", ""),
    "r4": ("incomplete", "max_output_tokens", "a guarded answer."),
    "r5": ("incomplete", "max_output_tokens", "aaaa"),
}
WORDS = {1: b"a guarded", 2: b" answer", 3: b"."}


def run(saboteur: Saboteur) -> Bench:
    """Six requests, from their acceptance to the acknowledgement of their ends."""
    bench = Bench(saboteur=saboteur)
    bench.accept(0, output=3)
    bench.accept(1, output=9, stops=("aaa",))
    bench.accept(2, decided=True)
    bench.accept(3)
    guarded = bench.accept(4, output=3)
    guarded.answer = saboteur.before(written_of(WORDS))
    bench.accept(5, output=4)
    assert bench.worker.cancel(Cancel(request_id="r3"))
    bench.run()
    bench.acknowledge()
    return bench


def written_of(words: dict[int, bytes]) -> Answer:
    """Return an answer of these words, one per token, instead of the model's; under a guard."""
    said = iter(words.values())
    return answer("r4", token_bytes=lambda _: next(said), guard=FactGuard((), ("hi",)))


def told(replies: list[Reply]) -> dict[str, ReplyDone]:
    """Return the first end sent for each answer. A reader skips text after a gap: the end has all of it."""
    texts: dict[str, str] = {}
    ends: dict[str, ReplyDone] = {}
    for reply in replies:
        name = reply.request_id
        if name in ends:
            continue  # a reader keeps the first end, and ignores later messages of the answer
        if isinstance(reply, ReplyDelta):
            if reply.offset <= len(texts.get(name, "")):
                texts[name] = texts.get(name, "")[: reply.offset] + reply.delta
        else:
            assert reply.output_text.startswith(texts.get(name, "")), f"{name}'s end contradicts its text"
            ends[name] = reply
    return ends


def harmed(bench: Bench) -> set[str]:
    """Asserts that every request has its end, and every record is done."""
    ends = told(bench.publisher.said)
    assert ends.keys() == ENDS.keys(), f"without an end: {ENDS.keys() - ends.keys()}"
    assert bench.offsets.committable() == {TOPIC: len(ENDS)}, "records are open"
    assert bench.worker.idle
    return {name for name, end in ends.items() if (end.status, end.reason, end.output_text) != ENDS[name]}


def test_a_fault_at_any_call_harms_one_answer_at_most() -> None:
    """An exception in the engine or the scheduler may harm all requests in slots, because its origin is unknown."""
    counted = Saboteur()
    assert harmed(run(counted)) == set()
    assert len(counted.calls) > 60
    broken = []
    for at in each_call(counted):
        saboteur = Saboteur(at)
        try:
            with capture_logs() as lines:
                found = harmed(run(saboteur))
            name = saboteur.threw_at  # not always the call of that number before: some are a matter of time
            assert len(found) <= (SLOTS if name.startswith(("FakeEngine", "Scheduler")) else 1), f"it harmed {found}"
            assert not name or any(line["log_level"] == "error" for line in lines), "nobody heard of it"
        except (AssertionError, LookupError, Thrown) as error:
            broken.append(f"thrown at call {at}, {saboteur.threw_at}: {error!r}")
    assert broken == [], "\n".join(broken)


class StubbornEngine(FakeEngine):
    """It writes letters that depend on every token before them. Its `refuses`th import fails."""

    def __init__(self, refuses: int | None = None, *, mixes: bool = False) -> None:
        super().__init__(num_slots=4, max_length=64, mixes=mixes)
        self.refuses = refuses
        self.num_imports = 0

    def import_kv(self, *, slot: int, start: int, values: NDArray[np.uint64]) -> None:
        self.num_imports += 1
        if self.num_imports - 1 == self.refuses:
            raise ValueError("could not broadcast")
        super().import_kv(slot=slot, start=start, values=values)


def kv_of(token_ids: list[int]) -> KvPieces:
    """As it was kept: in pieces of four tokens."""
    engine = FakeEngine(num_slots=1, max_length=64)
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=token_ids, sampling=None)])
    starts = range(0, len(token_ids), 4)
    return KvPieces(tuple(engine.export_kv(slot=0, start=at, stop=min(at + 4, len(token_ids))) for at in starts))


def continued(engine: StubbornEngine, *, kept: bool) -> tuple[dict[str, str], list[int]]:
    """Return the texts of three answers whose prompts share their first ten tokens, and the tokens of each prompt that
    were not computed. `kept`: the first two bring KV, and the third may reuse the tokens in their slots."""
    bench = Bench(engine=engine, reuse_kv=True)
    begins = list(range(5, 15))
    for number in range(3):
        job = bench.accept(number, output=5)
        sequence = job.sequence
        sequence.prompt_ids = [*begins, 20 + number, 30 + number]
        sequence.session = SessionKey("t", f"s{number}")
        sequence.shared_tokens = 10 if kept else 0
        if kept and number < 2:
            sequence.begin_with(Prefix(num_tokens=11, values=kv_of(sequence.prompt_ids[:11])))
    bench.run()
    ends = told(bench.publisher.said)
    return {name: end.output_text for name, end in ends.items()}, [end.usage.cached_tokens for end in ends.values()]


@pytest.mark.parametrize("mixes", [False, True])
def test_kv_that_cannot_be_imported_is_computed_and_no_other_prompt_misses_its_own(*, mixes: bool) -> None:
    """Neither is it copied to where another prompt begins with it."""
    texts, _ = continued(StubbornEngine(), kept=False)
    assert len(set(texts.values())) == 3, "each text is its prompt's"
    whole = StubbornEngine()
    assert continued(whole, kept=True) == (texts, [11, 11, 10])
    for refuses in range(whole.num_imports):
        with capture_logs():
            found, cached = continued(StubbornEngine(refuses, mixes=mixes), kept=True)
        assert found == texts
        assert 0 in cached
        assert any(cached)


def test_kv_that_cannot_be_kept_harms_no_answer() -> None:
    """Neither the one that has ended nor those that are written."""
    texts, _ = continued(StubbornEngine(), kept=False)

    def keep(*_: object) -> None:
        raise ValueError("no room")

    bench = Bench(engine=StubbornEngine(), reuse_kv=True)
    bench.engine_loop.keep = keep
    for number in range(3):
        job = bench.accept(number, output=5 + number)
        job.sequence.prompt_ids = [*range(5, 15), 20 + number, 30 + number]
    with capture_logs():
        bench.run()
    assert [end.output_text[:5] for end in sorted(bench.ends(), key=lambda end: end.request_id)] == list(texts.values())


def test_a_fault_of_whoever_is_told_of_a_step_fails_no_answer_and_ends_no_worker() -> None:
    """Not even where the engine fails at the same time."""
    bench = Bench()
    decode, publish = bench.engine.decode, bench.worker.publish

    def fails_once(rows: list[DecodeRow]) -> list[int | None]:
        bench.engine.decode = decode  # type: ignore[method-assign]
        raise EngineError("out of memory")

    def publish_and_throw(progress: list[Progress]) -> None:
        publish(progress)
        raise Thrown

    bench.engine.decode = fails_once  # type: ignore[method-assign, assignment]
    bench.engine_loop.changed = lambda: publish_and_throw([])
    bench.engine_loop.drafts.publish = publish_and_throw
    for number in range(6):
        bench.accept(number, output=2)
    with capture_logs() as lines:
        bench.run()
    assert [end.reason for end in bench.ends()] == [*["internal"] * SLOTS, *["max_output_tokens"] * 4]
    assert sum(line["event"] == "fault" for line in lines) > 3, "the third in a row would end the worker"
