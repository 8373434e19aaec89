"""Keep an edge in step with its centre: the FAQ (`faq.signed` as it came, `faq.json` as its processes read it) and the
erasures come, the journal goes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.conversation.journal import Journal
from shared.errors import BrokerUnavailable, SettingsError, StoreUnavailable
from shared.faq.in_step import InStep, digest_of
from shared.process.clock import monotonic_s, wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.versions.faq_bundle import Bundle
from workers.edge.centre_pages import CentreAway, CentrePages, FaqPage, FaqUnsigned, JournalRefused
from workers.edge.link_time import LinkTime

SIGNED: Final = "faq.signed"
FAQ: Final = "faq.json"


@dataclass(slots=True)
class FaqFiles:
    """A folder of them. `version` is the one in use, None before the first; `keys` are those that may sign."""

    folder: Path
    keys: dict[str, Ed25519PublicKey]
    version: int | None = None

    @property
    def faq(self) -> Path:
        return self.folder / FAQ

    def open(self) -> None:
        """Use what was kept, where something was. Raises `SettingsError` where no trusted key has signed it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / SIGNED).exists():
            self._use(Bundle.open(self.folder / SIGNED))

    def take(self, document: bytes, signature: bytes) -> None:
        """Use a version from the centre. Raises `SettingsError` for one that is not signed, or older."""
        bundle = Bundle.read(document, signature, "the centre's FAQ")
        if self.version is not None and bundle.version < self.version:
            raise SettingsError(
                f"the centre's FAQ is version {bundle.version}, older than {self.version}, which this edge has: it is "
                "not taken; sign the right one anew: replyline faq sign"
            )
        self._use(bundle)
        bundle.write(self.folder / SIGNED)

    def _use(self, bundle: Bundle) -> None:
        if bundle.signer(self.keys) is None:
            raise SettingsError(
                f"FAQ version {bundle.version} is signed by no trusted key ({', '.join(self.keys)}), and not taken;"
                " put the signer's key into the folder of REPLYLINE_EDGE__TRUSTED_KEYS"
            )
        if not self.faq.exists() or self.faq.read_bytes() != bundle.faq:
            part = self.faq.with_suffix(".part")
            part.write_bytes(bundle.faq)
            part.replace(self.faq)
        self.version = bundle.version

    def confirm(self, unix_ms: float) -> None:
        """Write down that the version in use was the centre's at that moment."""
        assert self.version is not None, "confirmed before the first"
        InStep(self.version, digest_of(self.faq), int(unix_ms)).write(self.faq)


log = get_logger()

_QUIET_POLLS: Final = 3  # after so many without an answer the centre counts as away
_BEHIND_LOOKS: Final = 30  # so long a gateway of the centre may have read fewer erasures than another
_LOOK_S: Final = 60.0  # a look that brings a new FAQ over a slow link takes a while


@dataclass(slots=True, kw_only=True)
class Sync:
    """Owned by the event loop. `erase` erases a conversation of this generation here, `forget_all` those of which it
    cannot be told."""

    pages: CentrePages
    files: FaqFiles
    journal: Journal
    link: LinkTime
    poll_s: float
    erase: Callable[[str, int], Awaitable[None]]
    forget_all: Callable[[], Awaitable[None]]
    back_s: float = field(default=float("-inf"), init=False)
    _centre: Availability = field(default_factory=lambda: Availability("centre"), init=False)
    _heard_s: float = field(default=float("-inf"), init=False)
    _refused: str = field(default="", init=False)
    _behind: int = field(default=0, init=False)
    _pushing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def away(self) -> bool:
        """Return whether the centre is not to be asked now."""
        return self._centre.cause is not None or monotonic_s() - self._heard_s > _QUIET_POLLS * self.poll_s + 1

    async def run(self) -> None:
        """Keep in step until cancelled. A long journal holds up no look."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._look_in_time))
            group.create_task(self._repeat(self._push_if_there))

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except CentreAway as error:
                self.lost(str(error))
            except TimeoutError:
                self.lost("it does not answer in time")
            except (StoreUnavailable, BrokerUnavailable):  # the history and the producer say so
                pass
            await asyncio.sleep(self.poll_s)

    async def _look_in_time(self) -> None:
        async with asyncio.timeout(_LOOK_S):
            await self.look()

    async def _push_if_there(self) -> None:
        if not self.away:
            await self.push()

    def lost(self, cause: str) -> None:
        """Note that the centre does not answer, until it does."""
        self._centre.down(cause, action="this edge answers by itself")

    async def look(self) -> None:
        """Look once. Raises `CentreAway`, `StoreUnavailable`."""
        asked_unix_ms = wire_unix_ms()
        place = None
        try:
            page = await self.pages.faq(self.files.version)
        except FaqUnsigned as error:
            self._refuse(error)
        else:
            if page.document is None:  # else it tells how long a document takes
                self.link.note(page.took_ms)
            metrics.edge_link.set((self.link.round_trip_ms or 0.0) / 1_000)
            await asyncio.to_thread(self._take, page, asked_unix_ms)
            place = page.erasures
        self._heard_s = monotonic_s()
        if self._centre.cause is not None:
            self.back_s = self._heard_s
        self._centre.up()
        if place is not None:
            await self._hear_of_erasures(place)

    def _take(self, page: FaqPage, asked_unix_ms: float) -> None:
        """Take what came, if anything did; then the version in use is the centre's, which is written down. On a
        thread."""
        try:
            if page.document is not None:
                self.files.take(page.document, page.signature)
                log.info("faq_version", version=self.files.version)
            self.files.confirm(asked_unix_ms)
        except (SettingsError, OSError) as error:
            self._refuse(error)
        else:
            self._refused = ""
            metrics.edge_faq_version.set(self.files.version or 0)
            metrics.edge_in_step.set(asked_unix_ms / 1_000)

    def _refuse(self, error: Exception) -> None:
        """Say once why no FAQ is taken."""
        if str(error) != self._refused:
            self._refused = str(error)
            log.warning("faq_refused", cause=self._refused, action="it grows stale, and then the centre is asked")

    async def _hear_of_erasures(self, place: int) -> None:
        after = await self.journal.place()
        if after == place:
            self._behind = 0
            return
        missed = await self.pages.erasures(after)
        self._behind = self._behind + 1 if after is not None and missed.next < after else 0
        if 0 < self._behind < _BEHIND_LOOKS:  # else the topic of erasures was made anew
            return
        if missed.gap:
            log.warning("erasures_missed", action="this edge forgets every conversation; the centre has them")
            await self.forget_all()
        for each in missed.erased:
            await self.erase(each.session_id, each.generation)
        await self.journal.keep_place(missed.next)

    async def push(self) -> None:
        """Tell the centre what the journal has. Of entries that are refused together each is told by itself. Raises
        `CentreAway`, `StoreUnavailable`."""
        alone = False
        async with self._pushing:
            while (found := await self.journal.first(alone=alone))[0]:
                num, entries = found
                try:
                    await self.pages.add(entries)
                except JournalRefused as error:
                    if num > 1:
                        alone = True
                        continue
                    log.warning("journal_refused", cause=str(error))
                await self.journal.drop(num)
                alone = False
