"""An operator's own conditions of a rollout: a figure below a bound, and approved steps."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec import msgpack
from msgspec.structs import replace
from typer.testing import CliRunner

from gateway.outbound import calls as calls_module
from gateway.outbound.calls import Calls
from ops import cli
from ops.lifecycle.rollout import commands
from ops.lifecycle.rollout.commands import StartOptions
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.health import Watch
from ops.lifecycle.rollout.plan import pack
from ops.lifecycle.rollout.policy import Health
from ops.lifecycle.rollout.prometheus import Prometheus, asked
from ops.lifecycle.rollout.records import Rollout, judge, newest, record_of
from ops.lifecycle.versions.moves import rollback
from shared.errors import ModelError
from shared.settings import Settings
from shared.versions.registry import Checked, Noted, Registry, Unreadable
from shared.versions.state import Move
from shared.versions.version import Version
from tests.unit.ops.lifecycle.rollout.test_policy import BEFORE
from tests.unit.ops.lifecycle.rollout.test_policy import PLAN as POLICY_PLAN

PLAN = replace(POLICY_PLAN, epoch=2, min_answers=0, min_s=0.0)
QUERY = replace(PLAN, query="returns", at_most=0.01)
UNUSED: Any = None


def registry_of(plan: Any) -> Registry:
    """Return a registry in which a rollout has its first step since the first millisecond."""
    registry = Registry()
    started = Noted(rollout="r", kind="started", reason="new", unix_ms=1, plan=pack(plan))
    for record in (Move(state=replace(BEFORE, epoch=1), author="ann", reason="use", unix_ms=0), started):
        registry.apply(record)
    turn(registry, 1)
    return registry


def approval(registry: Registry, unix_ms: int) -> Noted:
    """Return an approval of the step that the rollout is on."""
    epoch = {"epoch": float(registry.epoch)}
    return Noted(rollout="r", kind="approved", reason="good", unix_ms=unix_ms, numbers=epoch)


def rollout_of(registry: Registry) -> Rollout:
    rollout = newest(registry)
    assert rollout is not None
    return rollout


def turn(registry: Registry, now_unix_ms: int, own: float | str | None = None) -> str:
    """Decide once as the controller does; return the kind of the decision."""
    rollout, evidence = rollout_of(registry), Evidence(rollout_of(registry).plan)
    numbers = evidence.numbers() | ({"own": own} if isinstance(own, float) else {})
    server = Prometheus(UNUSED, "", rollout.plan.query, own)
    health = server.bounded(Health(champions_loaded=True), rollout.plan)
    decision = judge(rollout, registry, evidence, health, now_unix_ms)
    record = record_of(decision, rollout, registry, numbers, now_unix_ms)
    if record is not None:
        registry.apply(record)
    return decision.kind


def shares(registry: Registry) -> set[float]:
    rule = registry.state.rule
    return set() if rule is None else set(rule.shares.values())


@pytest.mark.parametrize(
    ("own", "kind"),
    [(None, "promote"), (0.01, "promote"), (0.02, "roll back"), ("no answer", "freeze"), (float("-inf"), "promote")],
)
def test_a_figure_beyond_its_bound_rolls_back_and_an_unknown_one_freezes(own: float | str | None, kind: str) -> None:
    registry = registry_of(QUERY)
    assert turn(registry, 10, own) == kind
    if kind == "roll back":
        assert turn(registry, 11) == "ended"
        assert (shares(registry), rollout_of(registry).outcome) == (set(), "rolled_back")


def test_a_paused_rollout_is_rolled_back_by_the_figure_too() -> None:
    registry = registry_of(QUERY)
    registry.apply(Noted(rollout="r", kind="paused", reason="a sale", unix_ms=5))
    assert turn(registry, 10, 0.0) == "hold"
    assert turn(registry, 11, 1.0) == "roll back"


def test_each_step_waits_for_an_approval_of_its_own_and_the_last_one_allows_the_finish() -> None:
    registry = registry_of(replace(PLAN, approve=True))
    seen = [shares(registry)]
    for now in range(10, 100, 10):
        if rollout_of(registry).ended is not None:
            break
        while turn(registry, now) != "hold" and rollout_of(registry).ended is None:
            pass
        seen.append(shares(registry))
        registry.apply(approval(registry, now + 5))
    steps = [{share} for share in PLAN.steps]
    assert [each for at, each in enumerate(seen) if each and each not in seen[:at]] == steps
    assert len(seen) >= len(steps) + 1
    assert rollout_of(registry).outcome == "finished"


def test_a_version_that_a_person_has_loaded_on_the_champions_workers_needs_the_approvals_too() -> None:
    registry = registry_of(replace(PLAN, approve=True))
    warm = replace(registry.state, epoch=3, loading={"champion": PLAN.version})
    registry.apply(Move(state=warm, author="ann", reason="load", unix_ms=2))
    registry.apply(approval(registry, 5))
    assert [turn(registry, 10), turn(registry, 20), turn(registry, 30)] == ["promote", "hold", "hold"]


def test_a_pause_and_a_missing_approval_are_lifted_each_by_its_own_command() -> None:
    registry = registry_of(replace(PLAN, approve=True))
    registry.apply(Noted(rollout="r", kind="paused", reason="a sale", unix_ms=2))
    registry.apply(approval(registry, 5))
    assert (turn(registry, 10), rollout_of(registry).paused) == ("hold", "a sale")
    registry.apply(Noted(rollout="r", kind="resumed", reason="over", unix_ms=15))
    assert [turn(registry, 20), turn(registry, 30)] == ["promote", "hold"]
    registry.apply(Noted(rollout="r", kind="paused", reason="a sale", unix_ms=35))
    registry.apply(Noted(rollout="r", kind="resumed", reason="over", unix_ms=40))
    assert turn(registry, 50) == "hold", "the second step has no approval"


@pytest.mark.parametrize("clock_ms", [-3_600_000, 0, 3_600_000])
def test_an_approval_is_of_the_step_that_its_author_saw_by_any_clock(clock_ms: int) -> None:
    registry = registry_of(replace(PLAN, approve=True))
    registry.apply(approval(registry, 4_000_000 + clock_ms))
    assert [turn(registry, 4_000_010), turn(registry, 4_000_020)] == ["promote", "hold"]


def test_a_check_that_fails_during_a_rollout_freezes_it_until_one_passes() -> None:
    registry = registry_of(PLAN)
    registry.apply(Checked(revision=PLAN.version, author="ann", unix_ms=2, failures=("golden is 0.2",)))
    kinds = {turn(registry, now) for now in range(10, 20)}
    assert (kinds, shares(registry)) == ({"freeze"}, {PLAN.steps[0]})
    assert "golden is 0.2" in rollout_of(registry).judgements[-1].reason
    registry.apply(Checked(revision=PLAN.version, author="ann", unix_ms=20))
    assert turn(registry, 21) == "promote"


def test_a_start_that_was_cut_off_is_not_carried_out_after_a_failed_check() -> None:
    registry = registry_of(PLAN)
    registry.moves.pop()
    registry.state = registry.moves[-1].state
    registry.apply(Checked(revision=PLAN.version, author="ann", unix_ms=2, failures=("golden is 0.2",)))
    assert turn(registry, 10) == "ended"
    assert (shares(registry), rollout_of(registry).begun) == (set(), False)


def test_without_an_approval_nothing_is_promoted_and_evidence_is_not_waited_for() -> None:
    registry = registry_of(replace(QUERY, approve=True))
    assert {turn(registry, now, 0.0) for now in range(10, 90_000_000, 1_000_000)} == {"hold"}
    assert turn(registry, 90_000_001, 1.0) == "roll back"


@dataclass
class Answers:
    """Prometheus' answer."""

    body: bytes

    async def call(self, _method: str, _url: str) -> bytes:
        return self.body


