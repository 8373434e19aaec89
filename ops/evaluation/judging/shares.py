"""What a shop counts: right, claimed, misled, each a share with its 95 % interval and n. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from ops.evaluation.judging.result import LANGUAGES, Judged
from ops.measure.intervals import wilson
from shared.wire.outcome import BY_MODEL

CLAIMS: Final = BY_MODEL | {"faq"}
"""The sources that say that they answer the question."""


class Share(Struct, frozen=True, kw_only=True):
    """A share, `some` of `n`."""

    some: int
    n: int

    @property
    def value(self) -> float | None:
        """Return the share; None without a question."""
        return self.some / self.n if self.n else None


def shares_of(judged: Sequence[Judged], there: Sequence[bool] = ()) -> dict[str, Share]:
    """Return the shares by name.

    Args:
        judged: The questions with their answers and verdicts.
        there: Of near misses put to an FAQ with the sentence that answers them: whether they were claimed.
    """
    shares: dict[str, Share] = {}
    for language in LANGUAGES:
        own = [one for one in judged if one.question.language == language]
        answerable = [one for one in own if one.question.answerable]
        shares[f"right_{language}"] = _share(answerable, _is_right)
        shares[f"answered_right_{language}"] = _share(answerable, lambda one: _is_right(one) and _claims(one))
        shares[f"misled_{language}"] = _share([one for one in own if one.question.near is not None], _claims)
    plain = [one for one in judged if one.question.kind in {"unanswerable", "astray"} and not one.question.answerable]
    shares["unanswerable_right"] = _share(plain, lambda one: one.verdict.right)
    shares["shown_when_there"] = Share(some=sum(there), n=len(there))
    shares["follow_up_right"] = _share([one for one in judged if one.question.kind == "follow_up"], _is_right)
    return shares


def keys_of(shares: dict[str, Share]) -> dict[str, float | int | None]:
    """Return the shares as `--json` has them: NAME, NAME_low, NAME_high and NAME_n."""
    keys: dict[str, float | int | None] = {}
    for name, share in shares.items():
        low, high = wilson(share.some, share.n)
        keys |= {name: share.value, f"{name}_low": low, f"{name}_high": high, f"{name}_n": share.n}
    return keys


def _share(some: Sequence[Judged], counts: Callable[[Judged], bool]) -> Share:
    return Share(some=sum(map(counts, some)), n=len(some))


def _claims(one: Judged) -> bool:
    return one.given.source in CLAIMS


def _is_right(one: Judged) -> bool:
    """Return whether it was answered right, or by a quote with a right entry first; a person given counts too."""
    if one.given.source == "quote":
        first = one.given.grounding[0].id if one.given.grounding else None
        return one.verdict.right and first in one.question.entries
    return one.verdict.right and (_claims(one) or one.given.source == "handoff")
