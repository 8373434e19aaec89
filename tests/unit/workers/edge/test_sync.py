"""An edge synchronises with its centre: FAQ and erasures are fetched, the journal is sent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.conversation.erasure_log import Erased, Missed
from shared.faq.entries import PACKAGED_PATH
from shared.faq.in_step import InStep
from shared.process.clock import CLOCKS
from shared.settings.edge import EdgeSettings
from shared.versions.faq_bundle import sign_faq
from shared.versions.signature import key_id
from tests.support.fakes.gateways import until
from tests.support.fakes.instant_loop import at_once
from workers.edge.centre_pages import CentreAway, CentrePages, FaqPage, FaqUnsigned, JournalRefused
from workers.edge.link import Asked
from workers.edge.link_time import LinkTime
from workers.edge.sync import FaqFiles, Sync

KEY = Ed25519PrivateKey.generate()
FIRST, SECOND = (sign_faq(PACKAGED_PATH, KEY, version) for version in (1, 2))


@dataclass
class FakeCentre:
    """The centre's pages, and the edge's journal and conversations. `fails` is what a body that has `refuses` gets,
    `unsigned` what the FAQ's page gets."""

    page: FaqPage = field(default_factory=lambda: FaqPage(SECOND.document, SECOND.signature))
    missed: Missed = field(default_factory=lambda: Missed(0))
    fails: Exception | None = None
    unsigned: Exception | None = None
    refuses: bytes = b""
    entries: list[bytes] = field(default_factory=list)
    known_place: int | None = 0
    got: list[bytes] = field(default_factory=list)
    erased: list[tuple[str, int] | str] = field(default_factory=list)
    is_cut: bool = False
    asked: int = 0
    reconnects: int = 0
    sends: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.sends.set()

    async def faq(self, _version: int | None) -> FaqPage:
        if self.unsigned is not None:
            raise self.unsigned
        return self.page

    async def erasures(self, _after: int | None) -> tuple[Missed, float]:
        self.asked += 1
        if self.is_cut:
            await asyncio.Event().wait()
        return self.missed, 10.0

    async def add(self, entries: bytes, _limit_s: float) -> None:
        await self.sends.wait()
        if self.fails is not None and self.refuses in entries:
            raise self.fails
        self.got.append(entries)

    async def reconnect(self) -> None:
        self.reconnects += 1

    async def place(self) -> int | None:
        return self.known_place

    async def keep_place(self, place: int) -> None:
        self.known_place = place

    async def size(self) -> tuple[int, int]:
        return len(self.entries), sum(map(len, self.entries))

    async def first(self, max_bytes: int) -> list[bytes]:
        return self.entries[: 1 if max_bytes == 1 else 2]

    async def drop(self, entries: list[bytes]) -> None:
        assert self.entries[: len(entries)] == entries
        del self.entries[: len(entries)]

    async def drop_turns(self) -> None:
        self.entries.clear()

    async def erase(self, session_id: str, generation: int) -> None:
        self.erased.append((session_id, generation))

    async def forget_all(self) -> None:
        self.erased.append("all")


Made = Callable[[FakeCentre], Sync]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(centre: FakeCentre) -> Sync:
        files = FaqFiles(tmp_path, {key_id(KEY.public_key()): KEY.public_key()})
        files.open()
        files.take(FIRST.document, FIRST.signature)
        return Sync(
            pages=centre,  # type: ignore[arg-type]
            files=files,
            journal=centre,  # type: ignore[arg-type]
            time=LinkTime(),
            poll_s=0.01,
            erase=centre.erase,
            forget_all=centre.forget_all,
        )

    return make


@asynccontextmanager
async def running(sync: Sync) -> AsyncIterator[None]:
    task = asyncio.create_task(sync.run())
    try:
        await until(lambda: not sync.away)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_look_takes_the_newer_faq_and_says_that_it_is_in_step(made: Made) -> None:
    sync = made(FakeCentre())
    await sync.look()
    assert sync.files.version == 2
    found = InStep.read(sync.files.faq)
    assert found is not None
    assert found.version == 2


