"""Add the replies of a worker or another gateway to their answer. Pure.

Replies may arrive late, twice, with gaps, from two workers, or before Kafka's acknowledgement of the request. Text is
placed by its `offset`: an overlap is dropped, a gap is filled by the terminal event, which has the whole text. Visible
text is never continued with different text by another version or attempt. If the writer of the visible text falls
silent, the answer begins again with the other text.
"""

from typing import Final

import msgspec

from gateway.request.answer import AnswerState
from gateway.request.endings import STANDS_IN, as_shown, end
from gateway.request.entry import Entry, Item
from shared.wire.messages import ReplyDelta, ReplyDone

# Ends that may legitimately have less text than was shown: by the deadline, by the client's cancel, because a person
# answers, or because a second worker refused to restart a request that killed the first one.
_CUT: Final = ("deadline", "client", "person", "infeasible")


def add_delta(entry: Entry, reply: ReplyDelta, now_unix_ms: float) -> list[Item]:
    """Add a delta and return the items to show now. Return nothing if the delta is late, repeated or follows a gap."""
    text = entry.answer.place(reply, now_unix_ms)
    if text:
        return entry.show(text, now_unix_ms)
    aside = entry.answer.aside
    return [] if aside is None or aside.end is not None else begin_again(entry, now_unix_ms)


def begin_again(entry: Entry, now_unix_ms: float) -> list[Item]:
    """Show the text kept in `aside` from its beginning, once the visible text is silent; return nothing before that."""
    aside = entry.answer.pop_aside(now_unix_ms)
    if aside is None:
        return []
    entry.seen = 0
    items = [entry.opened(), *entry.show(aside.text, now_unix_ms)]
    return items if aside.end is None else [*items, *finish(entry, aside.end, now_unix_ms)]


def finish(entry: Entry, reply: ReplyDone, now_unix_ms: float) -> list[Item]:
    """End an answer with the terminal event of a worker, or of another gateway that has the same answer.

    Two texts are never spliced:
    - The answer fails if an attempt ends with other text than it showed. An end by a deadline or a cancel may have less
      text.
    - Another gateway's end is always accepted, and the answer is replayed if its text differs.
    - An empty end by a worker that did not start the request is ignored while another attempt streams.
    - Another complete answer is kept in `aside` until the visible text is silent.
    """
    answer = entry.answer
    if reply.origin == "worker" and not reply.output_text and answer.flows(reply.attempt, now_unix_ms):
        return []
    is_cut = reply.reason in _CUT and answer.text.startswith(reply.output_text)
    continues = is_cut or reply.output_text.startswith(answer.text)
    if reply.origin == "worker" and answer.is_foreign(reply, continues=continues):
        if reply.output_text:
            answer.hold_end(reply)
            return begin_again(entry, now_unix_ms)
        reply = as_shown(entry, reply)
    items: list[Item] = []
    if not answer.created:  # not acknowledged yet, or asked again here and still being counted
        answer.drop_text()
        items.append(entry.opened())
        answer.advance(AnswerState.WAITING)
        entry.publication.published = True
    if not continues and not reply.output_text.startswith(answer.text):
        if reply.origin != "gateway":
            failed = msgspec.structs.replace(reply, status="failed", reason="internal", source="model")
            return end(entry, failed, now_unix_ms)
        if not entry.seen:
            items.append(entry.opened())
        answer.drop_text()
    new = reply.output_text[answer.chars :]
    rest = entry.show(new, now_unix_ms) if new else []
    answer.stood_in = reply.origin == "gateway" and reply.source in STANDS_IN
    return [*items, *rest, *end(entry, reply, now_unix_ms)]
