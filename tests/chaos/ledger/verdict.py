"""Judge whether a ledger meets the promises: pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shared.wire.outcome import Response
from tests.chaos.ledger.requests import Absence, Breach, Ledger, Page, Question

GRACE_S: Final = 0.25
"""The most seconds after its deadline at which a terminal event may arrive."""
RETURN_GRACE_S: Final = 1.0 + GRACE_S
"""The most seconds after its return at which a client that was absent at its deadline receives the terminal event: one
second to read the log, plus the grace period."""
_TELLTALE_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class Rights:
    """The only right texts of a question: the model's complete text and the fallback's. `others`: the text of each
    further model that answers while the workers are replaced one by one. `unread`: the gateway's text for a client that
    came from another gateway if the question could not be read in time, so its language and words are unknown.
    `decided`: a worker's text that replaces the model's."""

    model: str
    fallback: str
    others: tuple[str, ...] = ()
    unread: str = ""
    decided: tuple[str, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """Return the texts that a worker may write."""
        return self.model, *self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class Excused:
    """Clients that were absent at their deadline. `in_time_at_gateway`: answered there by deadline and grace, by
    `timings.total_ms`. `widest_s`: the longest time from a client's return to the terminal event."""

    requests: int = 0
    in_time_at_gateway: int = 0
    widest_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`broken`: by breach, the requests and the evidence. `strays`: events of no known request. `latest_s`: among the
    requests that were not excused, the time from its deadline to the last terminal event (negative: before it); None
    without such a request."""

    requests: int
    accepted: int
    broken: dict[Breach, list[tuple[Page, str]]]
    strays: int
    excused: Excused
    latest_s: float | None
    endings: dict[str, int]
    refused: dict[str, int]
    told_anew: int
    asked_again: int
    recovered: int
    not_recovered: int
    farewells: int

    def count(self, breach: Breach) -> int:
        return len(self.broken[breach]) + (self.strays if breach is Breach.FOREIGN else 0)

    @property
    def holds(self) -> bool:
        """Return whether the promises hold. A run that accepted nothing has shown nothing."""
        return self.accepted > 0 and not any(self.count(breach) for breach in Breach)

    @property
    def is_only_late(self) -> bool:
        """Return whether late answers are the only fault, which a pausing machine causes too."""
        return self.accepted > 0 and [breach for breach in Breach if self.count(breach)] == [Breach.LATE]

    @property
    def guilty(self) -> list[Page]:
        """Each request of which something was found, once."""
        pages = {page.question.event_id: page for found in self.broken.values() for page, _ in found}
        return sorted(pages.values(), key=lambda page: page.asked_s)


def judge(ledger: Ledger, rights_of: Callable[[Question], Rights]) -> Verdict:
    """After the load has ended and every client has been given its time."""
    pages = list(ledger.pages.values())
    rights = {page.question.event_id: rights_of(page.question) for page in pages}
    owners = {text[:_TELLTALE_CHARS]: event_id for event_id, right in rights.items() for text in right.written}
    broken: dict[Breach, list[tuple[Page, str]]] = {breach: [] for breach in Breach}
    late = _Lateness(ledger)
    for page in pages:
        found = dict(page.breaches)
        found |= dict(_misshown(page, rights[page.question.event_id], owners))
        if not page.ends:
            if page.accepted:
                found[Breach.LOST] = "no terminal event"
            elif page.refused is None:
                found[Breach.UNHEARD] = "nothing was heard of it"
        else:
            absences = ledger.absences.get(page.question.session, ())
            moved = any(away.until_s is not None and away.until_s > page.asked_s for away in absences)
            found |= dict(_misread(page, rights[page.question.event_id], owners, moved=moved))
            if (lateness := late.of(page)) is not None:
                found[Breach.LATE] = lateness
        for breach, what in found.items():
            broken[breach].append((page, what))
    return Verdict(
        requests=len(pages),
        accepted=sum(page.accepted for page in pages),
        broken=broken,
        strays=len(ledger.strays),
        excused=late.excused,
        latest_s=late.latest_s,
        endings=dict(Counter(_ending(page.ends[0][1]) for page in pages if page.ends)),
        refused=dict(Counter(page.refused for page in pages if page.refused is not None and not page.ends)),
        told_anew=sum(page.told_anew for page in pages),
        asked_again=sum(page.asked_again for page in pages),
        recovered=ledger.recovered,
        not_recovered=ledger.not_recovered,
        farewells=ledger.farewells,
    )


def _ending(response: Response) -> str:
    return f"{response.source} {response.status}/{response.reason}"


def _misread(page: Page, right: Rights, owners: dict[str, str], *, moved: bool) -> list[tuple[Breach, str]]:
    """Return the texts that differ from the only right one: a whole answer in full, a cut one in its beginning.
    `moved`: its client has reconnected to a gateway since it asked."""
    response = page.ends[0][1]
    said = response.output_text
    whole = response.reason in {"stop", "max_output_tokens"}
    wanted = right.written if response.source == "model" else (right.fallback, *right.decided)
    if response.source == "busy" and moved and right.unread:
        wanted = (*wanted, right.unread)
    if said in wanted or (not whole and any(want.startswith(said) for want in wanted)):
        return []
    return [_blame(page, said, f"{' or '.join(map(repr, wanted))} is right", owners)]


def _misshown(page: Page, right: Rights, owners: dict[str, str]) -> list[tuple[Breach, str]]:
    """Return the texts shown to a client that begin no right text, in a transmission without an end: it was replaced
    later or broken off. Whether the model's or the fallback's text was due is unknown."""
    shown = page.abandoned if page.ends else [*page.abandoned, "".join(page.deltas)]
    return [
        _blame(page, said, f"neither {right.model!r} nor {right.fallback!r} begins so", owners)
        for said in shown
        if not any(text.startswith(said) for text in (*right.written, right.fallback, *right.decided))
    ]


def _blame(page: Page, said: str, wrong: str, owners: dict[str, str]) -> tuple[Breach, str]:
    owner = owners.get(said[:_TELLTALE_CHARS])
    if owner is not None and owner != page.question.event_id:
        return Breach.FOREIGN, f"the text is that of {owner}"
    return Breach.WRONG_TEXT, f"{said!r}: {wrong}"


class _Lateness:
    """Counted by the client's clock, from its first request; the clock stops while the clients' own loop is blocked."""

    def __init__(self, ledger: Ledger) -> None:
        self._absences = ledger.absences
        self._stalls = ledger.stalls
        self.excused = Excused()
        self.latest_s: float | None = None

    def of(self, page: Page) -> str | None:
        """Return the error in the time of its end, if there is one."""
        at_s, response = page.ends[0]
        over_s = at_s - page.due_s
        if over_s > 0:
            over_s -= _stalled_s(self._stalls, page.due_s, at_s)
        if over_s > GRACE_S:
            back_s = _came_back(self._absences.get(page.question.session, ()), page.due_s, at_s)
            if back_s is not None:
                self._excuse(page, response, at_s - back_s)
                return f"{at_s - back_s:.3f} s after its client came back" if at_s - back_s > RETURN_GRACE_S else None
        self.latest_s = over_s if self.latest_s is None else max(self.latest_s, over_s)
        return f"{over_s:.3f} s after its deadline" if over_s > GRACE_S else None

    def _excuse(self, page: Page, response: Response, waited_s: float) -> None:
        total_ms = response.timings.total_ms
        in_time = total_ms is not None and total_ms <= page.question.deadline_ms + GRACE_S * 1_000
        self.excused = Excused(
            requests=self.excused.requests + 1,
            in_time_at_gateway=self.excused.in_time_at_gateway + in_time,
            widest_s=max(self.excused.widest_s, waited_s),
        )


def _stalled_s(stalls: Sequence[tuple[float, float]], from_s: float, until_s: float) -> float:
    """Return how much of an interval the clients' loop was blocked."""
    return sum(max(0.0, min(until_s, end_s) - max(from_s, start_s)) for start_s, end_s in stalls)


def _came_back(absences: Sequence[Absence], due_s: float, end_s: float) -> float | None:
    """Return when a client that was absent at its deadline, or in the grace period after it, opened its last socket
    before the end; None for one that was connected."""
    if not any(away.from_s <= due_s + GRACE_S and (away.until_s is None or away.until_s >= due_s) for away in absences):
        return None
    return max((away.until_s for away in absences if away.until_s is not None and away.until_s <= end_s), default=None)