@pytest.mark.parametrize(
    "centre",
    [
        {"page": FaqPage(SECOND.document, FIRST.signature)},
        {"unsigned": FaqUnsigned("changed since it was signed")},
        {"unsigned": CentreAway("503", answered=True)},
    ],
    ids=["wrong signature", "not signed", "no FAQ"],
)
async def test_erasures_and_the_journal_do_not_wait_for_the_faq(made: Made, centre: dict[str, Any]) -> None:
    at_centre = FakeCentre(**centre, missed=Missed(7, erased=(Erased("s", 3),)), entries=[b"1"])
    sync = made(at_centre)
    async with running(sync):
        await until(lambda: at_centre.got == [b"[1]"] and at_centre.known_place == 7)
    assert at_centre.erased == [("s", 3)]
    assert (sync.files.version, InStep.read(sync.files.faq)) == (1, None)


async def test_a_slow_faq_download_blocks_nothing(made: Made) -> None:
    centre, comes = FakeCentre(entries=[b"1"]), asyncio.Event()
    sync = made(centre)
    whole = sync.pages.faq

    async def slow(version: int | None) -> FaqPage:
        await comes.wait()
        return await whole(version)

    sync.pages.faq = slow  # type: ignore[method-assign]
    async with running(sync):
        asked = centre.asked
        await until(lambda: centre.asked > asked + 3 and centre.got == [b"[1]"])
        comes.set()
        await until(lambda: sync.files.version == 2)