def vector(*values: str) -> dict[str, Any]:
    samples = [{"metric": {}, "value": [1.0, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": samples}}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (vector("0.02"), 0.02),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1.0, "3"]}}, 3.0),
        (vector(), "one finite number"),
        (vector("1", "2"), "one finite number"),
        (vector("NaN"), "one finite number"),
        (vector("+Inf"), "one finite number"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"values": []}]}}, "no answer"),
        ({"status": "error"}, "no answer"),
        ([], "no answer"),
        (b"[" * 100_000, "no answer"),
        (b"<html>", "no answer"),
        (b"", "no answer"),
    ],
)
async def test_only_one_finite_number_is_a_value(answer: Any, found: float | str) -> None:
    calls: Any = Answers(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
    value = await asked(calls, "http://prometheus:9090/", "sum(returns)")
    assert value == found if isinstance(found, float) else isinstance(value, str) and found in value


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1", "http://[::1", "prometheus:9090"])
async def test_a_prometheus_that_is_away_or_wrongly_named_is_a_reason(url: str) -> None:
    calls = Calls({})
    assert f"REPLYLINE_ROLLOUT__PROMETHEUS_URL={url} (" in str(await asked(calls, url, "up"))
    await calls.close()


@pytest.mark.parametrize("page", ["prometheus", "gateway"])
async def test_a_page_that_never_ends_is_a_reason_and_no_old_value_is_kept(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "_TIMEOUT_S", 0.05)

    async def drip(_: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        client.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                client.write(b" ")
                await client.drain()
                await asyncio.sleep(0.001)
        client.close()

    server, calls = await asyncio.start_server(drip, "127.0.0.1", 0), Calls({})
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    watch = Watch(Settings().kafka, (), calls, UNUSED)
    found = await (asked(calls, url, "up") if page == "prometheus" else watch._gateway(url))
    assert "(TimeoutError)" in str(found)
    await calls.close()
    server.close()


@pytest.mark.parametrize("given", [["--query", "up"], ["--at-most", "1"], ["--min-s", "604800"]])
def test_options_that_do_not_fit_together_are_refused(given: list[str]) -> None:
    done = CliRunner().invoke(cli.app, ["rollout", "start", "v", *given])
    assert done.exit_code == 2


def of_a_later_release(plan: Any) -> Any:
    """Return a plan with a class that this release has not."""
    fields = msgpack.decode(pack(plan))
    return msgspec.Raw(msgpack.encode({**fields, "classes": ["short", "huge"]}))


ENDED = Noted(rollout="r", kind="ended", reason="by a controller whose clock is ahead", unix_ms=2)


@pytest.mark.parametrize("end", [None, ENDED], ids=["its plan cannot be read", "noted as ended"])
@pytest.mark.parametrize("command", ["start", "stop"])
def test_no_rollout_begins_over_one_that_still_has_customers(
    command: str, end: Noted | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = registry_of(PLAN)
    if end is not None:
        registry.apply(end)
    else:
        registry.notes[0] = replace(registry.notes[0], plan=of_a_later_release(PLAN))
    version = Version(name="c", model="m", model_revision="c", manifest_sha256="c")
    monkeypatch.setattr(commands, "allowed", lambda *_: version)
    assert registry.state.rule is not None
    start = partial(commands._plan, registry, StartOptions(version="c"), (0.01,), 0)
    with pytest.raises(ModelError, match="replyline versions rollback"):
        start() if command == "start" else commands._found(registry, active=True)
    registry.apply(Move(state=rollback(registry, 10.0), author="ann", reason="", unix_ms=10))
    assert start().epoch == registry.epoch + 1


def test_behind_a_move_that_cannot_be_read_nothing_is_noted_and_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry()
    registry.apply(Move(state=replace(BEFORE, epoch=1), author="ann", reason="use", unix_ms=0))
    registry.apply(Unreadable(epoch=2))
    version = Version(name="c", model="m", model_revision="c", manifest_sha256="c")
    monkeypatch.setattr(commands, "allowed", lambda *_: version)
    with pytest.raises(ModelError, match="rollback --over-epoch 2; nothing was started"):
        commands._plan(registry, StartOptions(version="c"), (0.01,), 0)
