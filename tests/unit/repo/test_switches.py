"""A proof's settings differ from what is shipped only where the list of switches says why."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from shared.settings import Settings
from tests.chaos.actors import member
from tests.integration.doors import test_tenant_flood
from tests.integration.faults import test_every_door, test_open_questions
from tests.integration.harness import test_overload
from tests.proofs.elastic import pool, test_hot_cold, test_reserve
from tests.proofs.lifecycle import setting
from tests.support.switches import SHIPPED, WHY, WHY_HERE, flat
from tests.support.system import COMMON
from tests.world.processes import settings_of


def marked(mark: pytest.MarkDecorator) -> dict[str, Any]:
    """Return the settings of a module's system."""
    return {name: value for name, value in mark.kwargs.items() if "__" in name}


PROOFS: Final[Mapping[str, Mapping[str, Any]]] = {
    "chaos": {name.lower(): value for name, value in member.ENV.items()},
    "elastic": COMMON | pool.SETTINGS,
    "every door": COMMON | test_every_door._SETTINGS,
    "hot and cold": COMMON | test_hot_cold.SETTINGS | {"gateway__placement": "hash"},
    "reserve": COMMON | test_reserve.SETTINGS | {"worker__long_slots_share": max(test_reserve.SHARES.values())},
    "lifecycle": setting.SETTINGS,
    "open questions": COMMON | test_open_questions._SETTINGS,
    "overload": COMMON | marked(test_overload.pytestmark[1]),
    "tenant flood": COMMON | marked(test_tenant_flood.pytestmark),
    "world": flat(settings_of("worker", 1))
    | {"gateway__port": 9_000, "gateway__reply_partition": 1, "worker__instance_id": "static"},
}


def switched(proof: str) -> set[str]:
    """Return the names of the settings whose values are not the defaults."""
    shipped = {name: _text(value) for name, value in flat(Settings()).items()}
    return {name for name, value in PROOFS[proof].items() if _text(value) != shipped[name]}


def _text(value: Any) -> str:
    """Return a value as the environment has it."""
    return str(value).lower()


@pytest.mark.parametrize("proof", PROOFS)
def test_a_proof_differs_from_what_is_shipped_only_by_named_switches(proof: str) -> None:
    assert switched(proof) - WHY.keys() - WHY_HERE.get(proof, {}).keys() == set()


def test_no_switch_is_named_that_no_proof_needs() -> None:
    assert WHY.keys() - {name for proof in PROOFS for name in switched(proof)} == set()
    for proof, named in WHY_HERE.items():
        assert named.keys() - switched(proof) == set(), proof


@pytest.mark.parametrize("proof", ["chaos", "elastic", "open questions", "world"])
def test_proofs_of_the_promise_have_prompts_as_shipped(proof: str) -> None:
    prompts = ("worker__history_turns", "worker__grounding_entries", "worker__system_prompt")
    assert not switched(proof) & {*prompts, *SHIPPED} - WHY_HERE.get(proof, {}).keys()
