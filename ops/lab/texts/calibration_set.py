"""Choose texts for calibrating 8-bit activations, and other texts for measuring the result. Pure.

A file of texts is JSON Lines, one object per line:

    {"text": "my AX-3391-B cam w/o teh lid??", "consented": true, "rare": true, "role": "user", "group": "c-17"}

A customer's text is used only if `consented` is true. `"origin": "own"` marks text that no customer wrote: the shop's
own, or generated. `rare` marks long-tail phrasings; mixed letter-digit numbers (AX-3391-B, kt2040s) are recognised by
their form. Texts of one `group` (such as a conversation) are all used for the same purpose; a text without a group is
its own group. `role` is the author: `user` or `assistant`. Other fields are ignored.

`calibration.jsonl` is the demo's file: the FAQ's English wordings and, for the long tail, generated phrasings
(misspelt, clipped, in dialect, in broken English) and messages about article and serial numbers. No customer wrote any
of them.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from shared.errors import SettingsError

Kind = Literal["common", "rare", "sku"]
DEMO: Final = Path(__file__).with_name("calibration.jsonl")
KINDS: Final[tuple[Kind, ...]] = ("common", "rare", "sku")

FEWEST_TEXTS: Final = 500
# Shares of the whole set.
LEAST_SHARES: Final[dict[Kind, float]] = {"rare": 0.3, "sku": 0.1}
_TAKEN_SHARES: Final[dict[Kind, float]] = {"rare": 0.3, "sku": 0.2}
FEWEST_HELD_OUT: Final = 20
_HELD_OUT_SHARE: Final = 0.2
# Texts are chosen in turn from each range of lengths, in tokens; the last range is open.
_LENGTH_EDGES: Final = (8, 16, 32, 64)
# The first character is a letter, which excludes 150cm and 14:00; at least two digits, which excludes 2nd.
_SKU: Final = re.compile(r"(?<![A-Za-z0-9-])(?=(?:[A-Za-z-]*\d){2})[A-Za-z][A-Za-z0-9-]{3,}(?![A-Za-z0-9])")


class CalibrationText(Struct, frozen=True, kw_only=True):
    """One line of the file."""

    text: str
    origin: Literal["customer", "own"] = "customer"
    consented: bool = False
    rare: bool = False
    role: Literal["user", "assistant"] = "user"
    group: str | None = None

    @property
    def usable(self) -> bool:
        return self.consented or self.origin == "own"

    @property
    def kind(self) -> Kind:
        if _SKU.search(self.text):
            return "sku"
        return "rare" if self.rare else "common"


@dataclass(frozen=True, slots=True)
class CalibrationSet:
    """The chosen texts. `held_out` shares no group with `calibration`."""

    calibration: tuple[CalibrationText, ...]
    held_out: tuple[CalibrationText, ...]


def read_texts(data: bytes, name: str) -> list[CalibrationText]:
    """Return the non-empty lines of a JSONL file. Raises `SettingsError` with `name` and the line's number."""
    texts = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            texts.append(msgspec.json.decode(line, type=CalibrationText))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{name}, line {number}: {error}; write one JSON object per line") from None
    return texts


def calibration_set(
    texts: Iterable[CalibrationText],
    count_tokens: Callable[[str], int],
    *,
    name: str,
    count: int,
    held_out: int,
    seed: int,
) -> CalibrationSet:
    """Choose texts to calibrate with and to measure by, always the same ones for the same `seed`.

    Fewer than `count` are chosen if rare texts would otherwise be less than 30 % of them. The ranges of length take
    turns.

    Args:
        texts: all texts
        count_tokens: counts a text's tokens
        name: name of the file, for errors
        count: maximum number of texts to calibrate with
        held_out: maximum number of texts of each kind to measure by
        seed: seed of the choice

    Raises:
        SettingsError: there are fewer than 500 texts, or too few of the special kinds
    """
    kept = _usable(texts)
    apart = _kept_apart(kept, seed)
    outside = [text for text in kept if _group(text) in apart]
    inside = [text for text in kept if _group(text) not in apart]
    measured = [_by_length(_of(outside, kind), count_tokens, held_out, seed) for kind in KINDS]
    count = min(count, max(FEWEST_TEXTS, _most_with_shares(inside)))
    special = [
        text
        for kind, share in _TAKEN_SHARES.items()
        for text in _by_length(_of(inside, kind), count_tokens, math.ceil(share * count), seed)
    ]
    calibration = (*_by_length(_of(inside, "common"), count_tokens, count - len(special), seed), *special)
    _refuse_poor(calibration, measured, name)
    return CalibrationSet(calibration, tuple(text for part in measured for text in part))


