"""A worker changes its version while it answers: nothing is dropped or mixed, and what is refused changes nothing."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from shared.errors import ModelError
from shared.wire.messages import Erase
from tests.support.builders.switching import SETTINGS, Switching, own_tokens, switching
from workers.request.job import Job
from workers.versions import candidate as module
from workers.versions.candidate import Candidate, open_candidate


async def converse(bench: Switching, session: str, turns: int) -> None:
    """Ask as a gateway does, and as other services do: every other question names no version."""
    for number in range(turns):
        state = bench.registry.state
        named = state.aliases["champion"] if number % 2 else None
        await bench.ask(session, number, revision=named, epoch=state.epoch)


def check(bench: Switching, job: Job) -> None:
    """One whole answer, of one version, whose own tokens it has."""
    assert job.done is not None
    assert (job.done.status, job.done.reason) == ("incomplete", "max_output_tokens")
    assert bench.deltas(job) == {job.revision} == {job.done.revision}
    assert job.sequence.output_ids == own_tokens(job)


async def test_under_load_nothing_is_dropped_or_mixed_and_no_foreign_kv_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Conversations go from version to version and back, with what was kept of them."""
    async with switching(monkeypatch) as bench:
        talks = [asyncio.create_task(converse(bench, f"s{number}", 8)) for number in range(6)]
        for revision in ("v2", "v1", "v3"):
            bench.move(bench.registry.state.aliases["champion"], loading=revision)
            await bench.until(lambda revision=revision: revision in bench.versions.revisions)
            bench.move(revision)
            await bench.until(lambda revision=revision: bench.versions.serving.revision == revision)
            asked = len(bench.jobs)
            await bench.until(lambda asked=asked: len(bench.jobs) > asked + 6 or all(talk.done() for talk in talks))
        await asyncio.gather(*talks)
        for job in bench.jobs:
            check(bench, job)
        assert len(bench.jobs) == 48
        assert {job.revision for job in bench.jobs} == {"v1", "v2", "v3"}
        assert any(job.sequence.prefix.restored for job in bench.jobs), "its own KV is used"
        assert bench.remembered == ["v2", "v1", "v3"]


@pytest.mark.parametrize(("epoch", "by"), [(None, None), (0, None), (1, "v2"), (9, "v2")])
async def test_a_request_gets_the_version_that_it_names_and_no_other(
    monkeypatch: pytest.MonkeyPatch, epoch: int | None, by: str | None
) -> None:
    async with switching(monkeypatch) as bench:
        bench.versions.add(await bench.loader.load_beside(bench._open("v2"), bench.versions.serving))
        bench.versions.epoch = 1
        found = bench.versions.for_request("v2", epoch)
        assert (found and found.revision) == by, "by an older state another version may have been taken off"
        assert bench.versions.for_request("elsewhere", 9) is None
        for revision in (None, "v1"):
            assert bench.versions.for_request(revision, epoch) is bench.versions.serving
        if by is not None:
            assert (await bench.ask("s", 0, revision="v2", epoch=epoch)).revision == by


async def test_a_canary_drops_the_version_that_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with switching(monkeypatch, lane="canary", kept_ms=0.0) as bench:
        bench.move("v1", canary="bad")
        await bench.until(lambda: bench.versions.serving.revision == "bad")
        asked = bench.registry.state.epoch
        bench.move("v1")
        await bench.until(lambda: bench.versions.revisions == ("v1",))
        bench.move("v1", canary="v3")
        assert bench.versions.for_request("bad", asked) is None
        assert bench.versions.for_request("v3", asked + 2) is None, (
            "another version than the next rollout's answers nothing"
        )
        await bench.until(lambda: bench.versions.serving.revision == "v3")


