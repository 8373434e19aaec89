"""Only a judged version is promoted, for any acts of operators, workers and dying controllers between decisions."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan, pack
from ops.lifecycle.rollout.records import Rollout, newest, next_record
from ops.lifecycle.rollout.surroundings import Surroundings
from ops.lifecycle.versions import moves
from shared.errors import ModelError
from shared.versions.registry import Added, Checked, Noted, Registry
from shared.versions.state import Move, State
from shared.versions.version import Version
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.reports import Observation, Refusal, WorkerReport
from shared.wire.scaling import DemandReport
from tests.unit.ops.lifecycle.rollout.test_evidence import seen

OLD, NEW, OTHER = (Version(name=name, model="m", model_revision=name, manifest_sha256=name) for name in "abc")
LANES: Final[tuple[Lane, ...]] = (CHAMPION, "canary", "control")
ACTS: Final = (
    *("tick",) * 8,
    *("answers",) * 6,
    *("workers load", "workers load canary", "canary lacks", "control lacks", "canary refuses", "champion lacks"),
    *("canary leaves", "champion leaves", "gateway leaves", "gateway lags", "breaker", "calm"),
    *("load new", "load other", "unload", "use other", "use other later", "use new", "rung faq", "rung auto"),
    *("rollback", "shadow", "foreign shares", "foreign loading", "pause", "resume", "kill", "zombie"),
)


@dataclass
class System:
    """A registry, three workers and a gateway, and controllers of which each keeps nothing. `loaded` are each lane's
    versions; `stale` is a record that a controller decided before it was stopped for a while."""

    plan: Plan
    registry: Registry = field(default_factory=Registry)
    now_ms: int = 0
    loaded: dict[Lane, set[str]] = field(default_factory=lambda: {lane: {OLD.id} for lane in LANES})
    refused: set[Lane] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    lags: bool = False
    breakers: tuple[Lane, ...] = ()
    stale: Move | Noted | None = None
    number: int = 0
    observed: list[Observation] = field(default_factory=list)
    given: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for version in (OLD, NEW, OTHER):
            self.registry.apply(Added(version=version, author="ann"))
            self.registry.apply(Checked(revision=version.id, author="ann", unix_ms=0))
        self.move(State(epoch=1, aliases={CHAMPION: OLD.id}))
        self.loaded["canary"] = {NEW.id}
        self.registry.apply(Noted(rollout="r", kind="started", reason="", unix_ms=0, plan=pack(self.plan)))
        self.restart()

    def restart(self) -> None:
        """Start a controller in the place of one that was killed. It reads all observations again."""
        self.evidence = Evidence(self.plan)
        for each in self.observed:
            self.evidence.add(each)
        self.around = Surroundings(since_unix_ms=self.now_ms, faults=[])

    # --- what is so

    @property
    def rollout(self) -> Rollout:
        found = newest(self.registry)
        assert found is not None
        return found

    def report(self) -> None:
        """Have workers and gateways report, as they do each second."""
        for lane in LANES:
            refused = {NEW.id: Refusal(epoch=1, reason="corrupt")} if lane in self.refused else {}
            report = WorkerReport(
                worker_id=lane,
                unix_ms=0,
                buckets=(),
                slots=100,
                lane=lane,
                revisions=tuple(self.loaded[lane]),
                refused=refused,
            )
            self.around.observe_worker(lane, None if lane in self.gone else report, self.now_ms)
        epoch = self.registry.state_at(self.now_ms).epoch - self.lags
        said = DemandReport(
            gateway_id="g", unix_ms=0, since_unix_ms=0, epoch=epoch, rung="champion", breakers=self.breakers
        )
        self.around.observe_gateway("g", None if "gateway" in self.gone else said, self.now_ms)

    def answer(self) -> None:
        """Answer by both lanes. A canary's worker answers by what it has."""
        state = self.registry.state_at(self.now_ms)
        if state.rule is None or "canary" in self.gone:
            return
        for _ in range(3):
            self.number += 2
            common = {"epoch": state.epoch, "unix_ms": self.now_ms, "bucket": "short"}
            by = NEW.id if NEW.id in self.loaded["canary"] else OLD.id
            canary = replace(seen(self.number, **common), revision=by, answered_by=by)
            control = replace(seen(self.number + 1, "control", **common), revision=OLD.id, answered_by=OLD.id)
            for each in (canary, control):
                self.observed.append(each)
                self.evidence.add(each)
            if by == NEW.id:
                self.given["canary", state.epoch] += 1
                self.given["control", state.epoch] += 1

    # --- what is done

    def move(self, state: State, *, waiting: Move | None = None) -> None:
        state, interim = moves.beside(waiting, state)
        self.registry.apply(Move(state=state, author="ann", reason="by hand", unix_ms=self.now_ms, interim=interim))

    def pause(self) -> None:
        """Write what `rollout pause` writes: its note, and an epoch behind it."""
        self.registry.apply(Noted(rollout="r", kind="paused", reason="paused", unix_ms=self.now_ms))
        if self.rollout.begun and self.rollout.ending is None:
            self.move(moves.in_force(self.registry, self.now_ms))

    def tick(self, *, writes: bool = True) -> None:
        """Let a controller decide after a few seconds."""
        for _ in range(4):
            self.now_ms += 1_000
            self.report()
            self.health = self.around.health(
                self.plan, self.registry.state_at(self.now_ms), self.registry.moves[-1].unix_ms, self.now_ms
            )
        if self.rollout.ended is not None:
            return
        self.stale = next_record(self.rollout, self.registry, self.evidence, self.health, self.now_ms)
        if writes and self.stale is not None:
            self.write(self.stale)

    def write(self, record: Move | Noted) -> None:
        before = self.registry.state_at(self.now_ms)
        if self.registry.apply(record) and isinstance(record, Move):
            self.check(before, record)

    def write_late(self, record: Move | Noted) -> None:
        """Write what was decided before an operator's last act."""
        held, before = self.rollout.held, self.registry.state_at(self.now_ms).rule
        if self.registry.apply(record) and isinstance(record, Move) and held is not None and before is not None:
            after = record.state.rule
            assert after is None or after.share <= before.share, "promoted after its pause"
            assert record.state.aliases.get(CHAMPION) != NEW.id, "finished after its pause"

    def check(self, before: State, move: Move) -> None:
        """Assert that a promotion, a load or a finish was earned, by what the system itself has counted."""
        if move.author != "rollout r" or (move.state.rule is None and move.state.aliases.get(CHAMPION) != NEW.id):
            return
        shares = [each.state.rule.share for each in self.rollout.own_moves if each.state.rule is not None]
        if move.state.aliases.get(CHAMPION) == NEW.id:
            assert all(step in shares for step in self.plan.steps), "a step was skipped"
            assert shares[-2:] == [self.plan.steps[-1]] * 2, "the last step and the loading have separate epochs"
            assert NEW.id in self.loaded[CHAMPION]
            assert not self.plan.ab
        elif len(shares) > 1 and shares[-1] >= shares[-2]:
            since = next(each for each in reversed(self.rollout.own_moves[:-1]) if _begins(each, self.rollout))
            assert move.unix_ms - since.unix_ms >= self.plan.min_s * 1_000
            for side in ("canary", "control"):
                given = sum(n for (of, epoch), n in self.given.items() if of == side and epoch >= since.epoch)
                assert given >= self.plan.min_answers, "too few answers by the version itself"
        else:
            return
        for lane, version in (("canary", NEW.id), ("control", OLD.id)):
            assert lane not in self.gone
            assert lane == "control" or lane not in self.refused
            assert version in self.loaded[lane]  # type: ignore[index]

    def act(self, act: str) -> None:
        """Do one of `ACTS`; a move that is refused changes nothing."""
        verb, _, what = act.partition(" ")
        with contextlib.suppress(ModelError):
            match verb:
                case "tick":
                    self.tick()
                case "answers":
                    self.answer()
                case "kill":
                    self.restart()
                case "pause":
                    self.pause()
                case "resume":
                    self.registry.apply(Noted(rollout="r", kind="resumed", reason=verb, unix_ms=self.now_ms))
                case "zombie":  # it was stopped between its decision and its write
                    self.tick(writes=False)
                    stale = self.stale
                    self.act(random.Random(self.number).choice(ACTS[:-1]))
                    if stale is not None:
                        self.write_late(stale)
                case "workers" | "canary" | "control" | "champion" | "gateway" | "breaker" | "calm":
                    self._change(verb, what)
                case "rung":
                    waiting = self.registry.waiting(self.now_ms)
                    self.move(_typed(self.registry, verb, what, self.now_ms), waiting=waiting)
                    assert waiting is None or self.registry.waiting(self.now_ms) is not None, "a move was lost"
                case _:
                    self.move(_typed(self.registry, verb, what, self.now_ms))

    def _change(self, of: Any, what: str) -> None:
        match of, what:
            case "workers", _:
                for lane in ("canary",) if what == "load canary" else LANES:
                    self.loaded[lane] |= {NEW.id, OLD.id}
                self.refused.clear()
                self.gone.clear()
            case _, "lacks":
                self.loaded[of].discard(OLD.id if of == "control" else NEW.id)
            case _, "refuses":
                self.refused.add(of)
            case _, "leaves":
                self.gone.add(of)
            case _, "lags":
                self.lags = not self.lags
            case _:
                self.breakers = ("canary",) if of == "breaker" else ()


