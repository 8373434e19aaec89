"""Bugs by which the door closes, somebody is not charged, or what must not be lost is."""

from typing import Final

from ops.planted_bugs.bug import Bug

DOOR_BUGS: Final = (
    Bug(
        "erasures are written to any partition",
        "gateway/request_publisher.py",
        "Outgoing(self.topics.erasures, msgpack_encode(erase), partition=BROADCAST_PARTITION)",
        "Outgoing(self.topics.erasures, msgpack_encode(erase))",
        ("tests/unit/test_gateway.py",),
    ),
    Bug(
        "a hand-off of an erased conversation stays open at its gateway",
        "gateway/handoffs.py",
        "                return  # erased meanwhile\n",
        "                pass\n",
        ("tests/unit/test_handoffs.py",),
    ),
    Bug(
        "the hand-off after an erasure is taken for one before it",
        "shared/handoff_store.py",
        "tonumber(erased) > tonumber(ARGV[2])",
        "tonumber(erased) >= tonumber(ARGV[2])",
        ("tests/integration/test_handoff_store.py",),
    ),
    Bug(
        "without Kafka the proxy takes every gateway out",
        "shared/status.py",
        "missing.keys() - (frozenset() if strict else self.optional)",
        "missing.keys()",
        ("tests/unit/test_status.py",),
    ),
    Bug(
        "a degraded gateway passes for a whole one",
        "shared/status.py",
        "        if missing:\n",
        "        if False:\n",
        ("tests/unit/test_status.py",),
    ),
    Bug(
        "questions wait for a Kafka that is known to be away",
        "gateway/request_publisher.py",
        "        if self.away():\n",
        "        if False:\n",
        ("tests/unit/test_gateway.py",),
    ),
    Bug(
        "erasures are free",
        "gateway/metering.py",
        '            return "delete"\n',
        "            return None\n",
        ("tests/unit/test_metering.py",),
    ),
    Bug(
        "who comes back too often is let in",
        "gateway/metering.py",
        "            if isinstance(effect, Begin):\n                _turn_away(connection, error)\n",
        "",
        ("tests/unit/test_metering.py",),
    ),
    Bug(
        "a token's key is looked for before it is charged",
        "gateway/metering.py",
        '            self.quotas.take_here("token", session.caller)\n',
        "            pass\n",
        ("tests/unit/test_metering.py",),
    ),
    Bug(
        "a tenant's customers may ask for any number of people",
        "gateway/handoffs.py",
        "        await self.quotas.take_handoff(tenant, reason)\n",
        "",
        ("tests/unit/test_handoffs.py", "tests/unit/test_care.py"),
    ),
    Bug(
        "where one payer has used up a minute the others are charged",
        "gateway/local_quota.py",
        "                return Overdrawn(charge, wait_ms)\n",
        "                self._full_ms.update(full_ms)\n                return Overdrawn(charge, wait_ms)\n",
        ("tests/unit/test_local_quota.py",),
    ),
    Bug(
        "anybody's header says whom he is charged as",
        "gateway/client_address.py",
        "while found is not None and hops and _is_in(found, trusted):",
        "while found is not None and hops:",
        ("tests/unit/test_client_address.py",),
    ),
    Bug(
        "an erasure forgets every conversation's turns",
        "workers/encoded_turns.py",
        "        self._encoders.pop(session, None)\n",
        "        self._encoders.clear()\n",
        ("tests/unit/test_encoded_turns.py", "tests/unit/test_conversation.py"),
    ),
    Bug(
        "the KV of an erased conversation is saved late",
        "workers/kv/store.py",
        "        self.drop(session, list(blocks))\n",
        "        pass\n",
        ("tests/integration/test_kv_store.py",),
    ),
    Bug(
        "the doctor passes a Redis that evicts erasure marks",
        "ops/doctor_rows.py",
        '[_row("Redis of the history", memory.policy == "noeviction", room,',
        '[_row("Redis of the history", True, room,',
        ("tests/unit/test_doctor.py",),
    ),
    Bug(
        "a key's slot is taken of the whole key",
        "shared/redis_slots.py",
        "(tag if opened and closed and tag else key)",
        "key",
        ("tests/unit/test_redis_slots.py",),
    ),
    Bug(
        "a slot that is being moved is asked for without ASKING",
        "shared/redis_nodes.py",
        '            await connection.execute_command("ASKING")  # type: ignore[no-untyped-call]\n',
        "",
        ("tests/integration/test_redis_cluster.py",),
    ),
)
