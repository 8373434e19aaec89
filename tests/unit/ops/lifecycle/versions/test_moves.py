"""An operator's moves: each leads to one whole state, or says what to type first."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ops.lifecycle.versions import moves
from ops.lifecycle.versions.workers import LaneWorkers
from ops.lifecycle.versions.writer import RegistryWriter
from shared.errors import ModelError, SettingsError
from shared.settings.kafka import KafkaSettings
from shared.versions.registry import Added, Checked, Registry, Unreadable, decode_entry, encode_entry
from shared.versions.state import Move, Rule, State
from shared.versions.version import Version
from shared.wire.lanes import Lane
from shared.wire.reports import Refusal, WorkerReport

VERSIONS = [Version(name=name, model="m", model_revision="r", manifest_sha256=name * 64) for name in "abc"]
A, B, C = (version.id for version in VERSIONS)


def registry_of(*names: str) -> Registry:
    """Return a registry of three checked versions whose champions were these, one after the other."""
    registry = Registry()
    for version in VERSIONS:
        registry.apply(Added(version=version, author="ann"))
        registry.apply(Checked(revision=version.id, author="ann", unix_ms=0))
    for name in names:
        apply(registry, moves.use(registry, name, "champion", 0))
    return registry


def apply(registry: Registry, state: State) -> None:
    assert registry.apply(Move(state=state, author="ann", reason="test", unix_ms=0))


def test_a_new_champion_leaves_the_one_before_as_previous_and_a_rollback_swaps_them() -> None:
    registry = registry_of("a", "b")
    assert registry.state.aliases == {"champion": B, "previous": A}
    apply(registry, moves.rollback(registry, 0))
    assert registry.state.aliases == {"champion": A, "previous": B}


def test_loading_comes_first_and_is_over_with_the_move() -> None:
    registry = registry_of("a")
    apply(registry, moves.load(registry, "b", "champion", 0))
    assert (registry.state.loading, registry.state.aliases) == ({"champion": B}, {"champion": A})
    apply(registry, moves.use(registry, "b", "champion", 0))
    assert (registry.state.loading, registry.state.aliases["champion"]) == ({}, B)


@pytest.mark.parametrize("name", ["shop", "", "c0ffee", A[:5]])
def test_a_version_that_cannot_be_found_is_refused_with_what_was_compared(name: str) -> None:
    with pytest.raises(
        ModelError, match=f"^{name}: is no version's name or alias, nor the first 6 or more digits of one id; see:"
    ):
        moves.found(registry_of("a"), name)


def with_canary(registry: Registry) -> Registry:
    aliases = {**registry.state.aliases, "canary": B, "control": A, "light": C}
    rule = Rule(salt="s", share=0.1, control=True)
    apply(registry, State(epoch=registry.state.epoch + 1, aliases=aliases, rule=rule))
    return registry


def test_a_new_champion_or_a_rollback_ends_a_rollout_and_leaves_other_lanes() -> None:
    registry = with_canary(registry_of("a"))
    used, back = moves.use(registry, "c", "champion", 0), moves.rollback(registry, 0)
    assert (used.aliases, used.rule) == ({"champion": C, "previous": A, "light": C}, None)
    assert (back.aliases, back.rule) == ({"champion": A, "light": C}, None)


def test_a_shadows_share_changes_nothing_else() -> None:
    registry = with_canary(registry_of("a"))
    before = registry.state
    assert moves.shadow(registry, 0.1, 0) == replace(before, epoch=before.epoch + 1, shadow_share=0.1)


@pytest.mark.parametrize(
    ("move", "remedy"),
    [
        (lambda registry: moves.use(registry, "nobody", "champion", 0), "replyline versions list"),
        (lambda registry: moves.use(registry, "a", "champion", 0), "replyline versions list"),
        (lambda registry: moves.use(registry, "c", "canary", 0), "replyline rollout stop"),
        (lambda registry: moves.rollback(registry_of("a"), 0), "replyline versions log"),
    ],
)
def test_what_cannot_be_done_names_what_to_type(move: object, remedy: str) -> None:
    with pytest.raises(ModelError, match=remedy):
        move(with_canary(registry_of("a")))  # type: ignore[operator]


def test_a_version_that_failed_its_check_is_neither_loaded_nor_used() -> None:
    registry = registry_of("a")
    registry.apply(Checked(revision=B, author="ann", unix_ms=1, failures=("corrupt",)))
    for move in (moves.load, moves.use):
        with pytest.raises(ModelError, match="failed its check: corrupt"):
            move(registry, "b", "champion", 0)


def test_a_move_that_waits_stands_in_the_way_until_its_time_or_a_rollback() -> None:
    registry = registry_of("a")
    apply(registry, moves.use(registry, "b", "champion", 0, at_unix_ms=1_000))
    assert registry.state_at(999).aliases == {"champion": A}
    with pytest.raises(ModelError, match=r"1970-01-01T00:00:01.*replyline versions rollback"):
        moves.shadow(registry, 0.1, 999)
    assert moves.shadow(registry, 0.1, 1_000).aliases == {"champion": B, "previous": A}
    apply(registry, moves.rollback(registry, 999))
    assert registry.state_at(5_000).aliases == {"champion": A}


def test_the_ladder_is_held_while_a_move_waits_and_the_move_keeps_its_time() -> None:
    registry = registry_of("a")
    apply(registry, moves.use(registry, "b", "champion", 0, at_unix_ms=1_000))
    waiting = registry.waiting(500)
    assert waiting is not None
    state, interim = moves.beside(waiting, moves.hold(registry, "faq", 500))
    assert moves.still_waits(waiting) == "; still waits: test (by ann)"
    reason = f"flood{moves.still_waits(waiting)}"
    record = Move(state=state, author="bob", reason=reason, unix_ms=500, interim=interim)
    assert registry.apply(decode_entry(encode_entry(record)))
    assert len(registry.moves) == 3, "one record: another author's cannot come between"
    for now, champion in ((500, A), (999, A), (1_000, B)):
        assert (registry.state_at(now).rung, registry.state_at(now).aliases["champion"]) == ("faq", champion)
        assert registry.state_at(now).epoch == 3
    again, until = moves.beside(registry.waiting(600), moves.hold(registry, None, 600))
    still = moves.still_waits(registry.waiting(600))
    assert still == "; still waits: test (by ann)", "it does not grow"
    assert registry.apply(Move(state=again, author="ann", reason=still, unix_ms=600, interim=until))
    assert [registry.state_at(now).rung for now in (700, 1_000)] == [None, None]
    assert registry.state_at(1_000).aliases["champion"] == B
    apply(registry, moves.rollback(registry, 700))
    assert (registry.state_at(1_000).aliases, registry.waiting(700)) == ({"champion": A}, None)


def test_a_rollback_in_a_rollout_leaves_the_champion_and_a_second_one_has_to_be_meant() -> None:
    registry = with_canary(registry_of("b", "a"))
    whole = moves.rollback(registry, 10, champion=True, again=True)
    assert whole.aliases == {"champion": B, "previous": A, "light": C}
    apply(registry, moves.rollback(registry, 10))
    assert registry.state.aliases == {"champion": A, "previous": B, "light": C}
    for champion in (False, True):
        with pytest.raises(ModelError, match=r"ann rolled back .* s ago.*--again"):
            moves.rollback(registry, 599_000, champion=champion)
    assert moves.rollback(registry, 599_000, again=True).aliases["champion"] == B
    assert moves.rollback(registry, 600_001).aliases["champion"] == B


@pytest.mark.parametrize("again", [False, True])
def test_a_second_rollback_without_a_previous_version_says_that_there_is_no_such_version(again: bool) -> None:
    registry = with_canary(registry_of("a"))
    apply(registry, moves.rollback(registry, 10))
    with pytest.raises(ModelError, match=r"^there is no previous version to return to; see: replyline versions log$"):
        moves.rollback(registry, 20, again=again)


def test_a_new_champion_can_be_rolled_back_soon_after_another_rollback() -> None:
    registry = with_canary(registry_of("b", "a"))
    apply(registry, moves.rollback(registry, 10))
    apply(registry, moves.use(registry, "c", "champion", 20))
    assert moves.rollback(registry, 30, champion=True).aliases["champion"] == A


@pytest.mark.parametrize("lane", ["light", "cpu", "shadow"])
def test_a_lanes_version_can_be_taken_away(lane: Lane) -> None:
    registry = registry_of("a")
    apply(registry, moves.use(registry, "b", lane, 0))
    apply(registry, moves.close(registry, lane, 0))
    assert registry.closed(lane, 1)
    with pytest.raises(ModelError, match="has no version"):
        moves.close(registry, lane, 0)


@pytest.mark.parametrize(
    ("lane", "remedy"), [("champion", "versions use"), ("canary", "rollout stop"), ("control", "rollout stop")]
)
def test_a_lane_with_customers_is_not_closed(lane: Lane, remedy: str) -> None:
    with pytest.raises(ModelError, match=remedy):
        moves.close(with_canary(registry_of("a")), lane, 0)


ACTS = st.sampled_from(["use a", "use b", "use c", "load b", "unload", "hold", "rollback"])


@given(st.lists(ACTS, max_size=12))
def test_whatever_is_typed_champion_and_previous_differ_and_epochs_count_up(acts: Sequence[str]) -> None:
    registry = registry_of("a")
    for act in acts:
        verb, _, name = act.partition(" ")
        try:
            match verb:
                case "use":
                    state = moves.use(registry, name, "champion", 0)
                case "load":
                    state = moves.load(registry, name, "champion", 0)
                case "unload":
                    state = moves.unload(registry, "champion", 0)
                case "hold":
                    state = moves.hold(registry, "light", 0)
                case _:
                    state = moves.rollback(registry, 0)
        except ModelError:
            continue
        apply(registry, state)
        assert state.aliases["champion"] != state.aliases.get("previous")


@pytest.mark.parametrize(
    ("text", "moment"),
    [("+90s", 91_000), ("+2h", 7_201_000), ("1970-01-01T00:01:00Z", 60_000), ("1970-01-01T01:01:00+01:00", 60_000)],
)
def test_a_moment_is_a_span_or_a_time(text: str, moment: int) -> None:
    assert moves.parse_moment(text, 1_000) == moment


@pytest.mark.parametrize("text", ["soon", "+5d", "1970-01-01", ""])
def test_a_moment_that_has_passed_or_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--at"):
        moves.parse_moment(text, 1_000)


def test_only_live_workers_of_the_lane_are_waited_for() -> None:
    workers = LaneWorkers("champion")

    def report(name: str, *revisions: str, lane: str = "champion") -> WorkerReport:
        return WorkerReport(worker_id=name, unix_ms=0, buckets=(), slots=1, lane=lane, revisions=revisions)  # type: ignore[arg-type]

    for name, given_report in {
        "has": report("has", A, B),
        "lacks": report("lacks", A),
        "elsewhere": report("elsewhere", A, lane="canary"),
        "leaves": report("leaves", A),
    }.items():
        workers.observe(name, given_report, 0)
    workers.observe("leaves", None, 1)
    assert workers.loaded(B, 3_000) == {"has": True, "lacks": False}
    workers.observe("lacks", report("lacks", B), 3_001)
    assert workers.loaded(B, 3_002) == {"lacks": True}


def test_a_worker_that_refuses_the_version_since_the_move_says_why() -> None:
    workers = LaneWorkers("champion")
    for epoch in (4, 5):
        refused = {B: Refusal(epoch=epoch, reason="corrupt")}
        report = WorkerReport(worker_id=f"w-{epoch}", unix_ms=0, buckets=(), slots=1, refused=refused)
        workers.observe(report.worker_id, report, 0)
    assert workers.refusals(B, 5) == {"w-5": "corrupt"}


@pytest.mark.parametrize("named", [4, 2, 5])
def test_only_the_named_newest_move_that_cannot_be_read_is_passed_over(named: int) -> None:
    registry = registry_of("a", "b")
    apply(registry, moves.use(registry, "c", "champion", 0, at_unix_ms=9_000))
    with pytest.raises(ModelError, match="--over-epoch 3: this release can read every move"):
        moves.pass_over(registry, 3, 0)
    assert registry.apply(Unreadable(epoch=4))
    if named != 4:
        with pytest.raises(ModelError, match=f"--over-epoch {named}: the newest move is epoch 4"):
            moves.pass_over(registry, named, 5_000)
        return
    apply(registry, moves.pass_over(registry, named, 5_000))
    assert (registry.epoch, registry.blocked) == (5, None)
    assert registry.state_at(10_000).aliases == {"champion": B, "previous": A}, "the scheduled move is off"
    apply(registry, moves.rollback(registry, 10_000))


@pytest.mark.parametrize("named", ["rollout r", None], ids=["by the option", "by the user's name"])
async def test_only_a_rollout_signs_as_a_rollout(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    """The controller treats its moves as its own progress."""
    monkeypatch.setenv("LOGNAME", "rollout r")
    with pytest.raises(SettingsError, match="only a rollout's own moves"):
        async with RegistryWriter.opened(KafkaSettings(), named):
            pass
