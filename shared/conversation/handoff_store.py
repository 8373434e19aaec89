"""Keep the open hand-off of each conversation in Redis until it is resolved or expires. A cache: without it a customer
may be handed over twice."""

from shared.conversation.handoffs import Handoff, decode_handoff
from shared.conversation.session_value import SessionValue
from shared.errors import ProtocolError
from shared.settings.redis import RedisSettings
from shared.wire.codec import msgpack_encode
from shared.wire.session_key import SessionKey


class HandoffStore:
    """Each method raises `StoreUnavailable` where Redis does not answer in time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._values = SessionValue(settings, "handoff")

    async def find(self, session: SessionKey) -> Handoff | None:
        """Return the hand-off that is open; None also for what another version wrote."""
        value = await self._values.find(session)
        return None if value is None else _read(value)

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation, 0 where it was not erased lately."""
        return await self._values.generation(session)

    async def put(self, handoff: Handoff, *, generation: int, open_s: float) -> bool:
        """Keep one that was asked for in that generation; False where that was erased."""
        return await self._values.put(handoff.session, msgpack_encode(handoff), generation=generation, kept_s=open_s)

    async def remove(self, handoff: Handoff) -> bool:
        """Remove a hand-off that is resolved; return whether it was open: another of its conversation stays."""
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
