"""Copy data between an edge and its centre. The signed FAQ and the centre's erasures are fetched; the journal (the
edge's answers and erasures that the centre does not have yet) is sent. `faq.signed` is the FAQ as received, `faq.json`
the same entries in the form that the edge's processes read."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.conversation.erasure_log import Missed
from shared.conversation.journal import Journal
from shared.errors import SettingsError, StoreUnavailable
from shared.faq.in_step import InStep, digest_of
from shared.process.clock import monotonic_s, wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.telemetry.logs import get_logger
from shared.versions.faq_bundle import Bundle
from workers.edge.centre_pages import CentreAway, CentrePages, FaqPage, FaqUnsigned, JournalRefused
from workers.edge.link import Asked, Link
from workers.edge.link_time import LinkTime
from workers.edge.uplink import Uplink

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
        """Use what was kept, where something was. Raises `SettingsError` if no trusted key has signed it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / SIGNED).exists():
            bundle = Bundle.open(self.folder / SIGNED)
            self._check_signer(bundle)
            self._use(bundle)

    def take(self, document: bytes, signature: bytes) -> None:
        """Store a version from the centre, then use it: what serves is what a restart opens, also on a full disk.

        Raises:
            SettingsError: it is older, or no trusted key has signed it.
            OSError: it could not be written; the earlier version is used.
        """
        bundle = Bundle.read(document, signature, "the centre's FAQ")
        if self.version is not None and bundle.version < self.version:
            raise SettingsError(
                f"the centre's FAQ is version {bundle.version}, older than {self.version}, which this edge has: it is "
                "not taken; sign the right one anew: replyline faq sign"
            )
        self._check_signer(bundle)
        bundle.write(self.folder / SIGNED)
        self._use(bundle)

    def _check_signer(self, bundle: Bundle) -> None:
        if bundle.signer(self.keys) is None:
            raise SettingsError(
                f"FAQ version {bundle.version} is signed by no trusted key ({', '.join(self.keys)}), and not taken;"
                " put the signer's key into the folder of REPLYLINE_EDGE__TRUSTED_KEYS"
            )

    def _use(self, bundle: Bundle) -> None:
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

_BEHIND_LOOKS: Final = 30  # for this many looks a gateway of the centre may have read fewer erasures than another


@dataclass(slots=True, kw_only=True)
class Sync:
    """Owned by the event loop. `erase` erases a conversation of this generation here, `forget_all` those of which the
    centre cannot say whether they were erased."""

    pages: CentrePages
    files: FaqFiles
    journal: Journal
    time: LinkTime
    poll_s: float
    erase: Callable[[str, int], Awaitable[None]]
    forget_all: Callable[[], Awaitable[None]]
    uplink: Uplink = field(default_factory=Uplink)
    link: Link = field(init=False)
    _refused: str = field(default="", init=False)
    _behind: int = field(default=0, init=False)
    _sending: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.link = Link(
            ask=self._ask,
            receive=self.receive_erasures,
            reconnect=self.pages.reconnect,
            busy_s=lambda: self.uplink.busy_s,
            time=self.time,
            poll_s=self.poll_s,
        )

    @property
    def away(self) -> bool:
        """Return whether the centre is not to be asked now."""
        return not self.link.up.is_set()

    @property
    def back_s(self) -> float:
        """Return since when the centre answers; what was opened before may be dead."""
        return self.link.back_s

    def lost(self, cause: str) -> None:
        """Note that the centre does not answer, until it does."""
        self.link.lost(cause)

    async def run(self) -> None:
        """Keep in step until cancelled. None of the four holds up another."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run())
            group.create_task(self._repeat(self.look))
            group.create_task(self._repeat(self.push))
            group.create_task(self._watch_journal())

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.link.up.wait()
            await step()
            await asyncio.sleep(self.poll_s)

    # --- the FAQ

    async def look(self) -> None:
        """Ask once for the centre's FAQ."""
        asked_unix_ms = wire_unix_ms()
        try:
            page = await self.pages.faq(self.files.version)
        except (FaqUnsigned, CentreAway) as error:
            self._refuse(error)
        else:
            await asyncio.to_thread(self._take, page, asked_unix_ms)

    def _take(self, page: FaqPage, asked_unix_ms: float) -> None:
        """Use a new FAQ, if one came; then the version in use is the centre's, which is written down. On a thread."""
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
        """Log once why no FAQ is used."""
        if str(error) != self._refused:
            self._refused = str(error)
            log.warning("faq_refused", cause=self._refused, action="it grows stale, and then the centre is asked")

    # --- erasures

    async def _ask(self) -> Asked:
        """Ask for the erasures that this edge has not read. Raises `CentreAway`, `StoreUnavailable`."""
        after = await self.journal.place()
        return Asked(after, *await self.pages.erasures(after))

    async def receive_erasures(self, missed: Missed, after: int | None) -> None:
        """Erase here what the centre has erased. Raises `StoreUnavailable`, `BrokerUnavailable`."""
        self._behind = self._behind + 1 if after is not None and missed.next < after else 0
        if missed.next == after or 0 < self._behind < _BEHIND_LOOKS:  # then the topic of erasures was made again
            return
        if missed.gap:
            log.warning("erasures_missed", action="this edge forgets every conversation; the centre has them")
            await self.forget_all()
            await self.journal.drop_turns()
        for each in missed.erased:
            await self.erase(each.session_id, each.generation)
        await self.journal.keep_place(missed.next)

    # --- the journal

    async def push(self) -> None:
        """Send what the journal has; return when all is sent, or the link fails. A caller that waits no longer does not
        stop it."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="send the journal")
        await asyncio.shield(self._sending)

    async def _send_all(self) -> None:
        is_alone = False
        with contained("task"), suppress(StoreUnavailable):
            while not self.away and (entries := await self.journal.first(1 if is_alone else self.uplink.body_bytes)):
                try:
                    await self._send(entries)
                except JournalRefused as error:  # of entries that are refused together each is sent by itself
                    if len(entries) > 1:
                        is_alone = True
                        continue
                    log.warning("journal_refused", cause=str(error))
                except (CentreAway, TimeoutError) as error:
                    self.uplink.failed()
                    log.warning("journal_not_sent", entries=len(entries), cause=str(error) or "not in time")
                    return
                await self.journal.drop(entries)
                is_alone = False

    async def _watch_journal(self) -> None:
        """Show how much waits in the journal, also while the centre is away."""
        while True:
            with suppress(StoreUnavailable):
                num, num_bytes = await self.journal.size()
                metrics.edge_journal.set(num)
                metrics.edge_journal_bytes.set(num_bytes)
            await asyncio.sleep(self.poll_s)

    async def _send(self, entries: list[bytes]) -> None:
        body, began_s = b"[" + b",".join(entries) + b"]", monotonic_s()
        limit_s = self.uplink.limit_s(len(body))
        with self.uplink.sending(len(body)):
            async with asyncio.timeout(limit_s):
                await self.pages.add(body, limit_s)
        self.uplink.sent(len(body), monotonic_s() - began_s)
