"""Redis' clients of a gateway."""

from contextlib import AsyncExitStack

from gateway.access.charges import Tariff
from gateway.access.quotas import Quotas
from gateway.people.bad_answers import BadAnswers
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.history import History
from shared.conversation.places import Places
from shared.conversation.session_value import SessionValue
from shared.settings import Settings


class RedisWing:
    """Redis' clients."""

    def __init__(self, settings: Settings) -> None:
        self.history = History(settings.redis, kv=settings.redis_of_kv, journal_of=settings.journal_of)
        self.quotas = Quotas(Tariff(settings.quotas, settings.handoff), settings.redis)
        self.handoffs = HandoffStore(settings.redis)
        self.running = SessionValue(settings.redis, "running")
        self.places = Places(settings.redis) if settings.gateway.placement == "slack" else None
        self.bad_answers = BadAnswers(history=self.history, store=SessionValue(settings.redis, "bad_answers"))

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (self.bad_answers, self.running, self.handoffs, self.quotas, self.history, self.places):
                if part is not None:
                    closing.push_async_callback(part.close)