def shares(texts: Sequence[CalibrationText]) -> dict[Kind, float]:
    """Return each kind's share of `texts`."""
    counted = Counter(text.kind for text in texts)
    return {kind: counted[kind] / max(1, len(texts)) for kind in KINDS}


def _usable(texts: Iterable[CalibrationText]) -> list[CalibrationText]:
    """Return the texts that may be used and are not empty, without duplicates."""
    return list({text.text: text for text in texts if text.usable and text.text.strip()}.values())


def _of(texts: Sequence[CalibrationText], kind: Kind) -> list[CalibrationText]:
    return [text for text in texts if text.kind == kind]


def _most_with_shares(texts: Sequence[CalibrationText]) -> int:
    """Return how many of `texts` can be chosen before a special kind falls below its minimum share."""
    return min(int(len(_of(texts, kind)) / least) for kind, least in LEAST_SHARES.items())


def _group(text: CalibrationText) -> str:
    return text.text if text.group is None else text.group


def _kept_apart(texts: Sequence[CalibrationText], seed: int) -> set[str]:
    """Return a random fifth of the groups, plus more groups if a kind is too rare in them, but never more than half of
    a kind."""
    kinds: dict[str, Counter[Kind]] = {}
    for text in texts:
        kinds.setdefault(_group(text), Counter())[text.kind] += 1
    drawn = sorted(kinds, key=lambda group: _digest(seed, group))
    fifth = round(_HELD_OUT_SHARE * len(drawn))
    apart = set(drawn[:fifth])
    for kind in KINDS:
        found, most = sum(kinds[group][kind] for group in apart), sum(kinds[group][kind] for group in drawn) // 2
        for group in drawn[fifth:]:
            here = kinds[group][kind]
            if group not in apart and here and found < FEWEST_HELD_OUT and found + here <= most:
                apart.add(group)
                found += here
    return apart


def _by_length(
    texts: Sequence[CalibrationText], count_tokens: Callable[[str], int], count: int, seed: int
) -> list[CalibrationText]:
    """Return the first `count` texts in a random order in which the ranges of length take turns."""
    strata: list[list[CalibrationText]] = [[] for _ in range(len(_LENGTH_EDGES) + 1)]
    for text in sorted(texts, key=lambda text: _digest(seed, text.text)):
        tokens = count_tokens(text.text)
        strata[sum(tokens > edge for edge in _LENGTH_EDGES)].append(text)
    turns = [text for turn in zip_longest(*strata) for text in turn if text is not None]
    return turns[:count]


def _digest(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{text}".encode(), digest_size=16).digest()


def _refuse_poor(
    calibration: Sequence[CalibrationText],
    measured: Sequence[Sequence[CalibrationText]],
    name: str,
) -> None:
    found = Counter(text.kind for text in calibration)
    numbers = f"{name}: {len(calibration)} texts to calibrate with ({found['rare']} rare, {found['sku']} with numbers)"
    if len(calibration) < FEWEST_TEXTS:
        raise SettingsError(
            f"{numbers} once a fifth is kept apart to measure by; {FEWEST_TEXTS} are needed, "
            'different and with "consented": true, or "origin": "own" where no customer wrote them'
        )
    share = shares(calibration)
    if any(share[kind] < least for kind, least in LEAST_SHARES.items()):
        raise SettingsError(
            f"{numbers}; {LEAST_SHARES['rare']:.0%} must be rare and {LEAST_SHARES['sku']:.0%} have numbers: "
            'add texts with "rare": true and texts with mixed letter-digit numbers'
        )
    for kind, part in zip(KINDS, measured, strict=True):
        if len(part) < FEWEST_HELD_OUT:
            raise SettingsError(
                f"{name}: {len(part)} {kind} texts could be kept apart to measure by; {FEWEST_HELD_OUT} are needed: "
                "add texts of that kind, in more groups"
            )
