"""A page for a stranger about a plan that failed: which promise is broken, what was decided, what happened."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from tests.chaos.ledger.requests import Breach, Ledger, Line, Page
from tests.world import oracles
from tests.world.plan import Ask, Fault, Plan

_MOST_PAGES: Final = 6
_MOST_LINES: Final = 200
_TIMINGS: Final = re.compile(r": Timings\(.*\)$")
_WORDS: Final = " ".join((oracles.__doc__ or "").split())
_PROMISES: Final = dict(re.findall(r"([A-Z]{3,}): (.+?)(?=\. [A-Z]{3,}:|\.$)", _WORDS)) | {
    Breach.LOST.name: "each question that is accepted gets an end",
    Breach.UNHEARD.name: "each question is accepted or refused",
    Breach.TWICE.name: "nothing is heard of a question after its end",
    Breach.TWO_RESPONSES.name: "a question has one answer, whichever gateway tells it",
    Breach.ORDER.name: "the pieces of an answer come in order",
    Breach.TEXT.name: "an answer's text is that of its pieces, joined",
    Breach.WRONG_TEXT.name: "an answer is what the model alone would write, or what the FAQ says",
    Breach.FOREIGN.name: "nobody hears an answer to somebody else",
    Breach.FAULT.name: "no question is refused for a fault of the gateway's own",
    Breach.LATE.name: "an answer ends by its deadline",
    "NOTHING": "somebody is answered",
    "DEADLOCK": "there is always something that will happen",
}
"""What is promised, by the name of the invariant."""
ACT_WORDS: Final = {
    "erase": "erases the conversation",
    "erase-elsewhere": "erases the conversation over a second connection",
    "handoff": "asks for a person",
    "leave": "connects to another gateway",
    "again": "asks the last two questions again",
    "flood": "sends 150 messages at once",
    "refresh": "shows a newer token",
    "gorge": "rates an answer 95 times, where 80 units are taken",
    "intrude": "comes with a token that does not count, and asks",
    "steal": "comes with another customer's cursor",
}
_FAULTS: Final = {
    "kill-gateway": "gateway-{two} is killed; it starts again {s} s later",
    "stop-gateway": "gateway-{two} is asked to stop; it starts again",
    "freeze-gateway": "gateway-{two} stands still for {s} s",
    "kill-worker": "worker-{two} is killed; it starts again {s} s later",
    "stop-worker": "worker-{two} is asked to stop; it starts again",
    "freeze-worker": "worker-{two} stands still for {s} s",
    "hang-worker": "the engine of worker-{two} hangs",
    "join-worker": "a third worker joins",
    "enter-worker": "worker-{which} is started, unless it runs",
    "leave-worker": "worker-{which} is drained and ends",
    "spoil-worker": "the engine of worker-{two} refuses KV",
    "throw-gateway": "an exception is thrown in gateway-{two}",
    "throw-worker": "an exception is thrown in worker-{two}",
    "broker-down": "broker {three} of Kafka is down for {s} s",
    "move-leaders": "Kafka's partitions get other leaders",
    "slow-broker": "broker {three} of Kafka is slow for {s} s",
    "slow-acks": "Kafka is slow to acknowledge what is written, for {s} s",
    "stale-metadata": "Kafka's partitions get other leaders, and Kafka tells the old ones for {s} s",
    "grow-replies": "the topic of the replies gets more partitions",
    "redis-away": "Redis is away for {s} s",
    "redis-slow": "Redis is slow for {s} s",
    "redis-hang": "Redis hangs for {s} s",
    "redis-readonly": "Redis takes no writes for {s} s",
    "redis-full": "Redis is full for {s} s",
    "redis-unheard": "Redis does what it is asked, but its answers are lost, for {s} s",
    "redis-evict": "Redis evicts what it may",
    "retention": "Kafka deletes what is old",
    "redis-garble": "Redis garbles KV",
    "cut": "the connection of {customer} is cut",
    "half-open": "the connection of {customer} falls silent; it is cut {s} s later",
    "slow-net": "the connection of {customer} becomes slow",
    "clock": "the wall clock of {clock} jumps by {s} s",
    "keys-rotate": "tokens are signed with another key",
    "keys-away": "the keys of tokens cannot be read for {s} s",
    "forge": "somebody forges an answer to the latest question",
}


def in_words(plan: Plan) -> list[str]:
    """Return a line for each decision, by time."""
    rows = [(ask.at_s, f"{ask.customer} asks ask-{number}: {_asked(ask)}") for number, ask in enumerate(plan.asks)]
    rows += [(ask.at_s, f"another service asks srv-{number}: {_asked(ask)}") for number, ask in enumerate(plan.records)]
    rows += [(act.at_s, f"{act.customer} {ACT_WORDS[act.what]}") for act in plan.acts]
    rows += [(fault.at_s, struck(fault, plan)) for fault in plan.faults]
    return [f"{at_s:9.3f}  {words}" for at_s, words in sorted(rows)]


def _asked(ask: Ask) -> str:
    if ask.what != "question":
        return {"poison": "whoever computes it dies", "garbage": "this is no request"}[ask.what]
    then = "" if ask.cancel_after_s is None else f"; cancelled after {ask.cancel_after_s:g} s"
    return f"{ask.tokens} tokens, the first within {ask.soft_ms / 1e3:g} s, all within {ask.hard_ms / 1e3:g} s{then}"


def struck(fault: Fault, plan: Plan) -> str:
    """Return what a fault does."""
    target, customers = fault.target, plan.customers
    words = _FAULTS.get(fault.kind, fault.kind + " {target}, {s} s").format(
        target=target,
        two=target % 2,
        which=target,
        three=target % 3,
        s=f"{fault.for_s:g}",
        customer=customers[target % len(customers)],
        clock=f"{'worker' if target % 2 else 'gateway'}-{target // 2 % 2}",
    )
    return f"FAULT: {words}{f' (at its next call of {fault.call})' if fault.call else ''}"


def tell(
    plan: Plan, found: list[tuple[str, str]], ledger: Ledger, guilty: list[Page], system: Iterable[Line], start_s: float
) -> str:
    """Return the page: `found` has each invariant that is broken, and by what; the plan begins at `start_s`."""
    pages = list(ledger.pages.values())
    pages = pages if len(pages) <= _MOST_PAGES else guilty[:_MOST_PAGES]
    lines = [(line.at_s, f"{_of(page)}: {line.what}") for page in pages for line in page.lines]
    lines += [(page.due_s, f"{_of(page)}: its deadline") for page in pages]
    for session in sorted({page.question.session for page in pages}):
        lines += [(line.at_s, f"{session}: {line.what}") for line in ledger.session_lines.get(session, ())]
    lines += [(line.at_s, line.what) for line in system if line.at_s >= start_s]
    lines.sort(key=lambda line: line[0])
    text = "\n".join(
        [
            *(f"{name} is broken: {_PROMISES.get(name, name)}." for name in dict(found)),
            *(f"  {what}" for _, what in found),
            "What was decided, in seconds from the beginning (s0 to s5 are customers):",
            *in_words(plan),
            "What happened (gateway-1.2 is gateway-1, started for the second time):",
            *_without_repeats([(at_s - start_s, _TIMINGS.sub("", what)) for at_s, what in lines]),
        ]
    )
    for page in ledger.pages.values():
        text = text.replace(page.response_id or page.question.event_id, page.question.event_id)
    return text


def _of(page: Page) -> str:
    return f"{page.question.session}, {page.question.event_id}"


def _without_repeats(lines: list[tuple[float, str]]) -> list[str]:
    """Return the lines; of an answer's pieces that come in a row only the first and the last."""
    told = []
    for _, group in groupby(lines, key=lambda line: line[1].partition(": delta")[0] if ": delta" in line[1] else line):
        row = [f"{at_s:9.3f}  {what}" for at_s, what in group]
        told += row if len(row) < 4 else [row[0], f"           ... {len(row) - 2} more", row[-1]]
    return told[-_MOST_LINES:]
