"""An edge's look at its centre: the FAQ and erasures come, the journal goes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.conversation.erasure_log import Erased, Missed
from shared.faq.entries import PACKAGED_PATH
from shared.faq.in_step import InStep
from shared.settings.edge import EdgeSettings
from shared.versions.faq_bundle import sign_faq
from shared.versions.signature import key_id
from tests.support.fakes.gateways import until
from workers.edge.centre_pages import CentreAway, CentrePages, FaqPage, FaqUnsigned, JournalRefused
from workers.edge.link_time import LinkTime
from workers.edge.sync import FaqFiles, Sync

KEY = Ed25519PrivateKey.generate()
FIRST, SECOND = (sign_faq(PACKAGED_PATH, KEY, version) for version in (1, 2))


@dataclass
class FakeCentre:
    """The centre's pages, and the edge's journal and conversations."""

    page: FaqPage = field(default_factory=lambda: FaqPage(10.0, 0, SECOND.document, SECOND.signature))
    missed: Missed = field(default_factory=lambda: Missed(0))
    fails: Exception | None = None
    refuses: bytes = b""
    entries: list[bytes] = field(default_factory=list)
    known_place: int | None = 0
    got: list[bytes] = field(default_factory=list)
    erased: list[tuple[str, int] | str] = field(default_factory=list)

    async def faq(self, _version: int | None) -> FaqPage:
        if isinstance(self.fails, FaqUnsigned):
            raise self.fails
        return self.page

    async def erasures(self, _after: int | None) -> Missed:
        return self.missed

    async def add(self, entries: bytes) -> None:
        if self.fails is not None and self.refuses in entries:
            raise self.fails
        self.got.append(entries)

    async def place(self) -> int | None:
        return self.known_place

    async def keep_place(self, place: int) -> None:
        self.known_place = place

    async def first(self, *, alone: bool = False) -> tuple[int, bytes]:
        most = 1 if alone else 2
        return len(self.entries[:most]), b",".join(self.entries[:most])

    async def drop(self, num: int) -> None:
        del self.entries[:num]

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
            link=LinkTime(),
            poll_s=1,
            erase=centre.erase,
            forget_all=centre.forget_all,
        )

    return make


async def test_a_look_takes_the_newer_faq_and_says_that_it_is_in_step(made: Made) -> None:
    sync = made(FakeCentre())
    assert sync.away
    await sync.look()
    assert (sync.away, sync.files.version) == (False, 2)
    found = InStep.read(sync.files.faq)
    assert found is not None
    assert found.version == 2


async def test_a_new_faq_says_nothing_of_how_long_the_link_takes(made: Made) -> None:
    """Else the centre would seem too far away to be asked for a while."""
    centre = FakeCentre(page=FaqPage(10.0, 0))
    sync = made(centre)
    await sync.look()
    near_ms = sync.link.left_ms(1_000, 0)
    centre.page = FaqPage(3_000.0, 0, SECOND.document, SECOND.signature)
    await sync.look()
    assert (sync.files.version, sync.link.left_ms(1_000, 0)) == (2, near_ms)


async def test_a_new_faq_comes_over_a_slow_link(made: Made) -> None:
    """It takes longer than the centre may be silent: meanwhile that counts as away."""
    sync = made(FakeCentre())
    sync.poll_s, whole = 0.001, sync.pages.faq

    async def slow(version: int | None) -> FaqPage:
        await asyncio.sleep(20 * sync.poll_s)
        return await whole(version)

    sync.pages.faq = slow  # type: ignore[method-assign]
    running = asyncio.create_task(sync.run())
    await until(lambda: sync.files.version == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_faq_that_is_refused_is_not_in_step_and_the_link_is_there(made: Made) -> None:
    sync = made(FakeCentre(page=FaqPage(10.0, 0, SECOND.document, FIRST.signature)))
    await sync.look()
    assert (sync.away, sync.files.version, InStep.read(sync.files.faq)) == (False, 1, None)


async def test_a_centre_without_a_signed_faq_is_there_and_confirms_nothing(made: Made) -> None:
    sync = made(FakeCentre(fails=FaqUnsigned("changed since it was signed")))
    await sync.look()
    assert (sync.away, InStep.read(sync.files.faq)) == (False, None)


async def test_the_journal_goes_once_and_in_order(made: Made) -> None:
    centre = FakeCentre(entries=[b"1", b"2", b"3"], fails=CentreAway("cut"))
    sync = made(centre)
    with pytest.raises(CentreAway):
        await sync.push()
    assert (len(centre.entries), centre.got) == (3, [])
    centre.fails = None
    await sync.push()
    assert (centre.entries, centre.got) == ([], [b"1,2", b"3"])


async def test_what_the_centre_never_takes_neither_holds_up_nor_takes_away_the_rest(made: Made) -> None:
    centre = FakeCentre(entries=[b"1", b"2", b"3"], fails=JournalRefused("no turn"), refuses=b"2")
    await made(centre).push()
    assert (centre.entries, centre.got) == ([], [b"1", b"3"])


@pytest.mark.parametrize(("status", "error"), [(400, JournalRefused), (413, JournalRefused), (503, CentreAway)])
async def test_what_is_wrong_or_too_large_is_refused_for_good(
    tmp_path: Path, status: int, error: type[Exception]
) -> None:
    """Else one long turn would hold up the journal for ever."""
    token = tmp_path / "token"
    token.write_text("t")
    pages = CentrePages(EdgeSettings.model_construct(centre="ws://centre/ws", token_file=token))
    answer = httpx2.MockTransport(lambda _: httpx2.Response(status))
    pages._http = httpx2.AsyncClient(transport=answer, base_url="http://centre")
    with pytest.raises(error):
        await pages.add(b"[]")
    await pages.close()


async def test_erasures_that_were_missed_are_done_and_a_gap_forgets_all(made: Made) -> None:
    centre = FakeCentre(page=FaqPage(10.0, 7), missed=Missed(7, erased=(Erased("s", 3),)))
    sync = made(centre)
    await sync.look()
    assert (centre.erased, centre.known_place) == ([("s", 3)], 7)
    await sync.look()
    assert centre.erased == [("s", 3)]
    centre.page, centre.missed = FaqPage(10.0, 90), Missed(90, gap=True)
    await sync.look()
    assert (centre.erased[1:], centre.known_place) == (["all"], 90)


async def test_a_gateway_that_has_read_fewer_erasures_than_another_makes_no_edge_forget(made: Made) -> None:
    """Unless it stays so: then the topic was made anew, and nobody can tell what was missed."""
    centre = FakeCentre(page=FaqPage(10.0, 6), missed=Missed(6, gap=True), known_place=7)
    sync = made(centre)
    await sync.look()
    assert (centre.erased, centre.known_place) == ([], 7)
    for _ in range(29):
        await sync.look()
    assert (centre.erased, centre.known_place) == (["all"], 6)
