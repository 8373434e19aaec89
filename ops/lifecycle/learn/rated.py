"""Read and remove the bad answers that gateways keep in Redis, with their conversations."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from ops.lifecycle.learn.candidates import Rated
from shared.conversation.corrections import KEPT_S, BadAnswer, decode_bad_answers, encode_bad_answers, without
from shared.conversation.session_value import SessionValue
from shared.errors import StoreUnavailable
from shared.redis.client import RedisClient, cause_of
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

_WHAT: Final = "bad_answers"
_KEY: Final = re.compile(rb"replyline:\{([^/}]+)/([^}]+)\}:bad_answers")
_TIMEOUT_MS: Final = 5_000.0


class RatedAnswers:
    """Each method raises `StoreUnavailable`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._address = settings.shown_url
        self._client = RedisClient(settings, timeout_ms=_TIMEOUT_MS)
        self._values = SessionValue(settings, _WHAT)

    async def all(self, forgotten: Mapping[str, int]) -> list[Rated]:
        """Return the bad answers, in no order, without those rated before their conversation was forgotten.

        Args:
            forgotten: the digest of a conversation → the Unix ms until which nothing of it may be kept
        """
        try:
            keys = await self._client.call(_keys)
        except (RedisError, OSError) as error:
            remedy = "start Redis, or set REPLYLINE_REDIS__URL to its address"
            raise StoreUnavailable(f"no Redis at {self._address}: {cause_of(error)}; {remedy}") from error
        found: list[Rated] = []
        for key in keys:
            if (matched := _KEY.fullmatch(key)) is not None:
                session = SessionKey(matched[1].decode(), matched[2].decode())
                until, kept = forgotten.get(session.digest, 0), _decoded(await self._values.find(session))
                found += [Rated(session=session, bad=bad) for bad in kept if bad.rated_unix_ms > until]
        return found

    async def remove(self, rated: Rated) -> None:
        """Remove a bad answer that was dealt with."""
        generation = await self._values.generation(rated.session)  # first: a later erasure then wins
        value = await self._values.find(rated.session)
        kept = encode_bad_answers(without(_decoded(value), rated.bad.response_id))
        # A value that has changed since it was read, as by a withdrawn consent, stays as it is.
        await self._values.replace(rated.session, kept, value, generation=generation, kept_s=KEPT_S)

    async def close(self) -> None:
        await self._values.close()
        await self._client.close()


def _decoded(value: bytes | None) -> tuple[BadAnswer, ...]:
    try:
        return decode_bad_answers(value) if value is not None else ()
    except msgspec.MsgspecError:  # of another release
        return ()


@asynccontextmanager
async def rated_answers(settings: RedisSettings) -> AsyncIterator[RatedAnswers]:
    answers = RatedAnswers(settings)
    try:
        yield answers
    finally:
        await answers.close()


async def _keys(redis: Redis) -> list[bytes]:
    keys, found = redis.scan_iter(match=f"replyline:*:{_WHAT}", count=1_000), list[bytes]()
    while (key := await asyncio.wait_for(anext(keys, None), _TIMEOUT_MS / 1_000)) is not None:
        found.append(key)
    return found