async def test_the_one_before_ends_its_own_then_its_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with switching(monkeypatch, kept_ms=0.0) as bench:
        running = asyncio.create_task(bench.ask("s", 0))
        await bench.until(lambda: bool(bench.jobs) and bool(bench.jobs[0].answer.text))
        before = bench.versions.serving
        closed: list[str] = []
        monkeypatch.setattr(before.model.engine, "close", lambda: closed.append("v1"))  # type: ignore[union-attr]
        bench.move("v2")
        check(bench, await running)
        assert bench.jobs[0].revision == "v1"
        await bench.until(lambda: bool(closed))
        assert bench.versions.revisions == ("v2",)
        shown = REGISTRY.get_sample_value("replyline_worker_versions_loaded", {"revision": "v2"})
        assert (shown, REGISTRY.get_sample_value("replyline_worker_versions_loaded", {"revision": "v1"})) == (1.0, None)


async def test_an_erased_conversation_is_forgotten_by_every_loaded_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async with switching(monkeypatch) as bench:
        for number in range(2):
            await bench.ask("s", number)
        bench.move("v2")
        await bench.until(lambda: bench.versions.serving.revision == "v2")
        await bench.ask("s", 2)
        kept = [served.kv._memory for served in bench.versions if served.kv is not None]
        await bench.until(lambda: all("demo/s" in memory._host._owners for memory in kept))
        bench.worker.erase(Erase(tenant="demo", session_id="s", generation=2**50))
        assert ["demo/s" in memory._host._owners for memory in kept] == [False, False]


def refuses(step: str, monkeypatch: pytest.MonkeyPatch, bench: Switching) -> None:
    match step:
        case "store":
            bench.opened = _raise
        case "memory":
            monkeypatch.setattr(Candidate, "memory_plan", lambda _: _SCARCE)
        case "rehearsal":
            bench.rehearsed = _fails
        case "load":
            bench.switcher.means.load = _raise


class _SCARCE:
    fits = False
    remedy = "lower the slots"

    @staticmethod
    def describe() -> str:
        return "needs 9 of 4 MiB"


def _raise(*_: object) -> Candidate:
    raise ModelError("version v2 is refused, corrupt: model.onnx differs; copy it again")


async def _fails(_: Candidate) -> str:
    return "its rehearsal was ended by SIGKILL"


@pytest.mark.parametrize(
    ("step", "reason"),
    [("store", "corrupt"), ("memory", "9 of 4 MiB; lower"), ("rehearsal", "SIGKILL"), ("load", "corrupt")],
)
async def test_what_is_refused_leaves_the_old_one_serving_and_says_why(
    monkeypatch: pytest.MonkeyPatch, step: str, reason: str
) -> None:
    async with switching(monkeypatch) as bench:
        before = REGISTRY.get_sample_value("replyline_worker_switches_total", {"outcome": step}) or 0.0
        with monkeypatch.context() as faulty:
            refuses(step, faulty, bench)
            bench.move("v2")
            await bench.until(lambda: "v2" in bench.switcher.refused)
            missing = str(bench.switcher.missing())
            assert missing.startswith("version v2 is not loaded, v1 answers: ")
            assert reason in missing
            check(bench, await bench.ask("s", 0))
            assert bench.switcher.refused["v2"].epoch == bench.registry.state.epoch
            bench.move("v2")
            epoch = bench.registry.state.epoch
            await bench.until(lambda: bench.switcher.refused["v2"].epoch == epoch)
        after = REGISTRY.get_sample_value("replyline_worker_switches_total", {"outcome": step})
        assert after == before + 2, "it is tried again after a move, not all the time"
        bench.opened, bench.rehearsed, bench.switcher.means.load = None, None, bench.loader.load_beside
        bench.switcher.hangup.set()
        await bench.until(lambda: bench.versions.serving.revision == "v2")
        assert bench.switcher.missing() is None


