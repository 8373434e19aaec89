"""Place a worker's or another gateway's replies in their answer. Pure.

Replies may arrive late, twice, with gaps, from two workers, or before Kafka's acknowledgement of the request. Text is
placed by its `offset`: an overlap is dropped, a gap is filled by the terminal event, which has the whole text. Text
that is shown is never continued by another version's, or by another attempt's in other words: if the first falls
silent, the answer begins again.
"""

from typing import Final

import msgspec

from gateway.request.answer import State
from gateway.request.endings import STANDS_IN, as_shown, end
from gateway.request.entry import Entry, Item
from shared.wire.messages import ReplyDelta, ReplyDone

# Ends that are a matter of the moment: by the deadline, by the client's will, or since a second worker would not begin
# again what the first had begun and was killed over.
_CUT: Final = ("deadline", "client", "infeasible")


def add_delta(entry: Entry, reply: ReplyDelta, now_unix_ms: float) -> list[Item]:
    """Return the text that is new, to be shown now; nothing for a delta that is late, repeated, or behind a gap."""
    text = entry.answer.place(reply, now_unix_ms)
    if text:
        return entry.show(text, now_unix_ms)
    aside = entry.answer.aside
    return [] if aside is None or aside.end is not None else begin_again(entry, now_unix_ms)


def begin_again(entry: Entry, now_unix_ms: float) -> list[Item]:
    """Return the answer from its beginning in the words that were held aside, once the text shown is silent; nothing
    before that."""
    aside = entry.answer.pop_aside(now_unix_ms)
    if aside is None:
        return []
    entry.seen = 0
    items = [entry.opened(), *entry.show(aside.text, now_unix_ms)]
    return items if aside.end is None else [*items, *finish(entry, aside.end, now_unix_ms)]


def finish(entry: Entry, reply: ReplyDone, now_unix_ms: float) -> list[Item]:
    """End an answer by the terminal event of a worker, or of another gateway that has this answer too.

    Two texts are never spliced: the answer has failed if its own attempt ends with other text than it showed. An end
    by a deadline or a cancel may have less text than was shown. Another gateway's end always holds: the answer is
    replayed. A worker that was given a partition and did not start the request ends nothing while another's text flows:
    the deadline does, if need be. Another whole answer is held aside until the text shown is silent."""
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
        answer.advance(State.WAITING)
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
