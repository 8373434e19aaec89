"""Choose which bad answers to show to the person who corrects them. Pure.

Ratings are few and biased, and one source may send many: a question counts by its distinct sources, and only a limited
number of questions of one source is shown. No number of ratings changes an answer: a person does.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shared.conversation.corrections import BadAnswer
from shared.faq.terms import wording
from shared.wire.session_key import SessionKey

MOST_OF_A_SOURCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A bad answer and its conversation."""

    session: SessionKey
    bad: BadAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One question, the bad answers to it (newest first), and the number of distinct sources that rated them."""

    rated: tuple[Rated, ...]
    sources: int

    @property
    def newest(self) -> Rated:
        return self.rated[0]


def candidates(found: Iterable[Rated]) -> tuple[list[Candidate], int]:
    """Return the questions to correct, those of most sources first, and how many were left out: of questions that only
    one source rated, each source has at most `MOST_OF_A_SOURCE`."""
    alike: dict[tuple[str, str], list[Rated]] = defaultdict(list)
    for rated in sorted(found, key=lambda each: (-each.bad.rated_unix_ms, each.bad.response_id)):
        alike[rated.session.tenant, wording(rated.bad.question)].append(rated)
    all_of_them = [
        Candidate(rated=tuple(group), sources=len({each.bad.source for each in group})) for group in alike.values()
    ]
    all_of_them.sort(key=lambda each: (-each.sources, -each.newest.bad.rated_unix_ms, each.newest.bad.response_id))
    shown, of_source = [], defaultdict[str, int](int)
    for candidate in all_of_them:
        if candidate.sources == 1:
            source = candidate.newest.bad.source
            of_source[source] += 1
            if of_source[source] > MOST_OF_A_SOURCE:
                continue
        shown.append(candidate)
    return shown, len(all_of_them) - len(shown)


def named(found: Sequence[Candidate], name: str) -> list[Candidate]:
    """Return the candidate with the answer that has this id; if no answer has it, those with an answer whose id begins
    with it."""
    ids = [{rated.bad.response_id for rated in each.rated} for each in found]
    exact = [each for each, of_it in zip(found, ids, strict=True) if name in of_it]
    return exact or [each for each, of_it in zip(found, ids, strict=True) if any(one.startswith(name) for one in of_it)]
