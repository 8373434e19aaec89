"""What happened to one request, in order of time, and to the system around it: pure."""

from collections.abc import Iterable

from tests.chaos.ledger.requests import Ledger, Line, Page

_BEFORE_S = 10.0
_AFTER_S = 2.0


def story(ledger: Ledger, page: Page, system: Iterable[Line], start_s: float) -> str:
    """Return every event of the request, of its session during it, and the faults from ten seconds before it was asked;
    times are seconds from the load's beginning."""
    question = page.question
    last_s = max([line.at_s for line in page.lines], default=page.asked_s)
    until_s = max(last_s, page.due_s) + _AFTER_S
    lines = [("", line) for line in page.lines]
    lines += [("session  ", line) for line in ledger.session_lines.get(question.session, ())]
    lines += [("system   ", line) for line in system]
    lines += [("deadline ", Line(page.due_s, ""))]
    within = [(kind, line) for kind, line in lines if page.asked_s - _BEFORE_S <= line.at_s <= until_s]
    head = f"{question.event_id} of {question.session}: {question.max_output_tokens} tokens, {question.deadline_ms} ms"
    found = [f"  ! {breach.value}: {what}" for breach, what in page.breaches]
    told = [
        f"  {line.at_s - start_s:9.3f}  {kind}{line.what}".rstrip()
        for kind, line in sorted(within, key=lambda item: item[1].at_s)
    ]
    return "\n".join([head, *found, *told])
