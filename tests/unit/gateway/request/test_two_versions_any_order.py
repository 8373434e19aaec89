"""Replies of several versions and attempts in any order give a client one text, or a restart."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.request import replies
from gateway.request.answer import _FLOWS_MS
from gateway.request.cursor import ResumePoint
from gateway.request.endings import cancel, cut, fall_back
from gateway.request.entry import Entry, Item
from gateway.request.outbox import Opened, Shown
from gateway.request.resumption import adopt, reattach
from shared.wire.outcome import Response
from tests.support.builders.gateway import FAQ, SESSION, delta, done, make_entry
from tests.unit.examples import examples

# After `/`: another worker of that version had another prompt.
TEXTS = {
    "": "nobody says which",
    "v1": "one says this, and more",
    "v1/other": "one says this otherwise",
    "v2": "two says that instead",
}
ATTEMPTS = st.integers(0, 3)
# Which writer, how far from its last position, and how many characters.
WRITES = st.lists(st.tuples(ATTEMPTS, st.sampled_from([0, 0, 0, 0, -3, 2]), st.integers(1, 6)), min_size=1, max_size=8)
ENDS = st.sampled_from(["whole", "whole", "cut", "failed", "nothing", "deadline", "client"])


def revision_of(writer: str) -> str:
    return writer.partition("/")[0]


class TwoVersions(RuleBasedStateMachine):
    """One answer, written by up to four attempts; its client may ask again, or go to another gateway."""

    @initialize(writers=st.lists(st.sampled_from(sorted(TEXTS)), min_size=4, max_size=4), known=st.booleans())
    def begin(self, writers: list[str], known: bool) -> None:
        self.writers, self.written = writers, [0] * len(writers)
        self.now = 0.0
        self.text = ""
        self.point: ResumePoint | None = None
        self.response: Response | None = None
        self.entry: Entry = make_entry(hard=10**9, received=0.0)
        self.entry.answer.admit(self.now)
        if known:
            self.acknowledge()

    def read(self, items: Iterable[Item]) -> None:
        for item in items:
            match item:
                case Opened():
                    self.text, self.point = "", item.resume_point
                case Shown():
                    assert item.offset == len(self.text), "no text is left out or repeated"
                    assert self.point is not None
                    self.text += item.text
                    self.point.add_text(item.text)
                case Response():
                    assert self.response is None or self.response == item
                    self.response = item

    @property
    def open(self) -> bool:
        return not self.entry.answer.done

    @rule()
    def acknowledge(self) -> None:
        self.read(self.entry.acknowledge())

    @precondition(lambda self: self.open)
    @rule(writes=WRITES)
    def write(self, writes: list[tuple[int, int, int]]) -> None:
        """Some are lost in transit, and some come twice."""
        for attempt, shift, chars in writes:
            writer, start = self.writers[attempt], max(0, self.written[attempt] + shift)
            text = TEXTS[writer][start : start + chars]
            self.written[attempt] = start + len(text)
            reply = delta(text, start, attempt=attempt, revision=revision_of(writer))
            self.read(replies.add_delta(self.entry, reply, self.now))

    @precondition(lambda self: self.open)
    @rule(attempt=ATTEMPTS, kind=ENDS)
    def end(self, attempt: int, kind: str) -> None:
        if kind in {"deadline", "client"}:
            self.give_up(kind)
            return
        writer, fields = self.writers[attempt], {}
        text = {"whole": TEXTS[writer], "nothing": ""}.get(kind, TEXTS[writer][: self.written[attempt]])
        if kind != "whole":
            fields = {"status": "failed" if kind == "failed" else "incomplete", "reason": "deadline"}
        if text or self.entry.answer.visible:
            reply = done(text, attempt=attempt, revision=revision_of(writer) or None, lane="canary", **fields)
            self.read(replies.finish(self.entry, reply, self.now))

    @rule(ms=st.sampled_from([1.0, 1_000.0, _FLOWS_MS, _FLOWS_MS + 1]))
    def time_passes(self, ms: float) -> None:
        """A completed answer that is held back is checked again."""
        self.now += ms
        if self.entry.answer.aside is not None and self.entry.answer.aside.end is not None:
            self.read(replies.begin_again(self.entry, self.now))

    def give_up(self, kind: str) -> None:
        if kind == "client":
            self.read(cancel(self.entry, self.now))
        elif self.entry.answer.visible:
            self.read(cut(self.entry, self.now))
        else:
            self.read(fall_back(self.entry, FAQ, self.now))

    @rule()
    def ask_again(self) -> None:
        self.read(reattach(self.entry, "d"))

    @precondition(lambda self: self.open and self.point is not None)
    @rule()
    def go_to_another_gateway(self) -> None:
        assert self.point is not None
        self.entry = adopt(self.point, SESSION, "c", self.now)

    @invariant()
    def the_client_has_one_text(self) -> None:
        if hasattr(self, "text"):
            assert any(whole.startswith(self.text) for whole in (*TEXTS.values(), FAQ.text))

    @invariant()
    def the_end_names_whose_words_they_are(self) -> None:
        if getattr(self, "response", None) is None:
            return
        assert self.response is not None
        assert self.text == self.response.output_text
        if self.text and self.response.source == "model":
            whole = [text for writer, text in TEXTS.items() if revision_of(writer) == (self.response.revision or "")]
            assert any(text.startswith(self.text) for text in whole)


TwoVersions.TestCase.settings = settings(max_examples=examples(1_000), stateful_step_count=20, deadline=None)
TestTwoVersions = TwoVersions.TestCase