def _typed(registry: Registry, verb: str, what: str, now_ms: int) -> State:
    """Return the state that an operator's command leads to, or that a foreign program writes."""
    name, _, later = what.partition(" ")
    version = NEW.id if name == "new" else OTHER.id
    state = replace(registry.state_at(now_ms), epoch=registry.epoch + 1, effective_unix_ms=0)
    found: dict[str, Callable[[], State]] = {
        "load": lambda: moves.load(registry, version, CHAMPION, now_ms),
        "unload": lambda: moves.unload(registry, CHAMPION, now_ms),
        "use": lambda: moves.use(registry, version, CHAMPION, now_ms, now_ms + 20_000 if later else 0),
        "rung": lambda: moves.hold(registry, "faq" if what == "faq" else None, now_ms),
        "rollback": lambda: moves.rollback(registry, now_ms),
        "shadow": lambda: moves.shadow(registry, 0.1, now_ms),
        "foreign": lambda: (
            replace(state, rule=replace(state.rule, share=0.5, shares={"short": 0.5}))
            if what == "shares" and state.rule is not None
            else replace(state, loading={CHAMPION: NEW.id})
        ),
    }
    return found[verb]()


def _begins(move: Move, rollout: Rollout) -> bool:
    """Return whether a move put the class on the step that it is on before the newest own move."""
    own = rollout.own_moves
    at = own.index(move)
    shares = [each.state.rule.share if each.state.rule is not None else None for each in own]
    return shares[at] == shares[-2] and (at == 0 or shares[at - 1] != shares[at])


