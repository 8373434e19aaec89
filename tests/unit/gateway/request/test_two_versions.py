"""Text that one version has shown is never continued by another."""

from gateway.destination.destination import Destination
from gateway.request import replies
from gateway.request.answer import _FLOWS_MS
from gateway.request.cursor import checksum
from gateway.request.endings import cut
from gateway.request.entry import Entry, Item
from gateway.request.outbox import Opened, Shown
from gateway.request.resumption import adopt
from shared.wire.outcome import Response
from tests.support.builders.gateway import NOW, SESSION, delta, done, make_entry, told

SILENT = NOW + _FLOWS_MS + 1


def shown_by_canary() -> Entry:
    """`Yes, ` is shown; the champion has the request now and has written `No`."""
    entry = make_entry(destination=Destination("canary", "new", 3))
    entry.answer.admit(NOW)
    entry.acknowledge()
    assert _told(replies.add_delta(entry, delta("Yes, ", attempt=1, revision="new"), NOW)) == ["Yes, "]
    assert replies.add_delta(entry, delta("No", attempt=2, revision="old"), NOW + 10) == []
    return entry


def _told(items: list[Item]) -> list[str]:
    """Return the text a client receives: `*` marks a restart."""
    told: list[str] = []
    for item in items:
        match item:
            case Opened():
                told.append("*")
            case Shown():
                told.append(item.text)
            case Response():
                told.append(f"{item.status} {item.revision} {item.lane}: {item.output_text}")
    return told


def test_the_version_that_began_an_answer_ends_it() -> None:
    entry = shown_by_canary()
    assert replies.finish(entry, done("No.", attempt=2, revision="old"), NOW) == []
    assert _told(replies.add_delta(entry, delta("we", 5, attempt=1, revision="new"), NOW)) == ["we"]
    end = done("Yes, we do.", attempt=1, revision="new", lane="canary")
    assert _told(replies.finish(entry, end, NOW)) == [" do.", "completed new canary: Yes, we do."]
    assert entry.answer.aside is None


def test_if_the_first_falls_silent_the_answer_restarts() -> None:
    entry = shown_by_canary()
    assert _told(replies.add_delta(entry, delta(", we", 2, attempt=2, revision="old"), SILENT)) == ["*", "No, we"]
    assert replies.add_delta(entry, delta("we", 5, attempt=1, revision="new"), SILENT) == []
    late = done("Yes, we do.", attempt=1, revision="new", lane="canary")
    assert replies.finish(entry, late, SILENT) == [], "it had its time"
    end = done("No, we do not.", attempt=2, revision="old")
    assert _told(replies.finish(entry, end, SILENT)) == [" do not.", "completed old None: No, we do not."]
    assert entry.answer.begun_again


def test_a_whole_answer_waits_for_the_silence_of_the_first() -> None:
    entry = shown_by_canary()
    assert replies.finish(entry, done("No.", attempt=2, revision="old"), NOW) == []
    assert replies.begin_again(entry, NOW + _FLOWS_MS) == []
    assert _told(replies.begin_again(entry, SILENT)) == ["*", "No.", "completed old None: No."]


def test_an_end_without_text_or_a_cut_names_the_version_of_the_shown_text() -> None:
    entry = shown_by_canary()
    nothing = done("", attempt=2, revision="old", status="incomplete", reason="infeasible")
    assert replies.finish(entry, nothing, NOW) == []
    assert _told(replies.finish(entry, nothing, SILENT)) == ["incomplete new canary: Yes, "]
    assert _told(cut(shown_by_canary(), NOW)) == ["incomplete new canary: Yes, "]


def test_a_client_with_more_text_of_the_first_version_gets_a_restart_of_the_other() -> None:
    seen = "Yes, we do"
    entry = adopt(told(chars=len(seen), crc=checksum(seen)), SESSION, "c", NOW)
    assert replies.add_delta(entry, delta("Yes", attempt=1, revision="new"), NOW) == []
    assert _told(replies.add_delta(entry, delta("No", attempt=2, revision="old"), SILENT)) == ["*", "No"]