async def test_nothing_is_wanted_of_a_version_that_is_taken_back_while_it_is_rehearsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []

    async def hangs(candidate: Candidate) -> str | None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(candidate.revision)
        return None

    async with switching(monkeypatch, rehearsed=hangs) as bench:
        bench.move("v1", loading="v2")
        await bench.until(lambda: bench.switcher._rehearsing)
        bench.move("v1")
        await bench.until(lambda: ended == ["v2"])
        bench.rehearsed = None
        bench.move("v3")
        await bench.until(lambda: bench.versions.serving.revision == "v3")


async def test_a_hangup_has_it_serve_what_stands_at_model_dir_where_no_version_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with switching(monkeypatch) as bench:
        bench.registry.state = bench.registry.moves.pop().state
        bench.switcher.hangup.set()
        await bench.until(lambda: bench.versions.serving.revision == "fake-1")
        check(bench, await bench.ask("s", 0))
        assert bench.remembered == [None]


async def test_an_idle_version_that_nobody_wants_gives_way_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with switching(monkeypatch) as bench:
        bench.move("v2")
        await bench.until(lambda: bench.versions.serving.revision == "v2")
        scarce = lambda _: _SCARCE if len(bench.versions.revisions) > 1 else None  # noqa: E731
        monkeypatch.setattr(Candidate, "memory_plan", scarce)
        bench.move("v3")
        await bench.until(lambda: bench.versions.serving.revision == "v3")
        assert "v1" not in bench.versions.revisions


@pytest.mark.parametrize("knows_memory", [True, False], ids=["a CPU", "a GPU"])
async def test_the_previous_champion_stays_loaded_until_another_version_is_loaded(
    monkeypatch: pytest.MonkeyPatch, knows_memory: bool
) -> None:
    async with switching(monkeypatch, kept_ms=0.0) as bench:
        bench.switcher.knows_memory = knows_memory
        bench.move("v2", previous="v1")
        await bench.until(lambda: bench.versions.serving.revision == "v2")
        bench.move("v2", previous="v1")
        for _ in range(3):
            await bench.switcher._act()
        assert set(bench.versions.revisions) == {"v1", "v2"}
        bench.move("v3", previous="v2")
        await bench.until(lambda: bench.versions.serving.revision == "v3")
        await bench.until(lambda: set(bench.versions.revisions) == {"v2", "v3"})
        bench.move("v2", previous="v3")
        await bench.until(lambda: bench.versions.serving.revision == "v2")
        assert bench.remembered == ["v2", "v3", "v2"]


async def test_the_previous_champion_stays_if_closing_another_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with switching(monkeypatch) as bench:
        for revision, previous in (("v2", "v1"), ("v3", "v2")):
            bench.move(revision, previous=previous)
            await bench.until(lambda revision=revision: bench.versions.serving.revision == revision)
        assert set(bench.versions.revisions) == {"v1", "v2", "v3"}
        scarce = lambda _: _SCARCE if len(bench.versions.revisions) > 2 else None  # noqa: E731
        monkeypatch.setattr(Candidate, "memory_plan", scarce)
        bench.move("v3", loading="v4", previous="v2")
        await bench.until(lambda: "v4" in bench.versions.revisions)
        assert set(bench.versions.revisions) == {"v2", "v3", "v4"}


def test_a_version_that_does_not_fit_is_refused_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch, model_folder: object
) -> None:
    settings = SETTINGS.model_copy(
        update={"worker": SETTINGS.worker.model_copy(update={"engine": "onnx"}), "model": _at(model_folder)}
    )
    found = open_candidate(settings, None, verify=False)
    monkeypatch.setattr(module, "available_memory", lambda: 100 << 20)
    plan = found.memory_plan()
    assert plan is not None
    assert not plan.fits
    assert "of 100 MiB: weights 147" in plan.describe()
    monkeypatch.setattr(module, "available_memory", lambda: None)
    assert found.memory_plan() is None


def _at(folder: object) -> object:
    return SETTINGS.model.model_copy(update={"dir": folder.path})  # type: ignore[attr-defined]
