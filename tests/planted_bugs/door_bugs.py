"""Bugs by which the door closes, somebody is not charged, or what must not be lost is."""

from typing import Final

from tests.planted_bugs.bug import Bug

DOOR_BUGS: Final = (
    Bug(
        "erasures are written to any partition",
        "gateway/kafka/request_publisher.py",
        "Outgoing(self.topics.erasures, msgpack_encode(erase), partition=BROADCAST_PARTITION)",
        "Outgoing(self.topics.erasures, msgpack_encode(erase))",
        ("tests/unit/gateway/serving/test_gateway.py",),
    ),
    Bug(
        "a hand-off of an erased conversation stays open at its gateway",
        "gateway/people/handoffs.py",
        "                return  # erased meanwhile\n",
        "                pass\n",
        ("tests/unit/gateway/people/test_handoffs.py",),
    ),
    Bug(
        "the hand-off after an erasure is taken for one before it",
        "shared/conversation/handoff_store.py",
        "tonumber(erased) > tonumber(ARGV[2])",
        "tonumber(erased) >= tonumber(ARGV[2])",
        ("tests/integration/services/test_handoff_store.py",),
    ),
    Bug(
        "without Kafka the proxy takes every gateway out",
        "shared/telemetry/status.py",
        "missing.keys() - (frozenset() if strict else self.optional)",
        "missing.keys()",
        ("tests/unit/shared/telemetry/test_status.py",),
    ),
    Bug(
        "a degraded gateway passes for a whole one",
        "shared/telemetry/status.py",
        "        if missing:\n",
        "        if False:\n",
        ("tests/unit/shared/telemetry/test_status.py",),
    ),
    Bug(
        "questions wait for a Kafka that is known to be away",
        "gateway/kafka/request_publisher.py",
        "        if self.away():\n",
        "        if False:\n",
        ("tests/unit/gateway/serving/test_gateway.py",),
    ),
    Bug(
        "erasures are free",
        "gateway/session/metering.py",
        '            return "delete"\n',
        "            return None\n",
        ("tests/unit/gateway/session/test_metering.py",),
    ),
    Bug(
        "who comes back too often is let in",
        "gateway/session/metering.py",
        "            if isinstance(effect, Begin):\n                _turn_away(connection, error)\n",
        "",
        ("tests/unit/gateway/session/test_metering.py",),
    ),
    Bug(
        "a token's key is looked for before it is charged",
        "gateway/session/metering.py",
        '            self.quotas.take_here("token", session.caller)\n',
        "            pass\n",
        ("tests/unit/gateway/session/test_metering.py",),
    ),
    Bug(
        "a tenant's customers may ask for any number of people",
        "gateway/people/handoffs.py",
        "        await self.quotas.take_handoff(tenant, reason)\n",
        "",
        ("tests/unit/gateway/people/test_handoffs.py", "tests/unit/gateway/people/test_care.py"),
    ),
    Bug(
        "where one payer has used up a minute the others are charged",
        "gateway/access/local_quota.py",
        "                return Overdrawn(charge, wait_ms)\n",
        "                self._full_ms.update(full_ms)\n                return Overdrawn(charge, wait_ms)\n",
        ("tests/unit/gateway/access/test_local_quota.py",),
    ),
    Bug(
        "anybody's header says whom he is charged as",
        "gateway/frontends/client_address.py",
        "while found is not None and hops and _is_in(found, trusted):",
        "while found is not None and hops:",
        ("tests/unit/gateway/frontends/test_client_address.py",),
    ),
    Bug(
        "an erasure forgets every conversation's turns",
        "workers/prompt/encoded_turns.py",
        "        self._encoders.pop(session, None)\n",
        "        self._encoders.clear()\n",
        ("tests/unit/workers/prompt/test_encoded_turns.py", "tests/unit/workers/prompt/test_conversation.py"),
    ),
    Bug(
        "the KV of an erased conversation is saved late",
        "workers/kv/store.py",
        "        self.drop(session, list(blocks))\n",
        "        pass\n",
        ("tests/integration/kv/test_store.py",),
    ),
    Bug(
        "the doctor passes a Redis that evicts erasure marks",
        "ops/operate/doctor/rows.py",
        '[_row("Redis of the history", memory.policy == "noeviction", room,',
        '[_row("Redis of the history", True, room,',
        ("tests/unit/ops/operate/test_doctor.py",),
    ),
    Bug(
        "a key's slot is taken of the whole key",
        "shared/redis/slots.py",
        "(tag if opened and closed and tag else key)",
        "key",
        ("tests/unit/shared/redis/test_slots.py",),
    ),
    Bug(
        "a slot that is being moved is asked for without ASKING",
        "shared/redis/nodes.py",
        '            await connection.execute_command("ASKING")  # type: ignore[no-untyped-call]\n',
        "",
        ("tests/integration/services/test_redis_cluster.py",),
    ),
)
