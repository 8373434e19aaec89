"""Compare learned entries with those that are served, and apply what a person decides about each. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, Literal

import msgspec

from ops.operate.faq.state import key_of, text_digest
from shared.facts import facts_in
from shared.faq.entries import FaqEntry
from shared.faq.terms import wording
from shared.faq.texts import shown

Verdict = Literal["accept", "drop"]
_GRAM: Final = 5
_NEAR: Final = 0.8
_ALIKE: Final = 0.5
"""From this share of common 5-grams on two texts are on one matter, and their figures should agree."""
_MOST_WITH_GRAM: Final = 40
"""A 5-gram of more entries belongs to the shop's way of writing."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A person's verdict on an entry, with the text that an accepted one gets."""

    key: str
    verdict: Verdict
    question: str = ""
    answer: str = ""
    alternatives: tuple[str, ...] = ()


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier verdict, the digest of the text that it was on, and whether no page had the entry any more."""

    verdict: Verdict
    digest: str
    is_gone: bool = False


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A learned entry, as a person reviews it.

    Attributes:
        key: its name, also of its decision
        state: whether a person has to look: "new", "changed" (its page), "gone" (from its page); or "done"
        question, answer, alternatives: the text to accept
        url: its page; empty if it has none
        served: the answer that is served now; empty if it is not served
        notes: what else to look at: near duplicates, other figures
        verdict: the verdict of a "done" one
    """

    key: str
    state: Literal["new", "changed", "gone", "done"]
    language: str
    question: str
    answer: str
    alternatives: tuple[str, ...]
    url: str
    served: str
    notes: tuple[str, ...]
    verdict: Verdict = "accept"


def items_of(learned: Sequence[FaqEntry], served: Sequence[FaqEntry], before: Mapping[str, Decided]) -> list[Item]:
    """Return the entries to review: those that need a look first, in the order of their pages.

    Args:
        learned: the entries that were read from pages
        served: the entries of the FAQ file that is served
        before: the earlier verdicts, by `key_of`
    """
    there, notes = {key_of(entry): entry for entry in served}, _notes(learned, served)
    items = []
    for entry in learned:
        key, now = key_of(entry), there.get(key_of(entry))
        decided = before.get(key)
        is_decided = decided is not None and decided.digest == text_digest(entry)
        if now is not None:
            state = "done" if is_decided or text_digest(now) == text_digest(entry) else "changed"
        else:
            state = "done" if is_decided and decided is not None and decided.verdict == "drop" else "new"
        items.append(_item(entry, now, state, notes[key], "drop" if now is None and state == "done" else "accept"))
    gone = before.keys() & there.keys() - {key_of(entry) for entry in learned}
    items += [
        _item(entry, entry, "done" if before[key].is_gone else "gone", [], "accept")
        for key, entry in there.items()
        if key in gone
    ]
    return sorted(items, key=lambda item: item.state == "done")


def _item(entry: FaqEntry, served: FaqEntry | None, state: str, notes: Iterable[str], verdict: Verdict) -> Item:
    text = served if served is not None and state == "done" else entry
    own = (*entry.alternatives, *(served.alternatives if served is not None else ()))
    return msgspec.convert(
        {
            "key": key_of(entry),
            "state": state,
            "language": entry.language,
            "question": text.question,
            "answer": text.answer,
            "alternatives": tuple(dict.fromkeys(own)),
            "url": entry.url,
            "served": served.answer if served is not None else "",
            "notes": tuple(notes),
            "verdict": verdict,
        },
        Item,
    )


def apply(
    learned: Sequence[FaqEntry],
    served: Sequence[FaqEntry],
    before: Mapping[str, Decided],
    decisions: Iterable[Decision],
) -> tuple[list[FaqEntry], dict[str, Decided]]:
    """Return the entries to serve, and all verdicts. An entry without a decision is served as before, or not at all.

    Raises:
        ValueError: a decision is on an entry that does not exist
    """
    there, found = {key_of(entry): entry for entry in served}, {key_of(entry): entry for entry in learned}
    entries, verdicts = dict(there), dict(before)
    for decision in decisions:
        entry = found.get(decision.key) or there.get(decision.key)
        if entry is None:
            raise ValueError(f"there is no entry {shown(decision.key)}; load the page again")
        verdicts[decision.key] = Decided(
            verdict=decision.verdict, digest=text_digest(entry), is_gone=decision.key not in found
        )
        if decision.verdict == "drop":
            entries.pop(decision.key, None)
            continue
        also = there[decision.key].also if decision.key in there else ()
        entries[decision.key] = msgspec.structs.replace(
            entry,
            question=" ".join(decision.question.split()),
            answer=decision.answer.strip(),
            alternatives=tuple(filter(None, (each.strip() for each in decision.alternatives))),
            also=tuple(dict.fromkeys((*entry.also, *also))),
        )
    return list(entries.values()), verdicts


def _notes(learned: Sequence[FaqEntry], served: Sequence[FaqEntry]) -> Mapping[str, list[str]]:
    """Return what to look at in entries that resemble others, by `key_of`."""
    notes = defaultdict[str, list[str]](list)
    own = {key_of(entry) for entry in learned}
    texts = [*learned, *(entry for entry in served if key_of(entry) not in own)]
    for one, other, share in _pairs(texts):
        differ = set(facts_in(one.answer)) != set(facts_in(other.answer))
        if share < _NEAR and not differ:
            continue
        word = "other figures than" if differ else "nearly the same as"
        notes[key_of(one)].append(f"{word} {shown(other.question)}")
        notes[key_of(other)].append(f"{word} {shown(one.question)}")
    return notes


def _pairs(entries: Sequence[FaqEntry]) -> Iterator[tuple[FaqEntry, FaqEntry, float]]:
    """Yield the pairs of one language whose answers are alike, each with the share of their common 5-grams."""
    grams = [_grams(entry.answer) for entry in entries]
    by_gram = defaultdict[str, list[int]](list)
    for place, own in enumerate(grams):
        for gram in own:
            by_gram[gram].append(place)
    common = Counter(
        pair for places in by_gram.values() if len(places) <= _MOST_WITH_GRAM for pair in combinations(places, 2)
    )
    for (one, other), shared in common.items():
        share = shared / (len(grams[one]) + len(grams[other]) - shared)
        if share >= _ALIKE and entries[one].language == entries[other].language:
            yield entries[one], entries[other], share


def _grams(text: str) -> set[str]:
    plain = wording(text)
    return {plain[place : place + _GRAM] for place in range(max(1, len(plain) - _GRAM + 1))}
