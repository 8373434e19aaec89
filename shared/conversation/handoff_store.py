"""Store each conversation's open hand-off in Redis until it is resolved or expires.

This is a cache: without it a customer may be handed over twice.
"""

from shared.conversation.handoffs import Handoff, decode_handoff
from shared.conversation.session_value import SessionValue
from shared.errors import ProtocolError
from shared.settings.redis import RedisSettings
from shared.wire.codec import msgpack_encode
from shared.wire.session_key import SessionKey


class HandoffStore:
    """Open hand-offs in Redis. Each method raises `StoreUnavailable` if Redis does not answer in time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._values = SessionValue(settings, "handoff")

    async def find(self, session: SessionKey) -> Handoff | None:
        """Return the open hand-off; None also if another release wrote it in a format that cannot be decoded."""
        value = await self._values.find(session)
        return None if value is None else _read(value)

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation; 0 if it was not erased recently."""
        return await self._values.generation(session)

    async def put(self, handoff: Handoff, *, generation: int, open_s: float) -> bool:
        """Store a hand-off that was requested in that generation; return False if the generation was erased."""
        return await self._values.put(handoff.session, msgpack_encode(handoff), generation=generation, kept_s=open_s)

    async def remove(self, handoff: Handoff) -> bool:
        """Remove a resolved hand-off and return whether it was open. A newer one of its conversation is not removed."""
        value = await self._values.find(handoff.session)
        if value is None or (kept := _read(value)) is None or kept.id != handoff.id:
            return False
        return await self._values.remove(handoff.session, value)

    async def close(self) -> None:
        await self._values.close()


def _read(value: bytes) -> Handoff | None:
    try:
        return decode_handoff(value)
    except ProtocolError:
        return None