def plan_of(**changes: object) -> Plan:
    values = {"steps": (0.1, 0.3, 0.5), "min_answers": 6, "min_s": 8.0, "warmup": 0, "classes": ("short",)} | changes
    return Plan(version=NEW.id, champion=OLD.id, salt="s", epoch=2, **values)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(ACTS), max_size=80), st.booleans())
def test_a_version_becomes_the_champion_only_by_every_step_of_its_own(acts: list[str], ab: bool) -> None:
    """Each own move is checked when it is written."""
    system = System(plan_of(ab=ab, steps=(0.5,)) if ab else plan_of())
    for act in acts:
        system.act(act)


@pytest.mark.parametrize("part", range(5))
def test_in_500_random_interleavings_no_version_is_promoted_wrongly(part: int) -> None:
    """Long ones: most reach the later steps."""
    outcomes: Counter[str] = Counter()
    for seed in range(part * 100, part * 100 + 100):
        draw = random.Random(seed)
        system, rare = System(plan_of()), [act for act in ACTS if draw.random() < 0.15] or ["kill"]
        for _ in range(120):
            kinds = (("tick",), ("answers",), ("workers load", "calm", "resume", "unload"), rare)
            system.act(draw.choice(draw.choices(kinds, (45, 40, 12, 3))[0]))
        outcomes[system.rollout.outcome if system.rollout.ended else "goes on"] += 1
    assert outcomes["finished"] >= 10, f"too few come to their end to say anything: {outcomes}"


def test_an_undisturbed_rollout_finishes() -> None:
    system = System(plan_of())
    for _ in range(40):
        for act in ("answers", "answers", "workers load", "tick"):
            system.act(act)
    assert system.rollout.outcome == "finished"


@pytest.mark.parametrize("seed", range(20))
def test_no_step_that_was_decided_before_a_pause_is_taken_after_it(seed: int) -> None:
    """The controller reads the log, decides, and writes; the pause is written in between."""
    draw, system = random.Random(seed), System(plan_of())
    while system.rollout.ended is None:
        for act in ("answers", "answers", "workers load"):
            system.act(act)
        if draw.random() < 0.7:
            system.tick()
            continue
        system.tick(writes=False)
        stale, share = system.stale, system.registry.state_at(system.now_ms).rule
        system.act("pause")
        if stale is not None:
            system.write_late(stale)
        system.tick()
        if share is not None and system.rollout.begun:
            assert system.registry.state_at(system.now_ms).rule == share
        system.act("resume")
    assert system.rollout.outcome == "finished"
