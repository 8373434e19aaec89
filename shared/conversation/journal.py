"""The journal of the answers and erasures of an edge that its centre does not know yet, in order: a list in the edge's
Redis. Turns and erasures are written in one script with the history, so neither is in one place alone."""

from typing import Any, Final

import msgspec

from shared.conversation.turn import Turn
from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.fields import Count, Identifier
from shared.wire.session_key import SessionKey

JOURNAL: Final = "replyline:journal"
MAX_JOURNALLED: Final = 100_000  # turns; an erasure is kept all the same
_PLACE: Final = "replyline:journal:erasures"
_MOST: Final = 50
_MOST_BYTES: Final = 48 * 1_024  # a gateway reads bodies of 64 KiB


class Journalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn of a conversation, or the generation that began as it was `erased`."""

    session_id: Identifier
    turn: Turn | None = None
    erased: Count | None = None


def turn_entry(session: SessionKey, turn: Turn) -> bytes:
    """Return a turn as the journal holds it: its tokens mean something to one model alone."""
    told = msgspec.structs.replace(turn, output_ids=(), window_start=None)
    return _encode(Journalled(session_id=session.session_id, turn=told))


def erased_entry(session: SessionKey) -> tuple[bytes, bytes]:
    """Return an erasure as the journal holds it, in two parts: its generation, which the script knows, is between."""
    return _encode({"session_id": session.session_id})[:-1] + b',"erased":', b"}"


class Journal:
    """The edge's end of it. One reader; to be closed. Methods raise `StoreUnavailable`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._calls = RedisCalls(settings, tells=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)

    async def first(self, *, alone: bool = False) -> tuple[int, bytes]:
        """Return how many entries come first, as many as go into one body or one `alone`, and that body; 0 where there
        are none."""
        most = 1 if alone else _MOST
        values: list[Any] = await self._calls.bounded(
            self._redis.call(lambda redis: redis.lrange(JOURNAL, 0, most - 1))
        )
        chosen: list[bytes] = []
        for value in values:
            if chosen and sum(map(len, chosen)) + len(value) > _MOST_BYTES:
                break
            chosen.append(value)
        return len(chosen), b"[" + b",".join(chosen) + b"]"

    async def drop(self, num: int) -> None:
        """Forget the first entries, which the centre has."""
        await self._calls.bounded(self._redis.call(lambda redis: redis.ltrim(JOURNAL, num, -1)))

    async def place(self) -> int | None:
        """Return the place in the centre's erasures up to which they are known here; None before the first."""
        found = await self._calls.bounded(self._redis.call(lambda redis: redis.get(_PLACE)))
        return None if found is None else int(found)

    async def keep_place(self, place: int) -> None:
        await self._calls.bounded(self._redis.call(lambda redis: redis.set(_PLACE, place)))

    async def close(self) -> None:
        await self._redis.close()


_encode = msgspec.json.Encoder().encode