async def test_a_cut_is_noticed_and_its_end_too(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts from the time of the cut never end; later ones do."""
    monkeypatch.setattr("workers.edge.link_time._LEAST_WAIT_MS", 10.0)
    monkeypatch.setattr("workers.edge.link._ATTEMPT_INTERVAL_S", 0.001)
    centre = FakeCentre()
    sync = made(centre)
    async with running(sync):
        await until(lambda: sync.time.round_trip_ms is not None)
        before_s, sync.time.deviation_ms, centre.is_cut = sync.back_s, 0.0, True
        await until(lambda: sync.away)
        assert centre.reconnects == 1
        asked = centre.asked
        await until(lambda: centre.asked > asked + 5)
        centre.is_cut = False
        await until(lambda: not sync.away)
        assert sync.back_s > before_s


@pytest.mark.parametrize("cut_s", [0.7, 3.0, 11.0, 60.0])
@at_once
async def test_within_a_second_of_a_cuts_end_the_centre_has_what_the_edge_answered(
    made: Made, monkeypatch: pytest.MonkeyPatch, cut_s: float
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", loop.time)
    centre = FakeCentre()
    sync = made(centre)
    sync.poll_s = sync.link.poll_s = EdgeSettings().poll_s
    async with running(sync):
        await asyncio.sleep(1.5)  # two looks
        centre.is_cut = True
        centre.sends.clear()
        await asyncio.sleep(cut_s / 2)
        centre.entries = [b"1", b"2", b"3"]
        await asyncio.sleep(cut_s / 2)
        centre.is_cut = False
        centre.sends.set()
        back_s = loop.time()
        while centre.entries or sync.away:  # noqa: ASYNC110 - the time is the loop's
            await asyncio.sleep(0.01)
        assert loop.time() - back_s <= 1.0
    assert centre.got == [b"[1,2]", b"[3]"]


async def test_a_link_that_has_become_slower_is_used_after_a_few_tries(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.edge.link_time._LEAST_WAIT_MS", 5.0)
    monkeypatch.setattr("workers.edge.link._ATTEMPT_INTERVAL_S", 0.001)
    centre = FakeCentre()
    sync = made(centre)
    quick = sync.link.ask

    async def slow() -> Asked:
        found = await quick()
        await asyncio.sleep(0.03)
        return Asked(found.after, found.missed, 30.0)

    async with running(sync):
        await until(lambda: sync.time.round_trip_ms is not None)
        sync.time.round_trip_ms, sync.time.deviation_ms, sync.link.ask = 0.1, 0.0, slow
        await until(lambda: sync.time.round_trip_ms == 30.0)
        assert not sync.away


async def test_a_question_that_waits_no_longer_does_not_stop_the_journal(made: Made) -> None:
    centre = FakeCentre(entries=[b"1", b"2", b"3"])
    sync = made(centre)
    sync.link.up.set()
    centre.sends.clear()
    waiting = [asyncio.create_task(sync.push()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    centre.sends.set()
    await waiting[1]
    assert (centre.entries, centre.got) == ([], [b"[1,2]", b"[3]"])


async def test_the_journal_goes_once_and_in_order(made: Made) -> None:
    centre = FakeCentre(entries=[b"1", b"2", b"3"], fails=CentreAway("cut"))
    sync = made(centre)
    sync.link.up.set()
    body_bytes = sync.uplink.body_bytes
    await sync.push()
    assert (len(centre.entries), centre.got, sync.uplink.body_bytes) == (3, [], body_bytes // 2)
    centre.fails = None
    await sync.push()
    assert (centre.entries, centre.got) == ([], [b"[1,2]", b"[3]"])


async def test_nothing_is_sent_while_the_centre_is_away(made: Made) -> None:
    centre = FakeCentre(entries=[b"1"])
    await made(centre).push()
    assert (centre.entries, centre.got) == ([b"1"], [])


async def test_entries_that_the_centre_never_accepts_neither_block_nor_remove_others(made: Made) -> None:
    centre = FakeCentre(entries=[b"1", b"2", b"3"], fails=JournalRefused("no turn"), refuses=b"2")
    sync = made(centre)
    sync.link.up.set()
    await sync.push()
    assert (centre.entries, centre.got) == ([], [b"[1]", b"[3]"])


@pytest.mark.parametrize(("status", "error"), [(400, JournalRefused), (413, JournalRefused), (503, CentreAway)])
async def test_an_invalid_or_oversized_entry_is_refused_permanently(
    tmp_path: Path, status: int, error: type[Exception]
) -> None:
    """Otherwise one long turn would block the journal for ever."""
    token = tmp_path / "token"
    token.write_text("t")
    pages = CentrePages(EdgeSettings.model_construct(centre="ws://centre/ws", token_file=token))
    answer = httpx2.MockTransport(lambda _: httpx2.Response(status))
    pages._http = httpx2.AsyncClient(transport=answer, base_url="http://centre")
    with pytest.raises(error):
        await pages.add(b"[]", 5.0)
    await pages.close()


async def test_erasures_that_were_missed_are_done_and_a_gap_forgets_all(made: Made) -> None:
    """What waits in the journal may have been erased, too."""
    centre = FakeCentre(entries=[b"1"])
    sync = made(centre)
    await sync.receive_erasures(Missed(7, erased=(Erased("s", 3),)), 0)
    assert (centre.erased, centre.known_place) == ([("s", 3)], 7)
    await sync.receive_erasures(Missed(7), 7)
    assert (centre.erased, centre.entries) == ([("s", 3)], [b"1"])
    await sync.receive_erasures(Missed(90, gap=True), 7)
    assert (centre.erased[1:], centre.known_place, centre.entries) == (["all"], 90, [])


async def test_a_gateway_that_has_read_fewer_erasures_than_another_makes_no_edge_forget(made: Made) -> None:
    """If the difference lasts, the topic was recreated, and the missed erasures are unknown."""
    centre = FakeCentre(known_place=7)
    sync = made(centre)
    for at in range(30):
        assert (centre.erased, centre.known_place) == ([], 7), at
        await sync.receive_erasures(Missed(6, gap=True), 7)
    assert (centre.erased, centre.known_place) == (["all"], 6)
