"""The promotions that an operator knows of: a file in TOML, and the work that must be expected because of it. It reads
no clock.

    [[promotion]]
    name = "singles day"
    from = 2026-11-11T00:00:00+08:00
    to = 2026-11-11T02:00:00+08:00
    times = 3.0      # of what was expected before it began; or work = 12.5, in machine seconds a second
    ramp_min = 15    # before `from` it grows to that, after `to` it falls
"""

from collections.abc import Sequence
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

from shared.errors import SettingsError

_EXAMPLE: Final = 'name = "singles day", from = 2026-11-11T00:00:00+08:00, to = …, and times = 3.0 or work = 12.5'
_HEAD: Final = "[[promotion]]"
_MINUTE_MS: Final = 60_000.0


class Promotion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work is at least `times` what was expected before, or `work`, from `begins` to `ends`."""

    name: Annotated[str, Meta(min_length=1)]
    begins: Annotated[datetime, Meta(tz=True)] = field(name="from")
    ends: Annotated[datetime, Meta(tz=True)] = field(name="to")
    times: Annotated[float, Meta(ge=1.0, le=1_000.0)] | None = None
    work: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    ramp_min: Annotated[float, Meta(ge=0.0, le=1_440.0)] = 0.0

    @property
    def grows_unix_ms(self) -> float:
        """Return when its ramp begins."""
        return self.begins.timestamp() * 1_000 - self.ramp_min * _MINUTE_MS

    def share(self, unix_ms: float) -> float:
        """Return how much of it there is: 1 from its begin to its end, less on its ramps, else 0."""
        early = self.begins.timestamp() * 1_000 - unix_ms
        late = unix_ms - self.ends.timestamp() * 1_000
        outside = max(early, late, 0.0)
        if self.ramp_min == 0.0:
            return 1.0 if outside == 0.0 else 0.0
        return max(0.0, 1.0 - outside / (self.ramp_min * _MINUTE_MS))


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    promotion: tuple[dict[str, Any], ...] = ()


class Calendar:
    """The work that the promotions ask for at least. It keeps what was expected before each began, for while one lasts
    the forecast has it in itself already: ask once a minute or oftener, and a new leader asks again for its history."""

    def __init__(self, promotions: Sequence[Promotion] = ()) -> None:
        self.promotions = tuple(promotions)
        self._before: dict[Promotion, float] = {}

    @classmethod
    def read(cls, path: Path) -> "Calendar":
        """Read the file. Raises `SettingsError`, which names the line and the remedy."""
        try:
            text = path.read_text(encoding="utf-8")
            found = msgspec.toml.decode(text, type=_File).promotion
        except (OSError, ValueError) as error:
            raise SettingsError(f"--calendar {path}: {error}; each [[promotion]] has {_EXAMPLE}") from None
        heads = [number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith(_HEAD)]
        places = [f"line {line}" for line in heads] if len(heads) == len(found) else [""] * len(found)
        return cls(
            [_promotion(f"--calendar {path} {place}".strip(), raw) for place, raw in zip(places, found, strict=True)]
        )

    def at_least(self, now_unix_ms: float, horizon_ms: float, base: float) -> float:
        """Return the least work to expect `horizon_ms` from now; `base` is what is expected without the calendar."""
        return max((self._least(each, now_unix_ms, horizon_ms, base) for each in self.promotions), default=0.0)

    def _least(self, promotion: Promotion, now_unix_ms: float, horizon_ms: float, base: float) -> float:
        if now_unix_ms <= promotion.grows_unix_ms or promotion not in self._before:
            self._before[promotion] = 0.0 if isnan(base) else base
        share, before = promotion.share(now_unix_ms + horizon_ms), self._before[promotion]
        if share == 0.0:
            return 0.0
        full = promotion.work if promotion.times is None else promotion.times * before
        assert full is not None
        return before + share * (full - before)


def _promotion(place: str, raw: dict[str, Any]) -> Promotion:
    try:
        promotion = msgspec.convert(raw, Promotion)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{place}: {raw.get('name', 'a promotion')}: {error}; it has {_EXAMPLE}") from None
    if promotion.ends <= promotion.begins:
        raise SettingsError(f"{place}: {promotion.name}: ends at {promotion.ends}, not after its begin; mend `to`")
    if (promotion.times is None) == (promotion.work is None):
        raise SettingsError(f"{place}: {promotion.name}: say `times` or `work`; one of them")
    return promotion
