"""Redis assigns a question the partition that the gateway's offer selects."""

import asyncio

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.destination.partitions import Offer
from shared.conversation.places import Places
from shared.redis import client as redis_client
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.unit.examples import examples

PARTITION = st.integers(0, 11)
QUESTIONS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 40), PARTITION, st.none() | st.frozensets(PARTITION)), max_size=8
)
WHY = {"new": "slack", "kept": "kv", "moved": "moved", "pinned": "pinned"}


@given(questions=QUESTIONS)
@settings(max_examples=examples(200), deadline=None)
def test_each_question_is_claimed_on_the_partition_of_its_offer(
    questions: list[tuple[int, int, int, frozenset[int] | None]],
) -> None:
    asyncio.run(ask_all(questions))


async def ask_all(questions: list[tuple[int, int, int, frozenset[int] | None]]) -> None:
    session, now, ends, last = SessionKey("demo", "s"), 1, 0, None
    with pytest.MonkeyPatch.context() as patch:
        server = fakeredis.FakeServer(version=(7,))
        patch.setattr(redis_client, "async_redis", lambda *_, **__: fakeredis.FakeAsyncRedis(server=server))
        places = Places(RedisSettings(timeout_ms=10_000))
        for number, (later, lasts, wanted, staying) in enumerate(questions):
            now += later
            chosen = Offer(wanted, "slack", staying).to(last, pinned=ends > now)
            claimed = await places.claim(
                session, f"r{number}", wanted, staying=staying, now_unix_ms=now, until_unix_ms=now + lasts
            )
            assert (claimed.partition, WHY[claimed.how]) == (chosen.partition, chosen.why)
            last, ends = claimed.partition, max(ends, now + lasts)
        await places.close()
